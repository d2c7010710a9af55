// Host threads: one at a time has the turn, so that a run can be replayed.
//
// The turn changes hands at simulated calls of CUDA and at calls of pthreads that wait; who gets it
// next is drawn from the seed. Mutexes, condition variables and joins are therefore played here
// (the linker sends the program's calls to __wrap_..., see the Makefile), and they carry clocks:
// what came before an unlock comes before the next lock.
//
// Who sleeps, or waits until some time, wakes only when nothing else can go on; the clock is then
// put forward, so that nobody really waits and it happens always at the same place. If nothing can
// go on and nobody has a deadline, or a month of it has passed, the run has deadlocked; a line
// names what each thread waits for. A process of a launcher's job waits for others, too: there the
// clock is the real one, and somebody may always come (job.h).
//
// Functions that a stream calls on the host (cudaLaunchHostFunc) run on one thread of the driver's,
// as CUDA does it: one that waits for another one waits for ever.
#include "tests/cusim/internal.h"
#include "tests/cusim/job.h"

#include <algorithm>
#include <errno.h>
#include <map>
#include <math.h>
#include <pthread.h>
#include <random>
#include <semaphore.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

extern "C" int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *),
                                     void *);
extern "C" int __real_pthread_join(pthread_t, void **);
extern "C" int __real_clock_gettime(clockid_t, struct timespec *);
extern "C" int __real_nanosleep(const struct timespec *, struct timespec *);

namespace cusim {

static std::vector<Host *> hosts;
static thread_local Host *self;
static std::mt19937_64 random_turns(1);

uint64_t host_random() {
    return random_turns();
}
void host_seed(uint64_t seed) {
    random_turns.seed(seed);
}

static Host *host_open(const Clock &before) {
    static int count;
    Host *h = new Host;
    sem_t *wake = new sem_t;
    sem_init(wake, 0, 0);
    h->wake = wake;
    actor_open(&h->actor, "host thread " + std::to_string(count++), before);
    h->segment.actor = &h->actor;
    hosts.push_back(h);
    return h;
}

bool host_is_first() {
    const Host *h = host_self();
    return (h->queue >= 0 ? h->owner : h) == hosts[0];
}

// A forked child has only the thread that forked.
static void after_fork() {
    hosts.assign(1, self);
}

Host *host_self() {
    if (self)
        return self;
    if (!hosts.empty()) {
        fputs("cusim: a thread that a library made calls CUDA or waits for others\n", stderr);
        _exit(99);
    }
    self = host_open(Clock());
    self->actor.name = "the main thread";
    pthread_atfork(nullptr, nullptr, after_fork);
    return self;
}

void host_released() {
    Host *h = host_self();
    h->actor.clock.at[h->actor.slot]++;
    h->segment.number = 0;
}

// ---- turns ----

static const double MONTH_S = 30 * 86400.0;
static double skipped_s; // by how much the clock was put forward

static double now_s() {
    struct timespec t;
    __real_clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec + skipped_s;
}

static bool can_go_on(const Host *h) {
    return !h->ready || h->ready() || (in_job() && h->deadline >= 0 && h->deadline <= now_s());
}

static Host *draw_ready(bool with_put_off) {
    std::vector<Host *> can;
    for (Host *h : hosts)
        if (!h->over && (with_put_off || !host_put_off(h)) && can_go_on(h))
            can.push_back(h);
    return can.empty() ? nullptr : can[can.size() == 1 ? 0 : random_turns() % can.size()];
}

static Host *first_deadline() {
    Host *first = nullptr;
    for (Host *h : hosts)
        if (!h->over && h->deadline >= 0 && (!first || h->deadline < first->deadline))
            first = h;
    if (first && first->deadline > now_s())
        skipped_s += first->deadline - now_s();
    return skipped_s < MONTH_S ? first : nullptr;
}

static Host *draw_now() {
    Host *next = draw_ready(false);
    while (!next && streams_advance())
        next = draw_ready(false);
    return next ? next : draw_ready(true);
}

static Host *draw_next() {
    const struct timespec pause = {0, 100000}; // ns
    Host *next = draw_now();
    while (!next && in_job()) { // what comes, comes from other processes, or in its time
        __real_nanosleep(&pause, nullptr);
        next = draw_now();
    }
    if (!next)
        next = first_deadline();
    if (next)
        return next;
    std::string all;
    for (Host *h : hosts)
        if (!h->over && h->waits_for)
            all += (all.empty() ? "" : "; ") + h->actor.name + " waits for " + h->waits_for;
    die("deadlock: %s", all.c_str());
}

static void pass_turn(Host *next) {
    Host *me = self;
    if (next == me)
        return;
    sem_post(static_cast<sem_t *>(next->wake));
    while (sem_wait(static_cast<sem_t *>(me->wake)) && errno == EINTR)
        ;
}

void host_wait(const char *what, std::function<bool()> ready) {
    Host *me = host_self();
    me->waits_for = what;
    me->ready = std::move(ready);
    pass_turn(draw_next());
    me->ready = nullptr;
    me->waits_for = nullptr;
}

void host_turn() {
    wait_for_loading();
    if (hosts.size() > 1 && random_turns() % 4 == 0)
        pass_turn(draw_next());
}

int current_gpu() {
    return host_self()->gpu;
}

// ---- threads ----

struct Start {
    Host *host;
    void *(*body)(void *);
    void *arg;
};

static void *thread_main(void *start) {
    Start s = *static_cast<Start *>(start);
    delete static_cast<Start *>(start);
    self = s.host;
    while (sem_wait(static_cast<sem_t *>(self->wake)) && errno == EINTR)
        ;
    void *result = s.body(s.arg);
    self->over = true;
    sem_post(static_cast<sem_t *>(draw_next()->wake));
    return result;
}

struct Thread {
    pthread_t id;
    Host *host;
};
static std::vector<Thread> threads; // started and not joined

static int start_thread(pthread_t *id, const pthread_attr_t *attributes, void *(*body)(void *),
                        void *arg) {
    Host *parent = host_self(), *h = host_open(parent->actor.clock);
    h->gpu = parent->gpu;
    h->queue = parent->opens_queue;
    h->quiet = h->queue >= 0;
    h->owner = parent;
    host_released();
    int err = __real_pthread_create(id, attributes, thread_main, new Start{h, body, arg});
    if (err)
        h->over = true;
    else
        threads.push_back({*id, h});
    return err;
}

static void *driver_main(void *body) {
    reinterpret_cast<void (*)()>(body)();
    return nullptr;
}

Host *host_start_driver(void (*body)()) {
    pthread_t id;
    if (start_thread(&id, nullptr, driver_main, reinterpret_cast<void *>(body)))
        die("cannot start a thread");
    Host *h = threads.back().host;
    h->actor.name = "the driver's thread";
    return h;
}

Host *host_newest() {
    return threads.back().host;
}

static int join_thread(pthread_t id, void **result) {
    auto t = std::find_if(threads.begin(), threads.end(),
                          [id](const Thread &x) { return pthread_equal(x.id, id); });
    if (t == threads.end())
        die("pthread_join of a thread that the simulator did not start");
    Host *h = t->host;
    threads.erase(t);
    if (!h->over)
        host_wait("another thread's end (pthread_join)", [h] { return h->over; });
    host_self()->actor.clock.join(h->actor.clock);
    hosts.erase(std::find(hosts.begin(), hosts.end(), h));
    actor_close(&h->actor);
    int err = __real_pthread_join(id, result);
    sem_destroy(static_cast<sem_t *>(h->wake));
    delete static_cast<sem_t *>(h->wake);
    delete h;
    return err;
}

// ---- mutexes and condition variables ----

struct Mutex {
    Host *owner = nullptr;
    Clock clock;
};
struct Waiter {
    Host *host;
    bool called = false;
};
static std::map<const void *, Mutex> mutexes;
static std::map<const void *, std::vector<Waiter *>> conditions;

static void lock(const void *mutex) {
    Host *me = host_self();
    Mutex &m = mutexes[mutex];
    if (m.owner == me)
        die("a mutex is locked twice by one thread");
    if (m.owner)
        host_wait("a mutex", [&m] { return !m.owner; });
    m.owner = me;
    if (!me->quiet)
        me->actor.clock.join(m.clock);
}

static void unlock(const void *mutex) {
    Host *me = host_self();
    Mutex &m = mutexes[mutex];
    if (m.owner != me)
        die("a mutex is unlocked by a thread that has not locked it");
    m.owner = nullptr;
    if (me->quiet)
        return;
    m.clock.join(me->actor.clock);
    host_released();
}

static int wait_for(const void *condition, const void *mutex, double deadline) {
    Host *me = host_self();
    Waiter w{me};
    conditions[condition].push_back(&w);
    unlock(mutex);
    me->deadline = deadline;
    host_wait("a condition variable", [&w] { return w.called; });
    me->deadline = -1;
    std::vector<Waiter *> &all = conditions[condition];
    all.erase(std::remove(all.begin(), all.end(), &w), all.end());
    lock(mutex);
    return w.called ? 0 : ETIMEDOUT;
}

static void sleep_for(double seconds) {
    Host *me = host_self();
    me->deadline = now_s() + seconds;
    host_wait("its time (nanosleep)", [] { return false; });
    me->deadline = -1;
}

static void call_waiters(const void *condition, bool everyone) {
    std::vector<Waiter *> waiting;
    for (Waiter *w : conditions[condition])
        if (!w->called)
            waiting.push_back(w);
    if (waiting.empty())
        return;
    if (!everyone)
        waiting.assign(1, waiting[random_turns() % waiting.size()]);
    for (Waiter *w : waiting)
        w->called = true;
}

} // namespace cusim

