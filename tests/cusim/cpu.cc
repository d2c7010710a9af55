// The queues of the CPU device (kernels/cpu/queue.c), as the race detector sees them.
//
// A rank that offloads has a CPU device beside its GPU. Each of its queues is a host thread, an
// actor of its own; but the mutexes of the queues would tell the detector too much. Whoever pushes
// an entry takes the lock that the worker had a moment ago, and that orders the two of them in this
// one run, by chance. So in the code of the queues locks carry no clocks, and what queues promise
// is said here, as stream.cc says it of streams:
//
//   push -> the call that was pushed       record of an event -> whoever waits for it
//   the last call -> who waits for the queue
//
// The kernels by which the host makes and updates offloaded state use vectors too wide for the
// compiler's calls at each access; what they read and write is therefore said before they run.
//
// The linker sends the calls of these functions from other files here (Makefile), and the real ones
// do the work. Records, waits and synchronisations are counted and left out like CUDA's (sim.h).
#include "tests/cusim/internal.h"

#include "kernels/kernels.h"

#include <map>

struct Cpu;
typedef void QueueCall(Cpu *, const void *args);

extern "C" {
Stream *__real_queue_open(Cpu *, unsigned queue);
void __real_queue_push(Stream *, const char *name, QueueCall *, const void *args, size_t bytes);
void __real_queue_sync(Stream *);
void __real_event_record(Stream *, Event *);
void __real_event_wait(Stream *, Event *);
void __real_event_sync(Event *);
bool __real_event_done(Event *);
void __real_event_close(Event *);
}

namespace cusim {

struct Reached {
    Clock clock; // of the queue, when it was there
};
static std::map<const Event *, std::shared_ptr<Reached>> latest; // record of each event
static std::map<const Stream *, Host *> workers;

// ---- entries ----

struct Entry {
    Clock issued;
    const char *name;
    QueueCall *call;
    std::function<void()> edge; // in place of a call
};

// What is queued: the call's own arguments first, since traces read them there.
struct Queued {
    alignas(16) unsigned char args[304];
    Entry *entry;
};

static void run_entry(Cpu *cpu, const void *args) {
    Entry *e = static_cast<const Queued *>(args)->entry;
    Host *me = host_self();
    me->quiet = false;
    me->actor.clock.join(e->issued);
    host_released();
    me->segment.what = e->name;
    if (e->edge)
        e->edge();
    else
        e->call(cpu, args);
    host_released();
    me->segment.what = "host";
    me->quiet = true;
    delete e;
}

static void push(Stream *s, Queued *q) {
    Entry *e = q->entry;
    e->issued = host_self()->actor.clock;
    host_released();
    Quiet quiet;
    __real_queue_push(s, e->name, run_entry, q, sizeof *q);
}

static void push_edge(Stream *s, const char *name, std::function<void()> edge) {
    Entry *e = new Entry;
    e->name = name;
    e->edge = std::move(edge);
    Queued q = {{}, e};
    push(s, &q);
}

static std::shared_ptr<Reached> latest_of(const Event *e) {
    auto found = latest.find(e);
    return found == latest.end() ? nullptr : found->second;
}

static void join(const Clock &clock) {
    host_self()->actor.clock.join(clock);
}

static bool left_out(SimSyncKind kind, const Stream *s, const Event *e) {
    SimSync sync = {};
    sync.kind = kind;
    sync.queue = s ? workers.at(s)->queue : -1;
    sync.cpu_queue = s != nullptr;
    sync.cpu_event = e != nullptr;
    sync.event = e;
    return dropped(sync);
}

} // namespace cusim

using namespace cusim;

