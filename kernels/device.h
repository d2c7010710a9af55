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
// Events behave like CUDA's: a wait waits for the latest record before the wait was issued.
#ifndef KERNELS_DEVICE_H
#define KERNELS_DEVICE_H
#include "kernels/base.h"
#include "kernels/dtype.h"

struct Device;
struct Stream;
struct Event;
struct Kernels;

enum Queue { QUEUE_COMPUTE, QUEUE_COMM, QUEUE_IN, QUEUE_OUT, NQUEUE };

// A host function that runs in its turn in a queue. args: a copy, at most DEVICE_CALL_BYTES.
typedef void DeviceCall(const void *args);
enum { DEVICE_CALL_BYTES = 160 };

// The operations of a backend. alloc returns memory aligned to 64 bytes, or NULL when there is
// none. Its contents are undefined: on the CPU poison (0xff bytes, NaN in every format), on a GPU
// compute-sanitizer's initcheck finds a read before a write. The host may not touch it; queues copy
// to and from host memory (alloc_host, NULL when there is none). Its contents are undefined, too:
// poison in builds that look for mistakes (cpu/device.c), and the GPU simulator finds a read before
// a write; otherwise whatever it held before.
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
    void *(*native_stream)(struct Stream *); // optional: the stream as libraries know it
    // Enclose an operation that a library queues itself (native_stream), for traces; may be NULL.
    void (*span_begin)(struct Stream *, const char *name);
    void (*span_end)(struct Stream *);
    void (*collect)(struct Device *); // hands its own timings to the trace; may be NULL
    void (*close)(struct Device *);
};

// The event that an operation records or waits for, for traces.
struct EventLabel {
    const char *name; // NULL: neither, or the event has no name
    const void *event;
    uint64_t record; // number of the record, from 1, that it makes or waits for
};

// The work that the host queues now, for traces.
struct Label {
    const char *what;  // a collective; NULL: the operation's own name applies
    const char *group; // the ranks that take part: the axis of their grid, such as "dp"
    int unit;          // index in the whole model's walk, or of the group that is updated; -1: none
    bool backward;     // which of its passes,
    size_t micro;      // and of which micro-batch
    uint64_t step;     // from 1; 0: outside of steps, such as validation
    size_t bytes;      // bytes that a collective or a copy moves
    uint64_t number;   // of the operation, if somebody counts those of steps (struct TraceWatch)
    struct EventLabel event;
};

struct Trace;

struct Device {
    const struct DeviceOps *ops;
    const struct Kernels *kernels;
    const char *name;    // "cpu" or "cuda"
    int threads;         // threads that one kernel uses: part of the numerics
    bool is_host;        // its kernels use the host's memory: a CPU
    bool calls_may_wait; // a DeviceCall may wait for one of another device
    bool yields;         // CPU: while it waits, kernels of other devices use its cores
    size_t busy_rows;    // rows of a matrix product that occupy the whole device
    size_t piece_bytes;  // target size of a result that is made in pieces, such as logits;
    size_t piece_rows;   // pieces with more rows than that have a multiple of it
    struct Stream *queue[NQUEUE];
    struct Label label;
    struct Trace *trace; // records what the queues do; NULL: not traced (kernels/trace.h)
    struct NamedEvent *events;
    struct FarBlock *far_blocks; // blocks that its kernels must not use (kernels/tier_check.h)
    // On a GPU, set before any product: the first product of each shape times the available
    // algorithms and takes the fastest, not the library's favourite. It takes no memory: a product
    // that adds to its output is timed only if its scratch can hold a second result. The choices
    // may differ from run to run, and the bits with them.
    bool autotune;
    // On a GPU: the host waits after each kernel, so that the error of one that fails names it.
    // Same bits, slower. (On a CPU a kernel that fails stops the program at once.)
    bool check_launches;
};

// Opens an event; `name`, which is not copied, says what has happened when it is recorded, such as
// "weights arrived". device_event_name takes an event of this device, or the cudaEvent_t inside
// one; NULL: no such event has a name.
struct Event *device_open_event(struct Device *d, const char *name);
void device_close_event(struct Device *d, struct Event *event); // NULL: nothing
const char *device_event_name(const struct Device *d, const void *event);
void device_record(struct Device *d, enum Queue q, struct Event *event);
void device_wait(struct Device *d, enum Queue q, struct Event *event);
// For traces: until the label is cleared, a queue's next operation is a wait for `event` of `of`.
void device_set_event_label(struct Device *d, const struct Device *of, const struct Event *event);
void device_clear_event_label(struct Device *d);

