// Notes what is queued in a step, for what, and which memory it reads and writes: see trace.h.
//
// All of it runs on the thread that queues the rank's work, so that it takes no lock. An operation
// gets a number, which its record in the trace's ring carries, too. Next: order.c.
#include "zero/trace/record.h"

#include <stdlib.h>
#include <string.h>

// ---- notes of a step ----

// Returns the notes of a step, which begin anew when it comes first; NULL: of one that is over.
static struct StepNotes *notes_of(struct ZeroTrace *t, uint64_t step) {
    struct StepNotes *n = &t->notes[step % 2];
    if (n->step < step) {
        n->step = step;
        n->n = n->ntouch = n->nwork = 0;
    }
    return n->step == step ? n : NULL;
}

// Adds a touch of the newest entry.
static void add_touch(struct StepNotes *n, struct Touch touch) {
    n->touch =
        base_grow(n->touch, n->ntouch, &n->touch_room, sizeof *n->touch, "a trace of memory");
    n->touch[n->ntouch++] = touch;
    n->entry[n->n - 1].ntouch++;
}

static int compare_work(const void *number, const void *work) {
    uint64_t a = *(const uint64_t *)number, b = ((const struct Origin *)work)->number;
    return a < b ? -1 : a > b;
}

struct Origin *notes_find_work(const struct StepNotes *n, uint64_t number) {
    return n->nwork ? bsearch(&number, n->work, n->nwork, sizeof *n->work, compare_work) : NULL;
}

static void note_work(struct StepNotes *n, const struct Origin *w) {
    if (notes_find_work(n, w->number))
        return;
    CHECK(!n->nwork || n->work[n->nwork - 1].number < w->number, "work is noted too late");
    n->work = base_grow(n->work, n->nwork, &n->work_room, sizeof *n->work, "a trace of memory");
    n->work[n->nwork++] = *w;
}

// ---- for what it is queued ----

// Returns the present unit's pass: kernels and collectives of the compute queue between hops.
static const struct Origin *unit_work(struct ZeroTrace *t, const struct Label *l) {
    struct Origin *u = &t->unit;
    if (u->unit != l->unit || u->backward != l->backward || u->micro != l->micro || !u->number)
        *u = (struct Origin){.number = ++t->works,
                             .kind = ORIGIN_UNIT,
                             .group = -1,
                             .unit = l->unit,
                             .backward = l->backward,
                             .micro = l->micro};
    return u;
}

// Returns the work that an operation is queued for now; each other operation is one of its own.
static struct Origin work_of(struct ZeroTrace *t, const struct Device *d, enum Queue q) {
    const struct Label *l = &t->device->label;
    if (t->work.number)
        return t->work;
    if (d == t->device && q == QUEUE_COMPUTE && l->unit >= 0)
        return *unit_work(t, l);
    return (struct Origin){.number = ++t->works,
                           .name = d->label.what,
                           .group = -1,
                           .unit = l->unit,
                           .backward = l->backward,
                           .micro = l->micro};
}

static bool is_collective_of(const struct ZeroTrace *t, const struct Device *d, enum Queue q) {
    return t->collective && t->collective->device == d && t->collective->queue == q;
}

// Notes bytes that the next operation touches, as its own arguments do not show them.
static void add_pending(struct ZeroTrace *t, struct Touch touch) {
    CHECK(t->npending < ACCESSES_MAX, "%d touches of one operation", t->npending + 1);
    t->pending[t->npending++] = touch;
}

static void note_touches(struct ZeroTrace *t, struct StepNotes *n, const char *name,
                         const void *args) {
    struct Accesses a = access_of(name, args);
    for (int i = 0; i < a.n; i++)
        add_touch(n, (struct Touch){
                         .mem = a.list[i].mem, .bytes = a.list[i].bytes, .how = a.list[i].how});
    for (int i = 0; i < t->npending; i++)
        add_touch(n, t->pending[i]);
    t->npending = 0;
}

// Called for everything that is queued on either device.
static void note_queued(void *trace, struct Device *d, enum Queue q, const char *name,
                        const void *args) {
    struct ZeroTrace *t = trace;
    uint64_t step = t->device->label.step > d->label.step ? t->device->label.step : d->label.step;
    struct StepNotes *n = step ? notes_of(t, step) : NULL;
    d->label.number = n ? ++t->numbers : 0;
    if (!n) {
        t->npending = 0;
        return;
    }
    bool orders = d->label.event.event || !strcmp(name, "record") || !strcmp(name, "wait");
    struct Origin work = {.number = 0};
    n->entry = base_grow(n->entry, n->n, &n->room, sizeof *n->entry, "a trace of memory");
    struct Entry *entry = &n->entry[n->n++];
    if (!orders)
        work = work_of(t, d, q);
    *entry = (struct Entry){.number = t->numbers,
                            .work = work.number,
                            .queue = q,
                            .on_host = d != t->device,
                            .name = name,
                            .event = d->label.event,
                            .in_collective = is_collective_of(t, d, q),
                            .touch = n->ntouch};
    if (orders)
        return;
    note_work(n, &work);
    note_touches(t, n, name, args);
}

