// The update: AdamW on what this rank owns of each group.
#include "zero/zero.h"

// Reductions are queued in order, so the latest record of `reduced` is the last group's.
void update_begin(struct Zero *z) {
    struct Device *d = z->device;
    device_wait(d, QUEUE_COMPUTE, z->reduced);
    d->kernels->step_clip(d->queue[QUEUE_COMPUTE],
                          &(struct StepClip){
                              .n = (size_t)z->params->ngroup * (size_t)z->dp->size,
                              .squares = z->squares,
                              .state = &z->control->state,
                          });
}

// Elements [begin, begin + n) of group g; grad and param point at element `begin`.
static void adamw(struct Zero *z, int g, size_t begin, size_t n, const void *grad, void *param) {
    struct Device *d = z->device;
    struct GroupState *s = &z->state[g];
    size_t decay_end = z->params->group[g].decay_end;
    d->kernels->adamw(d->queue[QUEUE_COMPUTE],
                      &(struct AdamW){
                          .n = n,
                          .n_decay = decay_end > begin ? size_min(n, decay_end - begin) : 0,
                          .grad_dtype = z->plan.grad.dtype,
                          .param_dtype = z->plan.param.dtype,
                          .master = zero_master(z, g),
                          .m = s->m.mem,
                          .v = s->v.mem,
                          .grad = grad,
                          .param = z->plan.own_master ? param : NULL,
                          .state = &z->control->state,
                      });
}

void update_whole(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    adamw(z, g, 0, z->params->group[g].padded, s->grad.mem, s->param.mem);
}
