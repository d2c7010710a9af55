// The update: AdamW on what this rank has the optimizer state of, and the norm before it.
//
//   comm -> compute   reported   every rank's norms are here
//   compute -> comm   updated    a group's weights may be gathered (param.c)
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
}

void update_kept(struct Zero *z, int g) {
    struct Device *d = z->device;
    struct GroupState *s = &z->state[g];
    const struct ZeroPlan *p = &z->plan;
    size_t begin = zero_kept_begin(z, g), n = zero_kept_numel(z, g);
    size_t decay_end = z->params->group[g].decay_end;
    void *param = dtype_at(s->param.mem, p->param.dtype, p->param.sharded ? 0 : begin);
    d->kernels->adamw(d->queue[QUEUE_COMPUTE],
                      &(struct AdamW){
                          .n = n,
                          .n_decay = decay_end > begin ? size_min(n, decay_end - begin) : 0,
                          .grad_dtype = p->grad.dtype,
                          .param_dtype = p->param.dtype,
                          .moments_dtype = F32,
                          .master = zero_master(z, g),
                          .m = s->m.mem,
                          .v = s->v.mem,
                          .grad = dtype_at(s->grad.mem, p->grad.dtype, p->grad.sharded ? 0 : begin),
                          .param = p->own_master ? param : NULL,
                          .state = z->control,
                      });
    device_record(d, QUEUE_COMPUTE, s->updated);
}
