// Causal attention, forward, after FlashAttention-2 (Dao 2023, algorithm 1).
//
// For a tile of queries the tiles of keys are walked from the first to the diagonal. A tile of
// scores is in the cache only for a moment: each row keeps its largest score so far and the sum of
// e^(score - largest); when a new tile raises the largest, the sum and the output so far shrink by
// e^(old - new). At the end the output is divided by the sum, and largest + log(sum), the
// log-sum-exp, is all that the backward pass needs. Tiles above the diagonal are never visited, nor
// tiles of keys before the first one that the tile's first query sees.
//
// Windows and packed documents are one number per query, `first`, and not a list of tiles for each
// tile of queries. Both find the same tiles: a list could only save the work of head_seen, which is
// 0.08 of 94 ms of a pass with T = 8192 and a window of 512 (12 heads of 64, bf16, a Zen 4 core; 6
// ns for each of 13,392 tiles). In exchange `first` is one array for every tile size and both
// passes, while lists would be made for 64 x 64 tiles here and 128 x 64 on a GPU, and once more
// transposed; it follows a batch's documents without the host; and it says which elements an edge
// hides, which lists would have to add. Patterns with holes (Longformer, BigBird) are not ranges of
// keys: they have a list (kernels/layout.h) beside `first`, and a tile's cells beside its columns.
// Both go through one walk, and hide together.
//
// A thread takes a whole (sequence, query head) pair, so nothing is summed across threads, and
// groups keep as many threads busy as there are query heads, even with one sequence and two key
// heads. Keys are copied once for the query heads of a group that a thread takes in turn: as many
// as leave no thread with more heads than one by one. If that is one (more threads than groups),
// the group's threads each copy the keys, at 1 / TILE of a product.
//
// Called through the kernel table; ref_attention.c does the same without tiles. Read next:
// attention_tile.h, attention_backward.c.
#include "kernels/cpu/attention_tile.h"

#include <float.h>

// A thread's buffers. kt: the transpose (width, TILE) of each tile of keys. With pairs, all but out
// are half filled.
struct ForwardScratch {
    float *kt, *v, *q, *out;
};

// The running softmax of a tile of queries. Sums are kept per lane and added up at the end. shrink:
// the factor by which the newest tile of keys shrinks the earlier sums and output.
struct OnlineSoftmax {
    float max[TILE], shrink[TILE], sum[TILE * VEC_LANES];
};

static size_t forward_scratch_floats(size_t t, size_t hs) {
    return (2 * round_up(t, TILE) + 2 * TILE) * head_width(hs);
}

static struct ForwardScratch forward_scratch(const struct AttentionForward *a, size_t thread) {
    size_t all = round_up(a->t, TILE) * head_width(a->hs), tile = TILE * head_width(a->hs);
    float *mem = (float *)a->work.mem + thread * forward_scratch_floats(a->t, a->hs);
    return (struct ForwardScratch){mem, mem + all, mem + 2 * all, mem + 2 * all + tile};
}

// Updates max and shrink. A row's maximum ends in a long chain of shuffles; nothing waits for it
// here, so the chains of many rows overlap. e^x is then computed for a vector of rows. edge:
// seen->edge, as a constant.
VEC_INLINE void forward_max(const float *scores, struct OnlineSoftmax *run, size_t rows,
                            const struct Seen *seen, bool edge) {
    float most[TILE] = {0};
    for (size_t r = 0; r < rows; r++) {
        Vec max = vec_set(-FLT_MAX);
        size_t j = edge ? seen_from(seen, r, VEC_LANES) : 0;
        if (j < TILE)
            max = tile_load_masked(scores, r, j, seen, edge);
        for (j += VEC_LANES; j < seen_end(seen, r, edge); j += VEC_LANES)
            max = vec_max(tile_load_masked(scores, r, j, seen, edge), max);
        most[r] = vec_max_lane(max);
    }
    for (size_t r = 0; r < rows; r += VEC_LANES) {
        Vec old = vec_load_f32(run->max + r), new = vec_max(vec_load_f32(most + r), old);
        vec_store_f32(run->max + r, new);
        vec_store_f32(run->shrink + r, vec_exp(old - new));
    }
}

// Turns scores into e^(score - largest so far), and adds them to the sums. The largest of a row
// that has seen no key yet is that of a hidden score, and e^0 is 1: so those that are hidden are
// set to 0. With pairs the results are bf16, in the first half of their row. edge: seen->edge, as a
// constant.
VEC_INLINE void forward_exp(float *scores, struct OnlineSoftmax *run, size_t rows,
                            const struct Seen *seen, bool edge, bool pairs) {
    for (size_t r = 0; r < rows; r++) {
        float *sum = run->sum + r * VEC_LANES;
        Vec sums = vec_load_f32(sum) * vec_set(run->shrink[r]), max = vec_set(run->max[r]);
        size_t j = edge ? seen_from(seen, r, VEC_LANES) : 0;
        for (; j < seen_end(seen, r, edge); j += VEC_LANES) {
            Vec e =
                vec_exp_for(tile_load_masked(scores, r, j, seen, edge) - max, pairs ? BF16 : F32);
            Vec p = tile_zero_hidden(e, r, j, seen, edge);
            if (pairs)
                vec_store_half((uint16_t *)(scores + r * TILE) + j, vec_narrow_for_dot(p));
            else
                vec_store_f32(scores + r * TILE + j, p);
            sums += p;
        }
        vec_store_f32(sum, sums);
    }
}

