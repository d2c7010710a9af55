// A block while it runs: what its operations share (block_ops.h, adapter_ops.h).
#ifndef MODEL_BLOCK_RUN_H
#define MODEL_BLOCK_RUN_H
#include "model/launch.h"

// The arguments that the operations share while one unit runs.
struct BlockRun {
    struct Model *m;
    const struct Group *group, *adapter; // of the block, and of its adapter; NULL: it has none
    const void *w, *adapter_w;
    struct Grad dw, adapter_dw;
    struct Acts *acts;
    int layer;
    void **act;               // the layer's tensors
    size_t rows, own_rows, C; // rows R of products, R' of norms (acts.h)
    bool restores;            // tensors that are kept are there already
    enum Dtype dtype;
};

// w, dw: of all groups; dw is NULL in a forward pass.
static inline struct BlockRun run_of(struct Model *m, const struct Unit *u, void *const w[],
                                     const struct Grad dw[], struct Acts *acts) {
    struct BlockRun r = {.m = m,
                         .group = &m->params->group[u->group],
                         .w = w[u->group],
                         .acts = acts,
                         .layer = u->layer,
                         .act = acts->block[u->layer],
                         .rows = acts_rows(acts),
                         .own_rows = acts_own_rows(acts),
                         .C = m->config.channels,
                         .dtype = m->config.dtype};
    if (dw)
        r.dw = dw[u->group];
    if (u->adapter < 0)
        return r;
    r.adapter = &m->params->group[u->adapter];
    r.adapter_w = w[u->adapter];
    if (dw)
        r.adapter_dw = dw[u->adapter];
    return r;
}

// Launches a product on the compute queue. In generation it may have few rows (launch.h).
static inline void multiply(struct BlockRun *r, struct Matmul args) {
    args.few_rows = is_few_rows(r->acts, args.m);
    LAUNCH_WITH_WORK(r->m, matmul, args);
}

// Returns a parameter's weights, or NULL if the family lacks it.
static inline const void *weight(const struct BlockRun *r, enum BlockParam p) {
    const struct Param *param = &r->group->param[p];
    return param->rows ? dtype_at(r->w, r->dtype, param->offset) : NULL;
}

// Returns where its gradient is; NULL: the family lacks it, or it is not trained.
static inline void *gradient(const struct BlockRun *r, enum BlockParam p) {
    const struct Param *param = &r->group->param[p];
    return param->rows && r->dw.mem ? dtype_at(r->dw.mem, r->m->grad_dtype, param->offset) : NULL;
}

#endif
