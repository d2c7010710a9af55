// 1F1B as one list: see order.h. Next: split.c.
#include "zero/pipe/order.h"

#include <stdlib.h>

// The entries of one stage in order, and how many of them are done.
struct Program {
    struct OrderEntry *entry; // (count)
    size_t count, at;
    double now; // seconds of the step at which these are done
};

// ---- the entries of each stage ----

static void add_pass(struct Program *p, enum OrderKind kind, int stage, size_t micro) {
    p->entry[p->count++] = (struct OrderEntry){.kind = kind, .stage = stage, .micro = micro};
}

// Adds the sendrecv of stages `stage` and `stage` + 1, if both exist and something is sent. Stages
// before the first trained one receive no gradient.
static void add_sendrecv(struct Program *p, const struct Order *o, int stage, size_t down,
                         size_t up) {
    up = stage >= o->first ? up : ORDER_NONE;
    bool both_exist = stage >= 0 && stage + 1 < o->stages;
    if (both_exist && (down != ORDER_NONE || up != ORDER_NONE))
        p->entry[p->count++] =
            (struct OrderEntry){.kind = ORDER_SENDRECV, .stage = stage, .down = down, .up = up};
}

// Lists the entries of a stage. A sendrecv has the number of the lower of its two stages.
static void write_program(const struct Order *o, int stage, struct Program *p) {
    size_t m = o->micros, ahead = size_min(m, (size_t)(o->stages - 1 - stage));
    p->entry = base_alloc((4 * m + 2 * ahead + 1) * sizeof *p->entry);
    for (size_t k = 0; k < ahead; k++) {
        add_sendrecv(p, o, stage - 1, k, ORDER_NONE);
        add_pass(p, ORDER_FORWARD, stage, k);
        add_sendrecv(p, o, stage, k, ORDER_NONE);
    }
    if (ahead < m)
        add_sendrecv(p, o, stage - 1, ahead, ORDER_NONE);
    for (size_t k = 0; k < m; k++) {
        bool more = k + ahead < m;
        if (more)
            add_pass(p, ORDER_FORWARD, stage, k + ahead);
        add_sendrecv(p, o, stage, more ? k + ahead : ORDER_NONE, k);
        add_pass(p, ORDER_BACKWARD, stage, k);
        add_sendrecv(p, o, stage - 1, k + ahead + 1 < m ? k + ahead + 1 : ORDER_NONE, k);
    }
}

// ---- all of them together ----

static bool is_same_sendrecv(const struct OrderEntry *a, const struct OrderEntry *b) {
    return b->kind == ORDER_SENDRECV && a->stage == b->stage && a->down == b->down &&
           a->up == b->up;
}

static void append_entry(struct Order *o, struct OrderEntry e, double begin, double seconds) {
    e.begin = begin;
    e.end = begin + seconds;
    o->span = e.end > o->span ? e.end : o->span;
    o->entry[o->count++] = e;
}

// Does the next entry of a stage, and returns true, unless that waits for a neighbour.
static bool run_next_entry(struct Order *o, struct Program *all, int stage,
                           const struct OrderCost *cost, double sendrecv) {
    struct Program *p = &all[stage];
    if (p->at == p->count)
        return false;
    const struct OrderEntry *e = &p->entry[p->at];
    if (e->kind != ORDER_SENDRECV) {
        append_entry(o, *e, p->now,
                     e->kind == ORDER_FORWARD ? cost[stage].forward : cost[stage].backward);
        p->now = o->entry[o->count - 1].end;
        p->at++;
        return true;
    }
    struct Program *other = &all[e->stage == stage ? stage + 1 : stage - 1];
    if (other->at == other->count || !is_same_sendrecv(e, &other->entry[other->at]))
        return false;
    append_entry(o, *e, p->now > other->now ? p->now : other->now, sendrecv);
    p->now = other->now = o->entry[o->count - 1].end;
    p->at++;
    other->at++;
    return true;
}

void order_make(struct Order *o, int stages, int first, size_t micros, const struct OrderCost *cost,
                double sendrecv) {
    struct Program *all = base_alloc_zeroed((size_t)stages * sizeof *all);
    size_t most = 0, before = SIZE_MAX;
    *o = (struct Order){.stages = stages, .first = first, .micros = micros};
    for (int s = 0; s < stages; s++) {
        write_program(o, s, &all[s]);
        most += all[s].count;
    }
    o->entry = base_alloc(most * sizeof *o->entry);
    while (o->count != before) {
        before = o->count;
        for (int s = 0; s < stages; s++)
            while (run_next_entry(o, all, s, cost, sendrecv))
                ;
    }
    for (int s = 0; s < stages; s++) {
        CHECK(all[s].at == all[s].count,
              "stage %d of %d would wait for ever with %zu micro-batches", s, stages, micros);
        free(all[s].entry);
    }
    free(all);
}

void order_free(struct Order *o) {
    free(o->entry);
    *o = (struct Order){0};
}

double order_bubble(const struct Order *o) {
    double busy = 0;
    for (size_t i = 0; i < o->count; i++)
        if (o->entry[i].kind != ORDER_SENDRECV)
            busy += o->entry[i].end - o->entry[i].begin;
    return o->span > 0 ? 1 - busy / ((double)o->stages * o->span) : 0;
}

// A sendrecv belongs to the pass before it, if that sends in it, else to the one after it.
void order_passes(int stages, int first, int stage, size_t micros, struct Pass *out) {
    struct Order o = {.stages = stages, .first = first, .micros = micros};
    struct Program own = {0};
    struct Pass *next = out;
    write_program(&o, stage, &own);
    for (size_t i = 0; i < own.count; i++) {
        const struct OrderEntry *e = &own.entry[i];
        bool down = e->down != ORDER_NONE, up = e->up != ORDER_NONE;
        if (e->kind == ORDER_SENDRECV) {
            bool sends = e->stage == stage ? down : up, receives = e->stage == stage ? up : down;
            if (sends) {
                next[-1].sends = true;
                next[-1].exchanges = receives;
            } else {
                next->receives = receives;
            }
        } else {
            next->backward = e->kind == ORDER_BACKWARD;
            next++->micro = e->micro;
        }
    }
    free(own.entry);
}
