// Attention of new tokens over a cache of keys and values: generation's kernel.
//
// Each new row's key and value are stored first; then a query at position p sees positions up to
// its own, or the last `window` of them. All query heads that read one key head go together, up to
// TILE rows at a time, so that for one new token a tile of keys is read once for the group. The
// cache holds rows as they are, whatever the instruction set: a tile is packed into cache memory
// where it is used, as attention.c packs the keys of a whole sequence.
//
// The sums are those of attention.c: tiles of TILE positions from the first that is seen, the same
// products (attention_tile.h), the same running softmax. What a row does not see adds exact zeros.
// So the result has the bits of attention over the whole text, where the cache has the tensors'
// dtype.
//
// One token reads the cache at the memory's rate: of a tile of 64 keys of 64 fp32 channels, 32 KiB
// from memory, packing and products take some 1,500 cycles, less than the 3,000 that one core waits
// for as much.
//
// Source: Dao, "FlashAttention-2", 2023, algorithm 1. Called through the kernel table;
// ref_attention_cached.c says the same without tiles.
#include "kernels/cpu/attention_tile.h"

#include <float.h>
#include <sched.h>
#include <stdatomic.h>

// One thread's buffers: a tile of keys transposed (width, TILE), of values, of queries and of two
// outputs, (TILE, width); and space to pack in. out[1] is for an item that is left to the next
// thread, which goes on adding to it there.
//
// The work memory is CACHED_TILES tiles for each thread, and behind them a CachedHandOver for each.
struct CachedScratch {
    float *kt, *v, *q, *out[2], *pack;
};
enum { CACHED_TILES = 6, SPINS = 1000 };

// Some rows of queries of one key head, and how far their softmax is. Row r is a query at position
// pos[r], which sees the keys from first[r] on.
struct CachedRows {
    size_t b, key_head, row, rows; // rows row .. row + rows - 1 of the tokens' query heads
    size_t pos[TILE], first[TILE];
    float max[TILE], shrink[TILE], sum[TILE * VEC_LANES];
    float *out;
};

// What a thread leaves to the next one: an item whose first tiles it has done.
struct CachedHandOver {
    struct CachedRows rows;
    _Atomic uint32_t done;
} __attribute__((aligned(64)));

static size_t group_of(const struct AttentionCached *a) {
    return a->nh / a->nkv;
}

// Returns the first position that a query at position `pos` sees.
static size_t cached_first(const struct AttentionCached *a, size_t pos) {
    return a->window && pos >= a->window ? pos + 1 - a->window : 0;
}

// Return for row r, counted from the first of `rows`, which of its sequence's new tokens it has, 0
// to t - 1, and which query head. Rows are token after token, each with all query heads of the key
// head.
static size_t token_of_row(const struct AttentionCached *a, const struct CachedRows *rows,
                           size_t r) {
    return (rows->row + r) / group_of(a);
}
static size_t query_head_of_row(const struct AttentionCached *a, const struct CachedRows *rows,
                                size_t r) {
    return rows->key_head * group_of(a) + (rows->row + r) % group_of(a);
}

// ---- the cache ----

// Returns the index in the cache of a position's key (which: 0) or value (1).
static size_t cache_index(const struct AttentionCached *a, size_t which, size_t b, size_t key_head,
                          size_t position) {
    return (((b * 2 + which) * a->nkv + key_head) * a->capacity + position % a->capacity) * a->hs;
}

// Stores the key and value of token `row`, counted over all sequences, of one key head.
VEC_INLINE void cached_store(const struct AttentionCached *a, enum Dtype d, size_t row,
                             size_t key_head) {
    size_t b = row / a->t, position = row_position(a->starts, row, a->t);
    for (size_t which = 0; which < 2; which++) {
        size_t head = a->nh + which * a->nkv + key_head;
        size_t from = (row * (a->nh + 2 * a->nkv) + head) * a->hs, end = from + a->hs;
        size_t to = cache_index(a, which, b, key_head, position);
        for (size_t i = 0; i < a->hs; i += VEC_LANES)
            vec_write(a->cache, a->cache_dtype, to + i, to + a->hs,
                      vec_read(a->qkv, d, from + i, end));
    }
}

// ---- a tile of keys ----

// Packs the tile of `count` positions from `key` on: keys transposed into s.kt, values into s.v.
// They are adjacent in the cache, whose capacity, like `key`, is a multiple of TILE.
VEC_INLINE void cached_pack(const struct AttentionCached *a, const struct Head *h,
                            struct CachedScratch s, size_t b, size_t key, size_t count) {
    for (size_t which = 0; which < 2; which++) {
        struct Rows from = {a->cache, cache_index(a, which, b, h->key_head, key), a->hs, count};
        float *to = which ? s.v : s.pack;
        if (h->per_item == 2) {
            tile_copy(s.pack, h, from);
            if (which)
                tile_join(s.v, s.pack, h->width);
        } else {
            WITH_DTYPE(a->cache_dtype, tile_pack(to, h, from, D, 1));
        }
        if (!which)
            tile_transpose(s.kt, s.pack, h->width / h->per_item);
    }
}

