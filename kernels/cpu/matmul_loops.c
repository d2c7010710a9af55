// The blocked matmul: when each part is packed, and which thread computes it.
//
// The smaller side of C, say its n columns, makes its operand (here B) the RESIDENT one: all
// threads pack it together, as far as RESIDENT_MOST allows, and share it. The other operand is
// STREAMED: each thread has its own range of the larger side, and packs a chunk of it at a time, to
// its second-level cache, right before it is used against the whole resident operand:
//
//   for each block of C, and each span of k for which the resident operand is packed at once
//     all threads pack the resident operand;  barrier
//     for each chunk of this thread's range
//       for each pass (as much of k as the first-level cache holds of an A panel)
//         pack the chunk
//         for each panel of B, for each panel of A: a tile                    (matmul_tile.c)
//     barrier
//
// With AMX (vec_tiles.h) a tile takes a tenth of the time, and waits for the third-level cache.
// There a chunk is larger, so that each panel from it is used 8 to 16 times. If it fits, a chunk is
// packed for all passes at once, and multiplied with the resident operand group by group, whose
// sums stay in near caches. Meanwhile the lines of the next group are prefetched. (GPT-2 124M, B =
// 4, T = 512, two cores of a Xeon with AMX: products take 1.24 s of a step so, 1.42 without the
// last, 1.5 by oneDNN 2.6 with separate passes for GELU and bias gradients.)
//
// A second pair of operands is more of k, behind the first pair's. A pass lies in one pair, and
// those of the first are what they are without a second; the last span has as many of the second
// as fit. With AMX, whose sums for a C of 16 bits are the same in one pass or two, a short second
// pair is part of the first one's last pass; and rows of A that too few columns use are not packed,
// but read where they lie.
//
// So each element is packed about once, and most products need two barriers. A chunk's part of C
// stays in the second-level cache from pass to pass. Sums between passes are in C itself if that is
// fp32, else in scratch, so that a bf16 C is rounded once. The work is divided in a fixed way and a
// tile's sum runs over k in one order: the bits do not even depend on the number of threads.
//
// Read next: matmul_tile.c (the arithmetic), matmul_pack.c (the copies).
#include "kernels/cpu/matmul_loops.h"
#include "kernels/cpu/vec_array.h"
#include "kernels/cpu/vec_transpose.h"

#include <omp.h>

enum {
    DEPTH_MOST = 768, // of a pass: a panel of A, 24 KiB with AVX-512, stays in L1
    PAIRS_DEPTH_MOST = VEC_TILES ? 128 : 384, // of pairs: half as much; AMX needs both panels
    RESIDENT_MOST = 2048 * 768,               // items: 6 MiB
    SUMS_MOST = 4 << 20,                      // floats kept between spans
    CHUNK_ROWS = 4 * STRIP_ROWS,
    CHUNK_COLS = STRIP_COLS,
    // The same for AMX, on either side: TILES_CHUNK_WHOLE rows or columns of all passes, if they
    // are at most WHOLE_MOST items, with GROUP rows or columns of the resident operand at a time;
    // else TILES_CHUNK, pass by pass.
    TILES_CHUNK_WHOLE = 512,
    WHOLE_MOST = 256 << 10,
    GROUP = 64,
    TILES_CHUNK = 256,
    JOINED_MOST = 32,   // steps of the second pair
    IN_PLACE_COLS = 64, // of C, at most: AMX reads A's rows where they lie
    LINE_BYTES = 64,
    CHUNK_UNIT = VEC_TILES ? TILE_ROWS : VEC_LANES, // rows of a chunk are a multiple
    SOLO_WORK = 1 << 20, // multiply-adds: below, waking the other threads takes longer
    ALIGN_FLOATS = 16,
};

struct MatmulPlan {
    int threads;
    bool stream_a;           // else B is streamed
    size_t resident, stream; // a block of C: rows or columns of either operand
    size_t per_item, steps;  // elements of an item; k of both pairs in items, like head .. room
    size_t head;             // of these, the first pair's
    size_t span, depth;      // of the first pair, packed for the resident operand; of a pass
    size_t tail_depth, room; // of a pass of the second pair; of both, packed for the resident one
    bool joined;             // the second pair is part of the first one's last pass
    size_t chunk;            // rows or columns that are packed at once
    size_t group;            // of the resident operand: goes through all passes together
    bool keeps_sums;         // between passes, in scratch
    size_t resident_floats, chunk_floats, shared_sums, private_sums; // scratch
};

