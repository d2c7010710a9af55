// What a training step moves, predicted from its visits.
//
// The list of visits that the walk goes down (zero.h) says which weights are fetched when, and
// where a gradient ends; here the same list is walked, and only counted.
//
// Three links carry it: the network between ranks, which collectives use; the bus between device
// memory and the host's; and the disk. All three are counted in a run (comm.h, move.h), and the
// counts must be these numbers to the byte: a fetch too many is a slow run that nobody notices.
//
// The figures are of a step after others. The first one lacks what an update leaves for the next
// step: the weights that it makes are installed when the next forward pass is there
// (offload/update.c).
//
// Called by footprint.c, whose tables set the counts beside these figures. Read next: bound.c, the
// time that they take at least.
#include "zero/plan/traffic.h"

#include "zero/offload/activations.h"
#include "zero/hpz/second.h"
#include "zero/offload/offload.h"
#include "zero/report.h"

// Whether a visit's weights are fetched for it: not where the visit before it left them there.
static bool fetches(const struct Zero *z, const struct Visit *v) {
    return v->reads && (v == z->train || !v[-1].stays);
}

static bool is_last_micro(const struct Zero *z, const struct Visit *v) {
    return v->micro + 1 == z->plan.nmicro;
}

// ---- the network ----

// Who is told of each collective.
struct Sends {
    SendsOne *each;
    void *context;
};

static void tell(const struct Sends *s, const struct Comm *over, enum Collective kind,
                 uint64_t bytes, enum SendPhase when) {
    s->each(s->context, over, kind, bytes, when);
}

// A group's shard of each of these ranks, in bytes.
static uint64_t shard_bytes(const struct Zero *z, const struct Comm *over, enum Dtype dtype,
                            int g) {
    return z->params->group[g].padded / (uint64_t)over->size * dtype_size(dtype);
}

// Once a step, of this rank's shard, over those that have the same.
static void add_replicas(const struct Zero *z, int g, const struct Sends *s) {
    const struct Comm *c = z->replicas;
    size_t part = c ? zero_shard_numel(z, g) / (size_t)c->size : 0;
    if (c)
        tell(s, c, COMM_ALL_REDUCE, part * dtype_size(z->plan.grad.dtype), SEND_LAST);
}

static void add_reduction(const struct Zero *z, const struct Visit *v, const struct Sends *s) {
    const struct ZeroPlan *p = &z->plan;
    uint64_t bytes = shard_bytes(z, z->dp, p->grad.dtype, v->group);
    struct WireHop hop[WIRE_HOPS];
    int hops = wire_hops(z->wire, z->dp, p->grad.dtype, zero_shard_numel(z, v->group), hop);
    bool each = p->grad.over, scatters = each || (is_last_micro(z, v) && p->optimizer.over);
    for (int i = 0; i < hops && scatters; i++)
        tell(s, hop[i].over, hop[i].kind, hop[i].bytes, each ? SEND_BACKWARD : SEND_LAST);
    if (!scatters && is_last_micro(z, v))
        tell(s, z->dp, COMM_ALL_REDUCE, bytes, SEND_LAST);
    const struct Comm *ends = z->params->group[v->group].shared ? z->pipe->ends : NULL;
    if (ends && is_last_micro(z, v))
        tell(s, ends, COMM_ALL_REDUCE,
             (each ? bytes : bytes * (uint64_t)z->dp->size) / (uint64_t)ends->size, SEND_LAST);
    if (is_last_micro(z, v))
        add_replicas(z, v->group, s);
}

// Of whom a visit gathers weights: with a second partition all ranks only the step's first time.
static const struct Comm *gathered_of(const struct Zero *z, const struct Visit *v) {
    const struct Comm *near = second_near(z, v->group);
    for (const struct Visit *before = z->train; near && before < v; before++)
        if (before->group == v->group && fetches(z, before))
            return near;
    return z->plan.param.over;
}

