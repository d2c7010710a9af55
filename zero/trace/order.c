// Makes the file's operations of what was queued, with their times from the queues' rings, and the
// order that queues and events give them.
//
// An operation of the file is what one queue did for one hop, or one pass of a unit, without a
// record or a wait in between. It follows the one before it in its queue, and all that was done
// when an event was recorded for which its queue has waited since. Each operation has a clock: of
// each queue the last one that is done before it begins. So an operation is behind another if its
// clock says so, and a wait adds an edge only where the clock does not say it already.
//
// Next: lives.c.
#include "zero/trace/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// When an entry ran, and the bytes that its kernels moved; end < begin: no ring has it.
struct Time {
    double begin, end, kernel;
};

// What a queue has to wait for before its next operation.
struct QueueState {
    int behind[TRACE_QUEUES]; // the last operation of each queue; -1: none
    int open;                 // the one that what comes next may still belong to; -1: none
    double waited, longest;   // seconds, of all its waits and of one
    const char *event;        // of the longest
};

// A record of an event: what was done before it.
struct Recorded {
    struct EventLabel event;
    int behind[TRACE_QUEUES];
};

struct Order {
    const struct ZeroTrace *t;
    const struct StepNotes *notes;
    struct QueueState queue[TRACE_QUEUES];
    int host[TRACE_QUEUES]; // what the host has waited for: all that it queues later is behind it
    struct Recorded *recorded;
    size_t nrecorded;
    bool *has_operation; // (notes->nwork): each work has one already
    struct Operations *out;
    size_t room;
};

// ---- times ----

static int compare_numbers(const void *key, const void *entry) {
    uint64_t a = *(const uint64_t *)key, b = ((const struct Entry *)entry)->number;
    return a < b ? -1 : a > b;
}

static bool is_kernel(const char *name) {
    return strcmp(name, "copy") != 0 && strcmp(name, "zero") != 0 && strncmp(name, "rank_", 5) != 0;
}

// Adds a queue's records to the times of the entries of `n` that they belong to.
static void add_ring(const struct TraceRing *ring, const struct StepNotes *n, struct Time *time) {
    for (uint64_t i = ring->count > TRACE_RING ? ring->count - TRACE_RING : 0; i < ring->count;
         i++) {
        const struct TraceRecord *r = &ring->record[i % TRACE_RING];
        uint64_t number = r->label.number;
        const struct Entry *e =
            number ? bsearch(&number, n->entry, n->n, sizeof *n->entry, compare_numbers) : NULL;
        if (!e)
            continue;
        struct Time *at = &time[e - n->entry];
        at->begin = fmin(at->begin, r->begin);
        at->end = fmax(at->end, r->end);
        at->kernel += is_kernel(r->name) ? r->cost.bytes : 0;
    }
}

static struct Time *times_of(const struct ZeroTrace *t, const struct StepNotes *n) {
    struct Time *time = base_alloc((n->n + 1) * sizeof *time);
    for (size_t i = 0; i < n->n; i++)
        time[i] = (struct Time){INFINITY, -INFINITY, 0};
    for (int i = 0; i < 2; i++)
        for (int q = 0; t->parts.traces[i] && q < NQUEUE; q++)
            add_ring(&t->parts.traces[i]->ring[q], n, time);
    return time;
}

// ---- order ----

static void clear_behind(int behind[TRACE_QUEUES]) {
    for (int q = 0; q < TRACE_QUEUES; q++)
        behind[q] = -1;
}

// Puts `behind` also behind all that `other` is behind: of each queue the later one.
static void merge_behind(int behind[TRACE_QUEUES], const int other[TRACE_QUEUES]) {
    for (int q = 0; q < TRACE_QUEUES; q++)
        behind[q] = behind[q] > other[q] ? behind[q] : other[q];
}

// Returns the newest note of that record of the event; NULL: this step has none.
static const struct Recorded *find_record(const struct Order *o, const struct EventLabel *event) {
    for (size_t i = o->nrecorded; i > 0; i--)
        if (o->recorded[i - 1].event.event == event->event &&
            o->recorded[i - 1].event.record == event->record)
            return &o->recorded[i - 1];
    return NULL;
}

static void add_record(struct Order *o, struct QueueState *s, const struct Entry *e) {
    struct Recorded *r = &o->recorded[o->nrecorded++];
    r->event = e->event;
    memcpy(r->behind, s->behind, sizeof r->behind);
    merge_behind(r->behind, o->host);
    s->open = -1;
}

static void add_wait(struct Order *o, struct QueueState *s, const struct Entry *e,
                     const struct Time *time) {
    const struct Recorded *r = find_record(o, &e->event);
    double waited = fmax(time->end - time->begin, 0);
    if (!strcmp(e->name, TRACE_HOST_WAIT)) {
        if (r)
            merge_behind(o->host, r->behind);
        return;
    }
    s->waited += waited;
    if (!s->event || waited > s->longest) {
        s->longest = waited;
        s->event = e->event.name;
    }
    s->open = -1;
    if (r)
        merge_behind(s->behind, r->behind);
}

// Lists what an operation runs behind: of those in `behind` the ones that no other implies.
static void set_order(const struct Operations *out, struct Operation *p,
                      const int behind[TRACE_QUEUES]) {
    int n = 0;
    memcpy(p->clock, behind, sizeof p->clock);
    for (int q = 0; q < TRACE_QUEUES; q++)
        if (behind[q] >= 0)
            merge_behind(p->clock, out->operation[behind[q]].clock);
    for (int q = 0; q < TRACE_QUEUES; q++) {
        bool implied = behind[q] < 0;
        for (int other = 0; other < TRACE_QUEUES && !implied; other++)
            implied = other != q && behind[other] >= 0 &&
                      out->operation[behind[other]].clock[q] >= behind[q];
        if (!implied)
            p->after[n++] = behind[q];
    }
    p->after[n] = -1;
}