// Divides `size` into the fewest equal parts of at most `most`; a part is a multiple of `unit`.
static size_t part_size(size_t size, size_t most, size_t unit) {
    size_t parts = ceil_div(size, size_max(most, unit));
    return round_up(ceil_div(size, parts), unit);
}

// Sets depth and span. With pairs the passes, and so the bits, depend on k alone, not on the
// product's other rows and columns.
static void plan_depth(struct MatmulPlan *p, size_t resident) {
    size_t most = size_max(RESIDENT_MOST / resident, DEPTH_MOST);
    if (p->per_item == 2) {
        p->depth = part_size(p->head, PAIRS_DEPTH_MOST, size_max(8, STEP_UNIT));
        p->span = p->depth * part_size(ceil_div(p->head, p->depth), most / p->depth, 1);
    } else {
        p->span = resident * p->head <= RESIDENT_MOST ? p->head : part_size(p->head, most, 8);
        p->depth = p->span <= DEPTH_MOST ? p->span : part_size(p->span, DEPTH_MOST, 8);
    }
    p->span = size_min(p->span, p->head);
}

// Plans the second pair's passes. The first pair's last span has room for up to DEPTH_MOST steps of
// them: whole passes.
static void plan_tail(struct MatmulPlan *p) {
    size_t tail = p->steps - p->head, most = p->per_item == 2 ? PAIRS_DEPTH_MOST : DEPTH_MOST;
    p->room = p->span;
    if (!tail)
        return;
    p->tail_depth = size_min(part_size(tail, most, size_max(8, STEP_UNIT)), tail);
    p->joined = VEC_TILES && tail <= JOINED_MOST;
    p->room += size_min(tail, DEPTH_MOST / p->tail_depth * p->tail_depth);
}

// Returns the steps of the pass that begins at k.
static size_t pass_depth(const struct MatmulPlan *p, size_t k) {
    if (k >= p->head)
        return size_min(p->tail_depth, p->steps - k);
    size_t depth = size_min(p->depth, size_min(p->span - k % p->span, p->head - k));
    return depth + (p->joined && k + depth == p->head ? p->tail_depth : 0);
}

// Returns the steps of the span at k: whole passes, and as many of the second pair as have room.
static size_t span_steps(const struct MatmulPlan *p, size_t k) {
    size_t end = k < p->head ? size_min(k + p->span, p->head) : k;
    while (end >= p->head && end < p->steps && end + pass_depth(p, end) - k <= p->room)
        end += pass_depth(p, end);
    return end - k;
}

static void plan_sums(struct MatmulPlan *p, const struct Matmul *m) {
    p->keeps_sums = m->c.dtype != F32 && pass_depth(p, 0) < p->steps;
    if (!p->keeps_sums)
        return;
    if (p->room == p->steps) { // they belong to a chunk, from pass to pass
        size_t rows = p->stream_a ? p->chunk : p->group;
        size_t cols = p->stream_a ? p->group : p->chunk;
        p->private_sums = rows * round_up(cols, TILE_COLS);
        return;
    }
    p->stream = part_size(p->stream, SUMS_MOST / p->resident, p->chunk);
    size_t cols = p->stream_a ? p->resident : p->stream;
    p->shared_sums = (p->stream_a ? p->stream : p->resident) * round_up(cols, TILE_COLS);
}

// With AMX a product takes so little time that operands and the sums between passes must be in the
// second-level cache, and each panel there must be used often.
static void plan_chunk(struct MatmulPlan *p) {
    bool whole = VEC_TILES && pass_depth(p, 0) < p->room &&
                 TILES_CHUNK_WHOLE * p->span <= WHOLE_MOST && p->room - p->span <= PAIRS_DEPTH_MOST;
    size_t share = ceil_div(p->stream, (size_t)p->threads);
    if (VEC_TILES)
        p->chunk = part_size(share, whole ? TILES_CHUNK_WHOLE : TILES_CHUNK, CHUNK_UNIT);
    else
        p->chunk = p->stream_a ? part_size(share, CHUNK_ROWS, CHUNK_UNIT) : (size_t)CHUNK_COLS;
    p->group = whole ? size_min(GROUP, p->resident) : p->resident;
    size_t rows = round_up(p->chunk, p->stream_a ? STRIP_ROWS : STRIP_COLS);
    size_t longest = p->joined ? p->depth + p->tail_depth : size_max(p->depth, p->tail_depth);
    p->chunk_floats = round_up(rows * (whole ? p->room : longest), ALIGN_FLOATS);
}