static void add_gathering(const struct Zero *z, const struct Comm *over, int g, enum SendPhase when,
                          const struct Sends *s) {
    size_t n = z->params->group[g].padded / (size_t)over->size;
    tell(s, over, COMM_ALL_GATHER, wire_weight_bytes(z->wire, z->plan.param.dtype, n), when);
}

void zero_sends(const struct Zero *z, SendsOne *each, void *context) {
    const struct ZeroPlan *p = &z->plan;
    struct Sends s = {each, context};
    for (const struct Visit *v = z->train; v->unit >= 0; v++) {
        if (p->param.over && fetches(z, v))
            add_gathering(z, gathered_of(z, v), v->group,
                          v->backward ? SEND_BACKWARD : SEND_FORWARD, &s);
        if (v->gradient_ends)
            add_reduction(z, v, &s);
    }
    for (int g = 0; g < z->params->ngroup; g++)
        if (p->optimizer.over && !p->param.over)
            add_gathering(z, p->optimizer.over, g, SEND_UPDATE, &s);
    tell(&s, z->all, COMM_ALL_GATHER, z->report_bytes, SEND_LAST);
}

static void count_one(void *traffic, const struct Comm *over, enum Collective kind, uint64_t bytes,
                      enum SendPhase when) {
    (void)when;
    comm_count(over, kind, bytes, traffic);
}

struct Traffic zero_traffic(const struct Zero *z) {
    struct Traffic t = {{0}, 0};
    zero_sends(z, count_one, &t);
    return t;
}

// ---- the bus and the disk ----

// Weights from their backing store to the device, and from the device to it.
static struct Moved weights_in(const struct Zero *z, size_t elements) {
    uint64_t bytes = elements * dtype_size(z->plan.param.dtype);
    return (struct Moved){.in = bytes, .read = lies_on(&z->plan.param, TIER_NVME) ? bytes : 0};
}
static struct Moved weights_out(const struct Zero *z, size_t elements) {
    struct Moved m = weights_in(z, elements);
    return (struct Moved){.out = m.in, .written = m.read};
}

// The gradient that the host wants, and between micro-batches the sum so far (offload/gradients.c).
static struct Moved gradient(const struct Zero *z, const struct Visit *v) {
    const struct Placement *p = &z->plan.grad;
    uint64_t size = dtype_size(p->dtype), sum = size * zero_part_numel(z, p, v->group);
    uint64_t last = p->over ? sum : size * zero_owned_numel(z, v->group);
    return (struct Moved){.in = v->micro > 0 ? sum : 0, .out = is_last_micro(z, v) ? last : sum};
}

static void add_visit(struct Zero *z, const struct Visit *v, struct Moves *m) {
    struct Moved *pass = v->backward ? &m->backward : &m->forward;
    const struct Placement *param = &z->plan.param;
    if (!lies_on(param, TIER_DEVICE) && fetches(z, v))
        moved_add(pass, weights_in(z, zero_part_numel(z, param, v->group)));
    if (v->gradient_ends && host_updates(z, v->group))
        moved_add(pass, gradient(z, v));
    moved_add(pass, keep_moved(z, v));
}

// The update, and the whole that ranks make of their parts where the weights are elsewhere.
static void add_update(struct Zero *z, int g, struct Moves *m) {
    const struct ZeroPlan *p = &z->plan;
    bool elsewhere = !lies_on(&p->param, TIER_DEVICE);
    if (host_updates(z, g))
        moved_add(&m->update, host_moves(z, g));
    else if (elsewhere)
        moved_add(&m->update, weights_out(z, zero_owned_numel(z, g)));
    if (elsewhere && p->optimizer.over && !p->param.over && z->dp->size > 1) {
        moved_add(&m->update, weights_in(z, zero_owned_numel(z, g)));
        moved_add(&m->update, weights_out(z, z->params->group[g].padded));
    }
}

struct Moves zero_moves(struct Zero *z) {
    struct Moves m = {0};
    for (const struct Visit *v = z->train; v->unit >= 0; v++)
        add_visit(z, v, &m);
    for (int g = 0; g < z->params->ngroup; g++)
        add_update(z, g, &m);
    return m;
}