// Returns the scores of row r at columns j .. j + VEC_LANES - 1; -FLT_MAX for those that it does
// not see: it sees begin .. end - 1.
VEC_INLINE Vec cached_load_masked(const float *scores, size_t r, size_t j, size_t begin,
                                  size_t end) {
    Vec s = vec_load_f32(scores + r * TILE + j), hidden = vec_set(-FLT_MAX);
    if (end < j + VEC_LANES)
        s = vec_select(vec_mask(end - j), s, hidden);
    if (begin > j)
        s = vec_select(vec_mask(begin - j), hidden, s);
    return s;
}

// Turns row r's scores of the tile of keys at position `key` into e^(score - largest so far), 0
// where nothing is seen, and updates the row's largest score, its sum, and its shrink, by which
// what was summed before is multiplied. pairs: stores bf16, in the first half of the row.
VEC_INLINE void cached_softmax(float *scores, struct CachedRows *rows, size_t r, size_t key,
                               bool pairs) {
    size_t begin = rows->first[r] > key ? size_min(rows->first[r] - key, TILE) : 0;
    size_t end = rows->pos[r] < key ? 0 : size_min(rows->pos[r] + 1 - key, TILE);
    float *sum = rows->sum + r * VEC_LANES, old = rows->max[r];
    Vec most = vec_set(-FLT_MAX);
    for (size_t j = begin / VEC_LANES * VEC_LANES; j < end; j += VEC_LANES)
        most = vec_max(cached_load_masked(scores, r, j, begin, end), most);
    Vec max = vec_max(vec_set(vec_max_lane(most)), vec_set(old)),
        shrink = vec_exp(vec_set(old) - max);
    vec_store_f32_part(&rows->max[r], 1, max);
    vec_store_f32_part(&rows->shrink[r], 1, shrink);
    Vec sums = vec_load_f32(sum) * shrink;
    for (size_t j = 0; j < TILE; j += VEC_LANES) {
        Vec p = vec_set(0);
        if (j < end && j + VEC_LANES > begin) {
            p = vec_exp_for(cached_load_masked(scores, r, j, begin, end) - max, pairs ? BF16 : F32);
            if (begin > j)
                p = vec_select(vec_mask(begin - j), vec_set(0), p);
            sums += p;
        }
        if (pairs)
            vec_store_half((uint16_t *)(scores + r * TILE) + j, vec_narrow_for_dot(p));
        else
            vec_store_f32(scores + r * TILE + j, p);
    }
    vec_store_f32(sum, sums);
}

// ---- some rows of queries ----

VEC_INLINE void cached_pack_queries(const struct AttentionCached *a, enum Dtype d,
                                    const struct Head *h, const struct CachedRows *rows, float *q) {
    memset(q, 0, round_up(rows->rows, BLOCK_ROWS) * h->width / h->per_item * sizeof *q);
    for (size_t r = 0; r < rows->rows; r++) {
        size_t row = rows->b * a->t + token_of_row(a, rows, r);
        size_t at = (row * (a->nh + 2 * a->nkv) + query_head_of_row(a, rows, r)) * a->hs;
        for (size_t i = 0; i < a->hs; i += VEC_LANES) {
            Vec x = vec_read(a->qkv, d, at + i, at + a->hs);
            if (h->per_item == 2)
                vec_store_half((uint16_t *)q + r * h->width + i, vec_narrow(x, BF16));
            else
                vec_store_f32(q + r * h->width + i, x * vec_set(h->scale));
        }
    }
}

// Divides the rows' outputs by their sums, and stores them in a->out.
VEC_INLINE void cached_finish(const struct AttentionCached *a, enum Dtype d, const struct Head *h,
                              const struct CachedRows *rows, const float *out) {
    for (size_t r = 0; r < rows->rows; r++) {
        size_t row = rows->b * a->t + token_of_row(a, rows, r);
        size_t at = (row * a->nh + query_head_of_row(a, rows, r)) * a->hs;
        Vec sum = vec_set(vec_sum(vec_load_f32(rows->sum + r * VEC_LANES)));
        for (size_t i = 0; i < a->hs; i += VEC_LANES)
            vec_write(a->out, d, at + i, at + a->hs, vec_load_f32(out + r * h->width + i) / sum);
    }
}

