// Queues and events of the CPU device.
//
// A queue is a ring of (function, arguments) that one worker thread calls in order: the CPU's
// stand-in for a CUDA stream. An event is a pair of counters: how often it has been recorded
// (counted when the record is pushed) and how many of those records have been reached by their
// queue. A wait remembers the count at the time it was pushed, as cudaStreamWaitEvent does, so a
// later record does not hold it up.
//
// Pushing never deadlocks on a full ring: a record is always pushed before the wait for it, so the
// oldest entry of some queue can always run.
#include "kernels/cpu/queue.h"

#include "kernels/cpu/cpu.h"
#include "kernels/trace.h"

#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RING = 1024 };

struct QueueEntry {
    QueueCall *call; // NULL: the worker ends
    const char *name;
    struct Label label;
    _Alignas(16) unsigned char args[QUEUE_ARGS_BYTES];
};

struct Stream {
    struct Cpu *cpu;
    enum Queue number;
    int rank; // the opening thread's rank
    pthread_t worker;
    pthread_mutex_t lock;
    pthread_cond_t more, reached; // pushed grew; finished reached `awaited`
    uint64_t pushed, finished;    // entries so far; ring slot = count % RING
    uint64_t awaited;             // count of finished entries that a sleeper waits for, the lowest
    struct QueueDelay delay;
    struct QueueEntry ring[RING];
};

struct Event {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t recorded, reached;
};

static void sleep_us(unsigned us) {
    struct timespec t = {us / 1000000, (long)(us % 1000000) * 1000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

// A delay counts as part of the operation, like a slow one.
static void run_entry(struct Stream *s, const struct QueueEntry *entry, uint64_t number) {
    struct Trace *trace = s->cpu->device.trace;
    double begin = trace ? base_seconds() : 0;
    if (s->delay.delay_us) {
        unsigned half = s->delay.delay_us / 2;
        sleep_us(half + (unsigned)(rng_bits(s->delay.seed, number) % (half + 1)));
    }
    if (!entry->call)
        return;
    entry->call(s->cpu, entry->args);
    if (!trace)
        return;
    struct TraceRecord r = {
        .label = entry->label, .name = entry->name, .begin = begin, .end = base_seconds()};
    if (trace_keeps_records(trace))
        r.cost = cost_of(entry->name, entry->args);
    trace_add(trace, s->number, r);
}

// OpenMP keeps a team of threads for each queue that ever ran an operation with several. With two
// such teams there are more threads than cores, and those that wait for others sleep at once and
// wake up some 50 us late: 4 % of a step of GPT-2 on two cores. So with one rank, operations on
// other queues use one thread (sum.c), except sums over micro-batches (ranks.c). And the team of a
// second device ends whenever that device waits. (Only with libgomp: clang's library would pause
// the teams of all threads.)
#ifdef __clang__
enum { TEAMS_END_APART = false };
#else
enum { TEAMS_END_APART = true };
#endif
static void give_up_team(const struct Cpu *cpu) {
    if (TEAMS_END_APART && cpu->device.yields)
        omp_pause_resource(omp_pause_soft, omp_get_initial_device());
}

// Waits until `count` entries are finished. Other threads are woken only then: woken after every
// entry, they would take a core from the next kernel. The caller has the lock.
static void wait_for(struct Stream *s, uint64_t count) {
    while (s->finished < count) {
        s->awaited = s->awaited < count ? s->awaited : count;
        pthread_cond_wait(&s->reached, &s->lock);
    }
}

static void *worker_main(void *arg) {
    struct Stream *s = arg;
    base_set_rank(s->rank);
    omp_set_num_threads(s->cpu->device.threads); // for libraries that ask OpenMP, such as oneDNN
    for (uint64_t i = 0;; i++) {
        pthread_mutex_lock(&s->lock);
        if (i && s->pushed == i)
            give_up_team(s->cpu);
        while (s->pushed == i)
            pthread_cond_wait(&s->more, &s->lock);
        pthread_mutex_unlock(&s->lock);
        const struct QueueEntry *entry =
            &s->ring[i % RING]; // not overwritten until `finished` passes it
        bool end = !entry->call;
        run_entry(s, entry, i);
        pthread_mutex_lock(&s->lock);
        s->finished = i + 1;
        if (s->finished >= s->awaited) {
            s->awaited = UINT64_MAX;
            pthread_cond_broadcast(&s->reached);
        }
        pthread_mutex_unlock(&s->lock);
        if (end)
            return NULL;
    }
}

struct Device *queue_device(struct Stream *s) {
    return &s->cpu->device;
}

size_t queue_bytes(void) {
    return sizeof(struct Stream);
}

struct Stream *queue_open(struct Cpu *cpu, enum Queue q) {
    struct Stream *s = base_alloc(sizeof *s);
    memset(s, 0, sizeof *s); // apart from malloc, so that no calloc leaves out the ring's pages
    s->cpu = cpu;
    s->number = q;
    s->rank = base_rank();
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->more, NULL);
    pthread_cond_init(&s->reached, NULL);
    s->awaited = UINT64_MAX;
    int err = pthread_create(&s->worker, NULL, worker_main, s);
    if (err)
        base_out_of_threads(err, "a queue of a rank");
    return s;
}

void queue_push(struct Stream *s, const char *name, QueueCall *call, const void *args,
                size_t args_bytes) {
    CHECK(args_bytes <= QUEUE_ARGS_BYTES, "%zu bytes of arguments, the ring holds %d", args_bytes,
          QUEUE_ARGS_BYTES);
    trace_queued(&s->cpu->device, s->number, name, args);
    pthread_mutex_lock(&s->lock);
    while (s->pushed - s->finished == RING)
        wait_for(s, s->pushed - RING / 2); // not for one entry: see wait_for
    struct QueueEntry *entry = &s->ring[s->pushed % RING];
    entry->call = call;
    entry->name = name;
    entry->label = s->cpu->device.label;
    if (args_bytes)
        memcpy(entry->args, args, args_bytes);
    s->pushed++;
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&s->lock);
}

