// A device: memory, four queues of work, events between them, and a table of kernels.
//
// Two backends: the CPU, and CUDA. Everything is asynchronous, on the CPU too. A call that takes a
// stream puts the work at the end of that queue and returns; the queue's own worker runs it later,
// in order. Two queues are ordered by events only: record an event on one, let the other wait for
// it. Nothing else orders them, so that a wait that is missing shows up as a wrong number in a test
// on a laptop, not as a race on a cluster.
//
//   compute   kernels of the forward and backward pass and of the update
//   comm      collectives, and what follows a reduction directly (the norm of the gradient)
//   in        copies towards the device: tokens, the step's constants, offloaded state
//   out       copies away from it: the loss, the norm, offloaded state
//
// The host may touch a buffer that a queue uses only after device_sync_event or device_sync_queue.
// Events behave as CUDA's do: a wait waits for the latest record before the wait was issued.
#ifndef KERNELS_DEVICE_H
#define KERNELS_DEVICE_H
#include "kernels/base.h"
#include "kernels/dtype.h"

struct Device;
struct Stream;
struct Event;
struct Kernels;

enum Queue { QUEUE_COMPUTE, QUEUE_COMM, QUEUE_IN, QUEUE_OUT, NQUEUE };

// A function of the host that takes its turn in a queue. args: a copy, at most DEVICE_CALL_BYTES.
typedef void DeviceCall(const void *args);
enum { DEVICE_CALL_BYTES = 160 };

// What a backend provides. alloc gives memory aligned to 64 bytes, or NULL when there is none. What
// it holds is undefined: on the CPU it is poison (0xff bytes, NaN in every format), on a GPU
// compute-sanitizer's initcheck finds a read before a write. The host may not touch it; it has
// memory of its own that queues copy to and from (alloc_host, NULL when there is none). What that
// holds is undefined, too: poison in builds that look for mistakes (kernels/poison.h), and in the
// simulator of a GPU a read before a write is found; else whatever it held before.
struct DeviceOps {
    void *(*alloc)(struct Device *, size_t bytes);
    void (*free)(struct Device *, void *mem, size_t bytes);
    void *(*alloc_host)(struct Device *, size_t bytes);
    void (*free_host)(struct Device *, void *mem);
    void (*copy)(struct Stream *, void *dst, const void *src, size_t bytes);
    void (*zero)(struct Stream *, void *dst, size_t bytes);
    void (*enter)(struct Device *); // the calling thread will use it, too; NULL: any thread may
    struct Event *(*event_open)(struct Device *);
    void (*event_close)(struct Event *);
    void (*record)(struct Stream *, struct Event *);
    void (*wait)(struct Stream *, struct Event *);
    void (*call)(struct Stream *, DeviceCall *, const void *args, size_t bytes);
    bool (*event_done)(struct Event *); // its latest record was reached, or there is none
    void (*sync_event)(struct Event *);
    void (*sync_stream)(struct Stream *);
    void *(*native_stream)(struct Stream *); // optional: what the backend's libraries call it
    // Around an operation that a library queues itself (native_stream), for traces; NULL: nothing.
    void (*span_begin)(struct Stream *, const char *name);
    void (*span_end)(struct Stream *);
    void (*collect)(struct Device *); // hands what it timed itself to the trace; NULL: nothing
    void (*close)(struct Device *);
};

// The event that an operation records or waits for, for traces.
struct EventLabel {
    const char *name; // NULL: neither, or the event has none
    const void *event;
    uint64_t record; // of that event, from 1: the one that it makes, or waits for
};

// Whose work the host queues now, for traces.
struct Label {
    const char *what;  // a collective; NULL: the operation's own name says it
    const char *group; // whose ranks make it: the axis of their grid, such as "dp"
    int unit;          // of the whole model's walk, or group that is updated; -1: none
    uint64_t step;     // from 1; 0: none, such as validation
    size_t bytes;      // that a collective moves, or a copy
    struct EventLabel event;
};

struct Trace;

struct Device {
    const struct DeviceOps *ops;
    const struct Kernels *kernels;
    const char *name;    // "cpu" or "cuda"
    int threads;         // threads that one kernel uses: part of the numerics
    bool calls_may_wait; // a DeviceCall may wait for another device's
    bool yields;         // of the CPU: another device's kernels have its cores whenever it waits
    size_t busy_rows;    // rows of a matrix product that keep all of it busy
    size_t piece_bytes;  // of a result that is made and used piece by piece, such as logits;
    size_t piece_rows;   // pieces with more rows than that have a multiple of it
    struct Stream *queue[NQUEUE];
    struct Label label;
    struct Trace *trace; // records what the queues do; NULL: nobody asked (kernels/trace.h)
    struct NamedEvent *events;
    struct FarBlock *far_blocks; // blocks that its kernels may not use (kernels/tier_check.h)
};

// Opens an event; `name`, which is not copied, says what has happened where it is recorded, such as
// "weights arrived". name of: an event of this device, or the GPU's own event behind one; NULL: no
// such event has a name.
struct Event *device_open_event(struct Device *d, const char *name);
void device_close_event(struct Device *d, struct Event *event); // NULL: nothing
const char *device_event_name(const struct Device *d, const void *event);
void device_record(struct Device *d, enum Queue q, struct Event *event);
void device_wait(struct Device *d, enum Queue q, struct Event *event);
// For traces: what a queue does next, until the label is cleared, is a wait for this event of `of`.
void device_label_wait(struct Device *d, const struct Device *of, const struct Event *event);
void device_clear_label(struct Device *d);

// A disturbance of one queue, for tests: before each operation its worker sleeps between half of
// delay_us and all of it, drawn from seed. The result of a run must not depend on it.
struct QueueDelay {
    unsigned delay_us;
    uint64_t seed;
};

