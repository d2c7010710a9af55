// From flags to placements, and the memory that a run's state takes.
//
// zero_open takes every byte of parameters, gradients and optimizer state that training will use.
// Over a dry tier it only counts them: that is how the memory of a run is predicted, by the same
// lines that allocate it.
#include "zero/zero.h"

#include "model/grad.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int check_options(const struct ZeroOptions *o, struct Error *e) {
    if (!zero_stage(o->stage))
        return error_set(e, -EINVAL, "--zero %d: expected 0, 1, 2 or 3", o->stage);
    if (o->grad_dtype == F16 && o->dtype != F16) // only an fp16 run scales its loss
        return error_set(e, -EINVAL, "--grad-dtype fp16: expected --dtype fp16 too, not %s",
                         dtype_name(o->dtype));
    return 0;
}

int zero_plan(struct ZeroPlan *out, const struct ZeroOptions *o, struct Error *e) {
    int err = check_options(o, e);
    if (err)
        return err;
    const struct ZeroStage *s = zero_stage(o->stage);
    *out = (struct ZeroPlan){
        .param = {s->shards_param, o->device_tier, o->dtype},
        .grad = {s->shards_grad, o->device_tier, o->grad_dtype},
        .optimizer = {s->shards_optimizer, o->device_tier, F32},
        .own_master = o->dtype != F32,
        .nmicro = o->nmicro,
        .prefetch = o->prefetch,
    };
    return 0;
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

// Whole groups, where only shards are kept: the unit at hand and those fetched ahead; and gradients
// in the making, the second while the first is reduced.
static int take_slots(struct Zero *z, struct Error *e) {
    const struct ZeroPlan *p = &z->plan;
    int ahead = (int)size_min(p->prefetch, (size_t)z->params->ngroup - 1), err = 0;
    if (p->param.sharded)
        err = slots_open(z, &z->weights, ahead + 1, p->param.dtype, TAG_COMM, "gathered weights",
                         p->param.tier, e);
    if (!err && p->grad.sharded)
        err = slots_open(z, &z->buckets, ahead ? 2 : 1, p->grad.dtype, TAG_COMM,
                         "a bucket of gradients", p->grad.tier, e);
    return err;
}

// The step's settings and the reports, which may be read by other ranks: a cache line each.
static int take_control(struct Zero *z, struct Error *e) {
    size_t rows = (size_t)z->dp->size, control = round_up(sizeof *z->control, 64);
    size_t squares = (size_t)z->params->ngroup * sizeof(double);
    z->report_bytes = round_up(sizeof(struct RankReport) + squares, 64);
    int err = tier_alloc(z->plan.param.tier, TAG_WORKSPACE, "the step's constants",
                         control + rows * z->report_bytes, &z->control_block, e);
    z->control = z->control_block.mem;
    z->reports = z->control ? (char *)z->control + control : NULL;
    if (err || !z->control)
        return err;
    // Rows are gathered whole, with what is never written, or not before the first step.
    device_zero(z->device, QUEUE_IN, z->control, control + rows * z->report_bytes);
    device_sync_queue(z->device, QUEUE_IN);
    z->sent = device_alloc_host(z->device, sizeof *z->sent);
    z->sent_word = device_alloc_host(z->device, sizeof *z->sent_word);
    z->received_control = device_alloc_host(z->device, sizeof *z->received_control);
    z->received = device_alloc_host(z->device, rows * z->report_bytes);
    // Rows are sent whole, with what no rank writes between their end and the next one.
    device_zero(z->device, QUEUE_COMPUTE, z->control, z->control_block.bytes);
    device_sync_queue(z->device, QUEUE_COMPUTE);
    return 0;
}

static void each_event(struct Zero *z, void (*f)(struct Zero *, struct Event **)) {
    struct Event **events[] = {&z->settings_sent, &z->word_sent, &z->backward_done, &z->computed,
                               &z->reported,      &z->updated,   &z->received_all};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        f(z, events[i]);
    for (int g = 0; g < z->params->ngroup; g++) {
        f(z, &z->state[g].updated);
        f(z, &z->state[g].gathered);
    }
}
static void open_event(struct Zero *z, struct Event **event) {
    *event = z->device->ops->event_open(z->device);
}
static void close_event(struct Zero *z, struct Event **event) {
    z->device->ops->event_close(*event);
}

int zero_open(struct Zero *z, const struct ZeroOptions *options, struct Device *device,
              struct Comm *dp, struct Model *model, const struct Params *params, struct Error *e) {
    *z = (struct Zero){.device = device, .dp = dp, .model = model, .params = params};
    int err = zero_plan(&z->plan, options, e);
    if (err)
        return err;
    z->stage = zero_stage(options->stage);
    z->loss_scale_settings = options->dtype == F16 ? options->loss_scale : loss_scale_none;
    z->loss_scale = loss_scale_start(&z->loss_scale_settings);
    CHECK(z->loss_scale.scale > 0, "a loss scale of %g", z->loss_scale.scale);
    size_t n = (size_t)params->ngroup;
    z->state = base_alloc_zeroed(n * sizeof *z->state);
    z->w = base_alloc_zeroed(n * sizeof *z->w);
    z->dw = base_alloc_zeroed(n * sizeof(struct Grad));
    each_event(z, open_event);
    for (int g = 0; g < params->ngroup && !err; g++)
        err = take_group(z, g, e);
    if (!err)
        err = take_slots(z, e);
    return err ? err : take_control(z, e);
}

void zero_close(struct Zero *z) {
    for (int g = 0; z->state && g < z->params->ngroup; g++) {
        struct GroupState *s = &z->state[g];
        struct Block *blocks[] = {&s->param, &s->grad, &s->master, &s->m, &s->v};
        for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
            tier_free(blocks[i]);
    }
    slots_close(z, &z->weights);
    slots_close(z, &z->buckets);
    tier_free(&z->control_block);
    if (z->state)
        each_event(z, close_event);
    free(z->state);
    free(z->w);
    free(z->dw);
    void *host[] = {z->sent, z->sent_word, z->received_control, z->received};
    for (size_t i = 0; i < sizeof host / sizeof host[0]; i++)
        device_free_host(z->device, host[i]);
    *z = (struct Zero){0};
}

// Elements of all groups' shards.
static uint64_t shard_elements(const struct Params *params, int ranks) {
    return params->padded / (uint64_t)ranks;
}

struct Traffic zero_traffic(const struct Zero *z) {
    const struct ZeroPlan *p = &z->plan;
    struct Traffic t = {{0}};
    uint64_t others = (uint64_t)z->dp->size - 1;
    uint64_t shards = others * shard_elements(z->params, z->dp->size);
    uint64_t grads = shards * dtype_size(p->grad.dtype);
    uint64_t weights = shards * dtype_size(p->param.dtype);
    if (p->grad.sharded)
        t.bytes[COMM_REDUCE_SCATTER] = grads * p->nmicro;
    else if (p->optimizer.sharded)
        t.bytes[COMM_REDUCE_SCATTER] = grads;
    else
        t.bytes[COMM_ALL_REDUCE] = 2 * grads;
    if (p->param.sharded)
        t.bytes[COMM_ALL_GATHER] = 2 * weights * p->nmicro;
    else if (p->optimizer.sharded)
        t.bytes[COMM_ALL_GATHER] = weights;
    t.bytes[COMM_ALL_GATHER] += others * z->report_bytes;
    return t;
}
