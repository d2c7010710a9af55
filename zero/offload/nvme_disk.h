// What carries the requests of the NVMe tier: io_uring, or in tests something around it that loses,
// shortens, delays or spoils what goes through.
//
// A queue holds up to `depth` requests. submit hands one over and returns at once; it may rest
// until the next wait, which returns one completion, in any order. Nothing here knows of files,
// blocks or alignment: nvme_move.c does, and it trusts no result.
#ifndef ZERO_OFFLOAD_NVME_DISK_H
#define ZERO_OFFLOAD_NVME_DISK_H
#include "zero/offload/nvme.h"

#include <sys/uio.h>

struct NvmeRequest {
    bool write;
    int fd;
    int buffer; // which of the pinned ranges holds mem; -1: none
    void *mem;
    size_t bytes;
    uint64_t offset;
    uint64_t name; // comes back with the completion
};

struct NvmeDone {
    uint64_t name; // NVME_QUEUE: no request has ended, the queue itself has failed, for good
    int result;    // bytes, or -errno
};
#define NVME_QUEUE UINT64_MAX

// Every disk's own queue begins with this.
struct NvmeQueue {
    const struct NvmeDisk *disk;
};

struct NvmeDisk {
    // Errors: -errno; -ENOTSUP where the program was built without io_uring.
    int (*open)(const struct NvmeDisk *disk, size_t depth, struct NvmeQueue **out, struct Error *e);
    void (*close)(struct NvmeQueue *q); // with nothing under way
    // Pins memory: from now on request.buffer counts in `ranges`. Once. Errors: -errno.
    int (*pin)(struct NvmeQueue *q, const struct iovec *ranges, unsigned count);
    void (*submit)(struct NvmeQueue *q, const struct NvmeRequest *r);
    struct NvmeDone (*wait)(struct NvmeQueue *q);
};

extern const struct NvmeDisk nvme_io_uring; // nvme_ring.c

#endif
