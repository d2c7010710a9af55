// The table of units, and the layout, initial values and hash of parameter groups. See params.h.
#include "model/params.h"
#include "model/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)BLOCK_OUT_W == (int)ADAPTER_OUT && (int)NPRODUCT <= (int)BLOCK_NORM1_W,
               "the matrices of a block are not its first parameters");

static const float init_std = 0.02f;

struct Builder {
    struct Group *group;
    uint64_t *index;
    size_t tp_rank, tp_size;
};

// A tensor of the whole model, with the padded rows of tokens of every TP rank.
struct ParamSpec {
    const char *name;
    enum ParamSplit split;
    size_t rows[MAX_PARTS]; // of its parts, each of which is split on its own
    size_t cols;
    float mean, std;
    size_t padding; // rows at its end that are not weights
    enum GradSource grad;
};

// Takes this TP rank's rows of the tensor.
static void slice_rows(const struct Builder *b, const struct ParamSpec *t, struct Param *p) {
    bool split = t->split == SPLIT_ROWS && b->tp_size > 1;
    for (int i = 0; i < MAX_PARTS; i++) {
        size_t rows = t->rows[i] / (split ? b->tp_size : 1);
        if (split)
            p->part[i].first = p->whole_rows + b->tp_rank * rows;
        p->part[split ? i : 0].rows += rows; // else one part has them all
        p->rows += rows;
        p->whole_rows += t->rows[i];
    }
}

// Appends this TP rank's part of tensor t to the group. Matrices come first, so decay_end is the
// end of the last one.
static const struct Param *add_param(struct Builder *b, struct ParamSpec t) {
    struct Group *g = b->group;
    CHECK(g->nparam < MAX_PARAM, "group %s has more than %d parameters", g->name, MAX_PARAM);
    struct Param *p = &g->param[g->nparam++];
    *p = (struct Param){.name = t.name,
                        .offset = g->numel,
                        .mean = t.mean,
                        .std = t.std,
                        .split = t.split,
                        .grad = t.grad,
                        .index = *b->index,
                        .cols = t.cols / (t.split == SPLIT_COLUMNS ? b->tp_size : 1),
                        .whole_cols = t.cols};
    p->first_col = t.split == SPLIT_COLUMNS ? b->tp_rank * p->cols : 0;
    slice_rows(b, &t, p);
    p->whole_rows -= t.padding;
    // Rows of the tensor from this part's first on, without the padding at the tensor's end.
    size_t weight_rows = p->whole_rows - size_min(p->whole_rows, p->part[0].first);
    p->real = (t.padding ? size_min(p->rows, weight_rows) : p->rows) * p->cols;
    g->numel += p->rows * p->cols;
    *b->index += p->whole_rows * p->whole_cols;
    if (t.cols > 1 || g->kind == GROUP_ADAPTER)
        g->decay_end = g->numel;
    return p;
}

// Adds a matrix with a row for each token; each TP rank has as many rows.
static const struct Param *add_tokens(struct Builder *b, const struct ModelConfig *c,
                                      const char *name) {
    size_t rows = b->tp_size * model_config_part(c, b->tp_rank, b->tp_size).vocab_padded;
    return add_param(
        b,
        (struct ParamSpec){name, SPLIT_ROWS, {rows}, c->channels, 0, init_std, rows - c->vocab, 0});
}

// Adds a vector of n weights or biases of a norm, all of which begin as `mean`.
static const struct Param *add_norm(struct Builder *b, const char *name, size_t n, float mean) {
    return add_param(b, (struct ParamSpec){name, SPLIT_NONE, {n}, 1, mean, 0, 0, GRAD_OF_ROWS});
}

static void layout_embedding(struct Builder *b, const struct ModelConfig *c,
                             const struct Param *end[NEND]) {
    size_t positions = c->family->position == POSITION_LEARNED ? c->positions : 0;
    end[END_WTE] = add_tokens(b, c, "wte");
    end[END_WPE] = add_param(
        b, (struct ParamSpec){"wpe", SPLIT_NONE, {positions}, c->channels, 0, init_std, 0, 0});
}

