// The interpreter of chains: see hop.h.
//
// All that orders the queues of a chain is here, and follows from what its hops declare.
//
//   compute -> comm, out      backward done     a gradient is reduced, or leaves, before it is
//                                               complete
//   comm -> out               gradient reduced  a gradient leaves before it is reduced
//   in -> compute             bucket arrived    a unit adds to a sum that has not come yet
//   in -> comm                shard arrived     a reduction adds to a sum that has not come yet
//   comm, out -> compute, in  bucket drained    a unit's gradient, or a sum, overwrites one that is
//                                               being reduced, or leaves
//   out -> in, comm           shard drained     the next shard, or sum, overwrites one that leaves
//
// Read next: grad.c.
#include "zero/zero.h"

void chain_add(struct Chain *c, const struct Hop *hop, void *context) {
    CHECK(c->n < HOPS_MAX, "no room for %s in a chain", hop->name);
    int at = c->n++;
    for (; at > 0 && c->link[at - 1].hop->point > hop->point; at--)
        c->link[at] = c->link[at - 1];
    c->link[at] = (struct Link){hop, context};
}

static bool is_due(const struct Zero *z, const struct Hop *h) {
    bool last = z->micro + 1 == z->plan.nmicro, reduced = last || z->plan.grad.over;
    const bool due[] = {[WHEN_ANY] = true,
                        [WHEN_REDUCED] = reduced,
                        [WHEN_NOT_REDUCED] = !reduced,
                        [WHEN_LAST] = last};
    return due[h->when];
}

// Whether one of the links [from, to) that are due uses the slot.
static bool is_used(const struct Zero *z, const struct Chain *c, int from, int to,
                    const struct HopArgs *a, const struct Slot *slot) {
    for (int i = from; i < to; i++)
        for (int b = 0; b < NBUFFER; b++)
            if (is_due(z, c->link[i].hop) && c->link[i].hop->uses >> b & 1 && a->slot[b] == slot)
                return true;
    return false;
}

static void hand_over(struct Zero *z, enum Queue from, enum Queue to) {
    if (from == to)
        return;
    struct Event *over = z->handed_over[from];
    device_record(z->device, from, over); // backward done, gradient reduced
    device_wait(z->device, to, over);     // backward done, gradient reduced
}

void slot_wait(struct Zero *z, const struct Slot *slot, enum Queue q) {
    const struct Mark *m = slot->fill_queued ? &slot->arrived : &slot->drained;
    mark_wait(m, z->device, q); // bucket arrived, bucket drained, shard arrived, shard drained
}

static void slot_record(struct Zero *z, struct Slot *slot, bool filled, enum Queue q) {
    struct Mark *m = filled ? &slot->arrived : &slot->drained;
    slot->fill_queued = filled;
    mark_record(m, z->device, q); // bucket arrived, bucket drained, shard arrived, shard drained
}

void chain_run(struct Zero *z, enum ChainKind kind, enum Queue from, const struct HopArgs *a) {
    const struct Chain *c = &z->state[a->group].chain[kind];
    enum Queue at = from;
    for (int i = 0; i < c->n; i++) {
        const struct Hop *h = c->link[i].hop;
        if (!is_due(z, h))
            continue;
        hand_over(z, at, h->queue);
        at = h->queue;
        for (int b = 0; b < NBUFFER; b++)
            if (a->slot[b] && h->uses >> b & 1 && a->slot[b] != a->held &&
                !is_used(z, c, 0, i, a, a->slot[b]))
                slot_wait(z, a->slot[b], at);
        h->run(z, a, c->link[i].context);
        for (int b = 0; b < NBUFFER; b++)
            if (a->slot[b] && h->uses >> b & 1 && !is_used(z, c, i + 1, c->n, a, a->slot[b]))
                slot_record(z, a->slot[b], kind == ACCUMULATE, at);
    }
}
