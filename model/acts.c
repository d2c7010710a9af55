// Memory of activations: see acts.h for what is kept when.
#include "model/acts.h"

#include <stdlib.h>

#define BIT(tensor) (UINT32_C(1) << (tensor))

enum { ARENA_ALIGN = 64 };

static uint32_t kept_tensors(enum Recompute level) {
    uint32_t kept = BIT(NACT) - 1;
    if (level >= RECOMPUTE_GELU)
        kept &= ~BIT(ACT_GELU);
    if (level >= RECOMPUTE_ATTENTION)
        kept &= ~(BIT(ACT_LN1) | BIT(ACT_LSE) | BIT(ACT_ATT) | BIT(ACT_LN2));
    if (level >= RECOMPUTE_BLOCK)
        kept = BIT(ACT_X);
    return kept;
}

static size_t act_bytes(const struct Acts *a, const struct ModelConfig *c, enum Act tensor) {
    size_t rows = a->b_max * a->t_max, width = dtype_size(c->dtype) * c->channels;
    switch (tensor) {
    case ACT_MEAN1:
    case ACT_RSTD1:
    case ACT_MEAN2:
    case ACT_RSTD2:
        return rows * sizeof(float);
    case ACT_LSE:
        return rows * c->heads * sizeof(float);
    case ACT_QKV:
        return rows * 3 * width;
    case ACT_FC:
    case ACT_GELU:
        return rows * 4 * width;
    default:
        return rows * width;
    }
}

// Hands out pieces of an arena one after the other. With base NULL it only measures.
struct Bump {
    char *base;
    size_t used;
};

static void *take(struct Bump *bump, size_t bytes) {
    void *piece = bump->base ? bump->base + bump->used : NULL;
    bump->used += round_up(bytes, ARENA_ALIGN);
    return piece;
}

static void layout(struct Acts *a, const struct ModelConfig *c, struct Bump *bump) {
    size_t rows = a->b_max * a->t_max, bytes = rows * c->channels * dtype_size(c->dtype);
    for (int tensor = 0; tensor < NACT; tensor++) {
        bool kept = a->kept & BIT(tensor);
        void *shared = kept ? NULL : take(bump, act_bytes(a, c, tensor));
        for (size_t layer = 0; layer < c->layers; layer++)
            a->block[layer][tensor] = kept ? take(bump, act_bytes(a, c, tensor)) : shared;
    }
    a->delta = take(bump, bytes);
    a->x_final = take(bump, bytes);
    a->norm_final = take(bump, bytes);
    a->mean_final = take(bump, rows * sizeof(float));
    a->rstd_final = take(bump, rows * sizeof(float));
    a->dx = take(bump, bytes);
    a->dnorm = take(bump, bytes);
    a->dwide = take(bump, 4 * bytes);
    a->losses = take(bump, rows * sizeof(float));
}

// Rows of logits that exist at a time: as many equal chunks as keep one near the target size.
static size_t chunk_rows(size_t rows, const struct ModelConfig *c, size_t piece_bytes) {
    size_t row_bytes = c->vocab_padded * dtype_size(c->dtype);
    size_t most = size_max(16, piece_bytes / row_bytes);
    return ceil_div(rows, ceil_div(rows, most));
}

int acts_open(struct Acts *a, const struct ModelConfig *c, enum Recompute level, size_t b, size_t t,
              size_t piece_bytes, struct Tier *tier, struct Error *e) {
    *a = (struct Acts){.b = b, .t = t, .b_max = b, .t_max = t, .kept = kept_tensors(level)};
    a->block = base_alloc_zeroed(c->layers * sizeof *a->block);
    a->logit_rows = chunk_rows(b * t, c, piece_bytes);
    struct Bump bump = {0};
    layout(a, c, &bump);
    int err = tier_alloc(tier, TAG_ACTIVATION, "activations", bump.used, &a->arena, e);
    if (err)
        return err;
    // In a dry tier the pieces lie at addresses that nobody follows, but that are not NULL: NULL
    // means "no such operand" to a kernel that is asked for its scratch.
    bump.base = a->arena.mem ? a->arena.mem : (char *)ARENA_ALIGN;
    bump.used = 0;
    layout(a, c, &bump);
    err = tier_alloc(tier, TAG_WORKSPACE, "logits of one row chunk",
                     a->logit_rows * c->vocab_padded * dtype_size(c->dtype), &a->logits_block, e);
    a->logits = a->logits_block.mem;
    return err;
}

void acts_close(struct Acts *a) {
    tier_free(&a->arena);
    tier_free(&a->logits_block);
    free(a->block);
    *a = (struct Acts){0};
}
