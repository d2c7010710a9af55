// From flags to placements, and the memory that a run's state takes.
//
// zero_open takes every byte of parameters, gradients and optimizer state that training will use.
// Over a dry tier it only counts them: that is how the memory of a run is predicted, by the same
// lines that allocate it.
#include "zero/zero.h"

#include "model/grad.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int check_options(const struct ZeroOptions *o, struct Error *e) {
    if (!zero_stage(o->stage))
        return error_set(e, -EINVAL, "--zero %d: expected 0, 1, 2 or 3", o->stage);
    if (o->grad_dtype == F16 && o->dtype != F16) // only an fp16 run scales its loss
        return error_set(e, -EINVAL, "--grad-dtype fp16: expected --dtype fp16 too, not %s",
                         dtype_name(o->dtype));
    if (o->delayed && (o->opt_tier == TIER_DEVICE || o->offload_ratio < 1))
        return error_set(e, -EINVAL,
                         "--delay-update: expected --offload-optimizer cpu or nvme, and all of it "
                         "(--offload-ratio 1)");
    return 0;
}

// Elements that are stored for all groups from g on.
static uint64_t elements_from(const struct Params *params, int g) {
    uint64_t n = 0;
    for (; g < params->ngroup; g++)
        n += params->group[g].padded;
    return n;
}

// The first group that is offloaded, so that those from it on are nearest to the share that was
// asked for. The first ones stay: a forward pass wants them first, while the host has just begun.
static int offload_from(const struct Params *params, double ratio) {
    double all = (double)elements_from(params, 0), nearest = 2;
    int from = 0;
    for (int g = 0; g <= params->ngroup; g++) {
        double off = fabs((double)elements_from(params, g) / all - ratio);
        from = off < nearest ? g : from;
        nearest = fmin(nearest, off);
    }
    return from;
}

// Master weights are apart where the parameters are rounded, lie elsewhere, or are of another step.
static bool has_own_master(const struct ZeroPlan *p, const struct ZeroOptions *o, int ngroup) {
    enum TierKind near = p->offload_from == ngroup ? TIER_DEVICE : o->opt_tier;
    bool apart = near != o->param_tier || (p->offload_from > 0 && p->offload_from < ngroup);
    return o->dtype != F32 || apart || o->delayed;
}

int zero_plan(struct ZeroPlan *out, const struct ZeroOptions *o, const struct Params *params,
              struct Error *e) {
    int err = check_options(o, e);
    if (err)
        return err;
    const struct ZeroStage *s = zero_stage(o->stage);
    bool host = o->opt_tier != TIER_DEVICE;
    *out = (struct ZeroPlan){
        .param = {s->shards_param, &o->tier[o->param_tier], o->dtype},
        .grad = {s->shards_grad, &o->tier[host ? TIER_CPU : TIER_DEVICE], o->grad_dtype},
        .optimizer = {s->shards_optimizer, &o->tier[o->opt_tier], F32},
        .moments_dtype = o->moments_dtype,
        .delayed = o->delayed,
        .delay_after = o->delay_after,
        .nmicro = o->nmicro,
        .prefetch = o->prefetch,
    };
    int ngroup = params ? params->ngroup : 1;
    out->offload_from = host && params ? offload_from(params, o->offload_ratio) : host ? 0 : ngroup;
    out->own_master = has_own_master(out, o, ngroup);
    return 0;
}

static int take(const struct Zero *z, struct Tier *tier, enum Tag tag, const char *what, int g,
                size_t bytes, struct Block *out, struct Error *e) {
    char purpose[64];
    snprintf(purpose, sizeof purpose, "%s of %s", what, z->params->group[g].name);
    return tier_alloc(tier, tag, purpose, bytes, out, e);
}

// Whether the host's new weights wait somewhere before they are installed (offload/update.c):
// always, but where it writes them right to where they lie.
static bool needs_fresh(const struct Zero *z, int g) {
    const struct ZeroPlan *p = &z->plan;
    bool at_home = lies_on(&p->param, TIER_CPU) || lies_on(&p->optimizer, TIER_NVME);
    if (!host_updates(z, g) || !p->own_master)
        return false;
    return lies_on(&p->param, TIER_DEVICE) || !at_home || p->delayed;
}

