// The interpreter of chains: see hop.h.
//
// Orders the queues of a chain by what its hops declare. The host's update also has marks of its
// own (zero/offload/update.c), which host_adamw, load_new_weights, cast_new_weights and
// write_new_weights handle. docs/events.md says what happens without each event. Next: param.c.
#include "zero/zero.h"

void chain_add(struct Chain *c, const struct Hop *hop, void *context) {
    CHECK(c->n < HOPS_MAX, "a chain has no space for %s", hop->name);
    int at = c->n++;
    for (; at > 0 && c->link[at - 1].hop->point > hop->point; at--)
        c->link[at] = c->link[at - 1];
    c->link[at] = (struct Link){hop, context};
}

static bool link_is_due(const struct Zero *z, const struct Link *l, int g) {
    bool last = z->backwards_done + 1 == z->plan.nmicro, reduced = last || z->plan.grad.shard_group;
    const bool due[] = {[WHEN_ANY] = true,
                        [WHEN_REDUCED] = reduced,
                        [WHEN_NOT_REDUCED] = !reduced,
                        [WHEN_LAST] = last};
    return due[l->hop->when] && (!l->hop->wanted || l->hop->wanted(z, g, l->context));
}

// The links of a chain that run this time, in order, and the buffers that each uses. A shard that
// lies in the whole's slot counts as the whole.
struct Due {
    enum ChainKind kind;
    int n;
    const struct Link *link[HOPS_MAX];
    unsigned uses[HOPS_MAX];
};

static struct Due list_due(const struct Zero *z, enum ChainKind kind, const struct HopArgs *a) {
    const struct Chain *c = &z->state[a->group].chain[kind];
    struct Due due = {.kind = kind};
    bool one_slot = a->slot[BUFFER_SHARD] == a->slot[BUFFER_WHOLE];
    bool replaced = false; // true: hops up to POINT_STAGE are skipped
    for (const struct Link *l = c->link; l < c->link + c->n; l++) {
        if ((replaced && l->hop->point <= POINT_STAGE) || !link_is_due(z, l, a->group))
            continue;
        unsigned uses = l->hop->uses;
        if (one_slot && uses & USES_SHARD)
            uses = (uses | USES_WHOLE) & ~(unsigned)USES_SHARD;
        replaced = replaced || l->hop->instead;
        due.link[due.n] = l;
        due.uses[due.n++] = uses;
    }
    return due;
}

static unsigned buffers_used(const struct Due *due, int begin, int end) {
    unsigned uses = 0;
    for (int i = begin; i < end; i++)
        uses |= due->uses[i];
    return uses;
}

// Makes queue `next` wait for `first`, which has one event for weights, and one for gradients.
static void order_queues(struct Zero *z, enum ChainKind kind, enum Queue first, enum Queue next) {
    struct Event *event = z->handed_over[kind == ACCUMULATE || kind == REDUCE][first];
    CHECK(event, "no event for what queue %d hands over", first);
    device_record(z->device, first, event);
    device_wait(z->device, next, event);
}

void slot_wait(struct Zero *z, const struct Slot *slot, enum Queue q) {
    mark_wait(slot->fill_queued ? &slot->arrived : &slot->drained, z->device, q);
}

static void slot_record(struct Zero *z, struct Slot *slot, bool filled, enum Queue q) {
    slot->fill_queued = filled;
    mark_record(filled ? &slot->arrived : &slot->drained, z->device, q);
}

static struct Device *hop_device(const struct Zero *z, const struct Hop *h) {
    return h->on_host ? z->backing.host : z->device;
}

// Waits for what hop i is the first to use; in REDUCE the whole gradient has been handed over.
static void wait_buffers(struct Zero *z, const struct Due *due, int i, const struct HopArgs *a) {
    const struct Hop *h = due->link[i]->hop;
    unsigned first = due->uses[i] & ~buffers_used(due, 0, i);
    if (due->kind == REDUCE)
        first &= ~(unsigned)USES_WHOLE;
    for (int b = 0; b < HOP_BUFFERS; b++)
        if (first >> b & 1 && a->slot[b])
            slot_wait(z, a->slot[b], h->queue);
    if (first & USES_STORE)
        mark_wait(&z->state[a->group].updated, hop_device(z, h), h->queue);
}

// Records that the buffers that hop i is the last to use are filled, or drained.
static void record_buffers(struct Zero *z, const struct Due *due, int i, const struct HopArgs *a) {
    bool fills = due->kind == FETCH || due->kind == ACCUMULATE;
    const struct Hop *h = due->link[i]->hop;
    unsigned last = due->uses[i] & ~buffers_used(due, i + 1, due->n);
    for (int b = 0; b < HOP_BUFFERS; b++)
        if (last >> b & 1 && a->slot[b])
            slot_record(z, a->slot[b], fills, h->queue);
    // Weights that the device made in a slot reach the store by a later hop, d2h.
    if (h->uses & MAKES_STORE && (h->on_host || !a->slot[BUFFER_SHARD]))
        mark_record(&z->state[a->group].updated, hop_device(z, h), h->queue);
}

static void run_hop(struct Zero *z, enum ChainKind kind, const struct Link *l, struct HopArgs a) {
    a.context = l->context;
    if (z->watch)
        z->watch->begins(z->watch->context);
    l->hop->run(z, &a);
    if (z->watch)
        z->watch->ended(z->watch->context, z, kind, l->hop, &a);
}

int chain_run(struct Zero *z, enum ChainKind kind, int first, bool ahead, const struct HopArgs *a) {
    const struct Chain *c = &z->state[a->group].chain[kind];
    const struct Due due = list_due(z, kind, a);
    enum Queue last = kind == REDUCE ? QUEUE_COMPUTE : NQUEUE; // of the hop before; NQUEUE: none
    for (int i = 0; i < due.n; i++) {
        const struct Hop *h = due.link[i]->hop;
        if (due.link[i] < c->link + first)
            continue;
        if (h->not_ahead && ahead)
            return (int)(due.link[i] - c->link);
        if (last != NQUEUE && last != h->queue)
            order_queues(z, kind, last, h->queue);
        last = h->on_host ? NQUEUE : h->queue;
        wait_buffers(z, &due, i, a);
        run_hop(z, kind, due.link[i], *a);
        record_buffers(z, &due, i, a);
    }
    return c->n;
}
