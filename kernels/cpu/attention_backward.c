// Causal attention, backward, after FlashAttention-2 (Dao 2023, algorithm 2).
//
// For a tile of keys the tiles of queries are walked from the diagonal on. The probabilities are
// computed again from the scores and the saved log-sum-exp. With O the output of the forward pass
// and D_i = dO_i · O_i:
//   P = e^(Q K' - lse)    dV += P' dO    dP = dO V'    dS = P (dP - D)    dQ += dS K    dK += dS' Q
// where ' is transposition and Q was scaled by 1 / sqrt(HS) when it was copied. dK and dV of a tile
// are finished when its walk ends; dQ of the whole head is summed in scratch and rounded once at
// the end.
//
// A thread takes a whole (sequence, head) pair, so nothing is summed across threads.
//
// Called through the kernel table; ref_attention.c says the same without tiles. Read next:
// classifier.c.
#include "kernels/cpu/attention_tile.h"

// One thread's buffers. Of all queries of a head: q, dout, dq (t, width), and lse, d (t), t rounded
// up to whole tiles. Of one tile of keys: k, dk, dv (TILE, width), and the transposes kt, vt
// (width, TILE).
struct BackwardScratch {
    float *q, *dout, *dq, *lse, *d;
    float *k, *kt, *vt, *dk, *dv;
};

static size_t backward_scratch_floats(size_t t, size_t hs) {
    return round_up(t, TILE) * (3 * head_width(hs) + 2) + 5 * TILE * head_width(hs);
}

static struct BackwardScratch backward_scratch(const struct AttentionBackward *a, size_t thread) {
    size_t rows = round_up(a->t, TILE), all = rows * head_width(a->hs);
    size_t tile = TILE * head_width(a->hs);
    float *mem = (float *)a->work.mem + thread * backward_scratch_floats(a->t, a->hs);
    float *keys = mem + 3 * all + 2 * rows;
    return (struct BackwardScratch){
        .q = mem,
        .dout = mem + all,
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

// d[r] = dout · out of query time + r. Queries that do not exist get lse and d of 0: with their
// zero dout they then add nothing.
VEC_INLINE void backward_pack_lse(const struct AttentionBackward *a, enum Dtype d,
                                  const struct Head *h, struct BackwardScratch s, size_t time) {
    struct Rows out = head_out_rows(h, a->out, time);
    for (size_t r = 0; r < TILE; r++) {
        s.lse[time + r] = s.d[time + r] = 0;
        if (r >= out.rows)
            continue;
        Vec sum = vec_set(0);
        size_t at = out.at + r * out.stride;
        for (size_t i = 0; i < h->hs; i += VEC_LANES)
            sum = vec_fma(vec_read(a->out, d, at + i, at + h->hs),
                          vec_load_f32(s.dout + (time + r) * h->width + i), sum);
        s.d[time + r] = vec_sum(sum);
        s.lse[time + r] = a->lse[(h->b * h->nh + h->head) * h->t + time + r];
    }
}

VEC_INLINE void backward_pack_queries(const struct AttentionBackward *a, enum Dtype d,
                                      const struct Head *h, struct BackwardScratch s) {
    float scale = 1.0f / sqrtf((float)h->hs);
    for (size_t time = 0; time < h->t; time += TILE) {
        size_t at = time * h->width;
        tile_pack(s.q + at, h, head_qkv_rows(h, a->qkv, time, 0), d, scale);
        tile_pack(s.dout + at, h, head_out_rows(h, a->dout, time), d, 1);
        memset(s.dq + at, 0, TILE * h->width * sizeof *s.dq);
        backward_pack_lse(a, d, h, s, time);
    }
}

VEC_INLINE void backward_pack_keys(const struct AttentionBackward *a, enum Dtype d,
                                   const struct Head *h, struct BackwardScratch s, size_t key) {
    tile_pack(s.k, h, head_qkv_rows(h, a->qkv, key, 2), d, 1); // the values, on their way to vt
    tile_transpose(s.vt, s.k, h->width);
    tile_pack(s.k, h, head_qkv_rows(h, a->qkv, key, 1), d, 1);
    tile_transpose(s.kt, s.k, h->width);
    memset(s.dk, 0, TILE * h->width * sizeof *s.dk);
    memset(s.dv, 0, TILE * h->width * sizeof *s.dv);
}

// Scores become probabilities.
VEC_INLINE void backward_softmax(float *p, const float *lse, size_t rows, bool diagonal) {
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < (diagonal ? r + 1 : TILE); j += VEC_LANES)
            vec_store_f32(p + r * TILE + j,
                          vec_exp(tile_masked(p, r, j, diagonal) - vec_set(lse[r])));
}

// dp becomes ds.
VEC_INLINE void backward_softmax_gradient(float *dp, const float *p, const float *d, size_t rows,
                                          bool diagonal) {
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < (diagonal ? r + 1 : TILE); j += VEC_LANES) {
            float *ds = dp + r * TILE + j;
            vec_store_f32(ds, vec_load_f32(p + r * TILE + j) * (vec_load_f32(ds) - vec_set(d[r])));
        }
}

