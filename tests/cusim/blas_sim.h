// What a test may ask of the simulated cuBLASLt.
#ifndef TESTS_CUSIM_BLAS_SIM_H
#define TESTS_CUSIM_BLAS_SIM_H
#ifdef __cplusplus
extern "C" {
#endif

// The algorithms that its heuristic proposes for every product, in this order. The first two may
// not be taken: one splits k, one asks for more workspace than it was told that there is.
enum { BLAS_SPLITS, BLAS_GREEDY, BLAS_PLAIN, BLAS_QUICK, NBLAS };

// Products that an algorithm has computed since the program began.
unsigned long sim_blas_count(int algorithm);
// Products since then that were made together with their bias, or with GELU's slope.
enum { BLAS_BIAS, BLAS_DGELU, NBLAS_FUSED };
unsigned long sim_blas_fused(int epilogue);
// What one product takes with it, besides its computation.
void sim_blas_delay(int algorithm, unsigned delay_us);

#ifdef __cplusplus
}
#endif
#endif