static int take_optimizer(struct Zero *z, int g, struct Tier *tier, struct Error *e) {
    struct GroupState *s = &z->state[g];
    const struct ZeroPlan *p = &z->plan;
    size_t n = zero_kept_numel(z, g), moments = n * dtype_size(p->moments_dtype);
    int err = 0;
    if (p->own_master)
        err = take(z, tier, TAG_OPTIMIZER, "master weights", g, n * sizeof(float), &s->master, e);
    if (!err)
        err = take(z, tier, TAG_OPTIMIZER, "momentum", g, moments, &s->m, e);
    if (!err)
        err = take(z, tier, TAG_OPTIMIZER, "variance", g, moments, &s->v, e);
    return err;
}

static int take_group(struct Zero *z, int g, struct Tier *tier, struct Error *e) {
    struct GroupState *s = &z->state[g];
    const struct ZeroPlan *p = &z->plan;
    bool host = host_updates(z, g), late = host && p->delayed;
    size_t n = z->params->group[g].padded, weights = dtype_size(p->param.dtype);
    size_t grads = grads_home_numel(z, g) * dtype_size(p->grad.dtype);
    struct Tier *grad_tier = &tier[host ? TIER_CPU : TIER_DEVICE];
    int err = take(z, p->param.tier, TAG_PARAM, "parameters", g,
                   (p->param.sharded ? zero_shard_numel(z, g) : n) * weights, &s->param, e);
    for (int turn = 0; turn <= late && !err; turn++)
        err = take(z, grad_tier, TAG_GRAD, "gradients", g, grads, &s->grad[turn], e);
    if (!err)
        err = take_optimizer(z, g, host ? p->optimizer.tier : &tier[TIER_DEVICE], e);
    if (!err && needs_fresh(z, g))
        err = take(z, &tier[TIER_CPU], TAG_PARAM, "new weights", g, zero_kept_numel(z, g) * weights,
                   &s->fresh, e);
    return err;
}

// Whole groups on the device, where only shards are kept there, or nothing: the unit at hand and
// those fetched ahead; and gradients in the making, the second while the first is reduced.
static int take_slots(struct Zero *z, struct Tier *tier, struct Error *e) {
    const struct ZeroPlan *p = &z->plan;
    int ahead = (int)size_min(p->prefetch, (size_t)z->params->ngroup - 1), err = 0;
    bool host = p->offload_from < z->params->ngroup;
    struct SlotsSpec weights = {.blocks = ahead + 1,
                                .whole = true,
                                .dtype = p->param.dtype,
                                .tag = TAG_COMM,
                                .purpose = "weights at hand",
                                .landing = lies_on(&p->param, TIER_NVME) ? &tier[TIER_CPU] : NULL};
    struct SlotsSpec buckets = {.blocks = ahead ? 2 : 1,
                                .whole = true,
                                .dtype = p->grad.dtype,
                                .tag = TAG_COMM,
                                .purpose = "a bucket of gradients"};
    struct SlotsSpec shards = buckets;
    shards.whole = false;
    shards.purpose = "a shard of gradients on its way";
    if (p->param.sharded || !lies_on(&p->param, TIER_DEVICE))
        err = slots_open(z, &z->weights, &weights, &tier[TIER_DEVICE], e);
    if (!err && (p->grad.sharded || host))
        err = slots_open(z, &z->buckets, &buckets, &tier[TIER_DEVICE], e);
    if (!err && p->grad.sharded && host)
        err = slots_open(z, &z->shards, &shards, &tier[TIER_DEVICE], e);
    return err;
}

// The step's settings and the reports, which may be read by other ranks: a cache line each.
static int take_control(struct Zero *z, struct Tier *device, struct Error *e) {
    size_t rows = (size_t)z->dp->size, control = round_up(sizeof *z->control, 64);
    size_t squares = (size_t)z->params->ngroup * sizeof(double);
    z->report_bytes = round_up(sizeof(struct RankReport) + squares, 64);
    int err = tier_alloc(device, TAG_WORKSPACE, "the step's constants",
                         control + rows * z->report_bytes, &z->control_block, e);
    z->control = z->control_block.mem;
    z->reports = z->control ? (char *)z->control + control : NULL;
    if (err || !z->control)
        return err;
    for (int i = 0; i < HOST_ENDS; i++) {
        struct HostEnd *end = &z->host_end[i];
        end->sent = device_alloc_host(z->device, sizeof *end->sent);
        end->sent_word = device_alloc_host(z->device, sizeof *end->sent_word);
        end->received_control = device_alloc_host(z->device, sizeof *end->received_control);
        end->received = device_alloc_host(z->device, rows * z->report_bytes);
    }
    // Rows are sent whole, with what is not written before the first step, or never.
    device_zero(z->device, QUEUE_COMPUTE, z->control, z->control_block.bytes);
    zero_send_counts(z);
    return 0;
}