// If the group already has the token embedding, that is the head's matrix.
static void layout_head(struct Builder *b, const struct ModelConfig *c,
                        const struct Param *end[NEND]) {
    size_t C = c->channels;
    end[END_HEAD_W] = b->group->nparam ? end[END_WTE] : add_tokens(b, c, "weight");
    end[END_NORM_W] = add_norm(b, "norm.weight", C, 1);
    end[END_NORM_B] = add_norm(b, "norm.bias", c->family->bias ? C : 0, 0);
}

// Adds a block's parameters in the order of enum BlockParam. Weights are (out, in). qkv has rows
// for the queries' heads, then the keys', then the values'; SwiGLU's fc for the gate, then for the
// values that it gates.
static void layout_block(struct Builder *b, const struct ModelConfig *c) {
    const struct Family *f = c->family;
    size_t C = c->channels, q = model_attention_width(c), kv = c->kv_heads * c->head_size;
    size_t gate = c->ffn, up = model_fc_width(c) - gate, bias = f->bias, qkv_b = f->qkv_bias;
    size_t qk_norm_size = f->qk_norm * c->head_size;
    float std = init_std, residual_std = std / sqrtf(2.0f * (float)c->layers);
    const struct ParamSpec block[] = {
        {"attention.qkv.weight", SPLIT_ROWS, {q, kv, kv}, C, 0, std, 0, 0},
        {"attention.proj.weight", SPLIT_COLUMNS, {C}, q, 0, residual_std, 0, 0},
        {"mlp.fc.weight", SPLIT_ROWS, {gate, up}, C, 0, std, 0, 0},
        {"mlp.out.weight", SPLIT_COLUMNS, {C}, c->ffn, 0, residual_std, 0, 0},
        {"norm1.weight", SPLIT_NONE, {C}, 1, 1, 0, 0, GRAD_OF_ROWS},
        {"norm1.bias", SPLIT_NONE, {bias * C}, 1, 0, 0, 0, GRAD_OF_ROWS},
        {"attention.qkv.bias", SPLIT_ROWS, {qkv_b * q, qkv_b * kv, qkv_b * kv}, 1, 0, 0, 0, 0},
        {"attention.proj.bias", SPLIT_NONE, {bias * C}, 1, 0, 0, 0, 0},
        {"norm2.weight", SPLIT_NONE, {C}, 1, 1, 0, 0, GRAD_OF_ROWS},
        {"norm2.bias", SPLIT_NONE, {bias * C}, 1, 0, 0, 0, GRAD_OF_ROWS},
        {"mlp.fc.bias", SPLIT_ROWS, {bias * gate, bias * up}, 1, 0, 0, 0, 0},
        {"mlp.out.bias", SPLIT_NONE, {bias * C}, 1, 0, 0, 0, 0},
        {"attention.q_norm.weight", SPLIT_NONE, {qk_norm_size}, 1, 1, 0, 0, GRAD_OF_PART},
        {"attention.k_norm.weight", SPLIT_NONE, {qk_norm_size}, 1, 1, 0, 0, GRAD_OF_PART},
    };
    for (int i = 0; i < NBLOCK; i++)
        add_param(b, block[i]);
}

