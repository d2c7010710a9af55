// The walk's three calls on a unit, which the table of units (params.h) dispatches to block.c and
// ends.c. Also the tables and the scratch that kernels need.
#include "model/launch.h"

#include <stdlib.h>

static const struct {
    void (*forward)(struct Model *, const struct Unit *, void *const w[], struct Acts *);
    void (*backward)(struct Model *, const struct Unit *, void *const w[], const struct Grad dw[],
                     struct Acts *);
} kinds[] = {
    [UNIT_EMBEDDING] = {embedding_forward, embedding_backward},
    [UNIT_BLOCK] = {block_forward, block_backward},
    [UNIT_HEAD] = {head_forward, head_backward},
};

void unit_forward(struct Model *m, int u, void *const w[], struct Acts *acts) {
    const struct Unit *unit = &m->params->unit[u];
    kinds[unit->kind].forward(m, unit, w, acts);
    if (u + 1 == model_units(m) && unit->kind != UNIT_HEAD)
        stage_output(m, acts);
}

void acts_restore(struct Model *m, int u, void *const w[], struct Acts *acts) {
    const struct Unit *unit = &m->params->unit[u];
    if (unit->kind == UNIT_BLOCK)
        block_restore(m, unit, w, acts);
}

void unit_backward(struct Model *m, int u, void *const w[], const struct Grad dw[],
                   struct Acts *acts) {
    const struct Unit *unit = &m->params->unit[u];
    kinds[unit->kind].backward(m, unit, w, dw, acts);
}

// Walks the ends and one block of a kind. m->sizing is set, so launches only ask for scratch. No
// pointer is followed; those that a launch tests (is there a bias? a GELU?) must only not be NULL.
static void measure_scratch(struct Model *m, struct Acts *acts, bool backward, bool accumulate) {
    static char somewhere[1];
    void **w = base_alloc_zeroed((size_t)m->params->ngroup * sizeof *w);
    struct Grad *dw = base_alloc_zeroed((size_t)m->params->ngroup * sizeof *dw);
    for (int g = 0; g < m->params->ngroup; g++) {
        w[g] = somewhere;
        dw[g] = (struct Grad){m->params->group[g].frozen ? NULL : somewhere, accumulate};
    }
    for (int u = 0; u < m->params->nunit; u++) {
        if (params_is_as_before(m->params, u))
            continue;
        unit_forward(m, u, w, acts);
        acts_restore(m, u, w, acts);
        if (backward && u >= params_first_backward(m->params))
            unit_backward(m, u, w, dw, acts);
    }
    free(w);
    free(dw);
}

// Fills one of the model's tables, for b sequences of t tokens, in host memory.
typedef void FillTable(const struct ModelConfig *c, size_t b, size_t t, void *table);

// Allocates a table from `tier` and copies it there; a dry tier has no memory to copy to.
static int place_table(struct Model *m, struct Tier *tier, const char *what, const void *table,
                       size_t bytes, struct Block *out, struct Error *e) {
    int err = tier_alloc(tier, TAG_WORKSPACE, what, bytes, out, e);
    if (err || tier_is_dry(tier))
        return err;
    device_copy(m->device, QUEUE_COMPUTE, out->mem, table, bytes);
    device_sync_queue(m->device, QUEUE_COMPUTE);
    return 0;
}

static int open_table(struct Model *m, struct Tier *tier, const char *what, size_t bytes,
                      const struct Acts *acts, FillTable *fill, struct Block *out,
                      struct Error *e) {
    void *table = tier->device ? base_alloc(bytes) : NULL;
    if (table)
        fill(&m->config, acts->b, acts->t, table);
    int err = place_table(m, tier, what, table, bytes, out, e);
    free(table);
    return err;
}

static void fill_rope(const struct ModelConfig *c, size_t b, size_t t, void *table) {
    (void)b;
    (void)t; // positions may be a cache's
    model_rope_table(c, c->seq_len, table);
}

// A shorter sequence, in a batch of one, uses the beginning of the first row.
static void fill_window(const struct ModelConfig *c, size_t b, size_t t, void *table) {
    int32_t *first = table;
    for (size_t i = 0; i < b * t; i++)
        first[i] = (int32_t)(i % t < c->window ? 0 : i % t - c->window + 1);
}

