// The layout, the initial values and the hash of parameter groups. See params.h.
#include "model/params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SHARD_MULTIPLE = 64 }; // elements: shards begin on cache lines in every format

struct Builder {
    struct Group *group;
    uint64_t *index;
};

static void add(struct Builder *b, const char *name, size_t rows, size_t cols, size_t real,
                float mean, float std, enum Split split) {
    struct Group *g = b->group;
    CHECK(g->nparam < MAX_PARAM, "group %s has more than %d parameters", g->name, MAX_PARAM);
    g->param[g->nparam++] =
        (struct Param){name, g->numel, rows, cols, real, *b->index, mean, std, split};
    g->numel += rows * cols;
    *b->index += real;
    if (cols > 1)
        g->decay_end = g->numel;
}

static void add_weight(struct Builder *b, const char *name, size_t rows, size_t cols, float std,
                       enum Split split) {
    add(b, name, rows, cols, rows * cols, 0, std, split);
}

static void add_vector(struct Builder *b, const char *name, size_t n, float mean,
                       enum Split split) {
    add(b, name, n, 1, n, mean, 0, split);
}

static const float init_std = 0.02f;

static void layout_ends(struct Builder *b, const struct ModelConfig *c) {
    size_t C = c->channels;
    add(b, "wte", c->vocab_padded, C, c->vocab * C, 0, init_std, SPLIT_ROWS);
    add_weight(b, "wpe", c->seq_len, C, init_std, SPLIT_NONE);
    add_vector(b, "norm.weight", C, 1, SPLIT_NONE);
    add_vector(b, "norm.bias", C, 0, SPLIT_NONE);
}

// In the order of enum BlockParam. Weights are (out, in).
static void layout_block(struct Builder *b, const struct ModelConfig *c) {
    size_t C = c->channels;
    float residual_std = init_std / sqrtf(2.0f * (float)c->layers);
    add_weight(b, "attention.qkv.weight", 3 * C, C, init_std, SPLIT_ROWS);
    add_weight(b, "attention.proj.weight", C, C, residual_std, SPLIT_COLS);
    add_weight(b, "mlp.fc.weight", 4 * C, C, init_std, SPLIT_ROWS);
    add_weight(b, "mlp.out.weight", C, 4 * C, residual_std, SPLIT_COLS);
    add_vector(b, "norm1.weight", C, 1, SPLIT_NONE);
    add_vector(b, "norm1.bias", C, 0, SPLIT_NONE);
    add_vector(b, "attention.qkv.bias", 3 * C, 0, SPLIT_ROWS);
    add_vector(b, "attention.proj.bias", C, 0, SPLIT_NONE);
    add_vector(b, "norm2.weight", C, 1, SPLIT_NONE);
    add_vector(b, "norm2.bias", C, 0, SPLIT_NONE);
    add_vector(b, "mlp.fc.bias", 4 * C, 0, SPLIT_ROWS);
    add_vector(b, "mlp.out.bias", C, 0, SPLIT_NONE);
}

void params_layout(const struct ModelConfig *c, size_t shards, struct Params *out) {
    *out = (struct Params){.ngroup = (int)c->layers + 1};
    out->group = base_alloc_zeroed(sizeof(struct Group) * (size_t)out->ngroup);
    for (int i = 0; i < out->ngroup; i++) {
        struct Group *g = &out->group[i];
        struct Builder b = {g, &out->real};
        if (i == 0) {
            snprintf(g->name, sizeof g->name, "ends");
            layout_ends(&b, c);
        } else {
            snprintf(g->name, sizeof g->name, "block.%d", i - 1);
            layout_block(&b, c);
        }
        g->padded = round_up(g->numel, shards * SHARD_MULTIPLE);
        out->padded += g->padded;
    }
}

void params_free(struct Params *p) {
    free(p->group);
    *p = (struct Params){0};
}

// Elements [begin, end) of a group, cut to one parameter's real weights: false if none of them are.
struct Piece {
    size_t begin, end; // in the group
    uint64_t index;    // global index of element `begin`
};

static bool piece_of(const struct Param *p, size_t begin, size_t end, struct Piece *out) {
    out->begin = size_max(begin, p->offset);
    out->end = size_min(end, p->offset + p->real);
    out->index = p->index + (out->begin - p->offset);
    return out->begin < out->end;
}

void params_init(const struct Params *p, int g, size_t begin, size_t end, uint64_t seed,
                 struct Device *d, float *dst) {
    const struct Group *group = &p->group[g];
    device_zero(d, QUEUE_COMPUTE, dst, (end - begin) * sizeof *dst); // padding
    for (int i = 0; i < group->nparam; i++) {
        struct Piece piece;
        if (!piece_of(&group->param[i], begin, end, &piece))
            continue;
        d->kernels->fill_normal(d->queue[QUEUE_COMPUTE], &(struct FillNormal){
                                                             .n = piece.end - piece.begin,
                                                             .dst = dst + (piece.begin - begin),
                                                             .seed = seed,
                                                             .index = piece.index,
                                                             .mean = group->param[i].mean,
                                                             .std = group->param[i].std,
                                                         });
    }
}

uint64_t params_hash(const struct Params *p, int g, size_t begin, size_t end, const float *master) {
    const struct Group *group = &p->group[g];
    uint64_t hash = 0;
    for (int i = 0; i < group->nparam; i++) {
        struct Piece piece;
        if (!piece_of(&group->param[i], begin, end, &piece))
            continue;
        const float *w = master + (piece.begin - begin);
        for (size_t j = 0; j < piece.end - piece.begin; j++)
            hash += rng_mix((piece.index + j) * 0x9e3779b97f4a7c15u ^ f32_bits(w[j]));
    }
    return hash;
}
