// The matmul of CUDA's kernel table: cuBLASLt for the product, and a choice for each part of the
// epilogue.
//
//   bias, dgelu   by cuBLASLt while the product is still in registers, if `pick_library_epilogue`
//                 below and cuBLASLt itself allow it; else by a kernel of our own (epilogue.cu),
//                 which reads the product in fp32. Its kernels with a dgelu may be much slower than
//                 plain ones: with --autotune a plain product, stored in 16 bits, is timed, too,
//                 with a pass of gelu.cu that multiplies by the derivative
//   gelu          by gelu.cu, on the stored C: a forward pass that is recomputed in the backward
//                 pass reads the same stored C, and must get the same bits
//   dbias         by cuBLASLt while it reads A anyway, if it may be asked for that; else by
//                 epilogue.cu, as in bf16 on 9.0 (is_bgradb_a_pass). cuBLASLt cannot add to an old
//                 gradient: then its sums go to scratch, and a kernel of our own adds them
//
// The request to cuBLASLt depends on formats, sizes and alignment. Whether it accepts also depends
// on the installed library: our own kernels do what it refuses, around a product that asks less of
// it (blas_choose.c has the chain). That is decided once for each product, reported to the user
// (device_describe_choices, and at the end of a run), and saved in checkpoints, so that a resumed
// run has the same bits even if a newer library offers more. In a GPT every size is a multiple of
// 8, so each product of a 16-bit run may be one launch; gelu adds one, and dbias up to two.
//
// The cost of dbias: our own sums of rows read all output gradients once more, (3 + 1 + 4 + 1) C
// values a token in a block of GPT-2: 1.9 of the 57.8 ms of a step of GPT-2 124M, measured on an
// H200 (docs/gpu.md). On 9.0 in bf16 cuBLASLt makes such a pass, too. With --autotune both are
// always timed.
//
// A second pair of operands (k2) is a product of its own, which C holds before the first pair's
// adds to it.
//
// If C is 16-bit and our own kernels finish it, the product goes to scratch in fp32, a slice of
// rows at a time, so that C is rounded once. An fp32 C is finished in place.
//
// Called through the kernel table. Read next: blas_open.c, epilogue.cu.
#include "kernels/cuda/blas.h"
#include "kernels/cuda/spans.h"

#include <stdio.h>

enum { ACCESS_BYTES = 16 };

// True if rows begin at multiples of 16 bytes.
static bool has_aligned_rows(const struct Mat *x) {
    return is_aligned(x->data, ACCESS_BYTES) && x->ld * dtype_size(x->dtype) % ACCESS_BYTES == 0;
}

// Returns the epilogue to ask cuBLASLt for, by what its documentation promises: a bias has C's
// format; the GELU's input has C's format and rows that are a multiple of 8 apart. It promises to
// accept operands that are not aligned to 16 bytes only for A, B and C, and does not say with which
// epilogue: so all must be aligned here, and n, for dbias also m, a multiple of 8. dgelu is for the
// one form of a backward pass, in which neither operand is transposed, and without accumulate, as
// the old C would be multiplied too; dbias, in C's format, with that of a weight gradient.
static enum Epilogue pick_library_epilogue(const struct Matmul *a) {
    bool aligned = has_aligned_rows(&a->a) && has_aligned_rows(&a->b) && has_aligned_rows(&a->c) &&
                   a->n % 8 == 0;
    bool dx_form = !a->a.transposed && !a->b.transposed;
    if (a->bias && !a->dgelu && a->c.dtype == a->b.dtype && aligned &&
        is_aligned(a->bias, ACCESS_BYTES))
        return EPILOGUE_BIAS;
    if (a->dgelu && !a->bias && a->c.dtype == a->b.dtype && a->c.dtype != F32 && aligned &&
        is_aligned(a->dgelu, ACCESS_BYTES) && !a->accumulate && dx_form)
        return EPILOGUE_DGELU;
    // The library's sums have C's format: added to a 16-bit gradient they would be rounded twice.
    bool dw_form = a->a.transposed && !a->b.transposed;
    if (a->dbias && !a->bias && !a->dgelu && aligned && is_aligned(a->dbias, ACCESS_BYTES) &&
        a->m % 8 == 0 && dw_form && (!a->accumulate || a->c.dtype == F32))
        return EPILOGUE_DBIAS;
    return EPILOGUE_NONE;
}

