// Divides time among spans: see tally.h. Next: zero/rank/breakdown.c.
#include "kernels/tally.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

// Times in which the host queued nothing, newest last. How long compute was idle because of one is
// known when its next operation ends, so the newest few are enough.
enum { HOST_WAITS = 32 };

struct HostWait {
    int reason;
    double begin, end;
};

struct Tally {
    pthread_mutex_t lock;
    TallyReason *reason_of;
    uint64_t newest; // number of the newest span
    struct TallySpan span[TALLY_SPANS];
    uint64_t waits; // of the host, so far
    struct HostWait wait[HOST_WAITS];
    double idle_from; // when compute's last operation ended
};

// Host waits less than this apart are one: a batch is read in many parts.
static const double NEAR_S = 1e-4;

struct Tally *tally_open(TallyReason *reason_of) {
    struct Tally *t = base_alloc_zeroed(sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    t->reason_of = reason_of;
    t->span[0] = (struct TallySpan){.begin = base_seconds(), .end = INFINITY};
    t->idle_from = t->span[0].begin;
    return t;
}

void tally_close(struct Tally *t) {
    if (!t)
        return;
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static struct TallySpan *span_at(struct Tally *t, uint64_t number) {
    return &t->span[number % TALLY_SPANS];
}

static double overlap(double begin, double end, double from, double to) {
    return fmax(0, fmin(end, to) - fmax(begin, from));
}

// Adds to each span's field, `offset` bytes into the struct, the time of begin .. end within it.
static void share_out(struct Tally *t, size_t offset, double begin, double end) {
    for (uint64_t i = 0; i < TALLY_SPANS && i <= t->newest; i++) {
        struct TallySpan *s = span_at(t, t->newest - i);
        *(double *)((char *)s + offset) += overlap(begin, end, s->begin, s->end);
        if (s->begin <= begin)
            return;
    }
}

static size_t offset_of_wait(int reason) {
    CHECK(reason >= 0 && reason < TALLY_REASONS, "reason %d to wait", reason);
    return offsetof(struct TallySpan, wait) + (size_t)reason * sizeof(double);
}

// Adds the time that compute was idle before its operation or wait of begin .. end to the reasons
// for which the host waited.
static void end_idle(struct Tally *t, double begin, double end) {
    for (uint64_t i = 0; i < HOST_WAITS && i < t->waits; i++) {
        const struct HostWait *w = &t->wait[(t->waits - 1 - i) % HOST_WAITS];
        double from = fmax(w->begin, t->idle_from), to = fmin(w->end, begin);
        if (from < to)
            share_out(t, offset_of_wait(w->reason), from, to);
        if (w->end <= t->idle_from)
            break;
    }
    t->idle_from = end;
}

void tally_busy(struct Tally *t, enum Queue q, double begin, double end) {
    pthread_mutex_lock(&t->lock);
    if (q == QUEUE_COMPUTE)
        end_idle(t, begin, end);
    share_out(t, offsetof(struct TallySpan, busy) + (size_t)q * sizeof(double), begin, end);
    pthread_mutex_unlock(&t->lock);
}

void tally_wait(struct Tally *t, enum Queue q, const char *event, double begin, double end) {
    if (q != QUEUE_COMPUTE)
        return;
    pthread_mutex_lock(&t->lock);
    end_idle(t, begin, end);
    share_out(t, offset_of_wait(t->reason_of(event)), begin, end);
    pthread_mutex_unlock(&t->lock);
}

void tally_host(struct Tally *t, const char *event, double begin, double end) {
    int reason = t->reason_of(event);
    pthread_mutex_lock(&t->lock);
    struct HostWait *last = t->waits ? &t->wait[(t->waits - 1) % HOST_WAITS] : NULL;
    if (last && last->reason == reason && begin - last->end < NEAR_S)
        last->end = end;
    else
        t->wait[t->waits++ % HOST_WAITS] = (struct HostWait){reason, begin, end};
    pthread_mutex_unlock(&t->lock);
}

uint64_t tally_cut(struct Tally *t, double now) {
    pthread_mutex_lock(&t->lock);
    uint64_t ended = t->newest++;
    span_at(t, ended)->end = now;
    *span_at(t, t->newest) = (struct TallySpan){.begin = now, .end = INFINITY};
    pthread_mutex_unlock(&t->lock);
    return ended;
}

struct TallySpan tally_span(struct Tally *t, uint64_t number) {
    pthread_mutex_lock(&t->lock);
    CHECK(number <= t->newest && t->newest - number < TALLY_SPANS, "span %llu is forgotten",
          (unsigned long long)number);
    struct TallySpan span = *span_at(t, number);
    pthread_mutex_unlock(&t->lock);
    return span;
}