// One tile of queries against one tile of keys.
static void backward_tile(const struct Head *h, struct BackwardScratch s, size_t time,
                          bool diagonal) {
    float p[TILE * TILE] __attribute__((aligned(64))), ds[TILE * TILE] __attribute__((aligned(64)));
    float *q = s.q + time * h->width, *dout = s.dout + time * h->width;
    size_t rows = head_rows(h, time);
    tile_scores(p, q, s.kt, h, rows, diagonal);
    if (diagonal)
        backward_softmax(p, s.lse + time, rows, true);
    else
        backward_softmax(p, s.lse + time, rows, false);
    tile_add_by_key(s.dv, p, dout, h, rows, diagonal);
    tile_scores(ds, dout, s.vt, h, rows, diagonal);
    backward_softmax_gradient(ds, p, s.d + time, rows, diagonal);
    tile_add_by_query(s.dq + time * h->width, ds, s.k, h, rows, diagonal, NULL);
    tile_add_by_key(s.dk, ds, q, h, rows, diagonal);
}

VEC_INLINE void backward_head(const struct AttentionBackward *a, enum Dtype d, const struct Head *h,
                              struct BackwardScratch s) {
    backward_pack_queries(a, d, h, s);
    for (size_t key = 0; key < h->t; key += TILE) {
        backward_pack_keys(a, d, h, s, key);
        for (size_t time = key; time < h->t; time += TILE)
            backward_tile(h, s, time, time == key);
        tile_unpack(s.dk, h, head_qkv_rows(h, a->dqkv, key, 1), d, 1);
        tile_unpack(s.dv, h, head_qkv_rows(h, a->dqkv, key, 2), d, 1);
    }
    float scale = 1.0f / sqrtf((float)h->hs);
    for (size_t time = 0; time < h->t; time += TILE)
        tile_unpack(s.dq + time * h->width, h, head_qkv_rows(h, a->dqkv, time, 0), d, scale);
}

VEC_INLINE void attention_backward(struct Cpu *cpu, const struct AttentionBackward *a,
                                   enum Dtype d) {
#pragma omp parallel num_threads(cpu->device.threads)
    {
        struct BackwardScratch s = backward_scratch(a, (size_t)omp_get_thread_num());
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < a->b * a->nh; i++) {
            struct Head h = {i / a->nh, i % a->nh, a->t, a->nh, a->hs, head_width(a->hs)};
            backward_head(a, d, &h, s);
        }
    }
}

void CPU_NAME(attention_backward)(struct Cpu *cpu, const struct AttentionBackward *a) {
    WITH_DTYPE(a->dtype, attention_backward(cpu, a, D));
}

size_t CPU_NAME(attention_backward_work)(struct Cpu *cpu, const struct AttentionBackward *a) {
    return (size_t)cpu->device.threads * backward_scratch_floats(a->t, a->hs) * sizeof(float);
}
