// The matmul of CUDA's kernel table: cuBLASLt for the product, and who does which part of the
// epilogue.
//
//   bias, dgelu   by cuBLASLt while the product is still in registers, where `fuses` below allows
//                 it; else by a kernel of our own (epilogue.cu), which reads the product in fp32
//   gelu          by gelu.cu, on the stored C: a forward pass that is made again in the backward
//                 pass reads the same stored C, and must get the same bits
//   dbias         by epilogue.cu. cuBLASLt can sum A's rows too, but cannot add to an old gradient
//
// Which way is taken depends on formats, sizes and alignment alone, never on what a library happens
// to offer on some machine. In a GPT every size is a multiple of 8, so each product of a 16-bit run
// is one launch; gelu adds one, dbias two.
//
// Where C is 16-bit and the epilogue is our own, the product goes to scratch in fp32, a slice of
// rows at a time, so that C is rounded once. A C in fp32 is finished in place.
//
// Called through the kernel table. Read next: blas.c, epilogue.cu.
#include "kernels/cuda/blas.h"
#include "kernels/cuda/cuda.h"

enum { BOUNDARY = 256, ACCESS_BYTES = 16, SLICE_BYTES = 4 << 20 };

// Rows begin at multiples of 16 bytes.
static bool has_aligned_rows(const struct Mat *x) {
    return is_aligned(x->data, ACCESS_BYTES) && x->ld * dtype_size(x->dtype) % ACCESS_BYTES == 0;
}

// Whether cuBLASLt does bias and dgelu, by what its documentation promises: a bias has C's format;
// the GELU's input has C's format and rows that are a multiple of 8 apart. That it takes operands
// that are not aligned to 16 bytes is promised for A, B and C, and not for the others. A dgelu goes
// with the one form that a backward pass has, in which neither operand is transposed.
static bool fuses(const struct Matmul *a) {
    if (!a->bias && !a->dgelu)
        return true;
    if ((a->bias && a->dgelu) || a->c.dtype != a->b.dtype)
        return false;
    bool backward = !a->a.transposed && !a->b.transposed;
    if (a->dgelu && (a->accumulate || a->c.dtype == F32 || !backward))
        return false;
    return has_aligned_rows(&a->a) && has_aligned_rows(&a->b) && has_aligned_rows(&a->c) &&
           is_aligned(a->bias, ACCESS_BYTES) && is_aligned(a->dgelu, ACCESS_BYTES) && a->n % 8 == 0;
}

// Rows of a slice whose product in fp32 fits into SLICE_BYTES; at least one.
static size_t slice_rows(const struct Matmul *a) {
    return size_min(a->m, size_max(SLICE_BYTES / (a->n * sizeof(float)), 1));
}

// For our own epilogue or for dbias, one after the other. Addresses are not known yet, so this
// counts with the worst.
static size_t scratch_bytes(const struct Matmul *a) {
    size_t bytes = a->dbias ? cuda_row_sums_bytes(a) : 0;
    if (a->c.dtype != F32 && (a->bias || a->dgelu))
        bytes = size_max(bytes, slice_rows(a) * a->n * sizeof(float));
    return round_up(bytes, BOUNDARY);
}

size_t cuda_matmul_work(struct Device *d, const struct Matmul *a) {
    (void)d;
    return blas_workspace_bytes(a->m, a->n) + scratch_bytes(a) + BOUNDARY;
}

// A product with our own epilogue, in place.
static void multiply_then_finish(struct Stream *s, const struct Matmul *a, void *workspace) {
    struct Matmul plain = *a;
    plain.bias = plain.dgelu = NULL;
    blas_matmul(s->cuda->blas, s->stream, &plain, workspace);
    struct Finish f = {.rows = a->m,
                       .n = a->n,
                       .ld_sum = a->c.ld,
                       .ldc = a->c.ld,
                       .sum = a->c.data,
                       .c = a->c.data,
                       .dtype = F32,
                       .bias_dtype = a->b.dtype,
                       .bias = a->bias,
                       .dgelu = a->dgelu};
    cuda_finish(s, &f);
}

// A product with our own epilogue and a 16-bit C.
static void multiply_by_slices(struct Stream *s, const struct Matmul *a, void *workspace,
                               float *scratch) {
    size_t step = slice_rows(a), row_step = a->a.transposed ? 1 : a->a.ld;
    for (size_t i = 0; i < a->m; i += step) {
        struct Matmul part = *a;
        part.m = size_min(step, a->m - i);
        part.a.data = dtype_at(a->a.data, a->a.dtype, i * row_step);
        part.c = (struct Mat){scratch, F32, a->n, false, NULL};
        part.accumulate = false;
        part.bias = part.dgelu = NULL;
        blas_matmul(s->cuda->blas, s->stream, &part, workspace);
        struct Finish f = {.rows = part.m,
                           .n = a->n,
                           .ld_sum = a->n,
                           .ldc = a->c.ld,
                           .sum = scratch,
                           .c = dtype_at(a->c.data, a->c.dtype, i * a->c.ld),
                           .dtype = a->c.dtype,
                           .bias_dtype = a->b.dtype,
                           .accumulate = a->accumulate,
                           .bias = a->bias};
        if (a->dgelu)
            f.dgelu = dtype_at(a->dgelu, a->c.dtype, i * a->c.ld);
        cuda_finish(s, &f);
    }
}

// Rows with gaps between them, which only tests have, are taken one by one.
static void apply_gelu(struct Stream *s, const struct Matmul *a) {
    bool dense = a->c.ld == a->n;
    for (size_t i = 0; i < (dense ? 1 : a->m); i++) {
        struct GeluForward g = {.n = dense ? a->m * a->n : a->n,
                                .dtype = a->c.dtype,
                                .x = dtype_at(a->c.data, a->c.dtype, i * a->c.ld),
                                .y = dtype_at(a->gelu, a->c.dtype, i * a->c.ld)};
        variants_launch(s, CUDA_OP_gelu_forward, &g);
    }
}

void cuda_matmul(struct Stream *s, const struct Matmul *a) {
    CHECK(!a->c.transposed, "C of a matmul cannot be transposed");
    CHECK(!a->a.scale && !a->b.scale && !a->c.scale, "scales are for 8-bit formats");
    CHECK(a->a.dtype == a->b.dtype, "A is %s, B is %s", dtype_name(a->a.dtype),
          dtype_name(a->b.dtype));
    CHECK(a->c.dtype == F32 || a->c.dtype == a->a.dtype, "C is %s, A is %s", dtype_name(a->c.dtype),
          dtype_name(a->a.dtype));
    CHECK(a->work.bytes >= cuda_matmul_work(NULL, a), "%zu bytes of scratch", a->work.bytes);
    char *workspace = (char *)round_up((uintptr_t)a->work.mem, BOUNDARY);
    float *scratch = (float *)(workspace + blas_workspace_bytes(a->m, a->n));
    if (fuses(a))
        blas_matmul(s->cuda->blas, s->stream, a, workspace);
    else if (a->c.dtype == F32)
        multiply_then_finish(s, a, workspace);
    else
        multiply_by_slices(s, a, workspace, scratch);
    if (a->gelu)
        apply_gelu(s, a);
    if (a->dbias)
        cuda_row_sums(s, a, scratch);
}