static struct MatmulPlan plan_make(const struct Matmul *m, int threads) {
    struct MatmulPlan p = {.threads = m->m * m->n * (m->k + m->k2) < SOLO_WORK ? 1 : threads};
    p.stream_a = m->m >= m->n;
    size_t strip = p.stream_a ? STRIP_COLS : STRIP_ROWS;
    size_t resident = round_up(p.stream_a ? m->n : m->m, strip);
    p.stream = p.stream_a ? m->m : m->n;
    p.per_item = item_elements(m->a.dtype);
    p.head = round_up(ceil_div(m->k, p.per_item), STEP_UNIT);
    p.steps = p.head + round_up(ceil_div(m->k2, p.per_item), STEP_UNIT);
    plan_depth(&p, resident);
    plan_tail(&p);
    p.resident = part_size(resident, RESIDENT_MOST / p.room, strip);
    p.resident_floats = round_up(p.resident * p.room, ALIGN_FLOATS);
    plan_chunk(&p);
    plan_sums(&p, m);
    return p;
}

// One thread of one call, and its current work: a block of C (rows or columns of either operand)
// and a span of k, which is counted in items here and below.
struct Worker {
    const struct Matmul *args;
    const struct MatmulPlan *plan;
    int thread, threads;
    float *packed, *chunk, *private_sums; // packed: the resident operand, pass after pass
    float *shared_sums, *row_sums;        // of all threads
    size_t resident, nresident, stream, nstream, k, nk;
};

// A thread's share of `count` things: a contiguous range, the same on every run.
struct Range {
    size_t first, end;
};
static struct Range my_range(const struct Worker *w, size_t count) {
    size_t t = (size_t)w->thread, n = (size_t)w->threads;
    return (struct Range){count * t / n, count * (t + 1) / n};
}

// The sums of a panel's rows in parts, each over every fourth k; of AMX's panels over every second.
struct PanelSums {
    float part[4][TILE_ROWS];
};

static struct PanelSums sum_panel(const float *panel, size_t steps) {
    struct PanelSums s = {{{0}}};
    size_t l = 0;
    for (; l + 4 <= steps; l += 4)
        for (size_t i = 0; i < 4 * TILE_ROWS; i++)
            s.part[i / TILE_ROWS][i % TILE_ROWS] += panel[l * TILE_ROWS + i];
    for (; l < steps; l++)
        for (size_t r = 0; r < TILE_ROWS; r++)
            s.part[l % 4][r] += panel[l * TILE_ROWS + r];
    return s;
}

// The same for AMX's panels: parts 0 and 1, of the first and the second elements of pairs.
static struct PanelSums sum_tiles(const float *panel, size_t steps) {
    struct PanelSums s = {{{0}}};
    for (size_t r = 0; r < TILE_ROWS; r++) {
        Vec first = vec_set(0.0f), second = first;
        for (size_t l = 0; l < steps; l += STEP_UNIT) {
            Vec pairs = vec_load_f32(panel + l * TILE_ROWS + r * STEP_UNIT);
            first += vec_first_bf16(pairs);
            second += vec_first_bf16(vec_second(pairs));
        }
        s.part[0][r] = vec_sum(first);
        s.part[1][r] = vec_sum(second);
    }
    return s;
}

// The same for pairs: a vector holds two steps of a panel, and so four elements of each row.
static struct PanelSums sum_pairs(const float *panel, size_t steps) {
    struct PanelSums s;
    Vec first = vec_set(0.0f), second = first;
    for (size_t l = 0; l < steps; l += 2) {
        size_t n = size_min(VEC_LANES, (steps - l) * TILE_ROWS);
        Vec pairs = vec_load_part(panel, F32, l * TILE_ROWS, n);
        first += vec_first_bf16(pairs);
        second += vec_first_bf16(vec_second(pairs));
    }
    vec_store_split(s.part[0], s.part[2], first);
    vec_store_split(s.part[1], s.part[3], second);
    return s;
}