// The length of a layout's lists is known once they are made, so a dry run makes them, too.
static int open_layout(struct Model *m, const struct Acts *acts, struct Tier *tier,
                       struct Error *e) {
    const struct ModelConfig *c = &m->config;
    struct SparseHeads heads = {&c->sparse, c->first_head};
    size_t bytes, window = c->window < acts->t ? c->window : 0;
    uint32_t *lists = layout_make(&m->layout, acts->t, sparse_tables(&c->sparse, c->heads),
                                  sparse_cells, &heads, &bytes);
    m->layout.share = sparse_share(&c->sparse, c->first_head, c->heads, acts->t, window);
    int err = place_table(m, tier, "layout of sparse attention", lists, bytes, &m->layout_block, e);
    free(lists);
    return err;
}

static int open_tables(struct Model *m, const struct Acts *acts, struct Tier *tier,
                       struct Error *e) {
    const struct ModelConfig *c = &m->config;
    size_t rope_bytes = c->seq_len * c->head_size * sizeof(float);
    size_t window_bytes = acts->b * acts->t * sizeof(int32_t);
    int err = 0;
    if (c->family->position == POSITION_ROTARY)
        err = open_table(m, tier, "angles of rotary embedding", rope_bytes, acts, fill_rope,
                         &m->rope_block, e);
    if (!err && c->window && c->window < acts->t && !m->packed)
        err = open_table(m, tier, "first keys of queries", window_bytes, acts, fill_window,
                         &m->first_block, e);
    if (!err && c->sparse.mode != SPARSE_DENSE)
        err = open_layout(m, acts, tier, e);
    m->rope = m->rope_block.mem;
    m->layout.begin = m->layout_block.mem;
    m->first = m->first_block.mem;
    return err;
}

static int open_scratch(struct Model *m, struct Acts *acts, struct Tier *tier, struct Error *e) {
    m->sizing = true;
    m->work = (struct Work){0};
    acts->starts = acts->first = m->packed ? acts->arena.mem : NULL;
    if (!acts->inference) {
        acts->mode = HEAD_TRAIN;
        measure_scratch(m, acts, true, false);
        measure_scratch(m, acts, true, true);
    }
    for (int whole = 1; whole >= 0 && !acts->generated_rows; whole--) {
        acts->mode = HEAD_LOSS; // validation: whole micro-batches, and single sequences at the end
        acts->b = whole ? acts->b_max : 1;
        measure_scratch(m, acts, false, false);
    }
    acts->b = acts->logits_count = 1;
    acts->mode = HEAD_LOGITS; // generation: blocks of one sequence, down to one token
    const struct KvCache *cache = m->cache.capacity ? &m->cache : NULL;
    acts->cache = cache;
    for (acts->t = cache ? 1 : acts_sample_length(acts, 1); acts->t < acts->t_max;
         acts->t = cache ? acts->t * 2 : acts_sample_length(acts, acts->t + 1))
        measure_scratch(m, acts, false, false);
    acts->t = acts->t_max;
    measure_scratch(m, acts, false, false);
    if (cache && acts->generated_rows > 1) { // and one token of each sequence
        acts->b = acts->logits_count = acts->generated_rows;
        acts->t = 1;
        measure_scratch(m, acts, false, false);
        acts->t = acts->t_max;
    }
    acts->cache = NULL;
    acts->b = acts->b_max;
    acts->mode = HEAD_TRAIN;
    acts->starts = acts->first = NULL;
    m->sizing = false;
    int err = tier_alloc(tier, TAG_WORKSPACE, "kernels' scratch", m->work.bytes, &m->work_block, e);
    m->work.mem = m->work_block.mem;
    return err;
}

int model_open(struct Model *m, struct Acts *acts, struct Tier *tier, struct Error *e) {
    int err = open_tables(m, acts, tier, e);
    return err ? err : open_scratch(m, acts, tier, e);
}

void model_close(struct Model *m) {
    kv_cache_close(&m->cache);
    tier_free(&m->work_block);
    tier_free(&m->rope_block);
    tier_free(&m->first_block);
    tier_free(&m->layout_block);
    m->work = (struct Work){0};
}