// ---- hops ----

static void hop_begins(void *trace) {
    struct ZeroTrace *t = trace;
    t->work = (struct Origin){.number = ++t->works, .kind = ORIGIN_HOP, .group = -1, .unit = -1};
}

// Completes the origin of what the hop queued, if anything, in both steps' notes.
static void hop_ended(void *trace, const struct Zero *z, enum ChainKind kind, const struct Hop *h,
                      const struct HopArgs *a) {
    struct ZeroTrace *t = trace;
    const struct Label *l = &z->device->label;
    for (int i = 0; i < 2; i++) {
        struct StepNotes *n = &t->notes[i];
        struct Origin *w = n->nwork ? &n->work[n->nwork - 1] : NULL;
        if (!w || w->number != t->work.number)
            continue;
        w->name = h->name;
        w->hop = h;
        w->chain = kind;
        w->group = a->group;
        w->backward = kind == FETCH ? l->backward : kind == ACCUMULATE || kind == REDUCE;
        w->micro = kind == FETCH || w->backward ? l->micro : SIZE_MAX;
        w->unit = kind == UPDATE || kind == PUBLISH ? -1 : l->unit; // theirs is a group's
    }
    t->work.number = 0;
}

// ---- collectives ----

static struct CommSpy *find_spy(const struct Comm *c) {
    struct ZeroTrace *t = c->device->trace->watch.context;
    struct CommSpy *s = t->spy;
    while (s->comm != c)
        s++;
    return s;
}

static void add_memory(struct ZeroTrace *t, const void *mem, size_t bytes, unsigned how) {
    if (mem && bytes)
        add_pending(t, (struct Touch){.mem = mem, .bytes = bytes, .how = how});
}

static uint64_t bytes_sent(const struct Comm *c) {
    uint64_t sum = 0;
    for (int i = 0; i < NCOLLECTIVE; i++)
        sum += c->sent.bytes[i];
    return sum;
}

// What begin_collective leaves for end_collective.
struct Call {
    struct ZeroTrace *t;
    const struct CommOps *real;
    bool own_work; // the collective is part of no hop and no unit
    uint64_t sent; // by the group before it
};

static struct Call begin_collective(struct Comm *c, const char *name) {
    struct ZeroTrace *t = c->device->trace->watch.context;
    const struct Label *l = &t->device->label;
    bool in_unit = c->queue == QUEUE_COMPUTE && l->unit >= 0;
    struct Call b = {t, find_spy(c)->real, !t->work.number && !in_unit, bytes_sent(c)};
    if (b.own_work)
        t->work = (struct Origin){.number = ++t->works, .name = name, .group = -1, .unit = -1};
    t->collective = c;
    return b;
}

// Adds what the other ranks may read until its last operation, and what it has sent.
static void end_collective(struct Comm *c, const struct Call *b, const void *read, size_t bytes) {
    struct ZeroTrace *t = b->t;
    const struct Label *l = &t->device->label;
    struct StepNotes *n = l->step ? notes_of(t, l->step) : NULL;
    uint64_t number = t->work.number ? t->work.number : t->unit.number;
    struct Origin *w = n ? notes_find_work(n, number) : NULL; // not the last, if a hop came since
    struct Entry *last = n && n->n ? &n->entry[n->n - 1] : NULL;
    if (w && bytes_sent(c) > b->sent) {
        w->sent += bytes_sent(c) - b->sent;
        w->over = axis_name(c->axis);
        w->others = c->size - 1;
    }
    if (last && last->in_collective && last->work == number && read)
        add_touch(n, (struct Touch){.mem = read, .bytes = bytes, .how = ACCESS_READ});
    t->collective = NULL;
    t->npending = 0;
    if (b->own_work)
        t->work.number = 0;
}

static void spy_all_gather(struct Comm *c, void *whole, const void *shard, size_t bytes) {
    struct Call b = begin_collective(c, "all_gather");
    size_t before = (size_t)c->rank * bytes, after = ((size_t)c->size - 1) * bytes - before;
    char *own = (char *)whole + before;
    add_memory(b.t, shard, bytes, ACCESS_READ);
    add_memory(b.t, whole, before, ACCESS_WRITE);
    add_memory(b.t, shard == own ? NULL : own, bytes, ACCESS_WRITE);
    add_memory(b.t, own + bytes, after, ACCESS_WRITE);
    b.real->all_gather(c, whole, shard, bytes);
    end_collective(c, &b, shard, bytes);
}