// Starts the rows' softmax. Rows past the last see what the last one sees.
static void cached_begin_rows(const struct AttentionCached *a, struct CachedRows *rows) {
    memset(rows->sum, 0, sizeof rows->sum);
    for (size_t r = 0; r < TILE; r++) {
        size_t row = rows->b * a->t + token_of_row(a, rows, size_min(r, rows->rows - 1));
        rows->pos[r] = row_position(a->starts, row, a->t);
        rows->first[r] = cached_first(a, rows->pos[r]);
        rows->max[r] = -FLT_MAX;
        rows->shrink[r] = 0; // stays so in rows past the last, whose scores are 0
    }
}

// Does tiles from .. to - 1 of those that these rows see.
VEC_INLINE void cached_tiles(const struct AttentionCached *a, const struct Head *h,
                             struct CachedScratch s, struct CachedRows *rows, size_t from,
                             size_t to) {
    float scores[TILE * TILE] __attribute__((aligned(64)));
    size_t ld = h->width / h->per_item, blocks = round_up(rows->rows, BLOCK_ROWS);
    size_t first = rows->first[0] / TILE * TILE, last = rows->pos[rows->rows - 1];
    bool pairs = h->per_item == 2;
    for (size_t key = first + from * TILE; key < first + to * TILE; key += TILE) {
        size_t count = size_min(last + 1 - key, TILE), seen = round_up(count, BLOCK_ROWS);
        cached_pack(a, h, s, rows->b, key, count);
        for (size_t r = 0; r < blocks; r += BLOCK_ROWS) {
            struct TileView p = {scores + r * TILE, TILE, 1};
            multiply_rows(h, p, (struct TileView){s.q + r * ld, ld, 1},
                          (struct TileView){s.kt, TILE, 1}, TILE, (struct Terms){0, h->hs},
                          OLD_DROP, pairs ? &h->scale : NULL);
            for (size_t i = r; i < size_min(r + BLOCK_ROWS, rows->rows); i++)
                cached_softmax(scores, rows, i, key, pairs);
            multiply_rows(h, (struct TileView){rows->out + r * h->width, h->width, 1}, p,
                          (struct TileView){s.v, h->width, 1}, h->width, (struct Terms){0, seen},
                          OLD_SCALE, rows->shrink + r);
        }
    }
}

// ---- the kernel ----

static struct Head cached_head_of(const struct AttentionCached *a) {
    struct Head h = {.t = a->t, .nh = a->nh, .nkv = a->nkv, .hs = a->hs};
    h.width = head_width(a->hs);
    h.per_item = a->cache_dtype == a->dtype ? item_elements(a->dtype) : 1;
    h.scale = 1.0f / sqrtf((float)a->hs);
    return h;
}

static struct CachedScratch cached_scratch(const struct AttentionCached *a, size_t thread) {
    size_t tile = TILE * head_width(a->hs);
    float *mem = (float *)a->work.mem + thread * CACHED_TILES * tile;
    return (struct CachedScratch){
        mem, mem + tile, mem + 2 * tile, {mem + 3 * tile, mem + 4 * tile}, mem + 5 * tile};
}

static struct CachedHandOver *cached_hand_over(const struct Cpu *cpu,
                                               const struct AttentionCached *a) {
    return (struct CachedHandOver *)cached_scratch(a, (size_t)cpu->device.threads).kt;
}

// ---- who does what ----
//
// An item is TILE rows of queries of one key head. All items' tiles, one after the other, are cut
// into as many equal parts as there are threads: with 3 key heads and 2 threads each does one and a
// half. Where a cut falls into an item, the thread before it does the item's first tiles before all
// else and leaves its running softmax to the next thread, which goes on with it last of all. So an
// item's tiles have one order, whatever the cuts are, and nobody waits long where there are as many
// items as threads; one that several threads share is done by one after the other.

// Returns the items of one key head of one sequence.
static size_t cached_items_per_head(const struct AttentionCached *a) {
    return ceil_div(a->t * group_of(a), TILE);
}

static struct CachedRows cached_begin_item(const struct AttentionCached *a, size_t item) {
    size_t per_head = cached_items_per_head(a), queries = a->t * group_of(a);
    size_t row = item % per_head * TILE;
    struct CachedRows rows = {.b = item / per_head / a->nkv,
                              .key_head = item / per_head % a->nkv,
                              .row = row,
                              .rows = size_min(TILE, queries - row)};
    cached_begin_rows(a, &rows);
    return rows;
}

// Returns how many tiles of keys an item's rows see, from the first that one sees to the last.
static size_t cached_count_tiles(const struct AttentionCached *a, size_t item) {
    size_t per_head = cached_items_per_head(a), group = group_of(a), row = item % per_head * TILE;
    size_t from = item / per_head / a->nkv * a->t,
           last_row = size_min(row + TILE, a->t * group) - 1;
    size_t pos = row_position(a->starts, from + row / group, a->t);
    size_t last = row_position(a->starts, from + last_row / group, a->t);
    return last / TILE + 1 - cached_first(a, pos) / TILE;
}

