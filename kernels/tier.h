// Accounted memory: every buffer of a run lies in a tier and says what it is for.
//
// A tier is a place for bytes: the device's memory, the host's, later a file on NVMe. Each has a
// capacity (a flag can set it, so a laptop can play a card of 16 GB) and counts what it holds by
// tag. A tier can be opened dry: then it counts and allocates nothing. The planner runs the same
// set-up code over dry tiers, so what is predicted and what is allocated cannot drift apart.
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

struct Tier {
    const char *name;      // "device", "cpu", "nvme"
    struct Device *device; // whose memory it is; NULL: a dry tier
    size_t capacity;       // bytes; SIZE_MAX: as much as there is
    size_t used[NTAG];     // bytes now
    size_t most[NTAG];     // the most there ever were, by tag
    size_t total, peak;    // bytes now, and the most there ever were
};

// A piece of a tier. The tier owns the memory until tier_free.
struct Block {
    struct Tier *tier;
    enum Tag tag;
    size_t bytes;
    void *mem; // NULL in a dry tier
};

void tier_init(struct Tier *t, const char *name, struct Device *device, size_t capacity);

// Takes `bytes` (rounded up to 64) for `tag`. `purpose` names the buffer in the error line.
// Errors: -ENOMEM when the capacity or the machine's memory does not hold it.
int tier_alloc(struct Tier *t, enum Tag tag, const char *purpose, size_t bytes, struct Block *out,
               struct Error *e);
void tier_free(struct Block *b); // of a zeroed Block: nothing

#endif
