// Internals of the CUDA backend: the state of a device, and how its kernels are launched.
//
// A CUDA kernel is in a .cu file together with its launcher, a host function with the signature of
// the kernel table: `void cuda_<op>(struct Stream *, const struct <Args> *)`. It checks its
// arguments, picks the template for the format and the sizes, and launches on the stream.
// kernels/cuda/table.c puts all launchers into one struct Kernels; kernels for some GPUs only come
// from variants.h. This header is for C and CUDA C; code shared by kernels is in gpu.cuh.
#ifndef KERNELS_CUDA_CUDA_H
#define KERNELS_CUDA_CUDA_H
#include "kernels/cuda/variants.h"
#include "kernels/cuda/work.h"
#include "kernels/kernels.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct Blas;
struct Spans;

struct Cuda {
    struct Device device;           // first: a struct Device * of this backend is a struct Cuda *
    int index;                      // of the GPU
    struct Stream *streams[NQUEUE]; // device.queue may be one of them four times
    struct Blas *blas;              // cuBLASLt and the algorithms chosen so far (blas_choose.c)
    struct Variants variants;       // of its kernels
    cudaStream_t clock;             // only for timing events (spans.c); NULL: not needed
    cudaEvent_t now;
};

enum { STREAM_SUMS = 512 };

// A queue of this backend. (kernels/cpu/queue.c has a struct of the same name for its own.)
struct Stream {
    struct Cuda *cuda;
    enum Queue number;
    cudaStream_t stream;
    const char *op;       // operation of the kernel table that is launching kernels; NULL: none
    uint64_t launches;    // kernels, products, copies and memsets queued so far,
    uint64_t op_launches; // and before that operation
    struct Spans *spans;  // of a trace; NULL: nothing was traced yet
    double *sums; // STREAM_SUMS of them on the device: scratch of the kernel that runs (sum.cu)
};

// The signatures of all launchers; those of the work queries are in work.h.
#define X(op, Args) void cuda_##op(struct Stream *s, const struct Args *a);
KERNEL_LIST(X)
#undef X

extern const struct Kernels cuda_kernels;

// Returns cudaSuccess if this build has code for the current GPU, or CUDA's error (cast.cu).
cudaError_t cuda_find_code(void);

// Enclose an operation of the kernel table, and follow each of its kernels: launch.c.
void launch_begin(struct Stream *s, const char *op);
void launch_done(struct Stream *s, cudaError_t status, dim3 grid, dim3 block);
void launch_end(struct Stream *s);

// Checks a call to CUDA's runtime. A failure is final: the context may be lost. It may come from an
// earlier kernel (launch.c). Failures of the machine end the process by base_give_up, a mistake of
// ours by a failed CHECK: fail.c.
#define CUDA_CHECK(call) CUDA_CHECK_STATUS(call, #call)
#define CUDA_CHECK_STATUS(status, call)                                                            \
    do {                                                                                           \
        cudaError_t status_ = (status);                                                            \
        if (status_ != cudaSuccess)                                                                \
            cuda_fail(__FILE__, __LINE__, status_, call);                                          \
    } while (0)

// `call` as written in the source.
void cuda_fail(const char *file, int line, cudaError_t status, const char *call)
    __attribute__((noreturn));
// For a kernel that is known to have failed, with its description.
void kernel_fail(const char *kernel, cudaError_t status) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif
#endif
