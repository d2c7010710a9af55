// Causal attention, backward, after FlashAttention-2 (Dao 2023, algorithm 2).
//
// For a tile of keys the tiles of queries are walked from the diagonal on. The probabilities are
// computed again from the scores and the saved log-sum-exp. With O the output of the forward pass
// and D_i = dO_i · O_i:
//   P = e^(Q K' - lse)    dV += P' dO    dP = dO V'    dS = P (dP - D)    dQ += dS K    dK += dS' Q
// where ' is transposition and Q was scaled by 1 / sqrt(HS) when it was copied. Pairs of bf16 are
// copied unscaled, and S and dK get the factor. dK and dV of a tile are finished when its walk
// ends: at the last tile of queries that sees it. dQ of the whole head is summed in scratch and
// rounded once at the end.
//
// A thread takes a whole (sequence, query head) pair. If query heads share keys, dK and dV are sums
// over a group, with the same bits for any number of threads. A thread per group would leave others
// idle (a sequence of Qwen2.5-0.5B has two groups); threads that wait for their turn would stand
// still. So as many heads as there are threads run at a time, each into a part of its own, (2, T,
// width) in fp32; then all threads add those, tile by tile, in the order of heads, to sums that are
// kept until the rest of their group is added. Scratch grows by one part per thread and one more,
// however long the batch: 2 T width on top of 3 T width. The parts cost a write and a read of the
// size of the stored result. With one query head per key head none of this runs.
//
// Called through the kernel table; ref_attention.c does the same without tiles. Read next:
// classifier.c.
#include "kernels/cpu/attention_tile.h"

// A thread's buffers. For all queries of a head: q, dout, dq (t, width), and lse, d (t), t rounded
// up to whole tiles. For one tile of keys: k, dk, dv (TILE, width), and the transposes kt, vt
// (width, TILE). q_rows, dout_rows: q and dout as right operands; the same memory in fp32, and its
// second half with pairs.
struct BackwardScratch {
    float *q, *dout, *q_rows, *dout_rows, *dq, *lse, *d;
    float *k, *kt, *vt, *dk, *dv;
};

static size_t backward_scratch_floats(size_t t, size_t hs) {
    return round_up(t, TILE) * (3 * head_width(hs) + 2) + 5 * TILE * head_width(hs);
}

// Floats of dK and dV of one head.
static size_t backward_part_floats(const struct AttentionBackward *a) {
    return 2 * round_up(a->t, TILE) * head_width(a->hs);
}

static struct BackwardScratch backward_scratch(const struct AttentionBackward *a, size_t thread,
                                               bool pairs) {
    size_t rows = round_up(a->t, TILE), all = rows * head_width(a->hs);
    size_t tile = TILE * head_width(a->hs);
    float *mem = (float *)a->work.mem + thread * backward_scratch_floats(a->t, a->hs);
    float *keys = mem + 3 * all + 2 * rows;
    return (struct BackwardScratch){
        .q = mem,
        .dout = mem + all,
        .q_rows = pairs ? mem + all / 2 : mem,
        .dout_rows = pairs ? mem + all + all / 2 : mem + all,
        .dq = mem + 2 * all,
        .lse = mem + 3 * all,
        .d = mem + 3 * all + rows,
        .k = keys,
        .kt = keys + tile,
        .vt = keys + 2 * tile,
        .dk = keys + 3 * tile,
        .dv = keys + 4 * tile,
    };
}