// dbias: adds the rows of packed A over this pass to row_sums, and stores them after the last pass.
// A row always belongs to the same thread.
static void sum_rows(const struct Worker *w, const float *packed, const struct PackSource *s,
                     struct Range rows) {
    const struct Matmul *m = w->args;
    for (size_t row = rows.first; row < rows.end; row += TILE_ROWS) {
        const float *panel = packed + row * s->steps;
        bool pairs = item_elements(m->a.dtype) == 2;
        struct PanelSums p = VEC_TILES ? sum_tiles(panel, s->steps)
                             : pairs   ? sum_pairs(panel, s->steps)
                                       : sum_panel(panel, s->steps);
        for (size_t r = 0; r < size_min(TILE_ROWS, rows.end - row); r++) {
            float *sum = &w->row_sums[s->row + row + r];
            float old = s->k ? *sum : 0.0f;
            *sum = old + ((p.part[0][r] + p.part[1][r]) + (p.part[2][r] + p.part[3][r]));
        }
    }
    if (s->k + s->depth < m->k)
        return;
    for (size_t row = s->row + rows.first; row < s->row + rows.end; row++) {
        float old = m->accumulate ? dtype_load(m->dbias, m->c.dtype, row) : 0.0f;
        dtype_store(m->dbias, m->c.dtype, row, old + w->row_sums[row]);
    }
}

// Describes steps k .. k + depth - 1 of the pair that has step k, as far as it goes.
static struct PackSource describe_source(const struct Worker *w, const struct Mat *mat,
                                         bool along_k, struct Range rows, size_t k, size_t depth) {
    bool second = k >= w->plan->head;
    size_t per = w->plan->per_item, from = (k - (second ? w->plan->head : 0)) * per;
    size_t end = size_min(from + depth * per, second ? w->args->k2 : w->args->k);
    size_t steps = second ? depth : size_min(depth, w->plan->head - k);
    return (struct PackSource){mat,  along_k,    rows.first, rows.end - rows.first,
                               from, end - from, steps,      depth};
}
static struct PackSource source_a(const struct Worker *w, size_t row, size_t rows, size_t k,
                                  size_t depth) {
    const struct Mat *a = k < w->plan->head ? &w->args->a : &w->args->a2;
    return describe_source(w, a, !a->transposed, (struct Range){row, row + rows}, k, depth);
}
static struct PackSource source_b(const struct Worker *w, size_t col, size_t cols, size_t k,
                                  size_t depth) {
    const struct Mat *b = k < w->plan->head ? &w->args->b : &w->args->b2;
    return describe_source(w, b, b->transposed, (struct Range){col, col + cols}, k, depth);
}

// Packs strips first .. end - 1 of the rows of A, or the columns of B, that a source describes for
// a pass; and the second pair's, if they are part of it.
static void pack(const struct Worker *w, bool is_b, float *dst, const struct PackSource *s,
                 size_t first, size_t end) {
    void (*const pack_side)(float *, const struct PackSource *, size_t, size_t) =
        is_b ? CPU_NAME(matmul_pack_b) : CPU_NAME(matmul_pack_a);
    pack_side(dst, s, first, end);
    if (s->steps == s->panel)
        return;
    struct PackSource rest =
        (is_b ? source_b : source_a)(w, s->row, s->rows, w->plan->head, s->panel - s->steps);
    rest.panel = s->panel;
    pack_side(dst + s->steps * (is_b ? TILE_COLS : TILE_ROWS), &rest, first, end);
}

// Returns the packed resident operand of the pass at k.
static float *resident_at(const struct Worker *w, size_t k) {
    return w->packed + (k - w->k) * w->plan->resident;
}

// Packs this thread's share of the resident operand.
static void pack_resident(const struct Worker *w) {
    bool is_b = w->plan->stream_a;
    size_t strip = is_b ? STRIP_COLS : STRIP_ROWS;
    struct Range mine = my_range(w, ceil_div(w->nresident, strip));
    struct Range rows = {mine.first * strip, size_min(mine.end * strip, w->nresident)};
    for (size_t k = w->k, depth; k < w->k + w->nk; k += depth) {
        depth = pass_depth(w->plan, k);
        float *dst = resident_at(w, k);
        if (is_b) {
            struct PackSource s = source_b(w, w->resident, w->nresident, k, depth);
            pack(w, true, dst, &s, mine.first, mine.end);
            continue;
        }
        struct PackSource s = source_a(w, w->resident, w->nresident, k, depth);
        pack(w, false, dst, &s, mine.first, mine.end);
        if (w->args->dbias && w->stream == 0)
            sum_rows(w, dst, &s, rows);
    }
}

