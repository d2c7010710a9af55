// Adds hops to groups whose state is kept elsewhere, and allocates the memory that they need.
//
// This is where offload attaches: offload_plan decides in which tier each kind of state is;
// `attach_group` reads that once for every group, when it is opened, and adds the hops of this
// folder to its chains.
//
// Called by the core through struct BackingOps (zero/open.c). Read next: weights.c.
#include "zero/offload/activations.h"
#include "zero/offload/offload.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// ---- tiers ----

// Returns how many elements, padded, the trained groups from g on have.
static uint64_t trained_numel_from(const struct Params *params, int g) {
    uint64_t n = 0;
    for (; g < params->ngroup; g++)
        n += params->group[g].frozen ? 0 : params->group[g].padded;
    return n;
}

// Returns the first group that is offloaded, so that the share of elements from it on is closest to
// `ratio`. The groups before it stay: a forward pass needs them when the host has just begun.
static int choose_first_offloaded(const struct Params *params, double ratio) {
    double all = (double)trained_numel_from(params, 0), nearest = 2;
    int first = 0;
    for (int g = 0; g <= params->ngroup && all > 0; g++) {
        double distance = fabs((double)trained_numel_from(params, g) / all - ratio);
        first = distance < nearest ? g : first;
        nearest = fmin(nearest, distance);
    }
    return trained_numel_from(params, first) ? first : params->ngroup;
}

int offload_plan(struct ZeroPlan *plan, const struct ZeroOptions *zero,
                 const struct OffloadOptions *o, const struct Params *params, int *first_offloaded,
                 struct Error *e) {
    int ngroup = params ? params->ngroup : 1;
    bool offloads_optimizer = o->opt_tier != TIER_DEVICE;
    if (o->delayed && (!offloads_optimizer || o->ratio < 1))
        return error_set(
            e, -EINVAL, E_DELAY_UPDATE,
            "--delay-update needs the whole optimizer offloaded, not --offload-optimizer %s "
            "with --offload-ratio %g: expected --offload-optimizer cpu or nvme, and "
            "--offload-ratio 1",
            offloads_optimizer ? tier_name(o->opt_tier) : "none", o->ratio);
    if (plan->grad.shard_group && !plan->optimizer.shard_group &&
        (offloads_optimizer || o->param_tier != TIER_DEVICE))
        return error_set(e, -EINVAL, E_STAGE_OFFLOAD,
                         "--zero %d cannot be combined with offload: this stage shards gradients "
                         "but not optimizer states; leave out the --offload flags",
                         zero->stage);
    *first_offloaded = offloads_optimizer && params ? choose_first_offloaded(params, o->ratio)
                       : offloads_optimizer         ? 0
                                                    : ngroup;
    plan->param.tier = &zero->tier[o->param_tier];
    plan->grad.tier = &zero->tier[offloads_optimizer ? TIER_CPU : TIER_DEVICE];
    plan->optimizer.tier = &zero->tier[o->opt_tier];
    plan->weight_slots |= o->param_tier != TIER_DEVICE;
    plan->buckets |= *first_offloaded < ngroup;
    // Master weights are separate if the parameters are rounded, are elsewhere (here of all groups
    // or of some), or are of another step.
    enum TierKind masters_tier = *first_offloaded == ngroup ? TIER_DEVICE : o->opt_tier;
    bool separate =
        masters_tier != o->param_tier || (*first_offloaded > 0 && *first_offloaded < ngroup);
    plan->has_master |= (separate || o->delayed) && !plan->inference;
    return 0;
}

// ---- a group ----

// Where the device updates weights that are elsewhere, it lacks the upper halves of split master
// weights: it gets fp32 ones, with the same bits. bf16 ones are kept beside the state, too.
static void choose_master_format(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    bool bf16 = s->masters->format == MASTER_BF16;
    s->update_dst = bf16 ? &s->master : NULL;
    if (!bf16)
        s->masters = &zero_masters_fp32;
}

static void attach_group(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    struct Offload *o = offload_of(z);
    bool weights_offloaded = !lies_on(&z->plan.param, TIER_DEVICE);
    if (weights_offloaded)
        offload_attach_weights(z, g);
    if (weights_offloaded && !host_updates(z, g) && zero_trains(z, g))
        choose_master_format(z, g);
    else if (host_needs_new_weights(z, g))
        s->update_dst = &o->group[g].new_weights;
    if (!host_updates(z, g)) {
        s->grad_tier = s->optimizer_tier = &o->tier[TIER_DEVICE];
    } else {
        offload_attach_gradient(z, g);
        host_attach(z, g);
    }
}

// ---- memory ----

static int alloc_block(struct Zero *z, enum Tag tag, const char *what, int g, size_t bytes,
                       struct Block *out, struct Error *e) {
    char purpose[64];
    snprintf(purpose, sizeof purpose, "%s of %s", what, z->params->group[g].name);
    return tier_alloc(&offload_of(z)->tier[TIER_CPU], tag, purpose, bytes, out, e);
}

static int open_group(struct Zero *z, int g, struct Error *e) {
    struct OffloadGroup *s = &offload_of(z)->group[g];
    const struct ZeroPlan *p = &z->plan;
    int err = 0;
    zero_open_mark(z, &s->new_weights_made, "new weights made");
    zero_open_mark(z, &s->state_stored, "state stored");
    if (host_updates(z, g) && offload_of(z)->options.delayed)
        err = alloc_block(z, TAG_GRAD, "gradients", g,
                          z->state[g].grad_numel * dtype_size(p->grad.dtype), &s->second_grad, e);
    if (!err && host_needs_new_weights(z, g))
        err = alloc_block(z, TAG_PARAM, "new weights", g,
                          zero_owned_numel(z, g) * dtype_size(p->param.dtype), &s->new_weights, e);
    return err;
}

