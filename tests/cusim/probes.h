// Small kernels that try the simulator itself (probes.cu): right ones, and one for each fault that
// it must find in a kernel. See tests/cusim/test_cusim.c.
#ifndef TESTS_CUSIM_PROBES_H
#define TESTS_CUSIM_PROBES_H
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

// y[i] = x[i] + add, by blocks of 32 threads; y may be x.
void probe_add(cudaStream_t s, float *y, const float *x, float add, int n);
// y[i] += x[i]
void probe_accumulate(cudaStream_t s, float *y, const float *x, int n);
// *sum = the sum of x, by one block of 128 threads through shared memory.
void probe_sum(cudaStream_t s, float *sum, const float *x, int n);
// y (128) = x (128) in reverse, through shared memory filled by cp.async.
void probe_reverse(cudaStream_t s, float *y, const float *x);
// d (16 x 8, fp32) = a (16 x 16, bf16) b (16 x 8, bf16), all row-major, by ldmatrix and mma.
void probe_product(cudaStream_t s, float *d, const void *a, const void *b);
// count[0] += 1 for each of n threads, in blocks of 64.
void probe_count(cudaStream_t s, unsigned *count, int n);

enum ProbeFault {
    FAULT_NO_BARRIER,      // another warp's value is read from shared memory at once
    FAULT_OVERWRITTEN,     // another warp's value is overwritten while it is read
    FAULT_NO_WARP_BARRIER, // a neighbour's value in the same warp is read at once
    FAULT_BARRIER_BRANCH,  // half of the block waits at another barrier
    FAULT_BARRIER_HALF,    // half of a warp waits for the other, which waits at a barrier
    FAULT_MASK,            // a lane shuffles with a mask that it is not in
    FAULT_ABSENT_LANE,     // a shuffle reads a lane that takes no part
    FAULT_SHARED_UNWRITTEN,
    FAULT_SHARED_BOUNDS,
    FAULT_COPY_NOT_WAITED, // cp.async's destination is read before the wait
    NPROBEFAULT
};
// Does it on 64 threads; y: (64).
void probe_fault(cudaStream_t s, enum ProbeFault fault, float *y);
// Launches with more dynamic shared memory than the default limit.
void probe_large_shared(cudaStream_t s, float *y, int raise_limit);

#ifdef __cplusplus
}
#endif
#endif