// Divides by the sums, and stores the output and the log-sum-exp of the tile at `time`.
VEC_INLINE void forward_finish(const struct AttentionForward *a, enum Dtype d, const struct Head *h,
                               const struct OnlineSoftmax *run, float *out, size_t time) {
    struct Rows to = head_out_rows(h, a->out, time);
    for (size_t r = 0; r < to.rows; r++) {
        float sum = vec_sum(vec_load_f32(run->sum + r * VEC_LANES));
        for (size_t i = 0; i < h->width; i += VEC_LANES)
            vec_store_f32(out + r * h->width + i,
                          vec_load_f32(out + r * h->width + i) / vec_set(sum));
        a->lse[(h->b * h->nh + h->head) * h->t + time + r] = run->max[r] + logf(sum);
    }
    tile_unpack(out, h, to, d, 1);
}

// Computes the output of the tile of queries at `time`, from the packed keys and values.
VEC_INLINE void forward_queries(const struct AttentionForward *a, enum Dtype d,
                                const struct Head *h, struct ForwardScratch s, size_t time) {
    float scores[TILE * TILE] __attribute__((aligned(64)));
    struct OnlineSoftmax run = {.sum = {0}};
    size_t rows = head_rows(h, time);
    for (size_t r = 0; r < TILE; r++)
        run.max[r] = -FLT_MAX;
    memset(s.out, 0, TILE * h->width * sizeof *s.out);
    bool pairs = item_elements(d) == 2;
    if (pairs)
        tile_copy(s.q, h, head_qkv_rows(h, a->qkv, time, 0));
    else
        tile_pack(s.q, h, head_qkv_rows(h, a->qkv, time, 0), d, h->scale);
    struct TileWalk keys = walk_begin(h, LAYOUT_KEYS, time, head_first_tile(h, time), time + TILE);
    while (walk_next(&keys)) {
        struct Seen seen = head_seen(h, time, keys.at, keys.cells);
        size_t at = keys.at * h->width / h->per_item;
        tile_scores(scores, s.q, s.kt + at, h, rows, &seen, pairs ? &h->scale : NULL);
        if (seen.edge) {
            forward_max(scores, &run, rows, &seen, true);
            forward_exp(scores, &run, rows, &seen, true, pairs);
        } else {
            forward_max(scores, &run, rows, &seen, false);
            forward_exp(scores, &run, rows, &seen, false, pairs);
        }
        tile_add_by_query(s.out, scores, s.v + at, h, rows, &seen, run.shrink);
    }
    forward_finish(a, d, h, &run, s.out, time);
}

VEC_INLINE void forward_pack_keys(const struct AttentionForward *a, enum Dtype d,
                                  const struct Head *h, struct ForwardScratch s) {
    for (size_t key = 0; key < h->t; key += TILE) { // s.q is free until queries are packed
        size_t at = key * h->width / h->per_item;
        tile_pack_transposed(s.kt + at, s.q, h, head_qkv_rows(h, a->qkv, key, 1), d);
        tile_pack_rows(s.v + at, s.q, h, head_qkv_rows(h, a->qkv, key, 2), d);
    }
}

// Returns how many query heads of one key head a thread takes in turn with one copy of the keys:
// the largest divisor of the group with which no thread gets more heads than one by one.
static size_t forward_together(const struct AttentionForward *a, size_t threads) {
    size_t heads = a->b * a->nh, together = a->nh / a->nkv;
    while (a->nh / a->nkv % together != 0 ||
           ceil_div(heads / together, threads) * together > ceil_div(heads, threads))
        together--;
    return together;
}

VEC_INLINE void attention_forward(struct Cpu *cpu, const struct AttentionForward *a, enum Dtype d) {
    struct Head all = {.t = a->t, .nh = a->nh, .nkv = a->nkv, .hs = a->hs};
    all.first = a->first;
    all.layout = a->layout;
    size_t together = forward_together(a, (size_t)cpu->device.threads);
#pragma omp parallel num_threads(cpu->device.threads)
    {
        struct ForwardScratch s = forward_scratch(a, (size_t)omp_get_thread_num());
        size_t packed = SIZE_MAX; // the key head in kt and v
        tiles_open(true);
#pragma omp for schedule(dynamic, together)
        for (size_t i = 0; i < a->b * a->nh; i++) {
            struct Head h = head_number(all, i, d);
            if (packed != h.b * h.nkv + h.key_head)
                forward_pack_keys(a, d, &h, s);
            packed = h.b * h.nkv + h.key_head;
            for (size_t time = 0; time < h.t; time += TILE)
                forward_queries(a, d, &h, s, time);
        }
        tiles_close();
    }
}

void CPU_NAME(attention_forward)(struct Cpu *cpu, const struct AttentionForward *a) {
    if (VEC_TILES && a->dtype != BF16)
        avx512bf16_attention_forward(cpu, a);
    else
        WITH_DTYPE(a->dtype, attention_forward(cpu, a, D));
}

size_t CPU_NAME(attention_forward_work)(struct Cpu *cpu, const struct AttentionForward *a) {
    return (size_t)cpu->device.threads * forward_scratch_floats(a->t, a->hs) * sizeof(float);
}
