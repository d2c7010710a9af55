// The plain attention over a cache of keys and values: the new rows' keys and values are stored,
// and each query looks at the positions that it sees, one after the other, in fp64.
//
// Called through the kernel table. attention_cached.c is the fast version.
#include "kernels/cpu/cpu.h"

#include <math.h>

// Returns the index in the cache of a position's key (which: 0) or value (1).
static size_t cache_index(const struct AttentionCached *a, size_t which, size_t b, size_t key_head,
                          size_t position) {
    return (((b * 2 + which) * a->nkv + key_head) * a->capacity + position % a->capacity) * a->hs;
}

static size_t qkv_at(const struct AttentionCached *a, size_t row, size_t head) {
    return (row * (a->nh + 2 * a->nkv) + head) * a->hs;
}

static void store_row(const struct AttentionCached *a, size_t row) {
    size_t b = row / a->t, position = row_position(a->starts, row, a->t);
    for (size_t head = 0; head < 2 * a->nkv; head++)
        for (size_t i = 0; i < a->hs; i++)
            dtype_store(a->cache, a->cache_dtype,
                        cache_index(a, head / a->nkv, b, head % a->nkv, position) + i,
                        dtype_load(a->qkv, a->dtype, qkv_at(a, row, a->nh + head) + i));
}

static double score(const struct AttentionCached *a, size_t row, size_t head, size_t position) {
    size_t key = cache_index(a, 0, row / a->t, head / (a->nh / a->nkv), position);
    double sum = 0;
    for (size_t i = 0; i < a->hs; i++)
        sum += (double)dtype_load(a->qkv, a->dtype, qkv_at(a, row, head) + i) *
               dtype_load(a->cache, a->cache_dtype, key + i);
    return sum / sqrt((double)a->hs);
}

static void run_query(const struct AttentionCached *a, size_t row, size_t head) {
    size_t last = row_position(a->starts, row, a->t);
    size_t first = a->window && last >= a->window ? last + 1 - a->window : 0;
    double most = -INFINITY, sum = 0, out[a->hs];
    for (size_t p = first; p <= last; p++)
        most = fmax(most, score(a, row, head, p));
    for (size_t i = 0; i < a->hs; i++)
        out[i] = 0;
    for (size_t p = first; p <= last; p++) {
        double e = exp(score(a, row, head, p) - most);
        size_t value = cache_index(a, 1, row / a->t, head / (a->nh / a->nkv), p);
        sum += e;
        for (size_t i = 0; i < a->hs; i++)
            out[i] += e * dtype_load(a->cache, a->cache_dtype, value + i);
    }
    for (size_t i = 0; i < a->hs; i++)
        dtype_store(a->out, a->dtype, (row * a->nh + head) * a->hs + i, (float)(out[i] / sum));
}

void oracle_attention_cached(struct Cpu *cpu, const struct AttentionCached *a) {
    (void)cpu;
    attention_cached_check(a);
    for (size_t row = 0; row < a->b * a->t; row++)
        store_row(a, row);
    for (size_t row = 0; row < a->b * a->t; row++)
        for (size_t head = 0; head < a->nh; head++)
            run_query(a, row, head);
}
