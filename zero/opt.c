// The update: AdamW on what this rank has the optimizer state of, and the norm before it.
//
// What lies on the device is updated there, group by group; what is offloaded is updated by the
// host (offload/update.c). Both read the same gradient and the same settings, and make the same
// bits.
//
//   comm -> compute   reported   every rank's norms are here
//   compute -> comm   updated    a group's weights may be gathered (param.c)
//   compute -> out    filled     likewise, where the weights go back to the tier that they lie in
#include "zero/zero.h"

#include <stddef.h>

// The norm is that of the whole gradient: the squares of all ranks' shards, in the order of ranks.
void update_begin(struct Zero *z) {
    struct Device *d = z->device;
    device_wait(d, QUEUE_COMPUTE, z->reported);
    const struct RankReport *first = (const struct RankReport *)z->reports;
    d->kernels->step_clip(d->queue[QUEUE_COMPUTE],
                          &(struct StepClip){
                              .ranks = (size_t)z->dp->size,
                              .n = (size_t)z->params->ngroup,
                              .stride = z->report_bytes / sizeof first->squares[0],
                              .squares = first->squares,
                              .state = z->control,
                          });
    device_record(d, QUEUE_COMPUTE, z->clipped);
}

struct AdamW update_of(struct Zero *z, int g, int turn) {
    struct GroupState *s = &z->state[g];
    const struct ZeroPlan *p = &z->plan;
    size_t begin = zero_kept_begin(z, g), n = zero_kept_numel(z, g);
    size_t decay_end = z->params->group[g].decay_end;
    return (struct AdamW){
        .n = n,
        .n_decay = decay_end > begin ? size_min(n, decay_end - begin) : 0,
        .grad_dtype = p->grad.dtype,
        .param_dtype = p->param.dtype,
        .moments_dtype = p->moments_dtype,
        .master = zero_master(z, g),
        .m = s->m.mem,
        .v = s->v.mem,
        .grad = dtype_at(s->grad[turn].mem, p->grad.dtype, begin - grads_home_begin(z, g)),
    };
}

// Parameters that lie elsewhere are made again from the master weights, also where the update was
// skipped, and go home through a slot.
static void send_home(struct Zero *z, int g) {
    struct Device *d = z->device;
    struct GroupState *s = &z->state[g];
    struct Slot *slot = slots_take(&z->weights, g);
    enum Dtype dtype = z->plan.param.dtype;
    void *own = dtype_at(slot->block.mem, dtype, zero_kept_begin(z, g));
    struct Move m = {.home = &s->param,
                     .offset = params_own_offset(z, g) * dtype_size(dtype),
                     .bytes = zero_kept_numel(z, g) * dtype_size(dtype),
                     .mem = own,
                     .landing = &slot->landing,
                     .stored = &s->updated};
    mark_wait(&slot->drained, d, QUEUE_COMPUTE);
    d->kernels->cast(d->queue[QUEUE_COMPUTE],
                     &(struct Cast){zero_kept_numel(z, g), dtype, F32, own, zero_master(z, g)});
    mark_record(&slot->filled, d, QUEUE_COMPUTE);
    mark_wait(&slot->filled, d, QUEUE_OUT);
    move_out(&z->mover, &m);
    mark_record(&slot->drained, d, QUEUE_OUT);
    slot->group = -1;
}

static void update_on_device(struct Zero *z, int g) {
    struct Device *d = z->device;
    const struct Placement *param = &z->plan.param;
    struct AdamW a = update_of(z, g, grads_turn(z));
    bool near = param->tier->kind == TIER_DEVICE;
    a.state = z->control;
    if (z->plan.own_master && near)
        a.param = dtype_at(z->state[g].param.mem, param->dtype, params_own_offset(z, g));
    d->kernels->adamw(d->queue[QUEUE_COMPUTE], &a);
    if (near)
        mark_record(&z->state[g].updated, d, QUEUE_COMPUTE);
    else
        send_home(z, g);
    z->stage->after_update(z, g);
}

void update_kept(struct Zero *z, int g) {
    if (host_updates(z, g))
        host_update(z, g);
    else
        update_on_device(z, g);
}
