// Tensor parallelism between ranks: see across.h. Next: model/megatron.c, which asks for the
// exchanges.
//
// A sum is an all_reduce over the places. Its shards are of one size, so it may take some elements
// more than there are; across_room says how many must be there.
#include "zero/tensor/across.h"

// ---- the model's exchanges ----

static void sum_places(const struct Across *a, void *y, size_t n, enum Dtype dtype) {
    struct Comm *c = a->context;
    c->ops->all_reduce(c, y, across_room(a->places, n) / a->places, dtype);
}

static void gather_places(const struct Across *a, void *whole, size_t bytes) {
    struct Comm *c = a->context;
    c->ops->all_gather(c, whole, (char *)whole + a->place * bytes, bytes);
}

// ---- gradients ----

// The norms of heads, of which each place has some, are the last of a block's parameters: each
// place makes a part of their gradients. How many elements, from *begin on.
static size_t partial_span(const struct Zero *z, int g, size_t *begin) {
    const struct Param *q = &z->params->group[g].param[BLOCK_Q_NORM_W], *k = q + 1;
    if (!params_is_block(z->params, g))
        return 0;
    *begin = q->offset;
    return q->rows + k->rows;
}

// By way of scratch, since a sum may take more than there is.
static void complete(struct Zero *z, int g, void *whole) {
    const struct TensorGroup *t = (const struct TensorGroup *)z->parts;
    size_t begin, n = partial_span(z, g, &begin);
    enum Dtype dtype = z->plan.grad.dtype;
    if (!n)
        return;
    void *part = dtype_at(whole, dtype, begin), *mem = t->partial.mem;
    device_copy(z->device, QUEUE_COMPUTE, mem, part, n * dtype_size(dtype));
    sum_places(&t->across, mem, n, dtype);
    device_copy(z->device, QUEUE_COMPUTE, part, mem, n * dtype_size(dtype));
}

// What all places have counts at one of them.
static void squares(struct Zero *z, int g, const void *shard) {
    struct Device *d = z->device;
    struct Span span[MAX_PARAM];
    double *out = &zero_report(z)->squares[g];
    size_t n = zero_shard_numel(z, g), begin = n * (size_t)z->dp->rank;
    int spans = params_counted(z->params, g, begin, begin + n, span);
    if (!spans)
        device_zero(d, QUEUE_COMM, out, sizeof *out);
    for (int i = 0; i < spans; i++)
        d->kernels->sum(d->queue[QUEUE_COMM],
                        &(struct Sum){
                            .n = span[i].end - span[i].begin,
                            .dtype = z->plan.grad.dtype,
                            .x = dtype_at(shard, z->plan.grad.dtype, span[i].begin - begin),
                            .square = true,
                            .accumulate = i > 0,
                            .out = out,
                        });
}

// ---- opening and closing ----

void tensor_join(struct TensorGroup *t, struct Comm *all, int rank, const struct Grid *grid,
                 bool dry) {
    *t = (struct TensorGroup){0};
    if (grid->size[AXIS_TP] == 1)
        return;
    t->comm = dry ? comm_open_dry(all->device, grid->size[AXIS_TP])
                  : comm_split_apart(all, grid, AXIS_TP, QUEUE_COMPUTE, &t->staging);
    t->across = (struct Across){.place = (size_t)grid_place(grid, rank, AXIS_TP),
                                .places = (size_t)t->comm->size,
                                .sum = sum_places,
                                .gather = gather_places,
                                .context = t->comm};
}

int tensor_open(struct TensorGroup *t, struct Zero *z, struct Tier *device, size_t staged,
                struct Error *e) {
    if (!t->comm)
        return 0;
    size_t begin, n = partial_span(z, z->params->largest[1], &begin);
    size_t bytes = across_room(t->across.places, n) * dtype_size(z->plan.grad.dtype);
    t->parts = (struct Parts){t->comm->size, complete, squares};
    z->parts = &t->parts;
    int err = staged
                  ? tier_alloc(device, TAG_COMM, "pieces from other places", staged, &t->staging, e)
                  : 0;
    return err ? err
               : tier_alloc(device, TAG_WORKSPACE, "gradients of heads' norms", bytes, &t->partial,
                            e);
}

void tensor_close(struct TensorGroup *t) {
    tier_free(&t->partial);
    tier_free(&t->staging);
    if (t->comm)
        t->comm->ops->close(t->comm);
    *t = (struct TensorGroup){0};
}

// ---- what a step sends ----

static void count_sum(const struct Comm *c, size_t n, enum Dtype dtype, size_t times,
                      struct Traffic *t) {
    size_t part = across_room((size_t)c->size, n) / (size_t)c->size;
    for (size_t i = 0; i < times && n; i++)
        comm_count(c, COMM_ALL_REDUCE, part * dtype_size(dtype), t);
}

// Of a micro-batch: the embedding's rows; of each block forward two sums, backward two, and one
// that is made again; the head's gradient; and what is known of the softmax, chunk by chunk. The
// gradients in parts are summed in each micro-batch where gradients are reduced in each, else once.
void tensor_count(const struct TensorGroup *t, const struct Zero *z, size_t rows, bool restores,
                  struct Traffic *traffic) {
    const struct ModelConfig *c = &z->params->config;
    size_t layers = c->layers, micros = z->plan.nmicro, begin;
    size_t sums = 2 + layers * (restores ? 5 : 4), partial = z->plan.grad.over ? micros : 1;
    count_sum(t->comm, rows * c->channels, c->dtype, micros * sums, traffic);
    comm_count(t->comm, COMM_ALL_GATHER, micros * rows * sizeof(struct SoftmaxPart), traffic);
    count_sum(t->comm, partial_span(z, z->params->largest[1], &begin), z->plan.grad.dtype,
              layers * partial, traffic);
}
