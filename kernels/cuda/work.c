// Scratch of CUDA's kernels: see work.h. Next: plan.c.
#include "kernels/cuda/work.h"

enum { LEAST_WORKSPACE_BYTES = 64 << 10, MOST_WORKSPACE_BYTES = 32 << 20, MOST_SPLITS = 64 };
enum { SLICE_BYTES = 4 << 20 };

// ---- matmul ----

size_t blas_workspace_bytes(size_t m, size_t n) {
    size_t wanted = LEAST_WORKSPACE_BYTES + MOST_SPLITS * m * n * sizeof(float);
    return round_up(size_min(wanted, MOST_WORKSPACE_BYTES), 256);
}

size_t cuda_slice_rows(const struct Matmul *a) {
    size_t rows = SLICE_BYTES / (a->n * sizeof(float)) / 8 * 8;
    return size_min(a->m, size_max(rows, 8));
}

size_t cuda_row_sums_bytes(const struct Matmul *a) {
    return a->a.transposed ? ceil_div(a->k, ROW_SUMS_PIECE) * a->m * sizeof(float) : 0;
}

struct MatmulScratch cuda_matmul_scratch(const struct Matmul *a) {
    size_t own = a->dbias ? cuda_row_sums_bytes(a) : 0;
    size_t dbias = a->dbias ? a->m * dtype_size(a->c.dtype) : 0;
    if (a->c.dtype != F32)
        own = size_max(own, cuda_slice_rows(a) * a->n * sizeof(float));
    return (struct MatmulScratch){blas_workspace_bytes(a->m, a->n), round_up(own, MATMUL_BOUNDARY),
                                  round_up(dbias, MATMUL_BOUNDARY)};
}

size_t cuda_matmul_work(struct Device *d, const struct Matmul *a) {
    struct MatmulScratch s = cuda_matmul_scratch(a);
    (void)d;
    return s.workspace + s.own + s.dbias + MATMUL_BOUNDARY;
}

// ---- the others ----

struct NormTeams cuda_norm_teams(size_t c, enum Dtype d) {
    size_t of_pack = 16 / dtype_size(d), all = ceil_div(c, of_pack), most;
    struct NormTeams t = {1, 0, 0};
    for (;; t.packs *= 2) {
        most = NORM_THREADS(t.packs * of_pack);
        t.threads = round_up(ceil_div(all, t.packs), 32); // whole warps
        if (t.threads <= most)
            break;
    }
    t.teams = most / t.threads;
    return t;
}

size_t cuda_norm_backward_work(struct Device *d, const struct NormBackward *a) {
    size_t teams = cuda_norm_teams(a->c, a->dtype).teams;
    (void)d;
    return a->dweight ? size_min(NORM_BLOCKS, ceil_div(a->rows, teams)) * 2 * a->c * sizeof(float)
                      : 0;
}

size_t cuda_rotate_backward_work(struct Device *d, const struct RotateBackward *a) {
    size_t blocks = size_min(ROTATE_BLOCKS, a->b * a->t);
    (void)d;
    return a->dq_norm || a->dk_norm ? blocks * 2 * a->hs * sizeof(float) : 0;
}

// A softmax is in registers.
size_t cuda_attention_cached_work(struct Device *d, const struct AttentionCached *a) {
    (void)d;
    (void)a;
    return 0;
}

size_t cuda_attention_forward_work(struct Device *d, const struct AttentionForward *a) {
    (void)d;
    (void)a;
    return 0;
}

size_t cuda_attention_backward_work(struct Device *d, const struct AttentionBackward *a) {
    (void)d;
    return a->b * a->nh * round_up(a->t, ATTENTION_ROWS) * ATTENTION_STATS;
}

struct EmbedScratch cuda_embed_scratch(const struct EmbedBackward *a) {
    size_t rows = a->b * a->t, tiles = ceil_div(rows, EMBED_SORT_TILE);
    size_t sort = (2 * rows + EMBED_SORT_DIGITS * tiles) * sizeof(int32_t);
    size_t parts = ceil_div(rows, EMBED_TILE) * 2 * a->c * sizeof(float);
    return (struct EmbedScratch){round_up(sort, 16), parts,
                                 a->dwpe && a->starts ? rows * sizeof(int32_t) : 0};
}

size_t cuda_embed_backward_work(struct Device *d, const struct EmbedBackward *a) {
    struct EmbedScratch s = cuda_embed_scratch(a);
    (void)d;
    return s.sort + s.parts + s.positions;
}