// Sets lse, and d = dout · out, of the TILE queries from `time` on. Those past the last query get 0
// for both: with their zero dout they add nothing.
VEC_INLINE void backward_pack_stats(const struct AttentionBackward *a, enum Dtype d,
                                    const struct Head *h, struct BackwardScratch s, size_t time) {
    struct Rows out = head_out_rows(h, a->out, time);
    for (size_t r = 0; r < TILE; r++) {
        s.lse[time + r] = s.d[time + r] = 0;
        if (r >= out.rows)
            continue;
        rows_prefetch(&out, h, d, r);
        Vec sum = vec_set(0);
        size_t at = out.at + r * out.stride;
        for (size_t i = 0; i < h->hs; i += VEC_LANES)
            sum = vec_fma(vec_read(a->out, d, at + i, at + h->hs),
                          vec_read(a->dout, d, at + i, at + h->hs), sum);
        s.d[time + r] = vec_sum(sum);
        s.lse[time + r] = a->lse[(h->b * h->nh + h->head) * h->t + time + r];
    }
}

VEC_INLINE void backward_pack_queries(const struct AttentionBackward *a, enum Dtype d,
                                      const struct Head *h, struct BackwardScratch s) {
    for (size_t time = 0; time < h->t; time += TILE) {
        size_t at = time * h->width / h->per_item;
        struct Rows q = head_qkv_rows(h, a->qkv, time, 0), dout = head_out_rows(h, a->dout, time);
        if (item_elements(d) == 2) {
            tile_copy(s.q + at, h, q);
            tile_join(s.q_rows + at, s.q + at, h->width);
            tile_copy(s.dout + at, h, dout);
            tile_join(s.dout_rows + at, s.dout + at, h->width);
        } else {
            tile_pack(s.q + at, h, q, d, h->scale);
            tile_pack(s.dout + at, h, dout, d, 1);
        }
        memset(s.dq + time * h->width, 0, TILE * h->width * sizeof *s.dq);
        backward_pack_stats(a, d, h, s, time);
    }
}

VEC_INLINE void backward_pack_keys(const struct AttentionBackward *a, enum Dtype d,
                                   const struct Head *h, struct BackwardScratch s, size_t key) {
    bool pairs = item_elements(d) == 2;
    float *rows = pairs ? s.k + TILE * h->width / 2 : s.k; // values until they are in vt, then k
    tile_pack_transposed(s.vt, rows, h, head_qkv_rows(h, a->qkv, key, 2), d);
    tile_pack_transposed(s.kt, rows, h, head_qkv_rows(h, a->qkv, key, 1), d);
    if (pairs)
        tile_join(s.k, rows, h->width);
    memset(s.dk, 0, TILE * h->width * sizeof *s.dk);
    memset(s.dv, 0, TILE * h->width * sizeof *s.dv);
}

// Turns scores into probabilities. joined: those of two rows as pairs (NULL: no pairs). Rows go two
// at a time: an even row and the next reach as many vectors below the diagonal. edge: seen->edge,
// as a constant.
VEC_INLINE void backward_softmax(float *p, float *joined, const float *lse, size_t rows,
                                 const struct Seen *seen, bool edge) {
    for (size_t r = 0; r < rows; r += 2)
        for (size_t j = edge ? seen_from(seen, r, VEC_LANES) : 0; j < seen_end(seen, r, edge);
             j += VEC_LANES) {
            Vec p0 = vec_exp_for(tile_load_masked(p, r, j, seen, edge) - vec_set(lse[r]),
                                 joined ? BF16 : F32);
            Vec p1 = vec_exp_for(tile_load_masked(p, r + 1, j, seen, edge) - vec_set(lse[r + 1]),
                                 joined ? BF16 : F32);
            vec_store_f32(p + r * TILE + j, p0);
            vec_store_f32(p + (r + 1) * TILE + j, p1);
            if (joined)
                vec_store_f32(joined + r / 2 * TILE + j,
                              vec_pair_bf16(vec_narrow_for_dot(p0), vec_narrow_for_dot(p1)));
        }
}

