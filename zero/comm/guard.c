// Waits that have no clock of their own: see guard.h.
#include "zero/comm/guard.h"

#include "zero/comm/process.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const double PROCESSES_S = 1;             // between two looks at the other processes
static const double SLOW_S = 60;                 // what a busy machine may take where nobody stands
static const double TELL_S = 2, TELL_MOST_S = 4; // later for each rank: one line is enough

struct Guard guard_of(const char *call, int rank, double timeout_s, bool ends) {
    struct Wait now = wait_begin();
    return (struct Guard){call, rank, timeout_s, ends, false, now.since + PROCESSES_S, now, now};
}

// The launcher ends the job with the first process that ends so.
static _Noreturn void end_job(const struct Guard *g, const char *why) {
    double later = fmin(TELL_S * g->rank, TELL_MOST_S);
    nanosleep(&(struct timespec){(time_t)later, (long)((later - floor(later)) * 1e9)}, NULL);
    base_last_line("train: rank %d: %s: %s [%s]\n", g->rank, g->call, why,
                   error_name(E_RANK_SILENT));
    _exit(2);
}

void guard_check(struct Guard *g) {
    char names[256] = "", why[384];
    double waited = wait_check(&g->all), stopped = wait_check(&g->stopped);
    if (g->all.looked < g->next)
        return;
    g->next = g->all.looked + PROCESSES_S;
    if (!process_name_stopped(names, sizeof names))
        g->stopped = wait_begin();
    else if (stopped > g->timeout_s) {
        snprintf(why, sizeof why, "no sign for %g s of%s", g->timeout_s, names);
        end_job(g, why);
    }
    double most = g->ends ? fmax(g->timeout_s, SLOW_S) : g->timeout_s;
    if (waited <= most || g->told || *names)
        return;
    g->told = true;
    snprintf(why, sizeof why,
             "it has waited %g s for other processes of the job; check that they still run", most);
    if (g->ends)
        end_job(g, why);
    if (g->rank <= 1) // 0 may be who is waited for
        log_line(LOG_NORMAL, "rank %d: %s: %s", g->rank, g->call, why);
}

// ---- by a thread ----

struct GuardThread {
    struct Guard guard;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ended;
};

static void *stand(void *thread) {
    struct GuardThread *t = thread;
    pthread_mutex_lock(&t->lock);
    while (!t->ended) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)(WAIT_LOOK_S / 2 * 1e9);
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&t->changed, &t->lock, &until);
        if (!t->ended)
            guard_check(&t->guard);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

struct GuardThread *guard_begin(const char *call, int rank, double timeout_s, bool ends) {
    struct GuardThread *t = base_alloc_zeroed(sizeof *t);
    t->guard = guard_of(call, rank, timeout_s, ends);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int err = pthread_create(&t->thread, NULL, stand, t);
    if (err)
        base_out_of_threads(err, "the guard of a wait");
    return t;
}

void guard_end(struct GuardThread *t) {
    pthread_mutex_lock(&t->lock);
    t->ended = true;
    pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
    free(t);
}