static void each_event(struct Zero *z, void (*f)(struct Zero *, struct Event **)) {
    struct Event **events[] = {&z->word_sent, &z->backward_done, &z->computed, &z->reported,
                               &z->clipped,   &z->updated,       &z->reduced};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        f(z, events[i]);
    for (int i = 0; i < HOST_ENDS; i++)
        f(z, &z->host_end[i].received_all);
}
static void open_event(struct Zero *z, struct Event **event) {
    *event = z->device->ops->event_open(z->device);
}
static void close_event(struct Zero *z, struct Event **event) {
    z->device->ops->event_close(*event);
}

enum { GROUP_MARKS = 6 };

static struct Mark *group_mark(struct GroupState *s, int i) {
    struct Mark *marks[GROUP_MARKS] = {&s->updated,    &s->gathered, &s->reduced[0],
                                       &s->reduced[1], &s->computed, &s->kept};
    return marks[i];
}

int zero_open(struct Zero *z, const struct ZeroOptions *options, struct Device *device,
              struct Comm *dp, struct Model *model, const struct Params *params, struct Error *e) {
    *z = (struct Zero){
        .device = device, .host = options->host, .dp = dp, .model = model, .params = params};
    int err = zero_plan(&z->plan, options, params, e);
    if (err)
        return err;
    z->stage = zero_stage(options->stage);
    z->mover = (struct Mover){.device = device, .host = options->host, .dp = dp};
    z->loss_scale_settings = options->dtype == F16 ? options->loss_scale : loss_scale_none;
    z->loss_scale = loss_scale_start(&z->loss_scale_settings);
    CHECK(z->loss_scale.scale > 0, "a loss scale of %g", z->loss_scale.scale);
    size_t n = (size_t)params->ngroup;
    z->state = base_alloc_zeroed(n * sizeof *z->state);
    z->w = base_alloc_zeroed(n * sizeof *z->w);
    z->dw = base_alloc_zeroed(n * sizeof(struct Grad));
    each_event(z, open_event);
    for (int g = 0; g < params->ngroup; g++)
        for (int i = 0; i < GROUP_MARKS; i++)
            mark_open(group_mark(&z->state[g], i), device, options->host);
    for (int g = 0; g < params->ngroup && !err; g++)
        err = take_group(z, g, options->tier, e);
    if (!err)
        err = take_slots(z, options->tier, e);
    if (!err)
        err = host_open(z, &options->tier[TIER_CPU], e);
    return err ? err : take_control(z, &options->tier[TIER_DEVICE], e);
}

static void close_group(struct GroupState *s) {
    struct Block *blocks[] = {&s->param, &s->grad[0], &s->grad[1], &s->master,
                              &s->m,     &s->v,       &s->fresh};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        tier_free(blocks[i]);
    for (int i = 0; i < GROUP_MARKS; i++)
        mark_close(group_mark(s, i));
}

void zero_close(struct Zero *z) {
    for (int g = 0; z->state && g < z->params->ngroup; g++)
        close_group(&z->state[g]);
    slots_close(&z->weights);
    slots_close(&z->buckets);
    slots_close(&z->shards);
    host_close(z);
    keep_close(z);
    tier_free(&z->control_block);
    if (z->state)
        each_event(z, close_event);
    free(z->state);
    free(z->w);
    free(z->dw);
    for (int i = 0; i < HOST_ENDS; i++) {
        struct HostEnd *end = &z->host_end[i];
        void *host[] = {end->sent, end->sent_word, end->received_control, end->received};
        for (size_t k = 0; k < sizeof host / sizeof host[0]; k++)
            device_free_host(z->device, host[k]);
    }
    *z = (struct Zero){0};
}