// Opens the CPU as a device whose kernels use `threads` threads (at least 1). `kernels` names the
// table: NULL for the fastest that this CPU runs, else one of "oracle", "base", "avx2", "avx512",
// "avx512bf16", "amx".
// Errors: -EINVAL for an unknown table, -ENOTSUP where this CPU lacks its instructions.
int device_open_cpu(struct Device **out, int threads, const char *kernels, struct Error *e);
// Bytes of the process's memory that a CPU device takes beside what is allocated with it: its
// queues, and what its threads need.
size_t device_own_bytes_cpu(const struct Device *);
// Whether that table multiplies bf16 by instructions of this CPU's for it, and so at a multiple of
// fp32's speed. (Every GPU that can be opened does.)
bool device_has_bf16_cpu(const char *kernels);
void device_set_delay(struct Device *, enum Queue, struct QueueDelay); // before any work is queued

// Opens GPU number `index` of those that CUDA shows this process, for the calling thread; others
// `enter` it first. All calls for a device come from one thread at a time. index -1: a device
// without memory and queues, which only answers how much scratch kernels need: for plans. Errors:
// -ENODEV without such a GPU, -ENOTSUP in a build without CUDA or without a library that it needs.
int device_open_cuda(struct Device **out, int index, struct Error *e);
// What the kernels of a GPU can hold of one token (norm_backward.cu), and of addresses of other
// ranks (ranks.cu).
enum { GPU_MAX_CHANNELS = 5120, GPU_MAX_RANKS = 64 };
// Lets CUDA load all kernels when it starts, unless the environment says otherwise: for ranks with
// a GPU each. Before the first call for any GPU, and before threads that could read the
// environment.
void device_load_eagerly_cuda(void);
// GPUs that this process sees; 0 in a build without CUDA.
int device_count_cuda(void);
// A GPU's memory as its driver says; used: by all processes, with what CUDA itself takes.
struct DeviceMemory {
    size_t free_bytes, used_bytes;
};
struct DeviceMemory device_memory_cuda(int index);
// A number that no other GPU has, on any machine; not 0.
uint64_t device_identity_cuda(int index);
// The GPU's name, such as "NVIDIA H200". free() it.
char *device_name_cuda(int index);

// On a GPU: whether the first product of each shape times the algorithms there are and takes the
// quickest, not the one that the library thinks best. Before any product. It takes no memory: a
// product that adds to what it finds is timed only where its scratch has room for a second result.
// The choices may differ from run to run, and the bits with them. A CPU has nothing to choose from.
void device_autotune(struct Device *, bool on);
// On a GPU: whether the host waits after each kernel, so that the line of one that fails names it.
// The same bits, slower. (A CPU's kernel that fails stops the program where it is.)
void device_check_launches(struct Device *, bool on);
// The choices so far, as bytes for a checkpoint: writes them to out (NULL: nothing is written) and
// returns how many there are. 0: a CPU.
size_t device_get_choices(struct Device *, void *out, size_t bytes);
// Of such choices, which kernels of several for the same operation there were to choose from: from
// now on the device chooses among them. Errors: -ENOTSUP where one of them computed what the
// checkpoint holds, and this device has none such; a line that says what to do.
int device_set_variants(struct Device *, const void *in, size_t bytes, struct Error *e);
// Takes over the rest of such choices, before any product; a CPU takes none. Errors: -EINVAL where
// they are damaged or were made by another library or for another GPU.
int device_set_choices(struct Device *, const void *in, size_t bytes, struct Error *e);
// The same in words, a line for each product: sizes, formats, epilogue, who does it and how. And
// one line, without an end, if the library could not do some of them as they were wished: how many,
// and the first. free() both; "" on a CPU, and where there is nothing to tell.
char *device_describe_choices(struct Device *);
char *device_describe_fallbacks(struct Device *);

static inline void device_copy(struct Device *d, enum Queue q, void *dst, const void *src,
                               size_t bytes) {
    d->ops->copy(d->queue[q], dst, src, bytes);
}
static inline void device_zero(struct Device *d, enum Queue q, void *dst, size_t bytes) {
    d->ops->zero(d->queue[q], dst, bytes);
}
static inline void device_call(struct Device *d, enum Queue q, DeviceCall *call, const void *args,
                               size_t bytes) {
    d->ops->call(d->queue[q], call, args, bytes);
}
static inline void device_sync_event(struct Device *d, struct Event *event) {
    d->ops->sync_event(event);
}
static inline void device_sync_queue(struct Device *d, enum Queue q) {
    d->ops->sync_stream(d->queue[q]);
}
// From now on there is one queue instead of four: nothing overlaps, and every wait is met already.
// Before any work is queued.
static inline void device_join_queues(struct Device *d) {
    for (int q = 0; q < NQUEUE; q++)
        d->queue[q] = d->queue[QUEUE_COMPUTE];
}
static inline bool device_event_done(struct Device *d, struct Event *event) {
    return d->ops->event_done(event);
}
// The cudaStream_t behind a queue; NULL on the CPU.
static inline void *device_native_queue(struct Device *d, enum Queue q) {
    return d->ops->native_stream ? d->ops->native_stream(d->queue[q]) : NULL;
}
// For the host's end of copies. Fatal when there is no memory: these are small.
static inline void *device_alloc_host(struct Device *d, size_t bytes) {
    void *mem = d->ops->alloc_host(d, bytes);
    if (!mem)
        base_out_of_memory(bytes, "the host's end of copies");
    return mem;
}
static inline void device_free_host(struct Device *d, void *mem) {
    if (mem)
        d->ops->free_host(d, mem);
}
static inline void device_close(struct Device *d) {
    d->ops->close(d);
}

#endif
