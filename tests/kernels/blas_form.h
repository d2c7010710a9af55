// A form of matrix product with the epilogues of struct Matmul, for test_blas_forms.c and
// test_blas.c.
#ifndef TESTS_KERNELS_BLAS_FORM_H
#define TESTS_KERNELS_BLAS_FORM_H
#include "tests/cusim/sim.h"
#include "tests/lib/rig.h"

#include <math.h>

enum {
    ACCUMULATE = 1,
    BIAS = 2,
    DGELU = 4,
    GELU = 8,
    DBIAS = 16,
    FORMS = 32, // of the bits above
    ROOM = 32
};

struct Form {
    size_t m, n, k, gap;
    bool a_transposed, b_transposed, c_fp32;
    int epilogue;
    size_t shift; // elements by which bias and dgelu alone are out of alignment
    size_t spare; // bytes of scratch beyond those that are asked for
};

static inline struct Mat operand(struct Run *r, enum Dtype d, size_t rows, size_t cols,
                                 bool transposed, size_t gap) {
    size_t ld = (transposed ? rows : cols) + gap, lines = transposed ? cols : rows;
    return (struct Mat){input_random(r, d, lines * ld, 0, 1), d, ld, transposed, NULL};
}

// A RigBody.
static inline void queue_form(struct Run *r, enum Dtype d, const void *form) {
    const struct Form *f = form;
    enum Dtype cd = f->c_fp32 ? F32 : d;
    size_t ld = f->n + f->gap, size = f->m * ld;
    double slack = 4 * sqrt((double)f->k) + 8;
    // How exact the slope of cuBLASLt's GELU is, is not documented: a GPU's tanh has 11 bits.
    if (f->epilogue & DGELU && d != F32 && sim_is_real())
        slack += 0x1p-10 / 0x1p-24;
    // cuBLASLt on a GPU rounds a product before it adds it to a 16-bit C (seen on an H200).
    if (f->epilogue & ACCUMULATE && cd != F32 && sim_is_real())
        slack += dtype_unit(cd) / 0x1p-24;
    struct Matmul a = {.m = f->m, .n = f->n, .k = f->k, .accumulate = f->epilogue & ACCUMULATE};
    a.a = operand(r, d, f->m, f->k, f->a_transposed, f->gap);
    a.b = operand(r, d, f->k, f->n, f->b_transposed, f->gap);
    a.c = (struct Mat){output_random(r, "c", cd, size, slack), cd, ld, false, NULL};
    if (f->epilogue & BIAS)
        a.bias = dtype_at(input_random(r, d, f->n + f->shift, 0, 1), d, f->shift);
    if (f->epilogue & DGELU)
        a.dgelu = dtype_at(input_random(r, cd, size + f->shift, 0, 2), cd, f->shift);
    // A rounded pre-activation one step aside moves its GELU by as much.
    double gelu_slack = slack + (cd == F32 ? 0 : 2 * dtype_unit(cd) / 0x1p-24);
    a.gelu = f->epilogue & GELU ? output_random(r, "gelu", cd, size, gelu_slack) : NULL;
    a.dbias = f->epilogue & DBIAS ? output_random(r, "dbias", cd, f->m, slack) : NULL;
    a.work = scratch(r, r->device->kernels->matmul_work(r->device, &a) + f->spare);
    r->device->kernels->matmul(r->device->queue[QUEUE_COMPUTE], &a);
}

#endif