void queue_sync(struct Stream *s) {
    pthread_mutex_lock(&s->lock);
    wait_for(s, s->pushed);
    pthread_mutex_unlock(&s->lock);
}

void queue_set_delay(struct Stream *s, struct QueueDelay delay) {
    queue_sync(s);
    s->delay = delay; // the worker sees it through the lock of the next push
}

void queue_close(struct Stream *s) {
    queue_push(s, "end", NULL, NULL, 0);
    pthread_join(s->worker, NULL);
    pthread_cond_destroy(&s->more);
    pthread_cond_destroy(&s->reached);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

struct Event *event_open(void) {
    struct Event *e = base_alloc_zeroed(sizeof *e);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    return e;
}

void event_close(struct Event *e) {
    if (!e)
        return;
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

struct EventCall {
    struct Event *event;
    uint64_t count;
};

static void wait_until_reached(struct Event *e, uint64_t count) {
    pthread_mutex_lock(&e->lock);
    while (e->reached < count)
        pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

static uint64_t count_records(struct Event *e) {
    pthread_mutex_lock(&e->lock);
    uint64_t count = e->recorded;
    pthread_mutex_unlock(&e->lock);
    return count;
}

static void run_record(struct Cpu *cpu, const void *args) {
    (void)cpu;
    const struct EventCall *call = args;
    pthread_mutex_lock(&call->event->lock);
    if (call->event->reached < call->count)
        call->event->reached = call->count;
    pthread_cond_broadcast(&call->event->changed);
    pthread_mutex_unlock(&call->event->lock);
}

static bool is_reached(struct Event *e, uint64_t count) {
    pthread_mutex_lock(&e->lock);
    bool reached = e->reached >= count;
    pthread_mutex_unlock(&e->lock);
    return reached;
}

static void run_wait(struct Cpu *cpu, const void *args) {
    const struct EventCall *call = args;
    if (!is_reached(call->event, call->count))
        give_up_team(cpu);
    wait_until_reached(call->event, call->count);
}

void event_record(struct Stream *s, struct Event *e) {
    pthread_mutex_lock(&e->lock);
    struct EventCall call = {e, ++e->recorded};
    pthread_mutex_unlock(&e->lock);
    queue_push(s, "record", run_record, &call, sizeof call);
}

void event_wait(struct Stream *s, struct Event *e) {
    struct EventCall call = {e, count_records(e)};
    if (call.count)
        queue_push(s, "wait", run_wait, &call, sizeof call);
}

bool event_done(struct Event *e) {
    pthread_mutex_lock(&e->lock);
    bool done = e->reached == e->recorded;
    pthread_mutex_unlock(&e->lock);
    return done;
}

void event_sync(struct Event *e) {
    wait_until_reached(e, count_records(e));
}
