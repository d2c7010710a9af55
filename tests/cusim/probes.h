// Small kernels that try the simulator itself (probes.cu): right ones, and one for each fault that
// it must find.
#ifndef TESTS_CUSIM_PROBES_H
#define TESTS_CUSIM_PROBES_H
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

// y[i] = x[i] + add, by blocks of 32 threads.
void probe_add(cudaStream_t s, float *y, const float *x, float add, int n);
// *sum = the sum of x, by one block through shared memory.
void probe_sum(cudaStream_t s, float *sum, const float *x, int n);

#ifdef __cplusplus
}
#endif
#endif
