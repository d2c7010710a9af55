// Meetings of ranks that are threads. See thread_group.h; called by comm/thread.c.
#include "zero/comm/thread_group.h"

#include "zero/comm/wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const double EXCUSED_S = 2; // that ranks which wait in another group have for its time-out

// ---- meetings ----

static void check_calls(struct Comm *c, struct ThreadGroup *g) {
    char text[512];
    for (int r = 0; r < g->size; r++)
        g->call[r] = g->participant[r].call;
    if (!comm_calls_agree(c, g->call, text, sizeof text))
        comm_fail(c, E_COLLECTIVES_DIFFER, "%s", text);
}

// Who is missing, after the time-out. Where all of them wait themselves, in other groups, it
// returns unless this is `last`.
static void give_up(const struct Rendezvous *m, bool last) {
    char missing[256] = "";
    int length = 0;
    for (int r = 0; r < m->group->size && length < 200; r++) {
        int rank = comm_job_rank(m->comm, r);
        if (!m->group->participant[r].here && (last || !m->group->waits[rank]))
            length += snprintf(missing + length, sizeof missing - (size_t)length, " %d", rank);
    }
    if (!length)
        return;
    comm_fail(m->comm, E_RANK_SILENT,
              "collective %llu, %s of %llu bytes: no sign of rank%s for %g s",
              (unsigned long long)m->call.sequence, collective_name(m->call.collective),
              (unsigned long long)m->call.bytes, missing, m->comm->timeout_s);
}

static void leave(struct ThreadGroup *g) {
    for (int r = 0; r < g->size; r++)
        g->participant[r].here = false;
    g->arrived = 0;
    g->meetings++;
    pthread_cond_broadcast(&g->changed);
}

static struct timespec after(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double whole = (double)t.tv_sec + seconds + 1e-9 * (double)t.tv_nsec;
    t.tv_sec = (time_t)whole;
    t.tv_nsec = (long)((whole - (double)t.tv_sec) * 1e9);
    return t;
}

void group_meet(const void *meeting) {
    const struct Rendezvous *m = meeting;
    struct ThreadGroup *g = m->group;
    double limit = m->comm->timeout_s;
    struct Wait wait = wait_begin();
    _Atomic int *waits = &g->waits[comm_job_rank(m->comm, m->comm->rank)];
    bool excused = false; // the missing, once
    pthread_mutex_lock(&g->lock);
    ++*waits;
    g->participant[m->comm->rank] = (struct Participant){m->mem, m->call, true};
    uint64_t this_one = g->meetings;
    if (++g->arrived == g->size) {
        check_calls(m->comm, g);
        leave(g);
    }
    while (g->meetings == this_one) {
        struct timespec look = after(WAIT_LOOK_S);
        pthread_cond_timedwait(&g->changed, &g->lock, &look);
        if (wait_check(&wait) < limit || g->meetings != this_one)
            continue;
        give_up(m, excused); // with the lock held: the others stay silent
        excused = true;
        wait = wait_begin();
        limit = EXCUSED_S;
    }
    --*waits;
    for (int r = 0; r < g->size; r++)
        m->peer[r] = g->participant[r].mem;
    pthread_mutex_unlock(&g->lock);
}

// ---- opening ----

struct ThreadGroup *thread_group_split(struct ThreadGroup *g, int size) {
    struct ThreadGroup *part = thread_group_open(size);
    free(part->waits);
    part->waits = g->waits;
    part->split_off = true;
    return part;
}

struct ThreadGroup *thread_group_open(int size) {
    struct ThreadGroup *g = base_alloc_zeroed(sizeof *g);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    g->size = size;
    g->participant = base_alloc_zeroed((size_t)size * sizeof *g->participant);
    g->call = base_alloc_zeroed((size_t)size * sizeof *g->call);
    g->turns = base_alloc_zeroed((size_t)size * sizeof *g->turns);
    g->begun = base_alloc_zeroed((size_t)size * sizeof *g->begun);
    g->waits = base_alloc_zeroed((size_t)size * sizeof *g->waits);
    return g;
}

void thread_group_close(struct ThreadGroup *g) {
    for (int i = 0; i < 2 * g->size; i++) {
        const struct Turns *t = &g->turns[i / 2];
        if (t->ops)
            t->ops->event_close(t->event[i % 2]);
    }
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->changed);
    free(g->participant);
    free(g->call);
    free(g->turns);
    free(g->begun);
    if (!g->split_off)
        free(g->waits);
    free(g);
}
