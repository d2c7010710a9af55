// The CPU as a device: memory, four queues (queue.c) and a kernel table (table.c).
//
// The compute queue's worker is the thread that opens OpenMP teams, so a kernel runs on
// device.threads cores while the other queues' workers copy in parallel. Device memory is poisoned
// when it is allocated: a value that is used before it was written is a NaN, and a NaN in a loss is
// found. Host memory is poisoned, too, in builds that look for mistakes (POISON_HOST); in others it
// holds whatever it held before, since filling gigabytes takes seconds.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/queue.h"
#include "kernels/trace.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SMALL_ALIGN = 64, PAGE = 4096, HUGE_PAGE = 2 << 20 };

// Host memory of at least this size gets huge pages: smaller pieces are often scratch of which
// little is used, and one byte would make 2 MiB of it resident.
enum { HOST_HUGE_BYTES = 8 << 20 };

// Pieces of a page or more are page-aligned: O_DIRECT needs that. Those from huge_from bytes on get
// huge pages.
static void *alloc_pages(size_t bytes, size_t huge_from) {
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : bytes >= PAGE ? PAGE : SMALL_ALIGN;
    void *mem = aligned_alloc(align, round_up(size_max(bytes, 1), align));
    if (!mem)
        return NULL;
    if (align == HUGE_PAGE) // hints: fewer TLB misses where the kernel has them
        madvise(mem, bytes, bytes >= huge_from ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return mem;
}

static void *cpu_alloc(struct Device *d, size_t bytes) {
    (void)d;
    void *mem = alloc_pages(bytes, HUGE_PAGE);
    return mem ? memset(mem, 0xff, bytes) : NULL;
}

static void cpu_free(struct Device *d, void *mem, size_t bytes) {
    (void)d;
    if (mem && bytes < HUGE_PAGE)
        memset(mem, 0xff, bytes); // use after free reads NaN; large pieces return to the system
    free(mem);
}

static void *cpu_alloc_host(struct Device *d, size_t bytes) {
    (void)d;
    void *mem = alloc_pages(bytes, HOST_HUGE_BYTES);
    return mem && POISON_HOST ? memset(mem, 0xff, bytes) : mem;
}

static void cpu_free_host(struct Device *d, void *mem) {
    (void)d;
    free(mem);
}

static void run_copy(struct Cpu *cpu, const void *args) {
    (void)cpu;
    const struct CopyOperands *c = args;
    if (c->src)
        memcpy(c->dst, c->src, c->bytes);
    else
        memset(c->dst, 0, c->bytes);
}

static void cpu_copy(struct Stream *s, void *dst, const void *src, size_t bytes) {
    CHECK(src, "copy of %zu bytes from nowhere", bytes);
    struct CopyOperands call = {dst, src, bytes};
    queue_push(s, "copy", run_copy, &call, sizeof call);
}

static void cpu_zero(struct Stream *s, void *dst, size_t bytes) {
    struct CopyOperands call = {dst, NULL, bytes};
    queue_push(s, "zero", run_copy, &call, sizeof call);
}

struct HostCall {
    DeviceCall *call;
    _Alignas(16) unsigned char args[DEVICE_CALL_BYTES];
};

static void run_host_call(struct Cpu *cpu, const void *args) {
    (void)cpu;
    const struct HostCall *c = args;
    c->call(c->args);
}

static void cpu_call(struct Stream *s, DeviceCall *call, const void *args, size_t bytes) {
    CHECK(bytes <= DEVICE_CALL_BYTES, "%zu bytes of arguments", bytes);
    struct HostCall c = {.call = call};
    if (bytes) // else args may be NULL, which memcpy does not take
        memcpy(c.args, args, bytes);
    queue_push(s, "call", run_host_call, &c, sizeof c);
}

static struct Event *cpu_event_open(struct Device *d) {
    (void)d;
    return event_open();
}

static void cpu_close(struct Device *d) {
    struct Cpu *cpu = (struct Cpu *)d;
    for (int q = 0; q < NQUEUE; q++)
        queue_sync(cpu->streams[q]);
    for (int q = 0; q < NQUEUE; q++)
        queue_close(cpu->streams[q]);
    matmul_cache_close(cpu->matmuls);
    free(cpu);
}

static const struct DeviceOps cpu_ops = {
    .alloc = cpu_alloc,
    .free = cpu_free,
    .alloc_host = cpu_alloc_host,
    .free_host = cpu_free_host,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .call = cpu_call,
    .event_open = cpu_event_open,
    .event_close = event_close,
    .record = event_record,
    .wait = event_wait,
    .event_done = event_done,
    .sync_event = event_sync,
    .sync_stream = queue_sync,
    .close = cpu_close,
};

// Makes freed memory leave the process. By default malloc raises the size of pieces that do so to
// 32 MiB as they come and go, and keeps smaller ones: a measurement's scratch would never leave.
static void return_freed_memory_at_once(void) {
    enum { MMAP_BYTES = 128 << 10 }; // malloc's own initial limit
    mallopt(M_MMAP_THRESHOLD, MMAP_BYTES);
}

// The used part of a thread's stack, and the head of the arena that malloc opens for it.
enum { THREAD_BYTES = 64 << 10 };

size_t device_own_bytes_cpu(const struct Device *d) {
    size_t threads = NQUEUE + (size_t)d->threads - 1;
    return NQUEUE * queue_bytes() + threads * THREAD_BYTES;
}

int device_open_cpu(struct Device **out, int threads, const char *kernels, struct Error *e) {
    CHECK(threads >= 1, "%d threads", threads);
    const struct Kernels *table;
    int err = cpu_kernels(kernels, &table, e);
    if (err)
        return err;
    return_freed_memory_at_once();
    struct Cpu *cpu = base_alloc_zeroed(sizeof *cpu);
    cpu->device.ops = &cpu_ops;
    cpu->device.kernels = table;
    cpu->device.name = "cpu";
    cpu->device.threads = threads;
    cpu->device.is_host = true;
    cpu->device.calls_may_wait = true;
    cpu->device.busy_rows = 2048;
    cpu->device.piece_bytes = (size_t)64 << 20; // small enough for a cache to help
    cpu->device.piece_rows = 1;
    cpu->matmuls = matmul_cache_open(threads, cpu_kernels_dot_bf16(table));
    for (int q = 0; q < NQUEUE; q++)
        cpu->device.queue[q] = cpu->streams[q] = queue_open(cpu, (enum Queue)q);
    *out = &cpu->device;
    return 0;
}

void device_set_delay(struct Device *d, enum Queue q, struct QueueDelay delay) {
    queue_set_delay(d->queue[q], delay);
}
