// Streams and events: queues of operations, and how far each is let run ahead.
//
// An operation starts when it is at the head of its stream and whatever it waits for is done. The
// schedule (sim.h) chooses among the streams whose head can go on: a program that orders its
// streams well computes the same in every schedule. An event is a name for the latest record made
// of it; a wait remembers that record, as in CUDA.
#include "kernels/base.h"

#include "tests/cusim/internal.h"

#include <algorithm>
#include <random>
#include <unistd.h>

using cusim::Clock;

struct Record {
    bool done = false;
    Clock clock;
    CUstream_st *stream;
    double seconds; // when it was done, for timed events
};
struct CUevent_st {
    bool timed;
    std::shared_ptr<Record> latest; // none: never recorded
};
struct CUstream_st {
    cusim::Actor actor;
    int gpu;
    const cusim::Host *owner; // who opened it
    int number;               // which of its owner's streams on this GPU
    std::deque<std::unique_ptr<cusim::Operation>> queue;
};

namespace cusim {

int gpu_count = 1;
cudaError_t lost = cudaSuccess;
static std::vector<CUstream_st *> streams;
static SimSchedule schedule = SIM_EAGER;
static int starved = -1;
static std::mt19937_64 random_streams(1);
static uint64_t progress; // counts everything that could let a waiting thread go on
static Segment *operation_now;

Segment *running() {
    return operation_now ? operation_now : &host_self()->segment;
}

// ---- operations ----

struct Simple : Operation {
    std::function<void()> run;
    void start() override { run(); }
};

struct RecordOperation : Operation {
    std::shared_ptr<Record> record;
    void start() override {
        record->clock = segment.actor->clock;
        record->seconds = base_seconds();
        record->done = true;
    }
};

struct WaitOperation : Operation {
    std::shared_ptr<Record> record;
    bool can_start() override { return record->done; }
    void start() override { segment.actor->clock.join(record->clock); }
};

// A function of the host's, run by the driver's one thread.
struct HostOperation : Operation {
    cudaHostFn_t function;
    void *data;
    bool over = false;
    void start() override;
    bool poll() override { return over; }
};

static Host *driver;
static int driver_process;
static bool in_host_function;
static std::deque<HostOperation *> *calls;

static void run_calls() {
    for (;;) {
        if (calls->empty())
            host_wait("host functions of streams", [] { return !calls->empty(); });
        HostOperation *op = calls->front();
        calls->pop_front();
        Host *me = host_self();
        me->actor.clock.join(op->segment.actor->clock);
        host_released();
        in_host_function = true;
        op->function(op->data);
        in_host_function = false;
        op->segment.actor->clock.join(me->actor.clock);
        host_released();
        op->over = true;
        progress++;
        streams_pump();
    }
}

void HostOperation::start() {
    calls->push_back(this);
}

void call_on_driver(cudaStream_t stream, cudaHostFn_t function, void *data) {
    if (driver_process != getpid()) { // none yet, or it was left behind by a fork
        driver_process = getpid();
        calls = new std::deque<HostOperation *>;
        driver = host_start_driver(run_calls);
    }
    std::unique_ptr<HostOperation> op(new HostOperation);
    op->function = function;
    op->data = data;
    enqueue(stream, "a host function", std::move(op));
}

// A device opens its queues in the order of enum Queue, and closes all of them.
static int free_place(const Host *owner, int gpu) {
    for (int n = 0;; n++) {
        bool used = false;
        for (const CUstream_st *s : streams)
            used |= s->owner == owner && s->gpu == gpu && s->number == n;
        if (!used)
            return n;
    }
}

static void check_stream(cudaStream_t s) {
    if (!s || s == cudaStreamLegacy || s == cudaStreamPerThread)
        die("the NULL stream is forbidden: it orders itself with others");
    if (std::find(streams.begin(), streams.end(), s) == streams.end())
        die("a stream that does not exist");
}

void enqueue(cudaStream_t s, const char *what, std::unique_ptr<Operation> op) {
    check_stream(s);
    if (operation_now)
        die("an operation of a stream calls CUDA");
    if (in_host_function && host_self() == driver)
        die("a host function of a stream calls CUDA");
    op->segment.actor = &s->actor;
    op->segment.gpu = s->gpu;
    op->segment.what = what;
    op->issued = host_self()->actor.clock;
    host_released();
    s->queue.push_back(std::move(op));
    progress++;
    count_launch(what);
    streams_pump();
}

void enqueue(cudaStream_t s, const char *what, std::function<void()> run) {
    std::unique_ptr<Simple> op(new Simple);
    op->run = std::move(run);
    enqueue(s, what, std::move(op));
}

int stream_gpu(cudaStream_t s) {
    return s->gpu;
}

bool host_put_off(const Host *h) {
    return h->queue >= 0 && (schedule == SIM_LAZY || h->queue == starved - 4);
}

// ---- going on ----

// Lets the head of a stream go on; false: it cannot.
static bool step(CUstream_st *s) {
    if (s->queue.empty())
        return false;
    Operation *op = s->queue.front().get();
    bool starts = !op->started;
    if (lost && starts && !dynamic_cast<RecordOperation *>(op)) { // it never runs
        s->queue.pop_front();
        progress++;
        return true;
    }
    if (starts && !op->can_start())
        return false;
    operation_now = &op->segment;
    if (starts) {
        s->actor.clock.join(op->issued);
        s->actor.clock.at[s->actor.slot]++;
        op->started = true;
        op->start();
    }
    bool done = op->poll();
    operation_now = nullptr;
    if (done)
        s->queue.pop_front();
    progress += starts || done;
    return starts || done;
}

// Only what the head of the stream needs.
static bool step_needed(CUstream_st *s) {
    if (step(s))
        return true;
    WaitOperation *wait =
        s->queue.empty() ? nullptr : dynamic_cast<WaitOperation *>(s->queue.front().get());
    return wait && wait->record->stream != s && step_needed(wait->record->stream);
}

// One step of any stream but those left out, from the `from`th on.
static bool step_any(size_t from, bool with_starved) {
    for (size_t i = 0; i < streams.size(); i++) {
        CUstream_st *s = streams[(from + i) % streams.size()];
        if ((with_starved || s->number % 4 != starved) && step(s))
            return true;
    }
    return false;
}

bool streams_advance() {
    size_t from =
        schedule == SIM_RANDOM && !streams.empty() ? random_streams() % streams.size() : 0;
    return step_any(from, false) || step_any(from, true);
}

void streams_pump() {
    if (operation_now || schedule == SIM_LAZY)
        return;
    if (schedule == SIM_RANDOM) {
        while (random_streams() & 1 && streams_advance())
            ;
        return;
    }
    while (step_any(0, false))
        ;
}

// Lets streams go on until `done`; the calling host thread waits for `target`.
static void advance_until(CUstream_st *target, const char *what,
                          const std::function<bool()> &done) {
    while (!done()) {
        if (schedule == SIM_LAZY && step_needed(target))
            continue;
        if (streams_advance())
            continue;
        uint64_t seen = progress;
        host_wait(what, [seen] { return progress != seen; });
    }
}

void stream_finish(cudaStream_t s) {
    advance_until(s, "a stream", [s] { return s->queue.empty(); });
    host_self()->actor.clock.join(s->actor.clock);
}

void gpu_finish(const char *what) {
    for (size_t i = 0; i < streams.size(); i++)
        if (CUstream_st *s = streams[i]; s->gpu == current_gpu())
            advance_until(s, what, [s] { return s->queue.empty(); });
}

// ---- synchronisations, and leaving one out ----

static size_t sync_count, sync_dropped = SIZE_MAX;
static std::vector<SimSync> syncs; // since the last sim_drop

// Operations of a stream but those that only keep order.
static size_t work_in(const CUstream_st *s) {
    size_t work = 0;
    for (const std::unique_ptr<Operation> &op : s->queue)
        work +=
            !dynamic_cast<RecordOperation *>(op.get()) && !dynamic_cast<WaitOperation *>(op.get());
    return work;
}

bool dropped(SimSync sync) {
    Host *me = host_self();
    sync.first_host = host_is_first();
    if (sync.queue < 0 && me->queue >= 0) { // a CPU queue waits for the GPU in its turn
        sync.queue = me->queue;
        sync.cpu_queue = true;
    }
    for (const CUstream_st *s : streams)
        if (s->number == 0 && s->owner == me)
            sync.queued += work_in(s);
    syncs.push_back(sync);
    return sync_count++ == sync_dropped;
}

static bool dropped(SimSyncKind kind, cudaStream_t s, cudaEvent_t e) {
    return dropped({kind, s ? s->number : -1, false, false, false, e, 0});
}

} // namespace cusim

