// Causal attention, forward, after FlashAttention-2 (Dao 2023, algorithm 1).
//
// For a tile of queries the tiles of keys are walked from the first to the diagonal. A tile of scores lives
// in the cache for a moment only: each row keeps its largest score so far and the sum of e^(score - largest);
// when a new tile raises the largest, the sum and the output so far shrink by e^(old - new). At the end the
// output is divided by the sum, and largest + log(sum), the log-sum-exp, is all that the backward pass
// needs. Tiles above the diagonal are never visited.
//
// A thread takes a whole (sequence, head) pair, so nothing is summed across threads.
//
// Called through the kernel table; ref_attention.c says the same without tiles. Read next:
// attention_tile.h, attention_backward.c.
#include "kernels/cpu/attention_tile.h"

#include <float.h>

// One thread's buffers. kt: for each tile of keys its transpose (width, TILE).
struct ForwardScratch {
    float *kt, *v, *q, *out;
};

// The running softmax of a tile of queries. Sums are kept per lane and added up at the end.
struct Running {
    float max[TILE], sum[TILE * VEC_LANES];
};

static size_t forward_scratch_floats(size_t t, size_t hs) {
    return (2 * round_up(t, TILE) + 2 * TILE) * head_width(hs);
}

static struct ForwardScratch forward_scratch(const struct AttentionForward *a, size_t thread) {
    size_t all = round_up(a->t, TILE) * head_width(a->hs), tile = TILE * head_width(a->hs);
    float *mem = (float *)a->work.mem + thread * forward_scratch_floats(a->t, a->hs);
    return (struct ForwardScratch){mem, mem + all, mem + 2 * all, mem + 2 * all + tile};
}

// Turns row r of the scores into e^(score - largest so far) and brings sum and output up to date.
VEC_INLINE void forward_softmax_row(float *scores, size_t r, struct Running *run, float *out,
                                    size_t width, bool diagonal) {
    size_t n = diagonal ? r + 1 : TILE;
    float *row = scores + r * TILE, *sum = run->sum + r * VEC_LANES;
    Vec max = vec_set(run->max[r]);
    for (size_t j = 0; j < n; j += VEC_LANES)
        max = vec_max(tile_masked(scores, r, j, diagonal), max);
    float most = vec_max_lane(max);
    Vec sums = vec_load_f32(sum), m = vec_set(most);
    if (most > run->max[r]) {
        Vec shrink = vec_exp(vec_set(run->max[r]) - m);
        sums *= shrink;
        for (size_t i = 0; i < width; i += VEC_LANES)
            vec_store_f32(out + r * width + i, vec_load_f32(out + r * width + i) * shrink);
        run->max[r] = most;
    }
    for (size_t j = 0; j < n; j += VEC_LANES) {
        Vec p = vec_exp(tile_masked(scores, r, j, diagonal) - m);
        vec_store_f32(row + j, p);
        sums += p;
    }
    vec_store_f32(sum, sums);
}

VEC_INLINE void forward_softmax(float *scores, struct Running *run, float *out, size_t width,
                                size_t rows, bool diagonal) {
    for (size_t r = 0; r < rows; r++)
        forward_softmax_row(scores, r, run, out, width, diagonal);
}

// Divides by the sums, and stores the output and the log-sum-exp of the tile at `time`.
VEC_INLINE void forward_finish(const struct AttentionForward *a, enum Dtype d, const struct Head *h,
                               const struct Running *run, float *out, size_t time) {
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

VEC_INLINE void forward_queries(const struct AttentionForward *a, enum Dtype d,
                                const struct Head *h, struct ForwardScratch s, size_t time) {
    float scores[TILE * TILE] __attribute__((aligned(64)));
    struct Running run = {.max = {0}};
    size_t rows = head_rows(h, time);
    for (size_t r = 0; r < TILE; r++)
        run.max[r] = -FLT_MAX;
    memset(s.out, 0, TILE * h->width * sizeof *s.out);
    tile_pack(s.q, h, head_qkv_rows(h, a->qkv, time, 0), d, 1.0f / sqrtf((float)h->hs));
    for (size_t key = 0; key <= time; key += TILE) {
        bool diagonal = key == time;
        tile_scores(scores, s.q, s.kt + key * h->width, h, rows, diagonal);
        if (diagonal)
            forward_softmax(scores, &run, s.out, h->width, rows, true);
        else
            forward_softmax(scores, &run, s.out, h->width, rows, false);
        tile_add_by_query(s.out, scores, s.v + key * h->width, h, rows, diagonal);
    }
    forward_finish(a, d, h, &run, s.out, time);
}

VEC_INLINE void forward_head(const struct AttentionForward *a, enum Dtype d, const struct Head *h,
                             struct ForwardScratch s) {
    for (size_t key = 0; key < h->t; key += TILE) {
        tile_pack(s.q, h, head_qkv_rows(h, a->qkv, key, 1), d, 1); // q: free until its turn
        tile_transpose(s.kt + key * h->width, s.q, h->width);
        tile_pack(s.v + key * h->width, h, head_qkv_rows(h, a->qkv, key, 2), d, 1);
    }
    for (size_t time = 0; time < h->t; time += TILE)
        forward_queries(a, d, h, s, time);
}

VEC_INLINE void attention_forward(struct Cpu *cpu, const struct AttentionForward *a, enum Dtype d) {
#pragma omp parallel num_threads(cpu->device.threads)
    {
        struct ForwardScratch s = forward_scratch(a, (size_t)omp_get_thread_num());
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < a->b * a->nh; i++) {
            struct Head h = {i / a->nh, i % a->nh, a->t, a->nh, a->hs, head_width(a->hs)};
            forward_head(a, d, &h, s);
        }
    }
}

void CPU_NAME(attention_forward)(struct Cpu *cpu, const struct AttentionForward *a) {
    if (a->dtype == F32)
        attention_forward(cpu, a, F32);
    else
        attention_forward(cpu, a, BF16);
}

size_t CPU_NAME(attention_forward_work)(struct Cpu *cpu, const struct AttentionForward *a) {
    return (size_t)cpu->device.threads * forward_scratch_floats(a->t, a->hs) * sizeof(float);
}