// Does tiles from .. to - 1 of an item, after the thread before has done the earlier ones, if any.
// Its rows then name the output of the thread that began them, and take it along.
VEC_INLINE void cached_run_part(struct Cpu *cpu, const struct AttentionCached *a, enum Dtype d,
                                struct Head *h, size_t item, size_t from, size_t to) {
    size_t thread = (size_t)omp_get_thread_num();
    struct CachedScratch s = cached_scratch(a, thread);
    struct CachedHandOver *hand_overs = cached_hand_over(cpu, a);
    struct CachedRows here, *rows = &here;
    bool ends = to == cached_count_tiles(a, item);
    if (!ends)
        rows = &hand_overs[thread].rows;
    if (from == 0) {
        *rows = cached_begin_item(a, item);
        rows->out = s.out[!ends];
        memset(rows->out, 0, round_up(rows->rows, BLOCK_ROWS) * h->width * sizeof *rows->out);
    } else {
        for (int spins = 0;
             !atomic_load_explicit(&hand_overs[thread - 1].done, memory_order_acquire);)
            if (++spins % SPINS == 0)
                sched_yield();
            else
                _mm_pause();
        *rows = hand_overs[thread - 1].rows;
    }
    h->key_head = rows->key_head;
    cached_pack_queries(a, d, h, rows, s.q);
    cached_tiles(a, h, s, rows, from, to);
    if (ends)
        cached_finish(a, d, h, rows, rows->out);
    else
        atomic_store_explicit(&hand_overs[thread].done, 1, memory_order_release);
}

// Does tiles begin .. end - 1 of all items' together: what is left to the next thread first, what
// the thread before has left last. A part of an item that is both waits for the thread before, and
// so counts as the latter.
VEC_INLINE void cached_run_share(struct Cpu *cpu, const struct AttentionCached *a, enum Dtype d,
                                 struct Head *h, size_t begin, size_t end) {
    enum { LEFT_TO_NEXT, WHOLE, LEFT_BY_PREVIOUS, ROUNDS };
    size_t items = a->b * a->nkv * cached_items_per_head(a);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0, at = 0, tiles; i < items; i++, at += tiles) {
            tiles = cached_count_tiles(a, i);
            size_t from = size_max(begin, at) - at, to = size_min(end, at + tiles) - at;
            int when = from > 0 ? LEFT_BY_PREVIOUS : to < tiles ? LEFT_TO_NEXT : WHOLE;
            if (at < end && begin < at + tiles && when == round)
                cached_run_part(cpu, a, d, h, i, from, to);
        }
}

VEC_INLINE void attention_cached(struct Cpu *cpu, const struct AttentionCached *a, enum Dtype d) {
    size_t items = a->b * a->nkv * cached_items_per_head(a), tiles = 0;
    for (size_t i = 0; i < items; i++)
        tiles += cached_count_tiles(a, i);
    struct CachedHandOver *hand_overs = cached_hand_over(cpu, a);
    for (int i = 0; i < cpu->device.threads; i++)
        atomic_init(&hand_overs[i].done, 0);
#pragma omp parallel num_threads(cpu->device.threads)
    {
        // No more threads than tiles: each of them has one, and hands on what it must.
        size_t threads = size_min((size_t)omp_get_num_threads(), tiles);
        size_t thread = size_min((size_t)omp_get_thread_num(), threads);
        struct Head h = cached_head_of(a);
        tiles_open(true);
#pragma omp for schedule(static)
        for (size_t i = 0; i < a->b * a->t * a->nkv; i++)
            cached_store(a, d, i / a->nkv, i % a->nkv);
        if (thread < threads)
            cached_run_share(cpu, a, d, &h, tiles * thread / threads,
                             tiles * (thread + 1) / threads);
        tiles_close();
    }
}

void CPU_NAME(attention_cached)(struct Cpu *cpu, const struct AttentionCached *a) {
    attention_cached_check(a);
    if (VEC_TILES && (a->dtype != BF16 || a->cache_dtype != BF16))
        avx512bf16_attention_cached(cpu, a);
    else
        WITH_DTYPE(a->dtype, attention_cached(cpu, a, D));
}

size_t CPU_NAME(attention_cached_work)(struct Cpu *cpu, const struct AttentionCached *a) {
    size_t tiles = CACHED_TILES * TILE * head_width(a->hs) * sizeof(float);
    return (size_t)cpu->device.threads * (tiles + sizeof(struct CachedHandOver));
}