// A group of the resident operand and a chunk to multiply: ranges of rows or columns of C.
struct GroupAndChunk {
    size_t at, n;         // of the streamed side
    size_t group, ngroup; // of the resident one, in its block
};

// Returns the pass at k, with the sums of earlier passes.
static struct TilePass pass_at(const struct Worker *w, const struct GroupAndChunk *c, size_t k,
                               size_t depth) {
    const struct MatmulPlan *p = w->plan;
    struct TilePass pass = {.args = w->args, .first = k == 0, .last = k + depth == p->steps};
    if (!p->keeps_sums)
        return pass;
    bool shared = p->shared_sums > 0;
    size_t stream = shared ? w->stream : c->at, resident = w->resident + (shared ? 0 : c->group);
    size_t cols = p->stream_a ? (shared ? p->resident : p->group) : shared ? p->stream : p->chunk;
    pass.sums = shared ? w->shared_sums : w->private_sums;
    pass.sums_ld = round_up(cols, TILE_COLS);
    pass.sums_row = p->stream_a ? stream : resident;
    pass.sums_col = p->stream_a ? resident : stream;
    return pass;
}

// Multiplies packed A with packed B, tile by tile. A panel of B stays in cache for all of A's.
static void multiply(struct TilePass pass, const float *a, const struct PackSource *rows,
                     const float *b, const struct PackSource *cols) {
    for (size_t j = 0; j < cols->rows; j += TILE_COLS)
        for (size_t i = 0; i < rows->rows; i += TILE_ROWS) {
            CPU_NAME(matmul_tile)
            (&pass, a + i * (pass.a_ld ? pass.a_ld : rows->panel), b + j * cols->panel, rows->panel,
             rows->row + i, cols->row + j);
            if (pass.later)
                pass.later += pass.later_lines * LINE_BYTES;
        }
}

// Sets what each tile prefetches of the resident operand for the next pass or group.
static void set_prefetch(const struct Worker *w, const struct GroupAndChunk *c, size_t k,
                         size_t depth, struct TilePass *pass) {
    const struct MatmulPlan *p = w->plan;
    bool same_group = k + depth < w->k + w->nk;
    size_t next = same_group ? k + depth : w->k, group = c->group + (same_group ? 0 : p->group);
    size_t steps = pass_depth(p, next);
    if (!VEC_TILES || group >= w->nresident)
        return;
    size_t n = size_min(p->group, w->nresident - group);
    size_t tiles = ceil_div(c->n, TILE_COLS) * ceil_div(c->ngroup, TILE_ROWS);
    pass->later = (const char *)(resident_at(w, next) + group * steps);
    pass->later_lines = ceil_div(n * steps * sizeof(float), LINE_BYTES * tiles);
}

// Returns where a chunk's pass at k is packed: separately for each pass if several groups read it.
static float *chunk_at(const struct Worker *w, size_t k) {
    const struct MatmulPlan *p = w->plan;
    size_t rows = round_up(p->chunk, p->stream_a ? STRIP_ROWS : STRIP_COLS);
    return w->chunk + (p->group < p->resident ? (k - w->k) * rows : 0);
}

// True if AMX reads those rows of A where they lie: whole tiles of pairs, used too seldom to be
// packed. Their depth is twice the panel's where elements have 16 bits and no padding, and no
// second pair joins the pass. dbias is summed from packed rows.
static bool is_read_in_place(const struct Matmul *m, const struct MatmulPlan *p,
                             const struct PackSource *a) {
    return VEC_TILES && p->resident <= IN_PLACE_COLS && a->along_k && a->mat->ld % 2 == 0 &&
           a->rows % TILE_ROWS == 0 && a->depth == 2 * a->panel && !m->dbias;
}

