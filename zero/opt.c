// The update: AdamW on the part of a group whose optimizer state this rank has. It is elementwise:
// a shard begins and ends anywhere in a tensor.
//
// If that state is on the device, the step's end runs a group's whole chain UPDATE, then PUBLISH.
// If it is elsewhere, zero/offload/update.c runs UPDATE ahead of the walk, as far as it can, and
// the rest with PUBLISH when the walk is about to read the group's weights. Read next: slots.c.
#include "zero/state.h"

struct AdamW update_args(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    const struct ZeroPlan *p = &z->plan;
    size_t begin = zero_owned_begin(z, g), n = zero_owned_numel(z, g);
    size_t decay_end = z->params->group[g].decay_end;
    return (struct AdamW){
        .n = n,
        .n_decay = decay_end > begin ? size_min(n, decay_end - begin) : 0,
        .grad_dtype = p->grad.dtype,
        .param_dtype = p->param.dtype,
        .moments_dtype = p->moments_dtype,
        .master_format = s->masters->format,
        .master = zero_master(z, g),
        .param = zero_newest_weights(z, g),
        .m = s->m.mem,
        .v = s->v.mem,
        .grad = dtype_at(s->grad.mem, p->grad.dtype, begin - s->grad_begin),
        .seed = rng_bits(z->seed, (uint64_t)z->params->group[g].number),
        .index = begin,
    };
}

void update_run(struct Zero *z, struct AdamW *a) {
    a->state = z->control;
    z->device->kernels->adamw(z->device->queue[QUEUE_COMPUTE], a);
}

static void run_adamw(struct Zero *z, const struct HopArgs *args) {
    struct AdamW a = update_args(z, args->group);
    update_run(z, &a);
}

bool update_is_on_device(const struct Zero *z, int g) {
    return zero_trains(z, g) && z->state[g].optimizer_tier->kind == TIER_DEVICE;
}

// Returns hop arguments for the weights that this rank updates: its part and the whole, where they
// are kept; on_device: in a slot, if that is elsewhere, which updated_weights_release gives back.
static struct HopArgs updated_weights_acquire(struct Zero *z, int g, bool on_device) {
    struct GroupState *s = &z->state[g];
    if (!on_device || s->param_tier->kind == TIER_DEVICE)
        return (struct HopArgs){.group = g, .mem = {s->param.mem, zero_own_weights(z, g)}};
    struct Slot *slot = slots_acquire(s->slots, g);
    void *own = dtype_at(slot->block.mem, z->plan.param.dtype, zero_owned_begin(z, g));
    return (struct HopArgs){.group = g, .mem = {slot->block.mem, own}, .slot = {slot, slot}};
}

static void updated_weights_release(const struct HopArgs *a) {
    if (a->slot[BUFFER_WHOLE])
        a->slot[BUFFER_WHOLE]->owner = -1;
}

void weights_publish(struct Zero *z, int g) {
    if (!z->state[g].chain[PUBLISH].n)
        return;
    struct HopArgs a = updated_weights_acquire(z, g, true);
    chain_run(z, PUBLISH, 0, false, &a);
    updated_weights_release(&a);
    if (!z->state[g].slots)
        mark_record(&z->state[g].gathered, z->device, QUEUE_COMM);
}

void update_group(struct Zero *z, int g) {
    struct HopArgs a = updated_weights_acquire(z, g, update_is_on_device(z, g));
    chain_run(z, UPDATE, z->state[g].update_next, false, &a);
    updated_weights_release(&a);
    z->state[g].update_next = 0;
    weights_publish(z, g);
}

const struct Hop hop_adamw = {"adamw",     POINT_STAGE,      WHEN_ANY,     QUEUE_COMPUTE,
                              MAKES_STORE, .run = run_adamw, .where = HERE};