static void close_group(struct OffloadGroup *s) {
    mark_close(&s->new_weights_made);
    mark_close(&s->state_stored);
    tier_free(&s->second_grad);
    tier_free(&s->new_weights);
}

static int open_stagings(struct Zero *z, enum Ring ring, struct Error *e) {
    struct Offload *o = offload_of(z);
    const struct Placement *p = &z->plan.param;
    const struct Slots *slots = &z->weights[ring];
    int err = 0;
    if (!lies_on(p, TIER_NVME) || !slots->count)
        return 0;
    for (int i = 0; i < slots->count && o->options.no_staging; i++)
        move_add_buffer(&o->mover, &slots->slot[i].block);
    if (o->options.no_staging)
        return 0;
    o->staging[ring] = base_alloc_zeroed((size_t)slots->count * sizeof *o->staging[ring]);
    for (int i = 0; i < slots->count && !err; i++) {
        size_t most = 0;
        for (int g = 0; g < z->params->ngroup; g++)
            if (ring_of(z->params, g) == ring && (z->params->group[g].kind == GROUP_END) == !i)
                most = size_max(most, weights_bytes(z, g));
        err = staging_open(&o->staging[ring][i], &o->mover, TAG_COMM, "weights from disk", most,
                           &o->tier[TIER_CPU], e);
    }
    return err;
}

static int open_shard_slots(struct Zero *z, enum Ring ring, struct Error *e) {
    struct Offload *o = offload_of(z);
    const struct Slots *buckets = &z->buckets[ring];
    size_t ranks = (size_t)z->shard_group->size;
    if (!z->plan.grad.shard_group || o->first_offloaded == z->params->ngroup || !buckets->count)
        return 0;
    struct SlotsSpec shards = {
        .device = z->device,
        .host = z->backing.host,
        .params = z->params,
        .turns = buckets->count - 1,
        .bytes = {buckets->slot[0].block.bytes / ranks, buckets->slot[1].block.bytes / ranks},
        .tier = &o->tier[TIER_DEVICE],
        .purpose = "a shard of gradients on its way",
        .mark_names = {"shard arrived", "shard drained"},
    };
    return slots_open(&o->shards[ring], &shards, e);
}

static int open_memory(struct Zero *z, struct Error *e) {
    int err = 0;
    for (int g = 0; g < z->params->ngroup && !err; g++)
        err = open_group(z, g, e);
    for (int ring = 0; ring < NRING; ring++) {
        if (!err)
            err = open_stagings(z, (enum Ring)ring, e);
        if (!err)
            err = open_shard_slots(z, (enum Ring)ring, e);
    }
    return err ? err : host_open(z, e);
}

static void close_memory(struct Zero *z) {
    struct Offload *o = offload_of(z);
    for (int g = 0; g < z->params->ngroup; g++)
        close_group(&o->group[g]);
    for (int ring = 0; ring < NRING; ring++) {
        for (int i = 0; o->staging[ring] && i < z->weights[ring].count; i++)
            staging_close(&o->staging[ring][i]);
        slots_close(&o->shards[ring]);
        free(o->staging[ring]);
    }
    host_close(z);
    act_offload_close(z);
    free(o->group);
    free(o);
    z->backing = zero_on_device;
}

// ---- the backing ----

static void sync_device_and_host(struct Zero *z) {
    zero_on_device.ops->sync(z);
    for (int q = 0; q < NQUEUE; q++)
        device_sync_queue(z->backing.host, (enum Queue)q);
}

static void finish_and_sync(struct Zero *z) {
    host_queue_due(z);
    sync_device_and_host(z);
}

static void after_unit(struct Zero *z, const struct Visit *v) {
    offload_sum_ahead(z, v);
    act_offload_after_unit(z, v);
}

static const struct BackingOps offload_ops = {
    .attach = attach_group,
    .open = open_memory,
    .close = close_memory,
    .weights_due = host_install_due,
    .before_unit = act_offload_before_unit,
    .after_unit = after_unit,
    .step_reported = host_step_reported,
    .step_queued = host_step_queued,
    .sync = sync_device_and_host,
    .finish = finish_and_sync,
    .install_new_weights = host_install_late,
    .init = state_io_init,
    .store = state_io_store,
    .after_store = state_io_after_store,
    .copy = state_io_copy,
    .is_late = state_io_is_late,
};

struct Backing offload_backing(struct Zero *z, const struct ZeroOptions *zero,
                               const struct OffloadOptions *options, int first_offloaded) {
    struct Offload *o = base_alloc_zeroed(sizeof *o);
    o->options = *options;
    o->tier = zero->tier;
    o->first_offloaded = first_offloaded;
    o->mover = (struct Mover){.device = z->device, .host = options->host, .all = z->all};
    o->kept = (struct WeightsPart){&o->mover, false};
    o->own = (struct WeightsPart){&o->mover, true};
    o->group = base_alloc_zeroed((size_t)z->params->ngroup * sizeof *o->group);
    return (struct Backing){&offload_ops, options->host, o};
}

struct Offload *offload_of(const struct Zero *z) {
    return z->backing.ops == &offload_ops ? z->backing.context : NULL;
}

bool offload_is_delayed(const struct Zero *z) {
    const struct Offload *o = offload_of(z);
    return o && o->options.delayed;
}

bool offload_is_late_after(const struct Zero *z, uint64_t step) {
    return offload_is_delayed(z) && step > offload_of(z)->options.delay_after;
}

struct Moved offload_moved(const struct Zero *z) {
    const struct Offload *o = offload_of(z);
    struct Moved sum = {0};
    for (int tag = 0; o && tag < NTAG; tag++)
        moved_add(&sum, o->mover.moved[tag]);
    return sum;
}
