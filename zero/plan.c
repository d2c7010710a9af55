// From flags to placements, and the memory that a run's state takes.
//
// zero_open takes every byte of parameters, gradients and optimizer state that training will use.
// Over a dry tier it only counts them: that is how the memory of a run is predicted, by the same
// lines that allocate it.
#include "zero/zero.h"

#include "model/grad.h"

#include <errno.h>
#include <stdlib.h>

static int check_options(const struct ZeroOptions *o, struct Error *e) {
    if (!zero_stage(o->stage))
        return error_set(e, -EINVAL, "--zero %d: only stage 0 is built", o->stage);
    if (o->dtype == F16 || o->grad_dtype == F16)
        return error_set(e, -EINVAL, "--dtype fp16: expected fp32 or bf16");
    return 0;
}

static struct ZeroPlan plan_of(const struct ZeroOptions *o) {
    const struct ZeroStage *s = zero_stage(o->stage);
    return (struct ZeroPlan){
        .stage = o->stage,
        .param = {s->shards_param, o->device_tier, o->dtype},
        .grad = {s->shards_grad, o->device_tier, o->grad_dtype},
        .optimizer = {s->shards_optimizer, o->device_tier, F32},
        .own_master = o->dtype != F32,
        .nmicro = o->nmicro,
    };
}

static int take(const struct Zero *z, const struct Placement *p, enum Tag tag, const char *what,
                int g, struct Block *out, struct Error *e) {
    size_t n = z->params->group[g].padded;
    size_t kept = p->sharded ? n / (size_t)z->dp->size : n;
    char purpose[64];
    snprintf(purpose, sizeof purpose, "%s of %s", what, z->params->group[g].name);
    return tier_alloc(p->tier, tag, purpose, kept * dtype_size(p->dtype), out, e);
}

static int take_group(struct Zero *z, int g, struct Error *e) {
    struct GroupState *s = &z->state[g];
    const struct ZeroPlan *p = &z->plan;
    int err = take(z, &p->param, TAG_PARAM, "parameters", g, &s->param, e);
    if (!err)
        err = take(z, &p->grad, TAG_GRAD, "gradients", g, &s->grad, e);
    if (!err && p->own_master)
        err = take(z, &p->optimizer, TAG_OPTIMIZER, "master weights", g, &s->master, e);
    if (!err)
        err = take(z, &p->optimizer, TAG_OPTIMIZER, "momentum", g, &s->m, e);
    if (!err)
        err = take(z, &p->optimizer, TAG_OPTIMIZER, "variance", g, &s->v, e);
    return err;
}

static int take_control(struct Zero *z, struct Error *e) {
    size_t squares = (size_t)z->params->ngroup * (size_t)z->dp->size;
    size_t bytes = sizeof *z->control + squares * sizeof *z->squares;
    int err = tier_alloc(z->plan.param.tier, TAG_WORKSPACE, "the step's constants", bytes,
                         &z->control_block, e);
    z->control = z->control_block.mem;
    z->squares = z->control ? (double *)(z->control + 1) : NULL;
    return err;
}

static void open_events(struct Zero *z) {
    struct Event **events[] = {&z->state_sent, &z->backward_done, &z->reduced, &z->updated,
                               &z->received_all};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        *events[i] = z->device->ops->event_open(z->device);
}

int zero_open(struct Zero *z, const struct ZeroOptions *options, struct Device *device,
              struct Comm *dp, struct Model *model, const struct Params *params, struct Error *e) {
    *z = (struct Zero){.device = device, .dp = dp, .model = model, .params = params};
    int err = check_options(options, e);
    if (err)
        return err;
    z->plan = plan_of(options);
    z->stage = zero_stage(options->stage);
    size_t n = (size_t)params->ngroup;
    z->state = base_alloc_zeroed(n * sizeof *z->state);
    z->w = base_alloc_zeroed(n * sizeof *z->w);
    z->dw = base_alloc_zeroed(n * sizeof(struct Grad));
    z->sent = base_alloc_zeroed(sizeof *z->sent);
    z->received = base_alloc_zeroed(sizeof *z->received);
    open_events(z);
    for (int g = 0; g < params->ngroup && !err; g++)
        err = take_group(z, g, e);
    return err ? err : take_control(z, e);
}

void zero_close(struct Zero *z) {
    for (int g = 0; z->state && g < z->params->ngroup; g++) {
        struct GroupState *s = &z->state[g];
        struct Block *blocks[] = {&s->param, &s->grad, &s->master, &s->m, &s->v};
        for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
            tier_free(blocks[i]);
    }
    tier_free(&z->control_block);
    struct Event *events[] = {z->state_sent, z->backward_done, z->reduced, z->updated,
                              z->received_all};
    for (size_t i = 0; z->state && i < sizeof events / sizeof events[0]; i++)
        z->device->ops->event_close(events[i]);
    free(z->state);
    free(z->w);
    free(z->dw);
    free(z->sent);
    free(z->received);
    *z = (struct Zero){0};
}