static struct Operation *add_operation(struct Order *o, int q, const struct Origin *work,
                                       const struct Entry *e) {
    struct Operations *out = o->out;
    struct QueueState *s = &o->queue[q];
    out->operation = base_grow(out->operation, (size_t)out->n, &o->room, sizeof *out->operation,
                               "a trace of memory");
    struct Operation *p = &out->operation[out->n];
    *p = (struct Operation){.work = *work,
                            .name = work->name ? work->name : e->name,
                            .queue = q,
                            .begin = INFINITY,
                            .end = -INFINITY,
                            .waited = s->waited,
                            .event = s->event};
    bool *has_operation = &o->has_operation[work - o->notes->work];
    p->work.sent = *has_operation ? 0 : work->sent; // only the first operation of its work has them
    *has_operation = true;
    merge_behind(s->behind, o->host);
    set_order(out, p, s->behind);
    clear_behind(s->behind);
    s->behind[q] = s->open = out->n++;
    s->waited = s->longest = 0;
    s->event = NULL;
    return p;
}

// ---- what it touches ----

// Returns the block of the log that holds the touched bytes, -1: none. Of several the newest.
// *offset: of the bytes in that block.
static int block_of(const struct BlockLog *log, const struct Touch *touch, uint64_t *offset) {
    for (size_t i = log->n; i > 0; i--) {
        const struct LoggedBlock *b = &log->block[i - 1];
        const char *begin = b->mem;
        bool file = b->kind == TIER_NVME;
        if (file != !touch->mem || (file && b->tag != touch->file))
            continue;
        *offset =
            file ? touch->offset - b->offset : (uint64_t)((uintptr_t)touch->mem - (uintptr_t)begin);
        if (*offset < b->bytes && (file || begin))
            return (int)i - 1;
    }
    return -1;
}

static enum TierKind tier_of(const struct ZeroTrace *t, int block) {
    return t->log.block[block].kind;
}

// Counts what crosses the bus: a copy from one tier's block to another's.
static void count_copy(struct Order *o, struct Operation *p, const struct OpTouch *from,
                       const struct OpTouch *to) {
    enum TierKind a = tier_of(o->t, from->block), b = tier_of(o->t, to->block);
    if (a == TIER_CPU && b == TIER_DEVICE)
        p->in += to->bytes;
    else if (a == TIER_DEVICE && b == TIER_CPU)
        p->out += to->bytes;
}

static void add_touches(struct Order *o, struct Operation *p, const struct Entry *e) {
    struct Operations *out = o->out;
    size_t first = out->ntouch;
    for (size_t i = e->touch; i < e->touch + e->ntouch; i++) {
        const struct Touch *touch = &o->notes->touch[i];
        uint64_t offset;
        int block = block_of(&o->t->log, touch, &offset);
        if (block < 0)
            continue; // the host's end of a copy
        size_t bytes = size_min(touch->bytes, o->t->log.block[block].bytes - offset);
        out->touch[out->ntouch++] =
            (struct OpTouch){(int)(p - out->operation), block, offset, bytes, touch->how};
        if (!touch->mem)
            *(touch->how == ACCESS_READ ? &p->read : &p->written) += touch->bytes;
    }
    if (!strcmp(e->name, "copy") && out->ntouch == first + 2)
        count_copy(o, p, &out->touch[first], &out->touch[first + 1]);
}

// ---- all of a step ----

static void add_entry(struct Order *o, const struct Entry *e, const struct Time *time) {
    int q = (int)e->queue + (e->on_host ? NQUEUE : 0);
    struct QueueState *s = &o->queue[q];
    bool lost = !(time->end >= time->begin) && strcmp(e->name, TRACE_HOST_WAIT) != 0;
    o->out->lost += lost;
    if (lost)
        return;
    if (!e->work && !e->event.event)
        return; // ranks of one GPU met
    if (!e->work && !strcmp(e->name, "record")) {
        add_record(o, s, e);
    } else if (!e->work) {
        add_wait(o, s, e, time);
    } else {
        bool goes_on = s->open >= 0 && o->out->operation[s->open].work.number == e->work;
        struct Operation *p = goes_on ? &o->out->operation[s->open]
                                      : add_operation(o, q, notes_find_work(o->notes, e->work), e);
        p->begin = fmin(p->begin, time->begin);
        p->end = fmax(p->end, time->end);
        p->kernel += time->kernel;
        add_touches(o, p, e);
        if (p->work.kind != ORIGIN_OTHER)
            o->out->begin = fmin(o->out->begin, p->begin);
    }
}

struct Operations order_operations(const struct ZeroTrace *t, uint64_t step) {
    const struct StepNotes *n = &t->notes[step % 2];
    struct Operations out = {.begin = base_seconds(),
                             .touch = base_alloc((n->ntouch + 1) * sizeof *out.touch)};
    if (n->step != step || !n->n)
        return out; // this process has made no step
    struct Time *time = times_of(t, n);
    struct Order o = {.t = t, .notes = n, .out = &out};
    o.recorded = base_alloc((n->n + 1) * sizeof *o.recorded);
    o.has_operation = base_alloc_zeroed((n->nwork + 1) * sizeof *o.has_operation);
    clear_behind(o.host);
    for (int q = 0; q < TRACE_QUEUES; q++) {
        clear_behind(o.queue[q].behind);
        o.queue[q].open = -1;
    }
    for (size_t i = 0; i < n->n; i++)
        add_entry(&o, &n->entry[i], &time[i]);
    free(o.has_operation);
    free(o.recorded);
    free(time);
    return out;
}