static struct MatmulBuffers divide_scratch(const struct Matmul *a) {
    struct MatmulScratch bytes = cuda_matmul_scratch(a);
    char *workspace = (char *)round_up((uintptr_t)a->work.mem, MATMUL_BOUNDARY);
    char *own = workspace + bytes.workspace, *dbias = own + bytes.own;
    char *rest = dbias + bytes.dbias, *end = (char *)a->work.mem + a->work.bytes;
    return (struct MatmulBuffers){workspace, (float *)own, dbias, rest, (size_t)(end - rest)};
}

// ---- for traces: a matmul in parts, each begun here ----

// A part of the product, with its whole epilogue except GELU.
static void trace_product(struct Stream *s, const struct Matmul *a, bool dbias) {
    if (!span_is_on(s))
        return;
    struct Matmul product = *a;
    product.gelu = NULL;
    product.dbias = dbias ? a->dbias : NULL;
    span_part(s, "matmul", cost_matmul(&product));
}

static void trace_gelu(struct Stream *s, const struct Matmul *a) {
    struct GeluForward all = {.n = a->m * a->n, .dtype = a->c.dtype};
    if (span_is_on(s))
        span_part(s, "gelu_forward", cost_gelu_forward(&all));
}

// A part that sums A's rows; or, if `added`, adds the sums that cuBLASLt has made to old ones.
static void trace_dbias(struct Stream *s, const struct Matmul *a, bool added) {
    size_t old = a->accumulate ? 2 : 1, size = dtype_size(a->c.dtype);
    struct Cost cost = {.bytes = (double)(old * a->m * size)};
    cost.bytes += added ? (double)(a->m * size) : (double)(a->m * a->k * dtype_size(a->a.dtype));
    snprintf(cost.shape, sizeof cost.shape, "%zu x %zu", added ? 1 : a->k, a->m);
    if (span_is_on(s))
        span_part(s, "matmul dbias", cost);
}

// A part that multiplies the stored product by GELU's derivative.
static void trace_gelu_slope(struct Stream *s, const struct Matmul *a) {
    struct Cost cost = {.bytes = 3.0 * (double)(a->m * a->n * dtype_size(a->c.dtype))};
    snprintf(cost.shape, sizeof cost.shape, "%zu x %zu", a->m, a->n);
    if (span_is_on(s))
        span_part(s, "matmul dgelu", cost);
}

// ---- products ----

// A product in fp32, which only cuBLASLt can do.
static void multiply_plainly(struct Stream *s, const struct Matmul *a,
                             const struct MatmulBuffers *space) {
    bool done = blas_matmul(s, a, EPILOGUE_NONE, space);
    CHECK(done, "a product in fp32 of m %zu, n %zu, k %zu has no way left", a->m, a->n, a->k);
}

