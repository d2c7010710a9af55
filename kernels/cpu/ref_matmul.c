// The plain matmul: C = A · B + A2 · B2, one sum per element, and the epilogues that a GPU would
// fuse into it.
//
// A linear layer uses it three times, with W (N, K) and X (rows, K):
//   forward    Y (rows, N)  = X · W^T + bias           b transposed
//   backward   dX (rows, K) = dY · W
//   backward   dW (N, K)    = dY^T · X                 a transposed; dbias = the row sums of dY^T
// With an adapter, forward and dX have a second pair: Y = X · W^T + U · B^T, and
// dX = dY · W + dU · A.
// Called through the kernel table. The fast version is matmul_run.c; read ref_gelu.c next.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ref.h"

static double mat_load(const struct Mat *m, size_t i, size_t j) {
    return dtype_load(m->data, m->dtype, m->transposed ? j * m->ld + i : i * m->ld + j);
}

// Returns element (i, j) of A · B + A2 · B2 with all of the epilogue before the store.
static double element(const struct Matmul *a, size_t i, size_t j) {
    double sum = 0;
    for (size_t l = 0; l < a->k; l++)
        sum += mat_load(&a->a, i, l) * mat_load(&a->b, l, j);
    for (size_t l = 0; l < a->k2; l++)
        sum += mat_load(&a->a2, i, l) * mat_load(&a->b2, l, j);
    if (a->accumulate)
        sum += mat_load(&a->c, i, j);
    if (a->bias)
        sum += dtype_load(a->bias, a->b.dtype, j);
    if (a->dgelu)
        sum *= oracle_gelu_slope(dtype_load(a->dgelu, a->c.dtype, i * a->c.ld + j));
    return sum;
}

static void store_row_sums(const struct Matmul *a) {
    for (size_t i = 0; i < a->m; i++) {
        double sum = a->accumulate ? dtype_load(a->dbias, a->c.dtype, i) : 0;
        for (size_t l = 0; l < a->k; l++)
            sum += mat_load(&a->a, i, l);
        dtype_store(a->dbias, a->c.dtype, i, (float)sum);
    }
}

void oracle_matmul(struct Cpu *cpu, const struct Matmul *a) {
    (void)cpu;
    matmul_check(a);
    for (size_t i = 0; i < a->m; i++) {
        for (size_t j = 0; j < a->n; j++) {
            size_t at = i * a->c.ld + j;
            dtype_store(a->c.data, a->c.dtype, at, (float)element(a, i, j));
            if (a->gelu) { // of the rounded value, which a recomputation will read
                float stored = dtype_load(a->c.data, a->c.dtype, at);
                dtype_store(a->gelu, a->c.dtype, at, (float)oracle_gelu(stored));
            }
        }
    }
    if (a->dbias)
        store_row_sums(a);
}
