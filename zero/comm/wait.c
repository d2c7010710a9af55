// Waiting for other ranks: see wait.h.
#include "zero/comm/wait.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void wait_cond_init(pthread_cond_t *c) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(c, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void wait_cond(pthread_cond_t *c, pthread_mutex_t *lock, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(seconds * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(c, lock, &until);
}

// ---- other processes of this machine ----

// Reads /proc/PROCESS/NAME, as far as there is space. Returns the number of bytes, or -errno.
static long read_proc(pid_t process, const char *name, char *text, size_t bytes) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)process, name);
    FILE *f = fopen(path, "re");
    if (!f)
        return -errno;
    size_t n = fread(text, 1, bytes - 1, f);
    fclose(f);
    text[n] = '\0';
    return (long)n;
}

bool process_is_gone(pid_t process) {
    char text[256];
    long n = read_proc(process, "stat", text, sizeof text);
    if (n < 0)
        return n == -ENOENT;
    const char *name_end = strrchr(text, ')'); // the state follows: "123 (train) S ..."
    return n == 0 || (name_end && name_end[1] == ' ' && strchr("ZX", name_end[2]));
}

// Returns the rank that its launcher gave to a process; -1: none.
static int launcher_rank(pid_t process) {
    static const char *const names[] = {
        "OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "PMIX_RANK=", "SLURM_PROCID="};
    enum { MOST = 1 << 16 };
    char *text = malloc(MOST);
    long n = text ? read_proc(process, "environ", text, MOST) : 0;
    int rank = -1;
    for (size_t i = 0; i < sizeof names / sizeof *names && rank < 0; i++)
        for (const char *at = text; at && at < text + n; at += strlen(at) + 1)
            if (strncmp(at, names[i], strlen(names[i])) == 0)
                rank = atoi(at + strlen(names[i]));
    free(text);
    return rank;
}

static bool is_stopped_sibling(pid_t process) {
    char text[256], state = 0;
    int parent = 0;
    if (process == getpid() || read_proc(process, "stat", text, sizeof text) <= 0)
        return false;
    const char *name_end = strrchr(text, ')');
    return name_end && sscanf(name_end + 1, " %c %d", &state, &parent) == 2 && state == 'T' &&
           parent == (int)getppid();
}

// Names the ranks that the launcher of this process started here and that are stopped (SIGSTOP), as
// far as there is space: " rank 2 (process 1234 is stopped: kill -CONT 1234 resumes it), ...".
// Returns how many they are.
static int name_stopped_ranks(char *text, size_t bytes) {
    DIR *all = opendir("/proc");
    size_t n = 0;
    int count = 0;
    for (struct dirent *d; all && (d = readdir(all));) {
        pid_t process = (pid_t)atoi(d->d_name);
        int rank = process > 0 && is_stopped_sibling(process) ? launcher_rank(process) : -1;
        if (rank < 0)
            continue;
        count++;
        if (n + 80 < bytes)
            n += (size_t)snprintf(text + n, bytes - n,
                                  "%s rank %d (process %d is stopped: kill -CONT %d resumes it)",
                                  n ? "," : "", rank, (int)process, (int)process);
    }
    if (all)
        closedir(all);
    return count;
}

// ---- guards ----

static const double PROCESSES_S = 1;             // between two checks of the other processes
static const double SLOW_S = 60;                 // a busy machine may need it, with none stopped
static const double TELL_S = 2, TELL_MOST_S = 4; // later for each rank: one line is enough

struct Guard guard_make(const char *call, int rank, double timeout_s, bool ends_job) {
    struct Wait now = wait_begin();
    return (struct Guard){call, rank, timeout_s, ends_job, false, now.since + PROCESSES_S,
                          now,  now};
}

// The launcher ends the job with the first process that exits like this.
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
    if (g->all.last_check < g->next)
        return;
    g->next = g->all.last_check + PROCESSES_S;
    if (!name_stopped_ranks(names, sizeof names))
        g->stopped = wait_begin();
    else if (stopped > g->timeout_s) {
        snprintf(why, sizeof why, "no sign for %g s of%s; resume it, or raise --comm-timeout",
                 g->timeout_s, names);
        end_job(g, why);
    }
    double most = g->ends_job ? fmax(g->timeout_s, SLOW_S) : g->timeout_s;
    if (waited <= most || g->logged || *names)
        return;
    g->logged = true;
    snprintf(why, sizeof why,
             "it has waited %g s for other processes of the job; check that they still run, or "
             "raise --comm-timeout",
             most);
    if (g->ends_job)
        end_job(g, why);
    if (g->rank <= 1) // rank 0 may be the one that is late
        log_line(LOG_NORMAL, "rank %d: %s: %s", g->rank, g->call, why);
}

// ---- guards, by a thread ----

struct GuardThread {
    struct Guard guard;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ended;
};

static void *run_guard(void *thread) {
    struct GuardThread *t = thread;
    pthread_mutex_lock(&t->lock);
    while (!t->ended) {
        wait_cond(&t->changed, &t->lock, WAIT_LOOK_S / 2);
        if (!t->ended)
            guard_check(&t->guard);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

struct GuardThread *guard_begin(const char *call, int rank, double timeout_s, bool ends_job) {
    struct GuardThread *t = base_alloc_zeroed(sizeof *t);
    t->guard = guard_make(call, rank, timeout_s, ends_job);
    pthread_mutex_init(&t->lock, NULL);
    wait_cond_init(&t->changed);
    int err = pthread_create(&t->thread, NULL, run_guard, t);
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
