// Parameters: how a unit gets its whole weights.
//
// A rank may keep a group's weights whole, and read them in place; ranks that updated only their
// part send it to the others afterwards (opt.c). Or it keeps only its shard: then the group
// is gathered into a slot just before a unit needs it, and released right after. Since the order of
// visits is known, the next groups are gathered as soon as this visit is queued, and arrive while
// it computes:
//
//   comm     | gather 1 | gather 2 | gather 3 | ...
//   compute             | unit 1   | unit 2   | ...
//
// The hops in between are the group's chain FETCH. Next: grad.c.
#include "zero/engine.h"

// The shard lies where it is kept or, if that is not on the device, at its offset in the whole; a
// packed one behind the whole, where the ranks' shards arrive.
static struct HopArgs fetch_args(struct Zero *z, struct Slot *slot) {
    int g = slot->owner;
    struct GroupState *s = &z->state[g];
    const struct Placement *p = &z->plan.param;
    struct HopArgs a = {.group = g, .mem = {slot->block.mem, s->param.mem}, .slot = {slot}};
    if (s->param_tier->kind == TIER_DEVICE)
        return a;
    size_t rank = p->shard_group ? (size_t)p->shard_group->rank : 0;
    a.slot[BUFFER_SHARD] = slot;
    a.mem[BUFFER_SHARD] = params_packs(z->params, g)
                              ? weights_gather_target(z, &a) + s->message_bytes * rank
                              : dtype_at(slot->block.mem, p->dtype, zero_part_begin(z, p, g));
    return a;
}

static void run_fetch_chain(struct Zero *z, struct Slot *slot, bool ahead) {
    struct HopArgs a = fetch_args(z, slot);
    slot->next = chain_run(z, FETCH, slot->next, ahead, &a);
}

static void begin_fetch(struct Zero *z, const struct Visit *v, int g) {
    struct Label label_before = z->device->label;
    zero_label_visit(z, v);
    z->backing.ops->weights_due(z, g); // this may use the slot for a while
    run_fetch_chain(z, slots_acquire(z->state[g].slots, g), true);
    z->device->label = label_before;
}

// Begins to fetch a group, unless it is here or on its way, or its slot is in use: the head and the
// embedding share one, and with few layers the head is within reach while the embedding computes.
void weights_prefetch(struct Zero *z, const struct Visit *v, int g) {
    struct Slots *slots = z->state[g].slots;
    if (slots && !slots_is_taken(slots, g))
        begin_fetch(z, v, g);
}

void weights_fetch(struct Zero *z, const struct Visit *v, int g) {
    struct GroupState *s = &z->state[g];
    if (!s->slots) { // at stage 0 nothing is gathered: only weights_due waits, if the host updates
        z->backing.ops->weights_due(z, g);
        mark_wait(&s->gathered, z->device, QUEUE_COMPUTE);
        z->w[g] = s->param.mem;
        return;
    }
    if (!slots_find(s->slots, g))
        begin_fetch(z, v, g);
    struct Slot *slot = slots_find(s->slots, g);
    run_fetch_chain(z, slot, false); // the hops that were not run ahead
    slot_wait(z, slot, QUEUE_COMPUTE);
    z->w[g] = slot->block.mem;
}

// Keeps weights that the next pass begins with, such as the head's.
void weights_release(struct Zero *z, const struct Visit *v, int g) {
    if (!z->state[g].slots || v->keep_resident)
        return;
    struct Slot *slot = slots_find(z->state[g].slots, g);
    mark_record(&slot->drained, z->device, QUEUE_COMPUTE);
    slot->owner = -1;
    z->w[g] = NULL;
}

char *weights_gather_target(const struct Zero *z, const struct HopArgs *a) {
    const struct Block *messages = z->state[a->group].messages;
    char *whole = a->mem[BUFFER_WHOLE];
    if (params_packs(z->params, a->group))
        return whole + weights_whole_bytes(z, a->group); // packed parts lie behind it
    return messages ? messages->mem : whole;
}

static void run_all_gather(struct Zero *z, const struct HopArgs *a) {
    const struct GroupState *s = &z->state[a->group];
    char *all = weights_gather_target(z, a),
         *packed = all + s->message_bytes * (size_t)z->shard_group->rank;
    const void *own = s->messages ? packed : a->mem[BUFFER_SHARD];
    z->shard_group->ops->all_gather(z->shard_group, all, own, s->message_bytes);
}

const struct Hop hop_all_gather = {
    "all_gather",          POINT_STAGE,  WHEN_ANY, QUEUE_COMM, USES_WHOLE | USES_SHARD | USES_STORE,
    .run = run_all_gather, .where = HERE};