// Adds an A (rank, in) and a B (out, rank) for each target; their product is added to its rows of
// the block's matrix (adapter_ops.h). The A's come first, and those of one input are adjacent. A
// is split like the input's columns, B like the output's rows; a whole one's gradient is a sum of
// what each TP rank has of the other. A's initial values are PyTorch's kaiming_uniform_ with
// a = sqrt 5, B's are 0 (Hu et al. 2021, section 4.1).
static void layout_adapter(struct Builder *b, const struct ModelConfig *c) {
    for (int i = 0; i < NADAPTER; i++) {
        enum LoraTarget target = (enum LoraTarget)(i % ADAPTER_B);
        struct AdapterTarget t = adapter_target(c, target);
        bool columns = t.columns, has = lora_has(&c->lora, target);
        size_t rank = has ? c->lora.rank : 0, *rows = t.rows;
        float bound = 1 / sqrtf((float)t.in);
        if (i < ADAPTER_B)
            add_param(b, (struct ParamSpec){t.a,
                                            columns ? SPLIT_COLUMNS : SPLIT_NONE,
                                            {rank},
                                            t.in,
                                            0,
                                            bound,
                                            0,
                                            columns ? GRAD_OF_ALL : GRAD_OF_PART});
        else
            add_param(b, (struct ParamSpec){t.b,
                                            columns ? SPLIT_NONE : SPLIT_ROWS,
                                            {has * rows[0], has * rows[1], has * rows[2]},
                                            c->lora.rank,
                                            0,
                                            0,
                                            0,
                                            columns ? GRAD_OF_PART : GRAD_OF_ALL});
        b->group->param[i].uniform = i < ADAPTER_B;
    }
}

// Lists units 0 .. L+1, each with its group.
static void list_units(const struct ModelConfig *c, struct Params *out) {
    int head = (int)c->layers + 1;
    out->nunit = head + 1;
    out->unit = base_alloc_zeroed((size_t)out->nunit * sizeof *out->unit);
    for (int u = 0; u <= head; u++)
        out->unit[u] = (struct Unit){UNIT_BLOCK, u, -1, u - 1, true};
    // The embedding's backward pass only adds to rows of its gradient.
    out->unit[0] = (struct Unit){UNIT_EMBEDDING, 0, -1, -1, false};
    out->unit[head] = (struct Unit){UNIT_HEAD, c->untied ? head : 0, -1, -1, true};
    out->ngroup = c->untied ? head + 1 : head;
    for (int u = 1; u < head; u++)
        if (model_unit_has_adapter(c, u))
            out->unit[u].adapter = out->ngroup++;
    out->all_units = out->nunit;
    out->all_groups = out->ngroup;
}

static void name_group(const struct Params *p, struct Group *g) {
    const struct Unit *unit = &p->unit[g->first_unit];
    if (g->kind == GROUP_ADAPTER)
        snprintf(g->name, sizeof g->name, "adapter.%d", unit->layer);
    else if (unit->kind == UNIT_BLOCK)
        snprintf(g->name, sizeof g->name, "block.%d", unit->layer);
    else if (g->first_unit != g->last_unit)
        snprintf(g->name, sizeof g->name, "ends");
    else
        snprintf(g->name, sizeof g->name, "%s", unit->kind == UNIT_HEAD ? "head" : "embedding");
}

static bool unit_uses_group(const struct Unit *unit, int g) {
    return unit->group == g || unit->adapter == g;
}

// Appends the parameters of every unit that uses group g.
static void layout_group(struct Params *p, int g) {
    const struct ModelConfig *c = &p->config;
    struct Group *group = &p->group[g];
    struct Builder b = {group, &p->real, p->tp_rank, p->tp_size};
    group->number = g;
    group->first_unit = p->nunit;
    for (int u = 0; u < p->nunit; u++) {
        if (!unit_uses_group(&p->unit[u], g))
            continue;
        group->first_unit = group->first_unit < u ? group->first_unit : u;
        group->last_unit = u;
        group->kind = p->unit[u].adapter == g         ? GROUP_ADAPTER
                      : p->unit[u].kind == UNIT_BLOCK ? GROUP_BLOCK
                                                      : GROUP_END;
        if (group->kind == GROUP_ADAPTER)
            layout_adapter(&b, c);
        else if (group->kind == GROUP_BLOCK)
            layout_block(&b, c);
        else if (p->unit[u].kind == UNIT_EMBEDDING)
            layout_embedding(&b, c, p->end);
        else
            layout_head(&b, c, p->end);
    }
    group->frozen = group->kind != GROUP_ADAPTER && model_unit_is_frozen(c, group->first_unit);
    name_group(p, group);
}

