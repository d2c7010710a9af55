// cuBLASLt as matmul.c uses it: opened once per device.
#ifndef KERNELS_CUDA_BLAS_H
#define KERNELS_CUDA_BLAS_H
#include "kernels/base.h"

struct Blas;

// Errors: -ENOTSUP where the library cannot be opened; the line names it and the package.
int blas_open(struct Blas **out, struct Error *e);
void blas_close(struct Blas *b); // NULL: nothing

#endif