// Runs one pass of one chunk and a group; the first group packs the chunk.
static void run_pass(const struct Worker *w, const struct GroupAndChunk *c, size_t k,
                     size_t depth) {
    struct TilePass pass = pass_at(w, c, k, depth);
    const float *resident = resident_at(w, k) + c->group * depth;
    float *chunk = chunk_at(w, k);
    size_t from = w->resident + c->group;
    set_prefetch(w, c, k, depth, &pass);
    if (w->plan->stream_a) {
        struct PackSource a = source_a(w, c->at, c->n, k, depth);
        struct PackSource b = source_b(w, from, c->ngroup, k, depth);
        if (is_read_in_place(w->args, w->plan, &a)) {
            pass.a_ld = a.mat->ld / 2;
            chunk = dtype_at(a.mat->data, BF16, a.row * a.mat->ld + a.k);
        } else if (c->group == 0)
            pack(w, false, chunk, &a, 0, ceil_div(c->n, STRIP_ROWS));
        if (w->args->dbias && from == 0)
            sum_rows(w, chunk, &a, (struct Range){0, c->n});
        multiply(pass, chunk, &a, resident, &b);
    } else {
        struct PackSource a = source_a(w, from, c->ngroup, k, depth);
        struct PackSource b = source_b(w, c->at, c->n, k, depth);
        if (c->group == 0)
            pack(w, true, chunk, &b, 0, ceil_div(c->n, STRIP_COLS));
        multiply(pass, resident, &a, chunk, &b);
    }
}

// Runs each group through all passes of the span.
static void run_chunk(const struct Worker *w, size_t at, size_t n) {
    const struct MatmulPlan *p = w->plan;
    for (size_t g = 0; g < w->nresident; g += p->group) {
        struct GroupAndChunk c = {w->stream + at, n, g, size_min(p->group, w->nresident - g)};
        for (size_t k = w->k, depth; k < w->k + w->nk; k += depth) {
            depth = pass_depth(p, k);
            run_pass(w, &c, k, depth);
        }
    }
}

// Runs this thread's chunks of the block.
static void run_chunks(const struct Worker *w) {
    size_t unit = w->plan->stream_a ? CHUNK_UNIT : TILE_COLS;
    struct Range mine = my_range(w, ceil_div(w->nstream, unit));
    size_t end = size_min(mine.end * unit, w->nstream);
    for (size_t at = mine.first * unit; at < end; at += w->plan->chunk)
        run_chunk(w, at, size_min(w->plan->chunk, end - at));
}

static void run_worker(struct Worker *w) {
    const struct Matmul *m = w->args;
    const struct MatmulPlan *p = w->plan;
    size_t resident = p->stream_a ? m->n : m->m, stream = p->stream_a ? m->m : m->n;
    for (w->resident = 0; w->resident < resident; w->resident += p->resident) {
        w->nresident = size_min(p->resident, resident - w->resident);
        for (w->stream = 0; w->stream < stream; w->stream += p->stream) {
            w->nstream = size_min(p->stream, stream - w->stream);
            for (w->k = 0; w->k < p->steps; w->k += w->nk) {
                w->nk = span_steps(p, w->k);
                pack_resident(w);
#pragma omp barrier
                run_chunks(w);
#pragma omp barrier
            }
        }
    }
}

void CPU_NAME(matmul_loops)(const struct Matmul *args, int threads) {
    struct MatmulPlan p = plan_make(args, threads);
    float *packed = args->work.mem, *row_sums = packed + p.resident_floats;
    float *shared_sums = row_sums + round_up(args->m, ALIGN_FLOATS);
    float *private = shared_sums + p.shared_sums;
#pragma omp parallel num_threads(p.threads)
    {
        struct Worker w = {.args = args, .plan = &p, .packed = packed, .row_sums = row_sums};
        w.thread = omp_get_thread_num();
        w.threads = omp_get_num_threads();
        w.shared_sums = shared_sums;
        w.chunk = private + (size_t)w.thread * (p.chunk_floats + p.private_sums);
        w.private_sums = w.chunk + p.chunk_floats;
        tiles_open(false);
        run_worker(&w);
        tiles_close();
    }
}

size_t CPU_NAME(matmul_loops_work)(const struct Matmul *args, int threads) {
    struct MatmulPlan p = plan_make(args, threads);
    size_t private = (size_t)p.threads * (p.chunk_floats + p.private_sums);
    size_t floats = p.resident_floats + round_up(args->m, ALIGN_FLOATS) + p.shared_sums + private;
    return floats * sizeof(float);
}