extern "C" {
Stream *__wrap_queue_open(Cpu *cpu, unsigned queue) {
    Host *me = host_self();
    me->opens_queue = (int)queue;
    Stream *s = __real_queue_open(cpu, queue);
    me->opens_queue = -1;
    workers[s] = host_newest();
    return s;
}

void __wrap_queue_push(Stream *s, const char *name, QueueCall *call, const void *args,
                       size_t bytes) {
    host_turn();
    Entry *e = new Entry;
    Queued q = {{}, e};
    if (bytes > sizeof q.args)
        die("%zu bytes of arguments for a CPU queue", bytes);
    e->name = name;
    e->call = call;
    __real_memcpy(q.args, args, bytes);
    push(s, &q);
}

void __wrap_queue_sync(Stream *s) {
    host_turn();
    if (left_out(SIM_SYNC, s, nullptr))
        return;
    {
        Quiet quiet;
        __real_queue_sync(s);
    }
    join(workers.at(s)->actor.clock);
}

void __wrap_event_record(Stream *s, Event *e) {
    host_turn();
    if (left_out(SIM_RECORD, s, e))
        return;
    std::shared_ptr<Reached> r = std::make_shared<Reached>();
    latest[e] = r;
    push_edge(s, "the record of an event", [r] { r->clock = host_self()->actor.clock; });
    Quiet quiet;
    __real_event_record(s, e);
}

void __wrap_event_wait(Stream *s, Event *e) {
    host_turn();
    std::shared_ptr<Reached> r = latest_of(e);
    if (!r || left_out(SIM_WAIT, s, e))
        return;
    {
        Quiet quiet;
        __real_event_wait(s, e);
    }
    push_edge(s, "the wait for an event", [r] { join(r->clock); });
}

void __wrap_event_sync(Event *e) {
    host_turn();
    std::shared_ptr<Reached> r = latest_of(e);
    if (!r || left_out(SIM_SYNC, nullptr, e))
        return;
    {
        Quiet quiet;
        __real_event_sync(e);
    }
    join(r->clock);
}

bool __wrap_event_done(Event *e) {
    host_turn();
    bool done;
    {
        Quiet quiet;
        done = __real_event_done(e);
    }
    std::shared_ptr<Reached> r = latest_of(e);
    if (done && r)
        join(r->clock);
    return done;
}

void __wrap_event_close(Event *e) {
    latest.erase(e);
    __real_event_close(e);
}
}

// ---- kernels ----

static void note_adamw(const AdamW *a) {
    access(a->state, sizeof *a->state, Use::READ);
    if (a->state->skip)
        return;
    size_t moments = a->n * dtype_size(a->moments_dtype);
    access(a->grad, a->n * dtype_size(a->grad_dtype), Use::READ);
    for (Use use : {Use::READ, Use::WRITE}) {
        access(a->master, a->n * dtype_size(master_dtype(a->master_format)), use);
        access(a->m, moments, use);
        access(a->v, moments, use);
    }
    if (a->master_format == MASTER_SPLIT)
        access(a->param, a->n * dtype_size(a->param_dtype), Use::READ);
    if (a->param)
        access(a->param, a->n * dtype_size(a->param_dtype), Use::WRITE);
}

static void note_cast(const Cast *a) {
    access(a->src, a->n * dtype_size(a->src_dtype), Use::READ);
    access(a->dst, a->n * dtype_size(a->dst_dtype), Use::WRITE);
}

static void note_fill_normal(const FillNormal *a) {
    access(a->dst, a->n * sizeof *a->dst, Use::WRITE);
}

static void note_quantize(const Quantize *a) {
    access(a->x, a->n * a->parts * dtype_size(a->dtype), Use::READ);
    access(a->to, quantized_bytes(a->bits, a->n) * a->parts, Use::WRITE);
}

static void note_dequantize(const Dequantize *a) {
    access(a->from, quantized_bytes(a->bits, a->n) * a->parts * a->ranks, Use::READ);
    access(a->x, a->n * a->parts * dtype_size(a->dtype), Use::WRITE);
}

static void note_nf4_quantize(const Nf4Quantize *a) {
    access(a->x, a->n * dtype_size(a->dtype), Use::READ);
    access(a->to, nf4_bytes(a->n), Use::WRITE);
}

static void note_nf4_dequantize(const Nf4Dequantize *a) {
    access(a->from, nf4_bytes(a->n), Use::READ);
    access(a->x, a->n * dtype_size(a->dtype), Use::WRITE);
}

#define WRAP_KERNEL(isa, op, Args)                                                                 \
    extern "C" void __real_##isa##_##op(Cpu *, const Args *);                                      \
    extern "C" void __wrap_##isa##_##op(Cpu *cpu, const Args *a) {                                 \
        note_##op(a);                                                                              \
        __real_##isa##_##op(cpu, a);                                                               \
    }
#define WRAP_PACKING(isa)                                                                          \
    WRAP_KERNEL(isa, quantize, Quantize)                                                           \
    WRAP_KERNEL(isa, dequantize, Dequantize)                                                       \
    WRAP_KERNEL(isa, nf4_quantize, Nf4Quantize)                                                    \
    WRAP_KERNEL(isa, nf4_dequantize, Nf4Dequantize)
#define WRAP_KERNELS(isa)                                                                          \
    WRAP_KERNEL(isa, adamw, AdamW)                                                                 \
    WRAP_KERNEL(isa, cast, Cast) WRAP_KERNEL(isa, fill_normal, FillNormal) WRAP_PACKING(isa)
WRAP_KERNELS(oracle)
WRAP_KERNELS(base)
WRAP_KERNELS(avx2)
WRAP_KERNELS(avx512)
WRAP_KERNELS(avx512bf16)
