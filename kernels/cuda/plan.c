// A GPU that is not present, for plans: a device without memory and queues, which only answers how
// much scratch kernels need. Every build has it. Called by device_open_cuda.
#include "kernels/cuda/work.h"

#include <stdlib.h>

// Returns an event that is never recorded; only its address counts.
static struct Event *plan_event_open(struct Device *d) {
    (void)d;
    return base_alloc_zeroed(sizeof(void *));
}
static void plan_event_close(struct Event *e) {
    free(e);
}
static void plan_sync(struct Stream *s) {
    (void)s;
}
static void plan_close(struct Device *d) {
    free(d);
}

static const struct DeviceOps plan_ops = {
    .event_open = plan_event_open,
    .event_close = plan_event_close,
    .sync_stream = plan_sync,
    .close = plan_close,
};

// No kernels, only their scratch sizes.
static const struct Kernels plan_kernels = {.name = "cuda",
#define X(op, Args) .op##_work = cuda_##op##_work,
                                            KERNEL_WORK_LIST(X)
#undef X
};

struct Device *plan_device_open(void) {
    struct Device *d = base_alloc(sizeof *d);
    *d = (struct Device){.ops = &plan_ops,
                         .kernels = &plan_kernels,
                         .name = "cuda",
                         .threads = 1,
                         .piece_bytes = GPU_PIECE_BYTES,
                         .piece_rows = GPU_PIECE_ROWS};
    return d;
}
