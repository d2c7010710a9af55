// The kernel `matmul`: selects the way of a product, and completes what oneDNN leaves out.
//
// Our loops do everything themselves. oneDNN adds the bias and the old C on its own, in fp32 and
// before it rounds, so most products go to C directly. GELU then follows as a pass over C. GELU's
// derivative must be applied before C is rounded: such a product is made in fp32 in scratch, some
// rows at a time, and finished from there. So is a sum of two products: the second pair's first.
// The sums of A's rows (the bias gradient) are a pass over A.
//
// Called through the kernel table (table.c). Read next: matmul_loops.c.
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/matmul_loops.h"
#include "kernels/cpu/vec_math.h"

enum {
    SCRATCH_FLOATS = 1 << 20, // of a product that is finished from scratch
    ROWS_LEAST = 64,          // rows at a time, at least
    SUM_COLS = 8 * VEC_LANES, // columns summed together
    ALIGN_BYTES = 64,
};

// Vectors use the loops: oneDNN 3.7 assumes that the elements of a single row of a transposed
// matrix are adjacent, whatever their stride is.
static bool takes_dnnl(const struct Cpu *cpu, const struct Matmul *m) {
    bool matrices = m->m > 1 && m->n > 1 && m->k > 1 && m->k2 != 1;
    return matrices && matmul_cache_path(cpu->matmuls, m->a.dtype) == MATMUL_DNNL;
}

// Products that AMX's loops do not handle use those of the AVX512_BF16 table (table.c).
static void run_loops(const struct Matmul *m, int threads) {
    if (VEC_TILES && m->a.dtype != BF16)
        avx512bf16_matmul_loops(m, threads);
    else
        CPU_NAME(matmul_loops)(m, threads);
}
static size_t loops_work(const struct Matmul *m, int threads) {
    return VEC_TILES && m->a.dtype != BF16 ? avx512bf16_matmul_loops_work(m, threads)
                                           : CPU_NAME(matmul_loops_work)(m, threads);
}

static bool needs_scratch(const struct Matmul *m) {
    return m->dgelu || m->k2;
}

static size_t rows_at_once(const struct Matmul *m) {
    if (!needs_scratch(m))
        return m->m;
    return size_min(m->m, size_max(ROWS_LEAST, SCRATCH_FLOATS / m->n));
}

// Describes `rows` rows of the product for oneDNN; second: of the second pair.
static struct ProductKey product_key(const struct Matmul *m, size_t rows, bool second) {
    const struct Mat *a = second ? &m->a2 : &m->a, *b = second ? &m->b2 : &m->b;
    struct ProductKey key;
    memset(&key, 0, sizeof key); // padding too
    key.m = rows, key.n = m->n, key.k = second ? m->k2 : m->k;
    key.lda = a->ld, key.ldb = b->ld;
    key.a_transposed = a->transposed, key.b_transposed = b->transposed;
    key.operands = m->a.dtype;
    bool direct = !needs_scratch(m);
    key.ldc = direct ? m->c.ld : m->n;
    key.result = direct ? m->c.dtype : F32;
    key.accumulate = direct ? m->accumulate : m->k2 && !second;
    key.bias = direct && m->bias;
    return key;
}

static size_t scratch_bytes(const struct Matmul *m) {
    if (!needs_scratch(m))
        return 0;
    return round_up(rows_at_once(m) * m->n * sizeof(float), ALIGN_BYTES);
}

// Prepares oneDNN's products of `rows` rows. Returns the scratch bytes that the larger needs.
static size_t prepare_products(struct Cpu *cpu, const struct Matmul *m, size_t rows) {
    size_t bytes = 0;
    for (int second = 0; second < (m->k2 ? 2 : 1); second++) {
        struct ProductKey key = product_key(m, rows, second);
        bytes = size_max(bytes, matmul_cache_prepare(cpu->matmuls, &key));
    }
    return bytes;
}

static size_t dnnl_work_bytes(struct Cpu *cpu, const struct Matmul *m) {
    size_t rows = rows_at_once(m), bytes = prepare_products(cpu, m, rows);
    if (m->m % rows) // the last rows are another product
        bytes = size_max(bytes, prepare_products(cpu, m, m->m % rows));
    return bytes + scratch_bytes(m);
}

static void gelu_row(const struct Matmul *m, size_t i) {
    for (size_t j = 0; j < m->n; j += VEC_LANES) {
        size_t n = size_min(VEC_LANES, m->n - j), at = i * m->c.ld + j;
        Vec x = vec_load_part(m->c.data, m->c.dtype, at, n);
        vec_store_part((void *)m->gelu, m->c.dtype, at, n, vec_gelu(x, m->c.dtype));
    }
}

