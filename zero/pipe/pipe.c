// Stages of a pipeline between ranks: see pipe.h. Next: zero/step.c, where the walk calls these.
#include "zero/pipe/pipe.h"

#include "model/model.h"
#include "zero/engine.h"

static void list_passes(const struct Parallel *p, size_t nmicro, struct Pass *out) {
    const struct PipeGroup *g = p->context;
    order_passes(p->stages, g->first, p->stage, nmicro, out);
}

// ---- what neighbours hand each other ----

static void sendrecv_rows(struct Zero *z, struct Comm *c, void *to, const void *from,
                          const struct Acts *acts) {
    const struct ModelConfig *m = &z->model->config;
    z->device->label.unit = -1;
    c->ops->sendrecv(c, to, from, acts_own_rows(acts) * m->channels * dtype_size(m->dtype));
}

// Returns where a pass receives its input: a forward pass where its first unit keeps the
// activations of the stage before, which is reserved first; a backward pass where the gradient of
// the next stage goes.
static void *reserve_input(struct Zero *z, const struct Pass *p, const struct Acts *acts) {
    if (p->backward)
        return acts->dx;
    z->backing.ops->before_unit(z, p->visit);
    return acts_input(acts, p->micro);
}

static void receive_input(struct Zero *z, const struct Pass *p, struct Acts *acts) {
    const struct PipeGroup *g = z->parallel->context;
    if (p->receives)
        sendrecv_rows(z, p->backward ? g->next : g->prev, reserve_input(z, p, acts), NULL, acts);
}

// The sendrecv may also bring the input of the next pass, which goes the other way.
static void send_output(struct Zero *z, const struct Pass *p, struct Acts *acts) {
    const struct PipeGroup *g = z->parallel->context;
    void *next = p->exchanges ? reserve_input(z, p + 1, acts) : NULL;
    if (p->sends && p->backward)
        sendrecv_rows(z, g->prev, next, acts->dx, acts);
    else if (p->sends)
        sendrecv_rows(z, g->next, next, acts->x_final, acts);
}

// ---- a group that two stages use ----

static void all_reduce_tied(struct Zero *z, struct Comm *ends, void *mem, size_t numel) {
    ends->ops->all_reduce(ends, mem, numel / (size_t)ends->size, z->plan.grad.dtype);
}

static void all_reduce_tied_whole(struct Zero *z, const struct HopArgs *a) {
    all_reduce_tied(z, a->context, a->mem[BUFFER_WHOLE], z->params->group[a->group].padded);
}

static void all_reduce_tied_shard(struct Zero *z, const struct HopArgs *a) {
    all_reduce_tied(z, a->context, a->mem[BUFFER_SHARD], zero_shard_numel(z, a->group));
}

// Runs once a step: on the gradient before it is reduced, or on the shard after the last reduction.
static const struct Hop tied_all_reduce = {"tied_all_reduce", POINT_BEFORE,
                                           WHEN_LAST,         QUEUE_COMM,
                                           USES_WHOLE,        .run = all_reduce_tied_whole,
                                           .where = HERE};
static const struct Hop tied_all_reduce_shard = {
    "tied_all_reduce", POINT_AFTER, WHEN_LAST, QUEUE_COMM, USES_SHARD, .run = all_reduce_tied_shard,
    .where = HERE};

// ---- opening and closing ----

// Returns the line of stages `lower` and `upper`, if this rank is in one; else of this rank alone.
static struct GridLine stage_pair_line(const struct Comm *all, const struct Grid *grid, int lower,
                                       int upper) {
    int stage = grid_coord(grid, all->rank, AXIS_PP), stride = grid_stride(grid, AXIS_PP);
    bool inside = lower >= 0 && upper < grid->size[AXIS_PP] && (stage == lower || stage == upper);
    if (!inside)
        return (struct GridLine){AXIS_PP, all->rank, stride, 1, 0};
    return (struct GridLine){AXIS_PP, grid_member(grid, all->rank, AXIS_PP, lower),
                             stride * (upper - lower), 2, stage == upper};
}

// All ranks call it, since groups are made by all of them together. Returns NULL on a rank that is
// in no such pair.
static struct Comm *join_pair(struct Comm *all, const struct CommSplit *split, bool dry) {
    struct Comm *c = comm_split_line(all, split, dry);
    if (c->size > 1)
        return c;
    c->ops->close(c);
    return NULL;
}

void pipe_join(struct PipeGroup *p, struct Parallel *parallel, struct Comm *all,
               const struct Grid *grid, const struct SplitPart *parts, int first_trained, bool tied,
               bool dry) {
    int stages = grid->size[AXIS_PP], stage = grid_coord(grid, all->rank, AXIS_PP);
    *p = (struct PipeGroup){0};
    if (stages < 2)
        return;
    parallel->stages = stages;
    parallel->stage = stage;
    parallel->list = list_passes;
    parallel->receive = receive_input;
    parallel->send = send_output;
    parallel->context = p;
    p->part = parts[stage];
    p->first = split_first_trained(parts, first_trained);
    // In two rounds, as a split puts a rank in one group: stages 0 1, 2 3, ...; then 1 2, 3 4, ...
    for (int odd = 0; odd < 2; odd++) {
        bool is_lower = stage % 2 == odd;
        int lower = is_lower ? stage : stage - 1;
        struct CommSplit split = {stage_pair_line(all, grid, lower, lower + 1), QUEUE_COMPUTE,
                                  &p->staging};
        *(is_lower ? &p->next : &p->prev) = join_pair(all, &split, dry);
    }
    struct CommSplit split = {stage_pair_line(all, grid, 0, stages - 1), QUEUE_COMM, NULL};
    if (tied)
        p->tied = join_pair(all, &split, dry);
}

int pipe_open(struct PipeGroup *p, struct Zero *z, struct Tier *device, size_t staged,
              struct Error *e) {
    const struct Hop *hop = z->plan.grad.shard_group ? &tied_all_reduce_shard : &tied_all_reduce;
    for (int g = 0; g < z->params->ngroup; g++)
        if (p->tied && z->params->group[g].shared && zero_trains(z, g))
            chain_add(&z->state[g].chain[REDUCE], hop, p->tied);
    return z->parallel->stages > 1 && staged
               ? tier_alloc(device, TAG_COMM, "pieces from other stages", staged, &p->staging, e)
               : 0;
}

void pipe_close(struct PipeGroup *p) {
    tier_free(&p->staging);
    struct Comm *groups[] = {p->prev, p->next, p->tied};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (groups[i])
            groups[i]->ops->close(groups[i]);
    *p = (struct PipeGroup){0};
}
