// Stages of a pipeline between ranks: see pipe.h. Next: zero/step.c, where the walk calls these.
#include "zero/pipe/pipe.h"

#include "model/model.h"

#include <stdlib.h>

// ---- the passes of a step ----

static void list_passes(const struct Pipe *pipe, size_t nmicro, struct Pass *out) {
    struct OrderCost *cost = base_alloc((size_t)pipe->stages * sizeof *cost);
    struct Order order;
    for (int s = 0; s < pipe->stages; s++)
        cost[s] = (struct OrderCost){1, 2};
    order_make(&order, pipe->stages, nmicro, cost, 0);
    order_passes(&order, pipe->stage, out);
    order_free(&order);
    free(cost);
}

// ---- what neighbours hand each other ----

static size_t stream_bytes(const struct Zero *z, const struct Acts *acts) {
    const struct ModelConfig *c = &z->model->config;
    return acts_own_rows(acts) * c->channels * dtype_size(c->dtype);
}

static const struct PipeGroup *group_of(const struct Zero *z) {
    return (const struct PipeGroup *)z->pipe;
}

static void swap(struct Zero *z, struct Comm *c, void *to, const void *from,
                 const struct Acts *acts) {
    z->device->label.unit = -1;
    c->ops->swap(c, to, from, stream_bytes(z, acts));
}

// A forward pass begins with the activations of the stage before, a backward pass with the gradient
// of the one behind.
static void receive(struct Zero *z, const struct Pass *p, struct Acts *acts) {
    const struct PipeGroup *g = group_of(z);
    if (p->receives)
        swap(z, p->backward ? g->behind : g->before,
             p->backward ? acts->dx : acts_input(acts, p->micro), NULL, acts);
}

// What comes back is for the next pass, which goes the other way.
static void send(struct Zero *z, const struct Pass *p, struct Acts *acts) {
    const struct PipeGroup *g = group_of(z);
    void *next = NULL;
    if (p->swaps)
        next = p->backward ? acts_input(acts, p[1].micro) : acts->dx;
    if (p->sends && p->backward)
        swap(z, g->before, next, acts->dx, acts);
    else if (p->sends)
        swap(z, g->behind, next, acts_output(z->model, acts), acts);
}

// ---- opening and closing ----

// Of the stages `lower` and the next, one of which is this rank's; all ranks call it, since groups
// are made by all of them together, and who has no such neighbour is alone in its own.
static struct Comm *join(struct Comm *all, int rank, const struct Grid *grid, int lower,
                         const struct Block *staging) {
    int stage = grid_place(grid, rank, AXIS_PP);
    bool inside = lower >= 0 && lower + 1 < grid->size[AXIS_PP];
    struct GridLine line = {AXIS_PP, rank, grid_stride(grid, AXIS_PP), 1, 0};
    if (inside)
        line = (struct GridLine){AXIS_PP, grid_member(grid, rank, AXIS_PP, lower), line.stride, 2,
                                 stage - lower};
    struct CommSplit split = {line, QUEUE_COMPUTE, staging};
    struct Comm *c = comm_split_line(all, &split);
    if (inside)
        return c;
    c->ops->close(c);
    return NULL;
}

static struct Comm *dry_pair(struct Comm *all, const struct Grid *grid, int rank, bool second) {
    struct Comm *c = comm_open_dry(all->device, second, 2);
    c->stride = grid_stride(grid, AXIS_PP);
    c->origin = second ? rank - c->stride : rank;
    return c;
}

void pipe_join(struct PipeGroup *p, struct Comm *all, int rank, const struct Grid *grid,
               const struct SplitPart *parts, bool dry) {
    int stages = grid->size[AXIS_PP], stage = grid_place(grid, rank, AXIS_PP);
    *p = (struct PipeGroup){.pipe = {stages, stage, list_passes, receive, send}};
    if (stages < 2)
        return;
    p->part = parts[stage];
    if (dry && stage)
        p->before = dry_pair(all, grid, rank, true);
    if (dry && stage + 1 < stages)
        p->behind = dry_pair(all, grid, rank, false);
    for (int odd = 0; odd < 2 && !dry; odd++) {
        bool lower = stage % 2 == odd;
        *(lower ? &p->behind : &p->before) =
            join(all, rank, grid, lower ? stage : stage - 1, &p->staging);
    }
}

int pipe_open(struct PipeGroup *p, struct Tier *device, size_t staged, struct Error *e) {
    return p->pipe.stages > 1 && staged
               ? tier_alloc(device, TAG_COMM, "pieces from other stages", staged, &p->staging, e)
               : 0;
}

void pipe_close(struct PipeGroup *p) {
    tier_free(&p->staging);
    struct Comm *groups[] = {p->before, p->behind};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (groups[i])
            groups[i]->ops->close(groups[i]);
    *p = (struct PipeGroup){0};
}

// ---- what a step sends ----

void pipe_count(const struct PipeGroup *p, const struct Zero *z, size_t bytes, struct Traffic *t) {
    for (size_t i = 0; i < z->npass; i++)
        if (z->pass[i].sends)
            comm_count(z->pass[i].backward ? p->before : p->behind, COMM_SWAP, bytes, t);
}
