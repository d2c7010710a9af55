// Parameters: how a unit gets its weights whole.
//
// A rank keeps the weights of a group whole, or its shard of them, on the device or elsewhere.
// Where they are whole and on the device they are used where they lie; ranks that updated only
// their part hand it round afterwards (params_gather). In all other cases a group is fetched into a
// slot just before a unit needs it and given up right after: copied from the tier that it lies in,
// gathered where it is in shards, or both. Since the order of units is known, the next units are
// fetched as soon as this one is queued, to arrive while it computes:
//
//   in       copy 1 | copy 2   | copy 3   | ...
//   comm            | gather 1 | gather 2 | gather 3 | ...
//   compute                    | unit 1   | unit 2   | ...
//
//   compute -> comm, in   drained    the slot's last unit has read it
//   compute -> comm       updated    this rank's part of the weights is that of the new step
//   in -> comm            own        this rank's part has been copied to its place in the slot
//   comm, in -> compute   filled     the slot holds the group; gathered: the group is whole again
//   comm -> out           filled     likewise, where it goes back to its tier
//
// Read next: grad.c.
#include "zero/zero.h"

#include <stdlib.h>

size_t params_own_offset(const struct Zero *z, int g) {
    return z->plan.param.sharded ? 0 : zero_kept_begin(z, g);
}

static size_t param_bytes(const struct Zero *z, size_t elements) {
    return elements * dtype_size(z->plan.param.dtype);
}

// This rank's part of a slot.
static char *own_part(const struct Zero *z, const struct Slot *slot, int g) {
    return (char *)slot->block.mem + param_bytes(z, zero_shard_numel(z, g) * (size_t)z->dp->rank);
}

// ---- whole weights on the device ----

// At stage 0 `gathered` is never recorded. What compute itself has updated it need not wait for.
static void use_resident(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    host_install(z, g);
    if (s->gathered.last >= 0)
        mark_wait(&s->gathered, z->device, QUEUE_COMPUTE);
    else if (host_updates(z, g))
        mark_wait(&s->updated, z->device, QUEUE_COMPUTE);
    z->w[g] = s->param.mem;
}

static void gather_resident(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    size_t bytes = param_bytes(z, zero_shard_numel(z, g));
    mark_wait(&s->updated, z->device, QUEUE_COMM);
    z->dp->ops->all_gather(z->dp, s->param.mem,
                           (char *)s->param.mem + param_bytes(z, params_own_offset(z, g)), bytes);
    mark_record(&s->gathered, z->device, QUEUE_COMM);
}

// ---- weights that are fetched ----

// The walk as one line of positions: all units forward, then all backward.
static int position_forward(int u) {
    return u;
}
static int position_backward(const struct Zero *z, int u) {
    return 2 * params_units(z->params) - 1 - u;
}

static int unit_at(const struct Zero *z, int position) {
    int units = params_units(z->params);
    return position < units ? position : 2 * units - 1 - position;
}

// The group whose weights are read at a position; -1 where none are: beyond the end of this walk,
// and in the embedding's backward pass, which only adds up the rows of its gradient.
static int group_at(const struct Zero *z, int position) {
    int units = params_units(z->params), end = z->backward_follows ? 2 * units - 1 : units;
    return position < end ? params_unit_group(z->params, unit_at(z, position)) : -1;
}

// From where it lies to its place in a slot: a shard, or the whole.
static struct Move move_of(struct Zero *z, struct Slot *slot, int g) {
    struct GroupState *s = &z->state[g];
    bool sharded = z->plan.param.sharded;
    size_t n = sharded ? zero_shard_numel(z, g) : z->params->group[g].padded;
    return (struct Move){
        .home = &s->param,
        .bytes = param_bytes(z, n),
        .mem = sharded ? own_part(z, slot, g) : slot->block.mem,
        .landing = &slot->landing,
        .stored = s->gathered.last >= 0 ? &s->gathered : &s->updated,
    };
}

static void copy_in(struct Zero *z, struct Slot *slot, const struct Move *m, struct Mark *done) {
    mark_wait(&slot->drained, z->device, QUEUE_IN);
    move_in(&z->mover, m);
    mark_record(done, z->device, QUEUE_IN);
}

static void gather_slot(struct Zero *z, struct Slot *slot, int g, const void *shard) {
    z->dp->ops->all_gather(z->dp, slot->block.mem, shard, param_bytes(z, zero_shard_numel(z, g)));
    mark_record(&slot->filled, z->device, QUEUE_COMM);
}