static void spy_reduce_scatter(struct Comm *c, void *shard, const void *whole, size_t n,
                               enum Dtype dtype, bool accumulate) {
    struct Call b = begin_collective(c, "reduce_scatter");
    size_t bytes = n * dtype_size(dtype);
    add_memory(b.t, whole, (size_t)c->size * bytes, ACCESS_READ);
    add_memory(b.t, shard, bytes, accumulate ? ACCESS_BOTH : ACCESS_WRITE);
    b.real->reduce_scatter(c, shard, whole, n, dtype, accumulate);
    end_collective(c, &b, whole, (size_t)c->size * bytes);
}

static void spy_all_reduce(struct Comm *c, void *whole, size_t n, enum Dtype dtype) {
    struct Call b = begin_collective(c, "all_reduce");
    size_t bytes = (size_t)c->size * n * dtype_size(dtype);
    add_memory(b.t, whole, bytes, ACCESS_BOTH);
    b.real->all_reduce(c, whole, n, dtype);
    end_collective(c, &b, whole, bytes);
}

static void spy_all_to_all(struct Comm *c, void *to, const void *from, size_t bytes) {
    struct Call b = begin_collective(c, "all_to_all");
    size_t all = (size_t)c->size * bytes;
    add_memory(b.t, from, all, ACCESS_READ);
    add_memory(b.t, to, all, ACCESS_WRITE);
    b.real->all_to_all(c, to, from, bytes);
    end_collective(c, &b, from, all);
}

static void spy_sendrecv(struct Comm *c, void *to, const void *from, size_t bytes) {
    struct Call b = begin_collective(c, from && to ? "sendrecv" : from ? "send" : "recv");
    add_memory(b.t, from, bytes, ACCESS_READ);
    add_memory(b.t, to, bytes, ACCESS_WRITE);
    b.real->sendrecv(c, to, from, bytes);
    end_collective(c, &b, from, bytes);
}

static void spy_on(struct CommSpy *s, struct Comm *c) {
    *s = (struct CommSpy){c, c->ops, *c->ops};
    s->ops.all_gather = spy_all_gather;
    s->ops.reduce_scatter = spy_reduce_scatter;
    s->ops.all_reduce = spy_all_reduce;
    s->ops.all_to_all = spy_all_to_all;
    s->ops.sendrecv = spy_sendrecv;
    c->ops = &s->ops;
}

// ---- the disk ----

static void note_pieces(void *trace, const struct MovePieces *p, bool write) {
    struct ZeroTrace *t = trace;
    for (int i = 0; i < p->n; i++) {
        const struct NvmePiece *piece = &p->piece[i];
        add_memory(t, piece->mem, piece->bytes, write ? ACCESS_READ : ACCESS_WRITE);
        add_pending(t, (struct Touch){.offset = piece->offset,
                                      .file = piece->file,
                                      .bytes = piece->bytes,
                                      .how = write ? ACCESS_WRITE : ACCESS_READ});
    }
}

// ---- opening ----

struct ZeroTrace *zero_trace_open(struct Tier *tiers) {
    struct ZeroTrace *t = base_alloc_zeroed(sizeof *t);
    t->tiers = tiers;
    for (int i = 0; i < NTIER; i++)
        tiers[i].log = &t->log;
    return t;
}

void zero_trace_watch(struct ZeroTrace *t, const struct ZeroTraceParts *parts) {
    t->parts = *parts;
    t->device = parts->zero->device;
    t->watch = (struct HopWatch){hop_begins, hop_ended, t};
    for (int i = 0; i < 2; i++)
        if (parts->traces[i])
            parts->traces[i]->watch = (struct TraceWatch){note_queued, t};
    for (int i = 0; i < ZERO_TRACE_COMMS; i++)
        if (parts->comms[i])
            spy_on(&t->spy[i], parts->comms[i]);
    if (parts->mover)
        parts->mover->watch = (struct MoveWatch){note_pieces, t};
    parts->zero->watch = &t->watch;
}

void zero_trace_close(struct ZeroTrace *t) {
    if (!t)
        return;
    for (int i = 0; i < 2; i++) {
        free(t->notes[i].entry);
        free(t->notes[i].touch);
        free(t->notes[i].work);
    }
    block_log_close(&t->log);
    free(t);
}
