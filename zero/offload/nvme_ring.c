// Sends requests to the disk by io_uring: two rings that the kernel and the process share, one of
// requests and one of completions, so that one system call can pass many of them each way. Axboe,
// "Efficient IO with io_uring", 2019, sections 4 and 5; registered buffers are its section 8
// ("fixed" buffers).
//
// Called by nvme_move.c through struct NvmeDisk. nvme_ring_none.c replaces this file in a build
// without liburing.
#include "zero/offload/nvme_disk.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct Ring {
    struct NvmeQueue base;
    struct io_uring ring;
};

// Returns what the user may do about an error.
static const char *refusal_advice(int code) {
    switch (-code) {
    case EMFILE:
        return "raise `ulimit -n`, or use fewer --ranks";
    case ENFILE:
        return "the machine has too many files open: raise /proc/sys/fs/file-max";
    case ENOMEM:
        return "raise `ulimit -l`, or lower --nvme-depth";
    default:
        return "write 0 to /proc/sys/kernel/io_uring_disabled, let the container's seccomp profile "
               "allow it, or offload to cpu";
    }
}

static int ring_open(const struct NvmeDisk *disk, size_t depth, struct NvmeQueue **out,
                     struct Error *e) {
    struct Ring *r = base_alloc_zeroed(sizeof *r);
    r->base.disk = disk;
    int code = io_uring_queue_init((unsigned)depth, &r->ring, 0);
    if (code) {
        free(r);
        return error_set(e, code, E_NVME_RING,
                         "the NVMe tier needs io_uring, but the kernel refuses it: %s; %s",
                         strerror(-code), refusal_advice(code));
    }
    *out = &r->base;
    return 0;
}

static void ring_close(struct NvmeQueue *q) {
    struct Ring *r = (struct Ring *)q;
    io_uring_queue_exit(&r->ring);
    free(r);
}

static int ring_pin(struct NvmeQueue *q, const struct iovec *ranges, unsigned count) {
    return io_uring_register_buffers(&((struct Ring *)q)->ring, ranges, count);
}

static void ring_submit(struct NvmeQueue *q, const struct NvmeRequest *r) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&((struct Ring *)q)->ring);
    CHECK(sqe, "more requests than the ring was opened for");
    unsigned bytes = (unsigned)r->bytes;
    if (r->buffer >= 0 && r->write)
        io_uring_prep_write_fixed(sqe, r->fd, r->mem, bytes, r->offset, r->buffer);
    else if (r->buffer >= 0)
        io_uring_prep_read_fixed(sqe, r->fd, r->mem, bytes, r->offset, r->buffer);
    else if (r->write)
        io_uring_prep_write(sqe, r->fd, r->mem, bytes, r->offset);
    else
        io_uring_prep_read(sqe, r->fd, r->mem, bytes, r->offset);
    sqe->user_data = r->name;
}

enum { REFUSALS = 10000 }; // by the kernel, a millisecond apart, before giving up

// True if the kernel is out of memory for a moment, or a signal came: requests stay in the ring.
static bool is_temporary(int code) {
    return code == -EINTR || code == -EAGAIN || code == -EBUSY || code == -ENOMEM;
}

static struct NvmeDone ring_wait(struct NvmeQueue *q) {
    struct io_uring *ring = &((struct Ring *)q)->ring;
    struct io_uring_cqe *cqe = NULL;
    for (int refused = 0; io_uring_peek_cqe(ring, &cqe) != 0 || io_uring_sq_ready(ring);) {
        // Submits even if a completion is there already: requests must not rest while others are
        // taken in.
        int code = io_uring_submit_and_wait(ring, cqe ? 0 : 1);
        if (code < 0 && cqe)
            break; // the next wait meets the error again
        if (code < 0 && (!is_temporary(code) || ++refused == REFUSALS))
            return (struct NvmeDone){NVME_QUEUE, code};
        if (code < 0 && code != -EINTR)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    struct NvmeDone done = {cqe->user_data, cqe->res};
    io_uring_cqe_seen(ring, cqe);
    return done;
}

const struct NvmeDisk nvme_io_uring = {
    .open = ring_open,
    .close = ring_close,
    .pin = ring_pin,
    .submit = ring_submit,
    .wait = ring_wait,
};
