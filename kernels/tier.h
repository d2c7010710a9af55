// Accounted memory: every buffer of a run belongs to a tier and says what it is for.
//
// A tier is a place for bytes: the device's memory, the host's, files on NVMe. Each has a capacity
// (a flag can set it, so a laptop can play a card of 16 GB) and counts what it holds by tag. A tier
// can be opened dry: then it counts and allocates nothing, and its blocks lie at an address that
// nobody follows. The planner runs the same code over dry tiers, so what is predicted and what is
// done cannot drift apart.
//
// With --device cpu the device's memory and the host's are the same chips, and two tiers all the
// same: what is offloaded is out of reach for the device's kernels until it is copied.
#ifndef KERNELS_TIER_H
#define KERNELS_TIER_H
#include "kernels/device.h"

enum Tag {
    TAG_PARAM,      // weights in the dtype of the forward pass
    TAG_GRAD,       // gradients
    TAG_OPTIMIZER,  // fp32 master weights and moments
    TAG_ACTIVATION, // what the forward pass keeps for the backward pass, and the batch
    TAG_WORKSPACE,  // scratch of kernels, logits of one row chunk
    TAG_COMM,       // buffers of collectives
    NTAG
};

const char *tag_name(enum Tag tag);

// Nearest to the computation first.
enum TierKind { TIER_DEVICE, TIER_CPU, TIER_NVME, NTIER };

const char *tier_name(enum TierKind kind); // "device", "cpu", "nvme"

struct Tier {
    enum TierKind kind;
    struct Device *device; // whose memory it is, or whose host's; NULL: a dry tier, or files
    size_t capacity;       // bytes; SIZE_MAX: as much as there is
    uint64_t end[NTAG];    // NVMe: of the file that each tag has; its blocks follow one another
    size_t used[NTAG];     // bytes now
    size_t most[NTAG];     // the most there ever were, by tag
    size_t total, peak;    // bytes now, and the most there ever were
};

// A piece of a tier. The tier owns the memory until tier_free.
struct Block {
    struct Tier *tier;
    enum Tag tag;
    size_t bytes;
    void *mem;       // NULL on NVMe
    uint64_t offset; // NVMe: where it begins in its tag's file
};

static inline bool tier_is_dry(const struct Tier *t) {
    return t->kind != TIER_NVME && !t->device;
}

void tier_init(struct Tier *t, enum TierKind kind, struct Device *device, size_t capacity);

// Takes `bytes` (rounded up to 64; on NVMe to 4096, what a disk reads and writes at once) for
// `tag`. Host memory is such as the device can copy to and from while it computes (alloc_host);
// what it holds is undefined, like the device's. `purpose` names the buffer in the error line.
// Errors: -ENOMEM when the capacity or the machine's memory does not hold it.
int tier_alloc(struct Tier *t, enum Tag tag, const char *purpose, size_t bytes, struct Block *out,
               struct Error *e);
void tier_free(struct Block *b); // of a zeroed Block: nothing

#endif
