// A thread that checks, ten times a second, how far a device's collectives have come. See
// nccl_watch.h; called by comm/nccl.c.
//
// An event is recorded before and after each collective in the group's queue. The current one is
// the oldest whose first event was reached and whose second was not. Its time counts from when it
// was seen to have begun: until then its queue was busy with other work, and that may last.
#include "zero/comm/nccl_watch.h"

static const double PAUSE_S = 0.1, FULL_PAUSE_S = 1e-3; // the latter while the host waits

// Drops collectives that have ended; the oldest of the rest is current. True: it is too slow.
static bool current_is_late(struct Watch *w, struct CommCall *now) {
    struct Device *d = w->comm->device;
    uint64_t begun = w->begun, ended = w->ended, before = ended;
    while (ended < begun && device_event_done(d, w->ring[ended % WATCHED].end))
        ended++;
    bool same_runs = w->oldest_runs && ended == before;
    w->ended = ended;
    struct Watched *first = &w->ring[ended % WATCHED];
    w->oldest_runs = ended != begun && device_event_done(d, first->begin);
    if (!w->oldest_runs)
        return false;
    if (!same_runs)
        w->oldest_wait = wait_begin();
    *now = first->call;
    return wait_check(&w->oldest_wait) > w->comm->timeout_s;
}

static void *watch_main(void *watch) {
    struct Watch *w = watch;
    struct CommCall now = {.collective = COMM_BARRIER};
    base_set_rank(w->comm->rank);
    if (w->comm->device->ops->enter)
        w->comm->device->ops->enter(w->comm->device);
    pthread_mutex_lock(&w->lock);
    while (!w->closing) {
        pthread_mutex_unlock(&w->lock);
        bool late = current_is_late(w, &now);
        w->check(w->comm, &now);
        if (late)
            w->report_late(w->comm, &now);
        pthread_mutex_lock(&w->lock);
        pthread_cond_signal(&w->freed); // the host checks whether a slot is free
        if (!w->closing)
            wait_cond(&w->wake, &w->lock, w->full ? FULL_PAUSE_S : PAUSE_S);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

void watch_open(struct Watch *w) {
    struct Device *d = w->comm->device;
    pthread_mutex_init(&w->lock, NULL);
    wait_cond_init(&w->wake);
    pthread_cond_init(&w->freed, NULL);
    for (int i = 0; i < WATCHED; i++) {
        w->ring[i].begin = device_open_event(d, "collective begun");
        w->ring[i].end = device_open_event(d, "collective ended");
    }
    int err = pthread_create(&w->watcher, NULL, watch_main, w);
    if (err)
        base_out_of_threads(err, "the watch over collectives");
}

void watch_close(struct Watch *w) {
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->watcher, NULL);
    for (int i = 0; i < WATCHED; i++) {
        device_close_event(w->comm->device, w->ring[i].begin);
        device_close_event(w->comm->device, w->ring[i].end);
    }
    pthread_cond_destroy(&w->wake);
    pthread_cond_destroy(&w->freed);
    pthread_mutex_destroy(&w->lock);
}

static bool is_full(struct Watch *w) {
    return w->begun - w->ended == WATCHED;
}

// Wakes the watcher, which may be in the middle of its long sleep.
static void wait_for_slot(struct Watch *w) {
    pthread_mutex_lock(&w->lock);
    w->full = true;
    pthread_cond_signal(&w->wake);
    while (is_full(w))
        pthread_cond_wait(&w->freed, &w->lock);
    w->full = false;
    pthread_mutex_unlock(&w->lock);
}

void watch_begin(struct Watch *w, struct CommCall call) {
    if (is_full(w))
        wait_for_slot(w);
    struct Watched *slot = &w->ring[w->begun % WATCHED];
    slot->call = call;
    device_record(w->comm->device, w->comm->queue, slot->begin);
}

void watch_end(struct Watch *w) {
    device_record(w->comm->device, w->comm->queue, w->ring[w->begun % WATCHED].end);
    w->begun++; // from now on the watcher sees it
}
