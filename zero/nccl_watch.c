// A thread that looks, ten times a second, how far a device's collectives have come. See
// nccl_watch.h; called by comm_nccl.c.
//
// Before and after each collective an event is recorded in the comm queue. The oldest collective
// whose first event was reached and whose second was not is the one at hand. Time counts from when
// it was seen to have begun: until then its queue was busy with work of its own, and that may last.
#include "zero/nccl_watch.h"

#include <time.h>

static const double PAUSE_S = 0.1;

// Drops what has ended; the rest's oldest is what is at hand. True: it has run for too long.
static bool is_late(struct Watch *w, struct CommCall *now) {
    struct Device *d = w->comm->device;
    while (w->ended < w->begun && device_event_done(d, w->ring[w->ended % WATCHED].end)) {
        w->ended++;
        w->since = 0;
        pthread_cond_broadcast(&w->changed);
    }
    struct Watched *first = &w->ring[w->ended % WATCHED];
    if (w->ended == w->begun || !device_event_done(d, first->begin))
        return false;
    if (w->since == 0)
        w->since = base_seconds();
    *now = first->call;
    return base_seconds() - w->since > w->comm->timeout_s;
}

static void pause_for(struct Watch *w, double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += (long)(seconds * 1e9);
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&w->changed, &w->lock, &t);
}

static void *watch_main(void *watch) {
    struct Watch *w = watch;
    base_set_rank(w->comm->rank);
    struct CommCall now = {.collective = COMM_BARRIER};
    pthread_mutex_lock(&w->lock);
    while (!w->closing) {
        bool late = is_late(w, &now);
        pthread_mutex_unlock(&w->lock);
        w->look(w->comm, &now);
        if (late)
            w->late(w->comm, &now);
        pthread_mutex_lock(&w->lock);
        if (!w->closing)
            pause_for(w, PAUSE_S);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

void watch_open(struct Watch *w) {
    struct Device *d = w->comm->device;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (int i = 0; i < WATCHED; i++) {
        w->ring[i].begin = d->ops->event_open(d);
        w->ring[i].end = d->ops->event_open(d);
    }
    CHECK(!pthread_create(&w->watcher, NULL, watch_main, w), "no thread to watch rank %d",
          w->comm->rank);
}

void watch_close(struct Watch *w) {
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->watcher, NULL);
    for (int i = 0; i < WATCHED; i++) {
        w->comm->device->ops->event_close(w->ring[i].begin);
        w->comm->device->ops->event_close(w->ring[i].end);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
}

void watch_begin(struct Watch *w, struct CommCall call) {
    pthread_mutex_lock(&w->lock);
    while (w->begun - w->ended == WATCHED)
        pause_for(w, PAUSE_S);
    struct Watched *slot = &w->ring[w->begun % WATCHED];
    pthread_mutex_unlock(&w->lock);
    slot->call = call; // nobody looks at it before watch_end
    device_record(w->comm->device, QUEUE_COMM, slot->begin);
}

void watch_end(struct Watch *w) {
    pthread_mutex_lock(&w->lock);
    device_record(w->comm->device, QUEUE_COMM, w->ring[w->begun % WATCHED].end);
    w->begun++;
    pthread_mutex_unlock(&w->lock);
}