// Computes dbias for columns first .. first + n (n <= SUM_COLS) of the stored A, whose rows are k.
static void sum_columns(const struct Matmul *m, size_t first, size_t n) {
    float sum[SUM_COLS] = {0};
    for (size_t l = 0; l < m->k; l++) {
        for (size_t i = 0; i < n; i += VEC_LANES) {
            size_t some = size_min(VEC_LANES, n - i);
            Vec x = vec_load_part(m->a.data, m->a.dtype, l * m->a.ld + first + i, some);
            vec_store_f32(sum + i, vec_load_f32(sum + i) + x);
        }
    }
    for (size_t i = 0; i < n; i++) {
        float old = m->accumulate ? dtype_load(m->dbias, m->c.dtype, first + i) : 0.0f;
        dtype_store(m->dbias, m->c.dtype, first + i, old + sum[i]);
    }
}

static void sum_row(const struct Matmul *m, size_t i) {
    Vec sum = vec_set(0.0f);
    for (size_t l = 0; l < m->k; l += VEC_LANES) {
        size_t n = size_min(VEC_LANES, m->k - l);
        sum += vec_load_part(m->a.data, m->a.dtype, i * m->a.ld + l, n);
    }
    float old = m->accumulate ? dtype_load(m->dbias, m->c.dtype, i) : 0.0f;
    dtype_store(m->dbias, m->c.dtype, i, old + vec_sum(sum));
}

static void sum_rows_of_a(const struct Matmul *m, int threads) {
    size_t step = m->a.transposed ? SUM_COLS : 1;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < m->m; i += step) {
        if (m->a.transposed)
            sum_columns(m, i, size_min(SUM_COLS, m->m - i));
        else
            sum_row(m, i);
    }
}

// Runs the product of one pair, for `rows` rows from `row` on.
static void run_pair(struct Cpu *cpu, const struct Matmul *m, size_t row, size_t rows, bool second,
                     struct ProductData data) {
    const struct Mat *a = second ? &m->a2 : &m->a;
    struct ProductKey key = product_key(m, rows, second);
    data.a = dtype_at(a->data, a->dtype, row * (a->transposed ? 1 : a->ld));
    data.b = second ? m->b2.data : m->b.data;
    matmul_cache_run(cpu->matmuls, &key, &data);
}

static void run_dnnl(struct Cpu *cpu, const struct Matmul *m) {
    size_t most = rows_at_once(m);
    float *scratch = needs_scratch(m) ? m->work.mem : NULL;
    int threads = cpu->device.threads;
    struct ProductData data = {.bias = m->bias};
    data.work = (char *)m->work.mem + scratch_bytes(m);
    for (size_t row = 0; row < m->m; row += most) {
        size_t rows = size_min(most, m->m - row);
        data.c = scratch ? scratch : m->c.data;
        if (m->k2)
            run_pair(cpu, m, row, rows, true, data);
        run_pair(cpu, m, row, rows, false, data);
        if (!scratch && !m->gelu)
            continue;
#pragma omp parallel for num_threads(threads) schedule(static)
        for (size_t i = 0; i < rows; i++) {
            if (scratch)
                CPU_NAME(matmul_finish_row)(m, scratch + i * m->n, row + i, 0, m->n);
            else
                gelu_row(m, i); // without scratch all rows are done at once: row is 0
        }
    }
    if (m->dbias)
        sum_rows_of_a(m, threads);
}

static void check_args(const struct Matmul *m) {
    matmul_check(m);
    CHECK(!m->few_rows ||
              (m->m <= MATMUL_FEW_ROWS && !m->a.transposed && m->b.transposed && !m->dgelu &&
               !m->dbias && (!m->k2 || (!m->a2.transposed && m->b2.transposed))),
          "a product of %zu rows is no forward product of few", m->m);
}

void CPU_NAME(matmul)(struct Cpu *cpu, const struct Matmul *m) {
    check_args(m);
    size_t need = CPU_NAME(matmul_work)(cpu, m);
    CHECK(m->work.bytes >= need, "a matmul of %zu x %zu x %zu needs %zu bytes of scratch, has %zu",
          m->m, m->n, m->k, need, m->work.bytes);
    if (m->few_rows)
        CPU_NAME(matmul_few)(m, cpu->device.threads);
    else if (takes_dnnl(cpu, m))
        run_dnnl(cpu, m);
    else
        run_loops(m, cpu->device.threads);
}

size_t CPU_NAME(matmul_work)(struct Cpu *cpu, const struct Matmul *m) {
    if (m->few_rows)
        return CPU_NAME(matmul_few_work)(m);
    if (takes_dnnl(cpu, m))
        return dnnl_work_bytes(cpu, m);
    return loops_work(m, cpu->device.threads);
}
