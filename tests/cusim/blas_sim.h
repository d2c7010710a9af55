// What a test may ask of the simulated cuBLASLt.
#ifndef TESTS_CUSIM_BLAS_SIM_H
#define TESTS_CUSIM_BLAS_SIM_H
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// The algorithms that its heuristic proposes for every product, in this order. The first three may
// not be taken: one splits k and adds in place, in another order each time; one rounds the partial
// sums of its split; one asks for more workspace than it was told that there is. The fourth, for
// long k alone, splits k, keeps partial sums in fp32 and adds them in order.
enum { BLAS_INPLACE, BLAS_ROUNDS, BLAS_GREEDY, BLAS_SPLIT, BLAS_PLAIN, BLAS_QUICK, NBLAS };
enum { BLAS_SPLIT_K = 128 }; // the least k of the fourth

// What its heuristic refuses from now on; all zeros: nothing. form: an epilogue ("bias", "dgelu",
// "bgradb"), or a product without one whose C has the operands' format, by whether A and B are
// transposed (N, T) and that format ("NT bf16"); NULL: none.
struct BlasRefusal {
    const char *form;
    bool fp32;      // the form's C is in fp32 instead
    bool workspace; // every algorithm that wants workspace
    bool splits;    // to be asked for algorithms that split k
    bool everything;
    int launch; // this algorithm is proposed, and cublasLtMatmul does not launch it; 0: none
    bool empty; // says so by no proposals, instead of CUBLAS_STATUS_NOT_SUPPORTED
};
void sim_blas_refuse(struct BlasRefusal refusal);

// Products that an algorithm has computed since the program began.
unsigned long sim_blas_count(int algorithm);
// Products since then that were made together with their bias, or with GELU's slope.
enum { BLAS_BIAS, BLAS_DGELU, NBLAS_FUSED };
unsigned long sim_blas_fused(int epilogue);
// What one product takes with it, besides its computation.
void sim_blas_delay(int algorithm, unsigned delay_us);
// And what a bias gradient or GELU's slope takes besides.
void sim_blas_delay_backward(unsigned delay_us);

#ifdef __cplusplus
}
#endif
#endif
