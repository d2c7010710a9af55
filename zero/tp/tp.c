// Tensor parallelism between ranks: see tp.h. model/megatron.c asks for the exchanges.
//
// A sum is an all_reduce over the TP ranks. Its shards have one size, so it may cover some elements
// more than there are; tp_comm_padded says how many must be there.
#include "zero/tp/tp.h"

// ---- the model's exchanges ----

static void all_reduce_tp(const struct TpComm *a, void *y, size_t n, enum Dtype dtype) {
    struct Comm *c = a->context;
    c->ops->all_reduce(c, y, tp_comm_padded(a->size, n) / a->size, dtype);
}

static void reduce_scatter_tp(const struct TpComm *a, void *part, const void *y, size_t n,
                              enum Dtype dtype) {
    struct Comm *c = a->context;
    c->ops->reduce_scatter(c, part, y, n, dtype, false);
}

static void all_gather_tp(const struct TpComm *a, void *whole, const void *part, size_t bytes) {
    struct Comm *c = a->context;
    c->ops->all_gather(c, whole, part, bytes);
}

// ---- gradients ----

// Returns how many elements of group g's gradient must be summed over the TP ranks.
static size_t partial_numel(const struct TpGroup *t, const struct Zero *z, int g) {
    struct Span span[MAX_PARAM];
    size_t numel = 0;
    int n = params_partial(&z->params->group[g], tp_comm_row_parts(&t->across), span);
    for (int i = 0; i < n; i++)
        numel += span[i].end - span[i].begin;
    return numel;
}

// Copies the partial elements of `whole` to t->partial, one span after another, or back.
static void copy_partial(const struct TpGroup *t, const struct Zero *z, int g, void *whole,
                         bool back) {
    struct Span span[MAX_PARAM];
    enum Dtype dtype = z->plan.grad.dtype;
    int n = params_partial(&z->params->group[g], tp_comm_row_parts(&t->across), span);
    for (size_t i = 0, at = 0; i < (size_t)n; i++) {
        size_t numel = span[i].end - span[i].begin;
        void *scratch = dtype_at(t->partial.mem, dtype, at);
        void *in_whole = dtype_at(whole, dtype, span[i].begin);
        device_copy(z->device, QUEUE_COMPUTE, back ? in_whole : scratch, back ? scratch : in_whole,
                    numel * dtype_size(dtype));
        at += numel;
    }
}

// Sums in scratch, since the spans lie apart and a sum may cover more elements than there are.
static void sum_partial(struct Zero *z, const struct HopArgs *a) {
    const struct TpGroup *t = a->context;
    void *whole = a->mem[BUFFER_WHOLE];
    size_t n = partial_numel(t, z, a->group);
    copy_partial(t, z, a->group, whole, false);
    all_reduce_tp(&t->across, t->partial.mem, n, z->plan.grad.dtype);
    copy_partial(t, z, a->group, whole, true);
}

static const struct Hop tp_all_reduce = {"tp_all_reduce", POINT_BEFORE, WHEN_REDUCED,
                                         QUEUE_COMPUTE,   USES_WHOLE,   .run = sum_partial,
                                         .where = HERE};

// ---- opening and closing ----

void tp_join(struct TpGroup *t, struct Comm *all, const struct Grid *grid, bool sequence_parallel,
             bool dry) {
    *t = (struct TpGroup){0};
    if (grid->size[AXIS_TP] == 1)
        return;
    struct CommSplit split = {grid_line(grid, all->rank, AXIS_TP), QUEUE_COMPUTE, &t->staging};
    t->comm = comm_split_even(all, &split, dry);
    t->across = (struct TpComm){.rank = (size_t)grid_coord(grid, all->rank, AXIS_TP),
                                .size = (size_t)t->comm->size,
                                .sequence_parallel = sequence_parallel,
                                .all_reduce = all_reduce_tp,
                                .reduce_scatter = reduce_scatter_tp,
                                .all_gather = all_gather_tp,
                                .context = t->comm};
}

int tp_open(struct TpGroup *t, struct Zero *z, struct Tier *device, size_t staged,
            struct Error *e) {
    if (!t->comm)
        return 0;
    size_t n = 0;
    for (int g = 0; g < z->params->ngroup; g++) {
        size_t partial = zero_trains(z, g) ? partial_numel(t, z, g) : 0;
        if (partial)
            chain_add(&z->state[g].chain[REDUCE], &tp_all_reduce, t);
        n = size_max(n, partial);
    }
    size_t bytes = tp_comm_padded(t->across.size, n) * dtype_size(z->plan.grad.dtype);
    int err =
        staged ? tier_alloc(device, TAG_COMM, "pieces from TP ranks", staged, &t->staging, e) : 0;
    return err ? err
               : tier_alloc(device, TAG_WORKSPACE, "gradients of norms in parts", bytes,
                            &t->partial, e);
}

void tp_close(struct TpGroup *t) {
    tier_free(&t->partial);
    tier_free(&t->staging);
    if (t->comm)
        t->comm->ops->close(t->comm);
    *t = (struct TpGroup){0};
}
