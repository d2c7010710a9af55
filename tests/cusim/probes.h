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

enum ProbeAccess {
    ACCESS_PAIR,   // load of a __nv_bfloat162
    ACCESS_LONG,   // store of 8 bytes
    ACCESS_FLOAT2, // store of one
    ACCESS_PACK,   // load of 16 bytes as kernels/cuda/gpu.cuh has them
    ACCESS_STRUCT, // store of 32 bytes of alignas(16)
    ACCESS_CLEAR,  // the same, of zeros
    ACCESS_FETCH,  // the same, a load
    ACCESS_ADD,    // y += 1 on a float
    ACCESS_ATOMIC, // on 4 bytes
    ACCESS_COPY,   // cp.async of 16 bytes from global memory
    ACCESS_STAGE,  // cp.async to shared memory
    ACCESS_SHARED, // load of a uint4 from shared memory
    ACCESS_MATRIX, // row of ldmatrix, in shared memory
    NPROBEACCESS
};
// Does it by a warp at x or, in shared memory, at multiples of 16; both `offset` bytes further.
void probe_access(cudaStream_t s, enum ProbeAccess access, void *x, int offset);

// y[0] = 3 by a block of so many threads, which may be 64 by its launch bounds.
void probe_bounds(cudaStream_t s, float *y, int threads);
// The same without bounds, through the last of so many bytes of dynamic shared memory. limit: that
// cudaFuncSetAttribute is told first; 0: it is not called.
void probe_shared(cudaStream_t s, float *y, int threads, int bytes, int limit);
// Launches probe_product's kernel, of 1024 bytes of static shared memory, with dynamic ones.
void probe_both_shared(cudaStream_t s, int bytes);

// How 64 threads, in two warps, read x; each writes 4 bytes of y, or as many as it has read.
enum ProbeMove {
    MOVE_PACKS,   // 16 bytes each, side by side
    MOVE_HALVES,  // the same, as the compiler moves a struct: twice 8 bytes
    MOVE_SECOND,  // every second float
    MOVE_SECTORS, // a float of each 32 bytes
    MOVE_SHIFTED, // side by side, from the second float on
    MOVE_ONE,     // all the same
    MOVE_RANDOM,  // of 512 floats those that probe_random says
    MOVE_LOOP,    // side by side, three rows one after the other
    MOVE_UNEQUAL, // the same, where odd lanes leave out the second row
    MOVE_MET,     // the same, where the warp meets after each row
    MOVE_AGAIN,   // the same row three times
    NPROBEMOVE
};
static inline unsigned probe_random(unsigned thread) {
    return (thread * 2654435761u >> 7) % 512;
}
void probe_move(cudaStream_t s, enum ProbeMove move, float *y, const float *x);

// Each of `blocks` threads, one a block, copies the first float.
void probe_first(cudaStream_t s, float *y, const float *x, int blocks);

// How 32 lanes write to shared memory and read what they have written.
enum ProbeBank {
    BANK_ROW,      // floats side by side
    BANK_COLUMN,   // of a matrix of 32 columns
    BANK_PADDED,   // of one of 33
    BANK_ONE,      // all read the first
    BANK_PAIRS,    // 8 bytes each, side by side
    BANK_PACKS,    // 16 bytes each, side by side
    BANK_PACKROWS, // 16 bytes each, 128 bytes apart
    NPROBEBANK
};
void probe_bank(cudaStream_t s, enum ProbeBank bank, void *y);
// ldmatrix of rows that lie `stride` bytes apart, in memory that cp.async has filled from x.
void probe_matrix(cudaStream_t s, unsigned *y, const void *x, int stride);
// 32 lanes add to one word of shared memory; one reads it.
void probe_count_shared(cudaStream_t s, unsigned *y);

#ifdef __cplusplus
}
#endif
#endif