// Queues what fills a slot, as far as that has not been done.
static void complete(struct Zero *z, struct Slot *slot, int g) {
    struct Move m = move_of(z, slot, g);
    bool here = lies_on(&z->plan.param, TIER_DEVICE);
    if (slot->complete)
        return;
    slot->complete = true;
    if (!here)
        copy_in(z, slot, &m, z->plan.param.sharded ? &slot->own : &slot->filled);
    if (!z->plan.param.sharded)
        return;
    mark_wait(here ? &slot->drained : &slot->own, z->device, QUEUE_COMM);
    if (here)
        mark_wait(&z->state[g].updated, z->device, QUEUE_COMM);
    gather_slot(z, slot, g, here ? z->state[g].param.mem : own_part(z, slot, g));
}

// Begins to fetch a group, unless it is here or on its way. From the disk it comes to its landing
// first: a GPU's queue cannot wait for that, so the rest is left until the walk is there.
static struct Slot *fetch(struct Zero *z, int unit, int g) {
    struct Slot *slot = slots_find(&z->weights, g);
    if (slot)
        return slot;
    int labelled = z->device->label.unit;
    z->device->label.unit = unit;
    host_install(z, g);
    slot = slots_take(&z->weights, g);
    if (lies_on(&z->plan.param, TIER_NVME)) {
        struct Move m = move_of(z, slot, g);
        z->host->label = z->device->label;
        move_begin(&z->mover, &m);
    } else {
        complete(z, slot, g);
    }
    z->device->label.unit = labelled;
    return slot;
}

static void fetch_at(struct Zero *z, int position) {
    int g = group_at(z, position);
    if (g < 0)
        return;
    struct Slot *slot = fetch(z, unit_at(z, position), g);
    complete(z, slot, g);
    mark_wait(&slot->filled, z->device, QUEUE_COMPUTE);
    z->w[g] = slot->block.mem;
}

// Behind the unit at a position, which has been queued.
static void fetch_behind(struct Zero *z, int position) {
    for (size_t ahead = 1; ahead <= z->plan.prefetch && z->weights.count; ahead++) {
        int next = position + (int)ahead;
        if (group_at(z, next) >= 0)
            fetch(z, unit_at(z, next), group_at(z, next));
    }
}

// The head's backward pass follows its forward pass: its weights stay.
static void release_at(struct Zero *z, int position) {
    int g = group_at(z, position);
    if (g < 0 || group_at(z, position + 1) == g)
        return;
    struct Slot *slot = slots_find(&z->weights, g);
    mark_record(&slot->drained, z->device, QUEUE_COMPUTE);
    slot->group = -1;
    z->w[g] = NULL;
}

void params_fetch_forward(struct Zero *z, int u, int g) {
    (void)g;
    fetch_at(z, position_forward(u));
}

void params_fetch_backward(struct Zero *z, int u, int g) {
    (void)g;
    fetch_at(z, position_backward(z, u));
}

void params_resident_forward(struct Zero *z, int u, int g) {
    if (lies_on(&z->plan.param, TIER_DEVICE))
        use_resident(z, g);
    else
        fetch_at(z, position_forward(u));
}

void params_resident_backward(struct Zero *z, int u, int g) {
    if (lies_on(&z->plan.param, TIER_DEVICE))
        use_resident(z, g);
    else
        fetch_at(z, position_backward(z, u));
}

void params_release_forward(struct Zero *z, int u, int g) {
    (void)g;
    fetch_behind(z, position_forward(u));
    if (z->weights.count)
        release_at(z, position_forward(u));
}

void params_fetch_next(struct Zero *z, int u) {
    fetch_behind(z, position_backward(z, u));
}

void params_release_backward(struct Zero *z, int u, int g) {
    (void)g;
    if (z->weights.count)
        release_at(z, position_backward(z, u));
}

// ---- after an update of which each rank made a part ----

// Through a slot: this rank's part comes in, all are gathered, and the whole goes back.
static void gather_elsewhere(struct Zero *z, int g) {
    struct Slot *slot = slots_take(&z->weights, g);
    struct Move own = move_of(z, slot, g), whole = own;
    own.offset = param_bytes(z, params_own_offset(z, g));
    own.bytes = param_bytes(z, zero_shard_numel(z, g));
    own.mem = own_part(z, slot, g);
    own.stored = &z->state[g].updated;
    move_begin(&z->mover, &own);
    copy_in(z, slot, &own, &slot->own);
    mark_wait(&slot->own, z->device, QUEUE_COMM);
    gather_slot(z, slot, g, own.mem);
    whole.stored = &z->state[g].gathered;
    mark_wait(&slot->filled, z->device, QUEUE_OUT);
    move_out(&z->mover, &whole);
    mark_record(&slot->drained, z->device, QUEUE_OUT);
    slot->group = -1;
}

void params_gather(struct Zero *z, int g) {
    if (lies_on(&z->plan.param, TIER_DEVICE))
        gather_resident(z, g);
    else if (z->dp->size > 1)
        gather_elsewhere(z, g);
}