// A product with our own epilogue, in place.
static void multiply_then_finish(struct Stream *s, const struct Matmul *a,
                                 const struct MatmulBuffers *space) {
    multiply_plainly(s, a, space);
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
static void multiply_by_slices(struct Stream *s, const struct Matmul *a,
                               const struct MatmulBuffers *space) {
    size_t step = cuda_slice_rows(a), row_step = a->a.transposed ? 1 : a->a.ld;
    for (size_t i = 0; i < a->m; i += step) {
        struct Matmul part = *a;
        part.m = size_min(step, a->m - i);
        part.a.data = dtype_at(a->a.data, a->a.dtype, i * row_step);
        part.c = (struct Mat){space->own_scratch, F32, a->n, false, NULL};
        part.accumulate = false;
        struct MatmulBuffers own = {.workspace = space->workspace};
        multiply_plainly(s, &part, &own);
        struct Finish f = {.rows = part.m,
                           .n = a->n,
                           .ld_sum = a->n,
                           .ldc = a->c.ld,
                           .sum = space->own_scratch,
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

// A stored 16-bit product, then GELU's derivative; false: cuBLASLt refuses the product.
static bool multiply_then_slope(struct Stream *s, const struct Matmul *a,
                                const struct MatmulBuffers *space) {
    struct Matmul plain = *a;
    plain.dgelu = NULL;
    trace_product(s, &plain, false);
    if (!blas_matmul(s, &plain, EPILOGUE_NONE, space))
        return false;
    trace_gelu_slope(s, a);
    cuda_gelu_slope(s, a);
    return true;
}

// Does everything except gelu and dbias.
static void multiply(struct Stream *s, const struct Matmul *a, enum Epilogue epilogue,
                     const struct MatmulBuffers *space) {
    bool own = epilogue == EPILOGUE_NONE && (a->bias || a->dgelu);
    trace_product(s, a, false);
    if (!own && blas_matmul(s, a, epilogue, space))
        return;
    if (epilogue == EPILOGUE_DGELU && blas_is_own_quicker(s, a, epilogue, space) &&
        multiply_then_slope(s, a, space))
        return;
    if (a->c.dtype == F32)
        multiply_then_finish(s, a, space);
    else
        multiply_by_slices(s, a, space);
}

// Does everything except gelu; false: cuBLASLt does not do both in one, and nothing was queued.
static bool multiply_with_dbias(struct Stream *s, const struct Matmul *a,
                                const struct MatmulBuffers *space) {
    struct Matmul fresh = *a;
    if (a->accumulate)
        fresh.dbias = space->dbias;
    trace_product(s, a, true);
    if (!blas_matmul(s, &fresh, EPILOGUE_DBIAS, space))
        return false;
    if (!a->accumulate)
        return true;
    trace_dbias(s, a, true);
    cuda_add_row_sums(s, a, space->dbias);
    return true;
}

// Rows with gaps between them, which only tests have, are processed one by one.
static void apply_gelu(struct Stream *s, const struct Matmul *a) {
    bool dense = a->c.ld == a->n;
    trace_gelu(s, a);
    for (size_t i = 0; i < (dense ? 1 : a->m); i++) {
        struct GeluForward g = {.n = dense ? a->m * a->n : a->n,
                                .dtype = a->c.dtype,
                                .x = dtype_at(a->c.data, a->c.dtype, i * a->c.ld),
                                .y = dtype_at(a->gelu, a->c.dtype, i * a->c.ld)};
        variants_launch(s, CUDA_OP_gelu_forward, &g);
    }
}

// Stores the product of the second pair. Returns what is left to do: the first pair's, added to it.
static struct Matmul multiply_second(struct Stream *s, const struct Matmul *a,
                                     const struct MatmulBuffers *space) {
    struct Matmul second = {.m = a->m, .n = a->n, .k = a->k2, .a = a->a2, .b = a->b2, .c = a->c};
    struct Matmul rest = *a;
    multiply(s, &second, EPILOGUE_NONE, space);
    rest.k2 = 0;
    rest.accumulate = true;
    return rest;
}

void cuda_matmul(struct Stream *s, const struct Matmul *a) {
    matmul_check(a);
    CHECK(a->c.dtype == F32 || a->c.dtype == a->a.dtype, "C is %s, A is %s", dtype_name(a->c.dtype),
          dtype_name(a->a.dtype));
    CHECK(a->work.bytes >= cuda_matmul_work(NULL, a), "%zu bytes of scratch", a->work.bytes);
    struct MatmulBuffers space = divide_scratch(a);
    struct Matmul rest;
    if (a->k2) {
        rest = multiply_second(s, a, &space);
        a = &rest;
    }
    enum Epilogue epilogue = pick_library_epilogue(a);
    bool summed = epilogue == EPILOGUE_DBIAS && multiply_with_dbias(s, a, &space);
    if (!summed)
        multiply(s, a, epilogue == EPILOGUE_DBIAS ? EPILOGUE_NONE : epilogue, &space);
    if (a->gelu)
        apply_gelu(s, a);
    if (!a->dbias || summed)
        return;
    trace_dbias(s, a, false);
    cuda_row_sums(s, a, space.own_scratch);
}
