// Matrix products: the interface between blas_open.c (cuBLASLt), epilogue.cu (our own kernels
// around it) and matmul.c (which uses both).
//
// cuBLASLt is NVIDIA's library for matrix products whose algorithm the caller chooses. It is opened
// once per device. A choice is made once per shape, and kept: see blas_open.c.
#ifndef KERNELS_CUDA_BLAS_H
#define KERNELS_CUDA_BLAS_H
#include "kernels/cuda/work.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct Blas;

// Errors: -ENOTSUP if the library cannot be opened; the line names it and the package.
int blas_open(struct Blas **out, struct Error *e);
void blas_close(struct Blas *b); // NULL: does nothing

// The parts of a product's scratch, each aligned to 256.
struct MatmulBuffers {
    void *workspace;    // blas_workspace_bytes, for cuBLASLt
    float *own_scratch; // for our own epilogue, then for our own sums of rows
    void *dbias;        // space for one dbias
    void *timing_c;     // the rest: a C for timed runs, if it is large enough
    size_t timing_c_bytes;
};

// Epilogues that cuBLASLt can be asked for; written to checkpoints.
enum Epilogue { EPILOGUE_NONE, EPILOGUE_BIAS, EPILOGUE_DGELU, EPILOGUE_DBIAS, NEPILOGUE };

// Queues C = A · B, with the old C if a->accumulate, and with `epilogue`. Ignores the rest of a's
// epilogue. false: cuBLASLt does not do it, and nothing was queued; then our own kernels must,
// around a product in fp32 or without an epilogue, which it is asked for separately. Fatal if no
// such way is left.
bool blas_matmul(struct Stream *s, const struct Matmul *a, enum Epilogue epilogue,
                 const struct MatmulBuffers *space);

// True if our own kernels do the product with that epilogue for their speed, not because cuBLASLt
// refused it.
bool blas_is_own_quicker(struct Stream *s, const struct Matmul *a, enum Epilogue epilogue,
                         const struct MatmulBuffers *space);

// C *= GELU'(dgelu), for a stored product whose rows are multiples of 16 bytes (gelu.cu).
void cuda_gelu_slope(struct Stream *s, const struct Matmul *a);

// dbias of a Matmul, alone. `partial`: scratch of cuda_row_sums_bytes(a), aligned to 16.
void cuda_row_sums(struct Stream *s, const struct Matmul *a, float *partial);

// dbias += sums, m values of c's format each, in fp32.
void cuda_add_row_sums(struct Stream *s, const struct Matmul *a, const void *sums);

// c = (sum + old c + bias) * GELU'(dgelu), for `rows` rows of n columns, rounded once. sum may be c
// itself, when dtype is F32. bias (n) is in bias_dtype; NULL: none. dgelu: dtype and ldc; NULL:
// none.
struct Finish {
    size_t rows, n, ld_sum, ldc;
    const float *sum;
    void *c;
    enum Dtype dtype, bias_dtype;
    bool accumulate;
    const void *bias, *dgelu;
};
void cuda_finish(struct Stream *s, const struct Finish *f);

#ifdef __cplusplus
}
#endif
#endif
