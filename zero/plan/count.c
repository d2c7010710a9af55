// Counting the kernels of a micro-batch: see count.h. Next: rates.c.
#include "zero/plan/count.h"

#include <stdlib.h>
#include <string.h>

// ---- a table that counts ----

// Stands where a queue does.
struct Counter {
    struct KernelCount *to;
    double times; // that this unit occurs
};

static void add(struct Counter *c, enum KernelKind k, struct Cost cost) {
    c->to->flops[k] += c->times * cost.flops;
    c->to->bytes[k] += c->times * cost.bytes;
    c->to->calls[k] += c->times;
}

#define X(op, Args)                                                                                \
    static void count_##op(struct Stream *s, const struct Args *a) {                               \
        add((struct Counter *)s, KERNEL_##op, cost_##op(a));                                       \
    }
KERNEL_LIST(X)
#undef X

static struct Kernels counting(const struct Kernels *real) {
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
        o.dw[g] = (struct Grad){somewhere, accumulate};
    }
    return o;
}

// All blocks are as the first.
static void walk(struct Rank *r, struct Counter *counter, const struct Operands *o,
                 struct PassCount *out) {
    for (int u = 0; u < r->params.nunit; u++) {
        const struct Unit *unit = &r->params.unit[u];
        if (unit->layer > 0)
            continue;
        counter->times = unit->kind == UNIT_BLOCK ? (double)r->model.config.layers : 1;
        counter->to = &out->forward;
        unit_forward(&r->model, u, o->w, &r->acts);
        counter->to = &out->backward;
        acts_restore(&r->model, u, o->w, &r->acts);
        unit_backward(&r->model, u, o->w, o->dw, &r->acts);
    }
}

void count_passes(struct Rank *dry, bool accumulate, struct PassCount *out) {
    struct Device opened = *dry->device;
    struct Kernels kernels = counting(opened.kernels);
    struct DeviceOps ops = *opened.ops;
    struct Counter counter = {0};
    struct Operands o = operands_of(dry, accumulate);
    *out = (struct PassCount){0};
    ops.zero = zero_nothing;
    dry->device->kernels = &kernels;
    dry->device->ops = &ops;
    dry->device->queue[QUEUE_COMPUTE] = (struct Stream *)&counter;
    dry->acts.mode = HEAD_TRAIN;
    walk(dry, &counter, &o, out);
    *dry->device = opened;
    free(o.w);
    free(o.dw);
}

// ---- times ----

#define X(op, Args) #op,
static const char *const names[] = {KERNEL_LIST(X)};
#undef X

const char *count_name(enum KernelKind k) {
    return names[k];
}

int count_kind(const char *name) {
    for (int k = 0; k < NKERNEL; k++)
        if (!strcmp(names[k], name))
            return k;
    return -1;
}

double count_amount(const struct KernelCount *c, enum KernelKind k) {
    return c->flops[k] > 0 ? c->flops[k] : c->bytes[k];
}

// A product of few rows moves as much of weights and their gradients as one of many, which its rate
// at many rows does not show: its operands come at the rate of a norm, which does nothing else.
double count_seconds(const struct KernelCount *c, const struct KernelRates *r) {
    double sum = 0, memory = r->of[KERNEL_norm_forward];
    if (c->flops[KERNEL_matmul] > 0 && memory > 0)
        sum = c->bytes[KERNEL_matmul] / memory;
    for (int k = 0; k < NKERNEL; k++) {
        if (c->calls[k] > 0 && !(r->of[k] > 0))
            return 0;
        sum += c->calls[k] > 0 ? count_amount(c, (enum KernelKind)k) / r->of[k] : 0;
        sum += c->calls[k] * r->call;
    }
    return sum;
}
