// The interpreter of chains: see hop.h.
//
// All that orders the queues of a chain is here, and follows from what its hops declare.
// docs/events.md names the events, and says what happens without each. Read next: param.c.
#include "zero/zero.h"

void chain_add(struct Chain *c, const struct Hop *hop, void *context) {
    CHECK(c->n < HOPS_MAX, "no room for %s in a chain", hop->name);
    int at = c->n++;
    for (; at > 0 && c->link[at - 1].hop->point > hop->point; at--)
        c->link[at] = c->link[at - 1];
    c->link[at] = (struct Link){hop, context};
}

static bool is_due(const struct Zero *z, const struct Link *l, int g) {
    bool last = z->micro + 1 == z->plan.nmicro, reduced = last || z->plan.grad.shard_group;
    const bool due[] = {[WHEN_ANY] = true,
                        [WHEN_REDUCED] = reduced,
                        [WHEN_NOT_REDUCED] = !reduced,
                        [WHEN_LAST] = last};
    return due[l->hop->when] && (!l->hop->wanted || l->hop->wanted(z, g, l->context));
}

static bool uses(const struct Hop *h, const struct HopArgs *a, const struct Slot *slot) {
    bool found = false;
    for (int b = 0; b < HOP_BUFFERS; b++)
        found = found || (h->uses >> b & 1 && a->slot[b] == slot);
    return found;
}

// Whether one of the links [from, to) that are due uses that slot; NULL: the store.
static bool is_used(const struct Zero *z, const struct Chain *c, int from, int to,
                    const struct HopArgs *a, const struct Slot *slot) {
    for (int i = from; i < to; i++) {
        const struct Hop *h = c->link[i].hop;
        if (is_due(z, &c->link[i], a->group) && (slot ? uses(h, a, slot) : h->uses & USES_STORE))
            return true;
    }
    return false;
}

// The link behind i, where that has run.
static int link_behind(const struct Chain *c, int i) {
    int next = i + 1;
    while (c->link[i].hop->instead && next < c->n && c->link[next].hop->point <= POINT_STAGE)
        next++;
    return next;
}

// The slot that a hop's buffer lies in; NULL: none, or one that another buffer of it has named.
static struct Slot *slot_of(const struct Hop *h, const struct HopArgs *a, int b) {
    bool named = b > 0 && h->uses & USES_WHOLE && a->slot[b] == a->slot[BUFFER_WHOLE];
    return h->uses >> b & 1 && !named ? a->slot[b] : NULL;
}

// Each queue has an event for weights, and one for gradients.
static void hand_over(struct Zero *z, enum ChainKind kind, enum Queue from, enum Queue to) {
    struct Event *over = z->handed_over[kind == ACCUMULATE || kind == REDUCE][from];
    CHECK(over, "no event for what queue %d hands over", from);
    device_record(z->device, from, over);
    device_wait(z->device, to, over);
}

void slot_wait(struct Zero *z, const struct Slot *slot, enum Queue q) {
    if (slot->fill_queued)
        mark_wait(&slot->arrived, z->device, q);
    else
        mark_wait(&slot->drained, z->device, q);
}

static void slot_record(struct Zero *z, struct Slot *slot, bool filled, enum Queue q) {
    slot->fill_queued = filled;
    if (filled)
        mark_record(&slot->arrived, z->device, q);
    else
        mark_record(&slot->drained, z->device, q);
}

static struct Device *device_of(const struct Zero *z, const struct Hop *h) {
    return h->on_host ? z->backing.host : z->device;
}

// Waits for what link i is the first to use.
static void acquire(struct Zero *z, const struct Chain *c, int i, const struct HopArgs *a) {
    const struct Hop *h = c->link[i].hop;
    for (int b = 0; b < HOP_BUFFERS; b++) {
        struct Slot *slot = slot_of(h, a, b);
        if (slot && slot != a->held && !is_used(z, c, 0, i, a, slot))
            slot_wait(z, slot, h->queue);
    }
    if (h->uses & USES_STORE && !is_used(z, c, 0, i, a, NULL))
        mark_wait(&z->state[a->group].updated, device_of(z, h), h->queue);
}

// Says of what link i is the last to use that it is filled, or drained.
static void release(struct Zero *z, const struct Chain *c, int i, const struct HopArgs *a,
                    bool fills) {
    const struct Hop *h = c->link[i].hop;
    int next = link_behind(c, i);
    for (int b = 0; b < HOP_BUFFERS; b++) {
        struct Slot *slot = slot_of(h, a, b);
        if (slot && !is_used(z, c, next, c->n, a, slot))
            slot_record(z, slot, fills, h->queue);
    }
    // What the device makes for a store elsewhere leaves by a slot, which says when.
    if (h->uses & MAKES_STORE && (h->on_host || !a->slot[BUFFER_SHARD]))
        mark_record(&z->state[a->group].updated, device_of(z, h), h->queue);
}

int chain_run(struct Zero *z, enum ChainKind kind, int first, bool ahead, enum Queue from,
              const struct HopArgs *a) {
    const struct Chain *c = &z->state[a->group].chain[kind];
    bool fills = kind == FETCH || kind == ACCUMULATE;
    enum Queue at = from;
    for (int i = first; i < c->n;) {
        const struct Hop *h = c->link[i].hop;
        if (h->later && ahead)
            return i;
        if (!is_due(z, &c->link[i], a->group)) {
            i++;
            continue;
        }
        if (at != NQUEUE && at != h->queue)
            hand_over(z, kind, at, h->queue);
        at = h->on_host ? NQUEUE : h->queue;
        acquire(z, c, i, a);
        struct HopArgs args = *a;
        args.context = c->link[i].context;
        if (z->watch)
            z->watch->begins(z->watch->context);
        h->run(z, &args);
        if (z->watch)
            z->watch->ended(z->watch->context, z, kind, h, &args);
        release(z, c, i, a, fills);
        i = link_behind(c, i);
    }
    return c->n;
}
