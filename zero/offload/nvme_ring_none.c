// Replaces nvme_ring.c in a build without liburing: the NVMe tier is refused.
#include "zero/offload/nvme_disk.h"

#include <errno.h>

static int none_open(const struct NvmeDisk *disk, size_t depth, struct NvmeQueue **out,
                     struct Error *e) {
    (void)disk, (void)depth, (void)out;
    return error_set(e, -ENOTSUP, E_BUILD_LACKS,
                     "the NVMe tier needs io_uring, but this program was built without liburing: "
                     "install liburing-dev and build again, or offload to cpu");
}

// Nothing else can be called, since no queue is ever opened.
const struct NvmeDisk nvme_io_uring = {.open = none_open};