// Disturbs one queue, for tests: before each operation its worker sleeps between delay_us / 2 and
// delay_us, drawn from seed. The result of a run must not depend on it.
struct QueueDelay {
    unsigned delay_us;
    uint64_t seed;
};

// Opens the CPU as a device whose kernels use `threads` threads (at least 1). `kernels` names the
// table: NULL for the fastest that this CPU runs, or one of "oracle", "base", "avx2", "avx512",
// "avx512bf16", "amx". Errors: -EINVAL for an unknown table, -ENOTSUP if this CPU lacks its
// instructions.
int device_open_cpu(struct Device **out, int threads, const char *kernels, struct Error *e);
// Returns the bytes of process memory that a CPU device takes besides its allocations: its queues,
// and the needs of its threads.
size_t device_own_bytes_cpu(const struct Device *);
// True if that table multiplies bf16 by special instructions of this CPU, and so several times as
// fast as fp32. (Every supported GPU does.)
bool device_has_bf16_cpu(const char *kernels);
void device_set_delay(struct Device *, enum Queue, struct QueueDelay); // before any work is queued

// Opens GPU number `index` of those that CUDA shows this process, for the calling thread; others
// `enter` it first. All calls for a device come from one thread at a time. index -1: a device
// without memory and queues, which only answers how much scratch kernels need: for plans. Errors:
// -ENODEV without such a GPU, -ENOTSUP in a build without CUDA or a library that it needs.
int device_open_cuda(struct Device **out, int index, struct Error *e);
// Limits of a GPU's kernels: channels of one token (norm_backward.cu), and addresses of other ranks
// (ranks.cu).
enum { GPU_MAX_CHANNELS = 5120, GPU_MAX_RANKS = 64 };
// Makes CUDA load all kernels when it starts, unless the environment decides otherwise: for ranks
// with a GPU each. Call it before the first call for any GPU, and before there are threads that
// could read the environment.
void device_load_eagerly_cuda(void);
// GPUs that this process sees; 0 in a build without CUDA.
int device_count_cuda(void);
// A GPU's memory as its driver reports it; used: by all processes, with CUDA's own memory.
struct DeviceMemory {
    size_t free_bytes, used_bytes;
};
struct DeviceMemory device_memory_cuda(int index);
// Returns a number that no other GPU has, on any machine; not 0.
uint64_t device_identity_cuda(int index);
// The GPU's name, such as "NVIDIA H200". free() it.
char *device_name_cuda(int index);

// Returns the size of the choices so far, as bytes for a checkpoint, and writes them to `out`
// unless that is NULL. 0: a CPU.
size_t device_get_choices(struct Device *, void *out, size_t bytes);
// Takes over the kernel variants among such choices: the device then chooses only among those that
// were available. Errors: -ENOTSUP, with a line that says what to do, if a variant that computed
// the checkpoint is missing on this device.
int device_set_variants(struct Device *, const void *in, size_t bytes, struct Error *e);
// Takes over the other choices, before any product; a CPU takes none. Errors: -EINVAL if they are
// damaged or were made by another library or for another GPU.
int device_set_choices(struct Device *, const void *in, size_t bytes, struct Error *e);
// Describes the choices, a line per product: sizes, formats, epilogue, implementation, algorithm.
// The second: a line, without its end, on products that the library could not do as requested: how
// many, and the first. free() both; "" on a CPU, and if there is nothing to say.
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
// Joins the four queues into one: nothing overlaps, and every wait is already met. Call it before
// any work is queued.
static inline void device_join_queues(struct Device *d) {
    for (int q = 0; q < NQUEUE; q++)
        d->queue[q] = d->queue[QUEUE_COMPUTE];
}
static inline bool device_event_done(struct Device *d, struct Event *event) {
    return d->ops->event_done(event);
}
// Returns the cudaStream_t of a queue; NULL on the CPU.
static inline void *device_native_queue(struct Device *d, enum Queue q) {
    return d->ops->native_stream ? d->ops->native_stream(d->queue[q]) : NULL;
}
// Allocates the host's end of copies. Fatal when there is no memory: these are small.
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
