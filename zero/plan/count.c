// Counting the kernels of a micro-batch: see count.h. Next: rates.c.
#include "zero/plan/count.h"

#include <stdlib.h>
#include <string.h>

// ---- a table that counts ----

static void add_call_cost(struct Counter *c, enum KernelKind k, struct Cost cost) {
    c->to->flops[k] += cost.flops;
    c->to->bytes[k] += cost.bytes;
    c->to->calls[k]++;
}

#define X(op, Args)                                                                                \
    static void count_##op(struct Stream *s, const struct Args *a) {                               \
        add_call_cost((struct Counter *)s, KERNEL_##op, cost_##op(a));                             \
    }
KERNEL_LIST(X)
#undef X

static struct Kernels counting_table(const struct Kernels *real) {
    struct Kernels k = *real; // whose answers about scratch stay
#define X(op, Args) k.op = count_##op;
    KERNEL_LIST(X)
#undef X
    return k;
}

static void zero_nothing(struct Stream *s, void *dst, size_t bytes) {
    (void)s;
    (void)dst;
    (void)bytes;
}
static void copy_nothing(struct Stream *s, void *dst, const void *src, size_t bytes) {
    (void)s;
    (void)dst;
    (void)src;
    (void)bytes;
}
static void no_event(struct Stream *s, struct Event *event) {
    (void)s;
    (void)event;
}
static void call_nothing(struct Stream *s, DeviceCall *call, const void *args, size_t bytes) {
    (void)s;
    (void)call;
    (void)args;
    (void)bytes;
}
static void sync_nothing(struct Event *event) {
    (void)event;
}

void count_begin(struct Counting *c, struct Device *d, struct KernelCount *to) {
    *c = (struct Counting){.device = d, .opened = *d, .ops = *d->ops, .counter = {to}};
    c->kernels = counting_table(d->kernels);
    c->ops.zero = zero_nothing;
    c->ops.copy = copy_nothing;
    c->ops.record = c->ops.wait = no_event;
    c->ops.call = call_nothing;
    c->ops.sync_event = sync_nothing;
    d->kernels = &c->kernels;
    d->ops = &c->ops;
    for (int q = 0; q < NQUEUE; q++)
        d->queue[q] = (struct Stream *)&c->counter;
}

void count_end(struct Counting *c) {
    *c->device = c->opened;
}

// ---- the walk ----

// Operands that nobody follows, but that are there.
struct Operands {
    void **w;
    struct Grad *dw;
};

static struct Operands operands_of(const struct Rank *r, bool accumulate) {
    static char somewhere[1];
    size_t n = (size_t)r->params.ngroup;
    struct Operands o = {base_alloc(n * sizeof *o.w), base_alloc(n * sizeof *o.dw)};
    for (size_t g = 0; g < n; g++) {
        o.w[g] = somewhere;
        o.dw[g] = (struct Grad){r->params.group[g].frozen ? NULL : somewhere, accumulate};
    }
    return o;
}

// Adds what was sent to other TP ranks, and the calls, since `before`, and sets that to now.
static void add_sent(const struct Comm *c, uint64_t before[2], struct KernelCount *to) {
    if (!c)
        return;
    uint64_t sent = c->sent.bytes[COMM_ALL_GATHER] + c->sent.bytes[COMM_REDUCE_SCATTER] +
                    c->sent.bytes[COMM_ALL_REDUCE];
    to->sent += (double)(sent - before[0]);
    to->collectives += (double)(c->calls - before[1]);
    before[0] = sent;
    before[1] = c->calls;
}

static void add_times(struct KernelCount *to, const struct KernelCount *c, double times) {
    for (int k = 0; k < NKERNEL; k++) {
        to->flops[k] += times * c->flops[k];
        to->bytes[k] += times * c->bytes[k];
        to->calls[k] += times * c->calls[k];
    }
    to->sent += times * c->sent;
    to->collectives += times * c->collectives;
}

// Counts the passes of each kind of unit. Of blocks in a row that are alike it runs one; the count
// of blocks is the mean of all.
static void count_each_unit(struct Rank *r, struct Counter *counter, const struct Operands *o,
                            struct PassCount out[NUNITKIND]) {
    const struct Params *p = &r->params;
    uint64_t sent[2] = {0, 0};
    struct KernelCount ignored = {.sent = 0};
    add_sent(r->tp.comm, sent, &ignored);
    for (int u = 0, alike; u < p->nunit; u += alike) {
        struct PassCount count = {0}, *to = &out[p->unit[u].kind];
        bool block = p->unit[u].kind == UNIT_BLOCK;
        for (alike = 1; u + alike < p->nunit && params_is_as_before(p, u + alike); alike++)
            ;
        counter->to = &count.forward;
        unit_forward(&r->model, u, o->w, &r->acts);
        add_sent(r->tp.comm, sent, &count.forward);
        counter->to = &count.backward;
        if (u >= params_first_backward(p)) {
            acts_restore(&r->model, u, o->w, &r->acts);
            unit_backward(&r->model, u, o->w, o->dw, &r->acts);
        }
        add_sent(r->tp.comm, sent, &count.backward);
        double share = block ? alike / (double)params_layers(p) : 1;
        add_times(&to->forward, &count.forward, share);
        add_times(&to->backward, &count.backward, share);
    }
}

void count_units(struct Rank *dry, bool accumulate, struct PassCount out[NUNITKIND]) {
    struct Counting counting;
    struct Operands o = operands_of(dry, accumulate);
    memset(out, 0, NUNITKIND * sizeof *out);
    count_begin(&counting, dry->device, NULL);
    dry->acts.mode = HEAD_TRAIN;
    count_each_unit(dry, &counting.counter, &o, out);
    count_end(&counting);
    free(o.w);
    free(o.dw);
}

void count_passes(struct Rank *dry, bool accumulate, struct PassCount *out) {
    struct PassCount of[NUNITKIND];
    count_units(dry, accumulate, of);
    *out = (struct PassCount){0};
    for (int kind = 0; kind < NUNITKIND; kind++) {
        double times = kind == UNIT_BLOCK ? (double)dry->model.config.layers : 1;
        add_times(&out->forward, &of[kind].forward, times);
        add_times(&out->backward, &of[kind].backward, times);
    }
}

// ---- times ----

// A product of few rows moves as much of weights and their gradients as one of many, which its rate
// at many rows does not show: its operands come at the rate of a norm, which does nothing else.
double count_seconds(const struct KernelCount *c, const struct KernelRates *r) {
    double sum = 0, memory = r->of[KERNEL_norm_forward];
    if (c->flops[KERNEL_matmul] > 0 && memory > 0)
        sum = c->bytes[KERNEL_matmul] / memory;
    for (int k = 0; k < NKERNEL; k++) {
        if (c->calls[k] > 0 && !(r->of[k] > 0))
            return 0;
        double amount = c->flops[k] > 0 ? c->flops[k] : c->bytes[k];
        sum += c->calls[k] > 0 ? amount / r->of[k] : 0;
        sum += c->calls[k] * r->call;
    }
    return sum;
}
