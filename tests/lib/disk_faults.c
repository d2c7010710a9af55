// The disk with bad days: see disk_faults.h. A request that shall not reach the real disk waits in
// a list of those that are done.
#include "tests/lib/disk_faults.h"

#include "kernels/kernels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { UNIT = 4096 };

struct Fate {
    struct NvmeRequest request;
    size_t moved; // of it, by the real disk
    int result;   // that is told in place of the real one; NOT_SET: the real one
    double due;
};
enum { NOT_SET = 1 << 30 };

struct FaultQueue {
    struct NvmeQueue base;
    struct DiskFaults *faults;
    struct NvmeQueue *real;
    struct Fate *fate;          // (depth), by the request's name
    uint64_t *done;             // (ndone): names
    size_t depth, ndone, nreal; // nreal: that the real disk is at
};

static int faults_open(const struct NvmeDisk *disk, size_t depth, struct NvmeQueue **out,
                       struct Error *e) {
    struct FaultQueue *q = base_alloc_zeroed(sizeof *q);
    q->base.disk = disk;
    q->faults = (struct DiskFaults *)disk; // its first member
    q->depth = depth;
    q->fate = base_alloc_zeroed(depth * sizeof *q->fate);
    q->done = base_alloc_zeroed(depth * sizeof *q->done);
    *out = &q->base;
    int code = nvme_io_uring.open(&nvme_io_uring, depth, &q->real, e);
    CHECK(code == 0, "%s", e->text);
    return 0;
}

static void faults_close(struct NvmeQueue *base) {
    struct FaultQueue *q = (struct FaultQueue *)base;
    q->real->disk->close(q->real);
    free(q->fate);
    free(q->done);
    free(q);
}

static int faults_pin(struct NvmeQueue *base, const struct iovec *ranges, unsigned count) {
    struct FaultQueue *q = (struct FaultQueue *)base;
    if (q->faults->refuse_pin)
        return -ENOMEM;
    q->faults->pins++;
    return q->real->disk->pin(q->real, ranges, count);
}

static bool chance(uint64_t number, uint64_t what, double share) {
    return share > 0 && rng_uniform(what, number) < share;
}

// When a disk of this speed would be done with it.
static double due(struct DiskFaults *f, size_t bytes) {
    double now = base_seconds(), free_at = atomic_load(&f->free_at), then;
    if (!(f->bytes_per_second > 0))
        return now;
    do
        then = (free_at > now ? free_at : now) + (double)bytes / f->bytes_per_second;
    while (!atomic_compare_exchange_weak(&f->free_at, &free_at, then));
    return then;
}

static void decide(struct DiskFaults *f, struct Fate *fate) {
    const struct NvmeRequest *r = &fate->request;
    uint64_t number = (uint64_t)f->requests++;
    fate->moved = r->bytes;
    fate->result = NOT_SET;
    bool fails = (int64_t)number == f->error_at || chance(number, 1, f->error_share);
    if (fails && (r->write || !f->error_in_writes_only)) {
        fate->moved = 0;
        fate->result = -f->error;
    } else if (f->short_bytes < r->bytes && chance(number, 2, f->short_share)) {
        fate->moved = f->short_bytes - f->short_bytes % UNIT;
        fate->result = (int)f->short_bytes;
    }
    fate->due = due(f, fate->moved);
}

static void faults_submit(struct NvmeQueue *base, const struct NvmeRequest *r) {
    struct FaultQueue *q = (struct FaultQueue *)base;
    struct DiskFaults *f = q->faults;
    CHECK(r->name < q->depth && r->bytes, "request %llu of %zu bytes", (unsigned long long)r->name,
          r->bytes);
    // What a disk would refuse, whatever this one is.
    CHECK(r->offset % UNIT == 0 && r->bytes % UNIT == 0 && (uintptr_t)r->mem % 512 == 0,
          "not aligned: %zu bytes at %llu", r->bytes, (unsigned long long)r->offset);
    struct Fate *fate = &q->fate[r->name];
    fate->request = *r;
    decide(f, fate);
    f->with_buffer += r->buffer >= 0;
    int under_way = ++f->under_way, most = f->most_under_way;
    while (under_way > most && !atomic_compare_exchange_weak(&f->most_under_way, &most, under_way))
        ;
    if (fate->moved == 0) {
        q->done[q->ndone++] = r->name;
        return;
    }
    struct NvmeRequest part = *r;
    part.bytes = fate->moved;
    q->nreal++;
    q->real->disk->submit(q->real, &part);
}

static struct NvmeDone faults_wait(struct NvmeQueue *base) {
    struct FaultQueue *q = (struct FaultQueue *)base;
    struct NvmeDone done;
    if (q->faults->break_at != FAULT_NEVER && q->faults->waits++ >= q->faults->break_at) {
        for (; q->nreal; q->nreal--) // else it would write where others read by then
            q->real->disk->wait(q->real);
        return (struct NvmeDone){NVME_QUEUE, -q->faults->error};
    }
    q->nreal -= !q->ndone;
    if (q->ndone)
        done.name = q->done[--q->ndone];
    else
        done = q->real->disk->wait(q->real);
    struct Fate *fate = &q->fate[done.name];
    const struct NvmeRequest *r = &fate->request;
    if (fate->result != NOT_SET)
        done.result = fate->result;
    if (!r->write && fate->moved < r->bytes)
        memset((char *)r->mem + fate->moved, 0xee, r->bytes - fate->moved);
    double left = fate->due - base_seconds();
    if (left > 0)
        nanosleep(&(struct timespec){(time_t)left, (long)((left - (double)(time_t)left) * 1e9)},
                  NULL);
    q->faults->under_way--;
    return done;
}

void disk_faults_init(struct DiskFaults *f) {
    *f = (struct DiskFaults){
        .disk = {faults_open, faults_close, faults_pin, faults_submit, faults_wait},
        .error_at = FAULT_NEVER,
        .break_at = FAULT_NEVER,
    };
}