using namespace cusim;

extern "C" {
void sim_set_schedule(enum SimSchedule s, uint64_t seed_or_queue) {
    schedule = s;
    starved = s == SIM_STARVE ? (int)seed_or_queue : -1;
    random_streams.seed(seed_or_queue + 1);
    host_seed(s == SIM_RANDOM ? seed_or_queue + 1 : 1);
}

size_t sim_drop(size_t nth) {
    size_t count = sync_count;
    sync_count = 0;
    sync_dropped = nth;
    syncs.clear();
    return count;
}

size_t sim_syncs(void) {
    return sync_count;
}

struct SimSync sim_sync(size_t nth) {
    return syncs.at(nth);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
    (void)priority;
    host_turn();
    if (flags != cudaStreamNonBlocking)
        die("a stream that is not cudaStreamNonBlocking orders itself with the NULL stream: "
            "forbidden");
    Host *h = host_self();
    CUstream_st *s = new CUstream_st;
    s->gpu = h->gpu;
    s->owner = h;
    s->number = free_place(h, h->gpu);
    actor_open(&s->actor,
               "stream " + std::to_string(s->number) + " of GPU " + std::to_string(s->gpu) + " (" +
                   h->actor.name + ")",
               h->actor.clock);
    streams.push_back(s);
    *out = s;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
    host_turn();
    check_stream(s);
    advance_until(s, "a stream", [s] { return s->queue.empty(); });
    streams.erase(std::find(streams.begin(), streams.end(), s));
    actor_close(&s->actor);
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    host_turn();
    check_stream(s);
    if (dropped(SIM_SYNC, s, nullptr))
        return lost;
    stream_finish(s);
    return lost;
}

cudaError_t cudaStreamQuery(cudaStream_t s) {
    host_turn();
    check_stream(s);
    streams_pump();
    if (!s->queue.empty())
        return cudaErrorNotReady;
    host_self()->actor.clock.join(s->actor.clock);
    return lost;
}

cudaError_t cudaDeviceSynchronize(void) {
    host_turn();
    if (dropped(SIM_SYNC, nullptr, nullptr))
        return lost;
    gpu_finish("all streams (cudaDeviceSynchronize)");
    for (CUstream_st *s : streams)
        if (s->gpu == current_gpu())
            host_self()->actor.clock.join(s->actor.clock);
    return lost;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    *out = new CUevent_st;
    (*out)->timed = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete e; // records under way live on
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    host_turn();
    check_stream(s);
    if (dropped(SIM_RECORD, s, e))
        return lost;
    std::unique_ptr<RecordOperation> op(new RecordOperation);
    e->latest = op->record = std::make_shared<Record>();
    e->latest->stream = s;
    enqueue(s, "the record of an event", std::move(op));
    return lost;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
    (void)flags;
    host_turn();
    check_stream(s);
    if (!e->latest || dropped(SIM_WAIT, s, e)) // CUDA's wait for what was never recorded is none
        return lost;
    std::unique_ptr<WaitOperation> op(new WaitOperation);
    op->record = e->latest;
    enqueue(s, "the wait for an event", std::move(op));
    return lost;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    host_turn();
    if (!e->latest || dropped(SIM_SYNC, nullptr, e))
        return lost;
    std::shared_ptr<Record> r = e->latest;
    advance_until(r->stream, "an event (cudaEventSynchronize)", [r] { return r->done; });
    host_self()->actor.clock.join(r->clock);
    return lost;
}

cudaError_t cudaEventQuery(cudaEvent_t e) {
    host_turn();
    streams_pump();
    if (e->latest && !e->latest->done)
        return cudaErrorNotReady;
    if (e->latest)
        host_self()->actor.clock.join(e->latest->clock);
    return lost;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    if (!from->timed || !to->timed || !from->latest || !to->latest)
        die("cudaEventElapsedTime of events without times");
    if (!from->latest->done || !to->latest->done)
        return cudaErrorNotReady;
    *ms = (float)((to->latest->seconds - from->latest->seconds) * 1e3);
    return cudaSuccess;
}
}