void params_layout(const struct ModelConfig *whole, size_t shards, size_t tp_rank, size_t tp_size,
                   struct Params *out) {
    CHECK(tp_rank < tp_size, "TP rank %zu of %zu", tp_rank, tp_size);
    *out = (struct Params){.config = *whole, .tp_rank = tp_rank, .tp_size = tp_size};
    list_units(whole, out);
    out->group = base_alloc_zeroed(sizeof(struct Group) * (size_t)out->ngroup);
    for (int g = 0; g < out->ngroup; g++) {
        struct Group *group = &out->group[g];
        layout_group(out, g);
        size_t multiple = params_packs(out, g) ? BASE_RUN : SHARD_MULTIPLE;
        group->padded = round_up(group->numel, shards * multiple);
        out->padded += group->padded;
    }
    out->first_trained = model_first_trained(whole);
}

// ---- a stage ----

static bool is_used(const struct Params *p, int g) {
    for (int u = 0; u < p->nunit; u++)
        if (unit_uses_group(&p->unit[u], g))
            return true;
    return false;
}

// Makes group g of the whole model group `to` of the stage, and updates its units.
static void keep_group(struct Params *p, int g, int to, const struct Param *end[NEND]) {
    struct Group *group = &p->group[to], *was = &p->group[g];
    int used = 0, first = 0, last = 0;
    for (int i = 0; i < NEND; i++)
        if (p->end[i] >= was->param && p->end[i] < was->param + MAX_PARAM)
            end[i] = group->param + (p->end[i] - was->param);
    memmove(group, was, sizeof *group);
    for (int u = 0; u < p->nunit; u++) {
        if (!unit_uses_group(&p->unit[u], g))
            continue;
        *(p->unit[u].group == g ? &p->unit[u].group : &p->unit[u].adapter) = to;
        first = used++ ? first : u;
        last = u;
    }
    group->copy = group->first_unit != first + p->first_unit;
    group->shared = group->copy || group->last_unit != last + p->first_unit;
    group->first_unit = first;
    group->last_unit = last;
    p->padded += group->padded;
}

void params_keep_stage(struct Params *p, int first, int count) {
    const struct Param *end[NEND] = {0};
    int groups = p->ngroup, kept = 0;
    CHECK(first >= 0 && count > 0 && first + count <= p->nunit && p->nunit == p->all_units,
          "units %d .. %d of %d", first, first + count - 1, p->nunit);
    p->first_unit = first;
    for (int u = 0; u < first; u++)
        p->first_layer += p->unit[u].kind == UNIT_BLOCK;
    memmove(p->unit, p->unit + first, (size_t)count * sizeof *p->unit);
    p->nunit = count;
    for (int u = 0; u < count; u++)
        p->unit[u].layer -= p->unit[u].kind == UNIT_BLOCK ? p->first_layer : 0;
    p->padded = 0;
    for (int g = 0; g < groups; g++)
        if (is_used(p, g))
            keep_group(p, g, kept++, end);
    p->ngroup = kept;
    memcpy(p->end, end, sizeof end);
}

void params_free(struct Params *p) {
    free(p->unit);
    free(p->group);
    *p = (struct Params){0};
}

int params_visit(const struct ModelConfig *c, bool adapters, VisitParam *visit, void *context,
                 struct Error *e) {
    struct Params p;
    int err = 0;
    params_layout(c, 1, 0, 1, &p);
    for (int g = 0; g < p.ngroup; g++)
        for (int i = 0; i < p.group[g].nparam && !err; i++)
            if (p.group[g].param[i].real && (p.group[g].kind == GROUP_ADAPTER) == adapters)
                err = visit(context, params_layer(&p, g), p.group[g].param[i].name, e);
    params_free(&p);
    return err;
}

uint64_t params_trained(const struct ModelConfig *c) {
    struct Params p;
    uint64_t n = 0;
    params_layout(c, 1, 0, 1, &p);
    for (int g = 0; g < p.ngroup; g++)
        for (int i = 0; i < p.group[g].nparam; i++)
            n += p.group[g].frozen ? 0 : p.group[g].param[i].real;
    params_free(&p);
    return n;
}

