// The table of units, and the layout, initial values and hash of parameter groups. See params.h.
#include "model/params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SHARD_MULTIPLE = 64 }; // elements: shards begin on cache lines in every format

struct Builder {
    struct Group *group;
    uint64_t *index;
};

static const struct Param *add(struct Builder *b, const char *name, size_t rows, size_t cols,
                               size_t real, float mean, float std) {
    struct Group *g = b->group;
    CHECK(g->nparam < MAX_PARAM, "group %s has more than %d parameters", g->name, MAX_PARAM);
    struct Param *p = &g->param[g->nparam++];
    *p = (struct Param){name, g->numel, rows, cols, real, *b->index, mean, std};
    g->numel += rows * cols;
    *b->index += real;
    if (cols > 1)
        g->decay_end = g->numel;
    return p;
}

static const struct Param *add_weight(struct Builder *b, const char *name, size_t rows, size_t cols,
                                      float std) {
    return add(b, name, rows, cols, rows * cols, 0, std);
}

static const struct Param *add_vector(struct Builder *b, const char *name, size_t n, float mean) {
    return add(b, name, n, 1, n, mean, 0);
}

static const float init_std = 0.02f;

static const struct Param *add_tokens(struct Builder *b, const struct ModelConfig *c,
                                      const char *name) {
    size_t C = c->channels;
    return add(b, name, c->vocab_padded, C, c->vocab * C, 0, init_std);
}

static void layout_embedding(struct Builder *b, const struct ModelConfig *c,
                             const struct Param *end[NEND]) {
    size_t positions = c->family->position == POSITION_LEARNED ? c->positions : 0;
    end[END_WTE] = add_tokens(b, c, "wte");
    end[END_WPE] = add_weight(b, "wpe", positions, c->channels, init_std);
}

// Where the group has the token embedding already, that is the head's matrix.
static void layout_head(struct Builder *b, const struct ModelConfig *c,
                        const struct Param *end[NEND]) {
    size_t C = c->channels;
    end[END_HEAD_W] = b->group->nparam ? end[END_WTE] : add_tokens(b, c, "weight");
    end[END_NORM_W] = add_vector(b, "norm.weight", C, 1);
    end[END_NORM_B] = add_vector(b, "norm.bias", c->family->bias ? C : 0, 0);
}

// In the order of enum BlockParam. Weights are (out, in). qkv has the rows of the queries' heads,
// then the keys', then the values'; SwiGLU's fc those of the gate, then those of what it gates.
static void layout_block(struct Builder *b, const struct ModelConfig *c) {
    const struct Family *f = c->family;
    size_t C = c->channels, qkv = model_qkv_width(c), att = model_attention_width(c);
    size_t fc = model_fc_width(c), bias = f->bias, qk_norm = f->qk_norm;
    float residual_std = init_std / sqrtf(2.0f * (float)c->layers);
    add_weight(b, "attention.qkv.weight", qkv, C, init_std);
    add_weight(b, "attention.proj.weight", C, att, residual_std);
    add_weight(b, "mlp.fc.weight", fc, C, init_std);
    add_weight(b, "mlp.out.weight", C, c->ffn, residual_std);
    add_vector(b, "norm1.weight", C, 1);
    add_vector(b, "norm1.bias", bias * C, 0);
    add_vector(b, "attention.qkv.bias", f->qkv_bias * qkv, 0);
    add_vector(b, "attention.proj.bias", bias * C, 0);
    add_vector(b, "norm2.weight", C, 1);
    add_vector(b, "norm2.bias", bias * C, 0);
    add_vector(b, "mlp.fc.bias", bias * fc, 0);
    add_vector(b, "mlp.out.bias", bias * C, 0);
    add_vector(b, "attention.q_norm.weight", qk_norm * c->head_size, 1);
    add_vector(b, "attention.k_norm.weight", qk_norm * c->head_size, 1);
}

// Units 0 .. L+1, each with its group.
static void list_units(const struct ModelConfig *c, struct Params *out) {
    int head = (int)c->layers + 1;
    out->nunit = head + 1;
    out->unit = base_alloc_zeroed((size_t)out->nunit * sizeof *out->unit);
    for (int u = 0; u <= head; u++)
        out->unit[u] = (struct Unit){UNIT_BLOCK, u, u - 1, true};
    // The embedding's backward pass only adds to rows of its gradient.
    out->unit[0] = (struct Unit){UNIT_EMBEDDING, 0, -1, false};
    out->unit[head] = (struct Unit){UNIT_HEAD, c->untied ? head : 0, -1, true};
    out->ngroup = c->untied ? head + 1 : head;
}

static void name_group(const struct Params *p, struct Group *g) {
    const struct Unit *unit = &p->unit[g->first_unit];
    if (unit->kind == UNIT_BLOCK)
        snprintf(g->name, sizeof g->name, "block.%d", unit->layer);
    else if (g->first_unit != g->last_unit)
        snprintf(g->name, sizeof g->name, "ends");
    else
        snprintf(g->name, sizeof g->name, "%s", unit->kind == UNIT_HEAD ? "head" : "embedding");
}

// Appends the parameters of every unit that uses group g.
static void layout_group(struct Params *p, int g, const struct ModelConfig *c) {
    struct Group *group = &p->group[g];
    struct Builder b = {group, &p->real};
    group->first_unit = p->nunit;
    for (int u = 0; u < p->nunit; u++) {
        if (p->unit[u].group != g)
            continue;
        group->first_unit = group->first_unit < u ? group->first_unit : u;
        group->last_unit = u;
        if (p->unit[u].kind == UNIT_EMBEDDING)
            layout_embedding(&b, c, p->end);
        else if (p->unit[u].kind == UNIT_HEAD)
            layout_head(&b, c, p->end);
        else
            layout_block(&b, c);
    }
    name_group(p, group);
}

static void note_largest(struct Params *p, int g) {
    bool block = params_is_block(p, g);
    int *largest = &p->largest[block];
    if (params_is_block(p, *largest) != block || p->group[g].padded > p->group[*largest].padded)
        *largest = g;
}

void params_layout(const struct ModelConfig *c, size_t shards, struct Params *out) {
    *out = (struct Params){0};
    list_units(c, out);
    out->group = base_alloc_zeroed(sizeof(struct Group) * (size_t)out->ngroup);
    for (int g = 0; g < out->ngroup; g++) {
        struct Group *group = &out->group[g];
        layout_group(out, g, c);
        group->padded = round_up(group->numel, shards * SHARD_MULTIPLE);
        out->padded += group->padded;
        note_largest(out, g);
    }
}

void params_free(struct Params *p) {
    free(p->unit);
    free(p->group);
    *p = (struct Params){0};
}

int params_tell(const struct ModelConfig *c, TellParam *tell, void *context, struct Error *e) {
    struct Params p;
    int err = 0;
    params_layout(c, 1, &p);
    for (int g = 0; g < p.ngroup; g++)
        for (int i = 0; i < p.group[g].nparam && !err; i++)
            if (p.group[g].param[i].real)
                err = tell(context, params_layer(&p, g), p.group[g].param[i].name, e);
    params_free(&p);
    return err;
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