// Turns dp into ds. Pairs: each row uses the first half of its space, and two joined rows overwrite
// probabilities that are no longer needed. edge: seen->edge, as a constant.
VEC_INLINE void backward_softmax_gradient(float *dp, float *p, const float *d, size_t rows,
                                          const struct Seen *seen, bool edge, bool pairs) {
    for (size_t r = 0; r < rows; r += 2)
        for (size_t j = edge ? seen_from(seen, r, VEC_LANES) : 0; j < seen_end(seen, r, edge);
             j += VEC_LANES) {
            float *even = dp + r * TILE, *odd = even + TILE, *at = p + r * TILE + j;
            Vec ds0 = vec_load_f32(at) * (vec_load_f32(even + j) - vec_set(d[r]));
            Vec ds1 = vec_load_f32(at + TILE) * (vec_load_f32(odd + j) - vec_set(d[r + 1]));
            ds0 = tile_zero_hidden(ds0, r, j, seen, edge);
            ds1 = tile_zero_hidden(ds1, r + 1, j, seen, edge);
            if (!pairs) {
                vec_store_f32(even + j, ds0);
                vec_store_f32(odd + j, ds1);
                continue;
            }
            VecHalf first = vec_narrow_for_dot(ds0), second = vec_narrow_for_dot(ds1);
            vec_store_half((uint16_t *)even + j, first);
            vec_store_half((uint16_t *)odd + j, second);
            vec_store_f32(p + r / 2 * TILE + j, vec_pair_bf16(first, second));
        }
}

// Adds one tile of queries against one tile of keys to the gradients.
VEC_INLINE void backward_tile(const struct Head *h, struct BackwardScratch s, size_t time,
                              const struct Seen *seen, bool pairs) {
    float p[TILE * TILE] __attribute__((aligned(64))), ds[TILE * TILE] __attribute__((aligned(64)));
    float pairs_of_p[TILE / 2 * TILE] __attribute__((aligned(64)));
    float *joined = pairs ? pairs_of_p : NULL;
    size_t rows = head_rows(h, time), at = time * h->width / h->per_item;
    tile_scores(p, s.q + at, s.kt, h, rows, seen, pairs ? &h->scale : NULL);
    if (seen->edge)
        backward_softmax(p, joined, s.lse + time, rows, seen, true);
    else
        backward_softmax(p, joined, s.lse + time, rows, seen, false);
    tile_add_by_key(s.dv, pairs ? joined : p, s.dout_rows + at, h, rows, seen);
    tile_scores(ds, s.dout + at, s.vt, h, rows, seen, NULL);
    if (seen->edge)
        backward_softmax_gradient(ds, p, s.d + time, rows, seen, true, pairs);
    else
        backward_softmax_gradient(ds, p, s.d + time, rows, seen, false, pairs);
    tile_add_by_query(s.dq + time * h->width, ds, s.k, h, rows, seen, NULL);
    tile_add_by_key(s.dk, pairs ? p : ds, s.q_rows + at, h, rows, seen);
}

// Stores dK (which: 1) or dV (2) of a tile of keys, once complete.
VEC_INLINE void backward_store(const struct AttentionBackward *a, enum Dtype d,
                               const struct Head *h, const float *tile, size_t key, size_t which) {
    bool scaled = which == 1 && item_elements(d) == 2;
    tile_unpack(tile, h, head_qkv_rows(h, a->dqkv, key, which), d, scaled ? h->scale : 1);
}

// Runs one query head. part: where its dK and dV go, (2, t, width), if other heads share its keys;
// else NULL.
VEC_INLINE void backward_head(const struct AttentionBackward *a, enum Dtype d, const struct Head *h,
                              struct BackwardScratch s, float *part) {
    backward_pack_queries(a, d, h, s);
    for (size_t key = 0; key < h->t; key += TILE) {
        if (part) {
            s.dk = part + key * h->width;
            s.dv = s.dk + round_up(h->t, TILE) * h->width;
        }
        backward_pack_keys(a, d, h, s, key);
        struct TileWalk queries = walk_begin(h, LAYOUT_QUERIES, key, key, h->t);
        while (walk_next(&queries) && head_sees(h, queries.at, key)) {
            struct Seen seen = head_seen(h, queries.at, key, transpose_cells(queries.cells));
            backward_tile(h, s, queries.at, &seen, item_elements(d) == 2);
        }
        if (!part) {
            backward_store(a, d, h, s.dk, key, 1);
            backward_store(a, d, h, s.dv, key, 2);
        }
    }
    for (size_t time = 0; time < h->t; time += TILE)
        tile_unpack(s.dq + time * h->width, h, head_qkv_rows(h, a->dqkv, time, 0), d, h->scale);
}

