// The carrier of the NVMe tier's requests: io_uring, or in tests something around it that loses,
// shortens, delays or corrupts what goes through.
//
// A queue holds up to `depth` requests. submit passes one on and returns at once; it may rest until
// the next wait, which returns one completion, in any order. Files, blocks and alignment are
// unknown here: nvme_move.c handles them, and trusts no result.
#ifndef ZERO_OFFLOAD_NVME_DISK_H
#define ZERO_OFFLOAD_NVME_DISK_H
#include "zero/offload/nvme.h"

#include <sys/uio.h>

struct NvmeRequest {
    bool write;
    int fd;
    int buffer; // index of the pinned range that holds mem; -1: none
    void *mem;
    size_t bytes;
    uint64_t offset;
    uint64_t name; // comes back with the completion
};

struct NvmeDone {
    uint64_t name; // NVME_QUEUE: no request has ended, the queue itself has failed for good
    int result;    // bytes, or -errno
};
#define NVME_QUEUE UINT64_MAX

// Every disk's own queue struct begins with this.
struct NvmeQueue {
    const struct NvmeDisk *disk;
};

struct NvmeDisk {
    // Errors: -errno; -ENOTSUP in a build without io_uring.
    int (*open)(const struct NvmeDisk *disk, size_t depth, struct NvmeQueue **out, struct Error *e);
    void (*close)(struct NvmeQueue *q); // with no request under way
    // Pins memory, once: from now on request.buffer is an index in `ranges`. Errors: -errno.
    int (*pin)(struct NvmeQueue *q, const struct iovec *ranges, unsigned count);
    void (*submit)(struct NvmeQueue *q, const struct NvmeRequest *r);
    struct NvmeDone (*wait)(struct NvmeQueue *q);
};

extern const struct NvmeDisk nvme_io_uring; // nvme_ring.c

#endif
