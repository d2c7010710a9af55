// Operations for state that is not kept on the device, called where the core would otherwise have
// to ask. The core's own (open.c) do only what the device's memory needs; zero/offload/attach.c has
// the others.
#ifndef ZERO_BACKING_H
#define ZERO_BACKING_H
#include "kernels/base.h"

struct Block;
struct Device;
struct Visit;
struct Zero;

struct BackingOps {
    // Group g is being opened: may change its tiers and the part of its gradient, adds hops.
    void (*attach)(struct Zero *, int g);
    // Allocates the rest of its memory, after all groups; and closes. Errors: -ENOMEM.
    int (*open)(struct Zero *, struct Error *);
    void (*close)(struct Zero *);
    // A visit is about to read group g's weights, or fetch them: installs new ones first
    // (host_install_due of offload/update.c).
    void (*weights_due)(struct Zero *, int g);
    // Called around a unit: they handle what it keeps for its backward pass, if that leaves the
    // device (offload/activations.c), and gradients whose sum does (offload/gradients.c).
    // before_unit may come twice before a forward visit: the first call reserves its slot.
    void (*before_unit)(struct Zero *, const struct Visit *);
    void (*after_unit)(struct Zero *, const struct Visit *);
    // At a step's end: its norm and settings are on their way to the host; and all is queued
    // (host_step_reported and host_step_queued of offload/update.c, which begin the next updates).
    void (*step_reported)(struct Zero *);
    void (*step_queued)(struct Zero *);
    // Between steps. sync waits for all queues; finish also for all updates that are due.
    // install_new_weights queues what brings the host's new weights into use, also late ones.
    void (*sync)(struct Zero *);
    void (*finish)(struct Zero *);
    void (*install_new_weights)(struct Zero *);
    // Initial values of a group; parameters := master weights; what follows when all groups have
    // that (state.c). Copies a block's bytes to memory of device_alloc_host; to_block: from it.
    void (*init)(struct Zero *, int g);
    void (*store)(struct Zero *, int g, bool late);
    void (*after_store)(struct Zero *, int g, bool late);
    void (*copy)(struct Zero *, const struct Block *, size_t offset, void *mem, size_t bytes,
                 bool to_block);
    bool (*is_late)(const struct Zero *); // an update's weights are not in use yet
};

struct Backing {
    const struct BackingOps *ops;
    struct Device *host; // a second device, whose queues may wait for the core's marks; or NULL
    void *context;       // of ops
};
extern const struct Backing zero_on_device; // the core's own

#endif