static struct FillNormal fill_of(const struct Piece *p, uint64_t seed, float *dst) {
    const struct WeightsRange *r = &p->range;
    return (struct FillNormal){
        .n = r->n,
        .dst = dst,
        .seed = seed,
        .index = p->param->index + r->at + (r->run ? 0 : r->first),
        .mean = p->param->mean,
        .std = p->param->std,
        .uniform = p->param->uniform,
        .first = r->first,
        .run = r->run,
        .stride = r->stride,
    };
}

void params_init(const struct Params *p, int g, size_t begin, size_t end, uint64_t seed,
                 struct Device *d, float *dst) {
    struct Piece piece[MAX_PIECES];
    int n = params_pieces(&p->group[g], begin, end, piece);
    device_zero(d, QUEUE_COMPUTE, dst, (end - begin) * sizeof *dst); // padding
    for (int i = 0; i < n; i++) {
        struct FillNormal fill = fill_of(&piece[i], seed, dst + (piece[i].begin - begin));
        d->kernels->fill_normal(d->queue[QUEUE_COMPUTE], &fill);
    }
}

static uint64_t hash_piece(const struct Piece *p, const float *w) {
    uint64_t hash = 0;
    for (size_t n, i = 0; i < p->range.n; i += n) {
        uint64_t index = p->param->index + weights_at(&p->range, i);
        n = weights_beside(&p->range, i);
        for (size_t j = 0; j < n; j++)
            hash += rng_mix((index + j) * 0x9e3779b97f4a7c15u ^ f32_bits(w[i + j]));
    }
    return hash;
}

uint64_t params_hash(const struct Params *p, int g, size_t begin, size_t end, const float *master) {
    struct Piece piece[MAX_PIECES];
    int n = params_pieces(&p->group[g], begin, end, piece);
    uint64_t hash = 0;
    for (int i = 0; i < n; i++)
        if (params_counts(p, piece[i].param))
            hash += hash_piece(&piece[i], master + (piece[i].begin - begin));
    return hash;
}

// ---- adapters ----

// Adds s B A to columns [col, col + n) of one row of a target.
static void add_row(const float *b, const float *a, size_t rank, size_t cols, size_t col, size_t n,
                    float s, float *values) {
    enum { PIECE = 256 };
    float sum[PIECE];
    for (size_t count, i = 0; i < n; i += count) {
        count = size_min(PIECE, n - i);
        memset(sum, 0, sizeof sum);
        for (size_t k = 0; k < rank; k++)
            for (size_t j = 0; j < count; j++)
                sum[j] += b[k] * a[k * cols + col + i + j];
        for (size_t j = 0; j < count; j++)
            values[i + j] += s * sum[j];
    }
}

void params_add_adapter(const struct Params *p, int g, const struct Param *param, size_t at,
                        size_t n, const float *adapter, float *values) {
    struct ModelConfig part = model_config_part(&p->config, p->tp_rank, p->tp_size);
    const struct Param *adapter_param = p->group[p->unit[p->group[g].first_unit].adapter].param;
    float s = (float)(part.lora.alpha / (double)part.lora.rank);
    enum LoraTarget target[LORA_BESIDE];
    int product = (int)(param - p->group[g].param), count = 0;
    if (product < NPRODUCT)
        count = adapter_targets(&part, (enum AdapterProduct)product, target);
    for (int i = 0; i < count; i++) {
        struct AdapterTarget t = adapter_target(&part, target[i]);
        const float *A = adapter + adapter_param[target[i]].offset;
        const float *B = adapter + adapter_param[ADAPTER_B + target[i]].offset;
        size_t first = param->offset + t.first * t.in, end = first + t.out * t.in;
        size_t low = size_max(at, first), high = size_min(at + n, end);
        for (size_t some; low < high; low += some) {
            size_t row = (low - first) / t.in, col = (low - first) % t.in;
            some = size_min(t.in - col, high - low);
            add_row(B + row * part.lora.rank, A, part.lora.rank, t.in, col, some, s,
                    values + (low - at));
        }
    }
}