// Returns a part of heads that share keys, after the threads' scratch: head i has index i %
// threads, and the incomplete sums have index `threads`.
static float *backward_part(const struct AttentionBackward *a, size_t threads, size_t index) {
    float *parts = (float *)a->work.mem + threads * backward_scratch_floats(a->t, a->hs);
    return parts + index * backward_part_floats(a);
}

// Adds tile number i, alternating between keys and values, of query heads begin .. end - 1 to the
// sum of their key head: a group's heads in order, for any number of threads.
VEC_INLINE void backward_add_parts(const struct AttentionBackward *a, enum Dtype d,
                                   const struct Head *all, size_t threads, size_t begin, size_t end,
                                   size_t i) {
    size_t key = i / 2 * TILE, which = 1 + i % 2, group = a->nh / a->nkv;
    size_t width = head_width(a->hs), at = (i % 2 * round_up(a->t, TILE) + key) * width;
    float *sum = backward_part(a, threads, threads) + at;
    for (size_t head = begin; head < end; head++) {
        struct Head h = head_number(*all, head, d);
        const float *part = backward_part(a, threads, head % threads) + at;
        if (h.head % group == 0)
            memcpy(sum, part, TILE * width * sizeof *sum);
        else
            for (size_t j = 0; j < TILE * width; j += VEC_LANES)
                vec_store_f32(sum + j, vec_load_f32(sum + j) + vec_load_f32(part + j));
        if (h.head % group == group - 1)
            backward_store(a, d, &h, sum, key, which);
    }
}

VEC_INLINE void attention_backward(struct Cpu *cpu, const struct AttentionBackward *a,
                                   enum Dtype d) {
    struct Head all = {.t = a->t, .nh = a->nh, .nkv = a->nkv, .hs = a->hs};
    all.first = a->first;
    all.layout = a->layout;
    size_t threads = (size_t)cpu->device.threads, heads = a->b * a->nh;
    bool grouped = a->nh != a->nkv;
    size_t step = grouped ? threads : heads;
#pragma omp parallel num_threads(cpu->device.threads)
    {
        struct BackwardScratch s =
            backward_scratch(a, (size_t)omp_get_thread_num(), item_elements(d) == 2);
        tiles_open(true);
        for (size_t begin = 0; begin < heads; begin += step) {
            size_t end = size_min(begin + step, heads);
#pragma omp for schedule(dynamic)
            for (size_t i = begin; i < end; i++) {
                struct Head h = head_number(all, i, d);
                backward_head(a, d, &h, s, grouped ? backward_part(a, threads, i % threads) : NULL);
            }
            if (!grouped)
                continue;
#pragma omp for schedule(dynamic)
            for (size_t i = 0; i < 2 * ceil_div(a->t, TILE); i++)
                backward_add_parts(a, d, &all, threads, begin, end, i);
        }
        tiles_close();
    }
}

void CPU_NAME(attention_backward)(struct Cpu *cpu, const struct AttentionBackward *a) {
    if (VEC_TILES && a->dtype != BF16)
        avx512bf16_attention_backward(cpu, a);
    else
        WITH_DTYPE(a->dtype, attention_backward(cpu, a, D));
}

size_t CPU_NAME(attention_backward_work)(struct Cpu *cpu, const struct AttentionBackward *a) {
    size_t threads = (size_t)cpu->device.threads;
    size_t parts = a->nh != a->nkv ? (threads + 1) * backward_part_floats(a) : 0;
    return (threads * backward_scratch_floats(a->t, a->hs) + parts) * sizeof(float);
}