using namespace cusim;

extern "C" {
int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*body)(void *),
                          void *arg) {
    return start_thread(id, attributes, body, arg);
}
int __wrap_pthread_join(pthread_t id, void **result) {
    return join_thread(id, result);
}
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    lock(mutex);
    return 0;
}
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex) {
    unlock(mutex);
    return 0;
}
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    return wait_for(condition, mutex, -1);
}
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  const struct timespec *until) {
    return wait_for(condition, mutex, (double)until->tv_sec + 1e-9 * (double)until->tv_nsec);
}
int __wrap_pthread_cond_broadcast(pthread_cond_t *condition) {
    call_waiters(condition, true);
    return 0;
}
int __wrap_pthread_cond_signal(pthread_cond_t *condition) {
    call_waiters(condition, false);
    return 0;
}
int __wrap_nanosleep(const struct timespec *duration, struct timespec *) {
    sleep_for((double)duration->tv_sec + 1e-9 * (double)duration->tv_nsec);
    return 0;
}
// Until the process ends, which some other thread is about to do.
int __wrap_pause(void) {
    host_wait("a signal", [] { return false; });
    return -1;
}
int __wrap_clock_gettime(clockid_t clock, struct timespec *t) {
    int err = __real_clock_gettime(clock, t);
    if (skipped_s > 0) {
        double whole = floor(skipped_s);
        t->tv_sec += (time_t)whole;
        t->tv_nsec += (long)((skipped_s - whole) * 1e9);
        t->tv_sec += t->tv_nsec / 1000000000;
        t->tv_nsec %= 1000000000;
    }
    return err;
}
}
