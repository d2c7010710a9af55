// Accounted memory: every buffer of a run belongs to a tier and has a tag for its purpose.
//
// A tier is a kind of memory: the device's, the host's, files on NVMe. Each has a capacity (a flag
// can set it, so a laptop can simulate a card of 16 GB) and counts its bytes by tag. A tier can be
// opened dry: then it counts and allocates nothing, and its blocks have an address that is never
// followed. The planner runs the same code over dry tiers, so predictions cannot drift apart from
// runs.
//
// With --device cpu, device and host memory are the same chips but still two tiers: the device's
// kernels must not use offloaded state until it is copied.
#ifndef KERNELS_TIER_H
#define KERNELS_TIER_H
#include "kernels/device.h"

enum Tag {
    TAG_PARAM,      // weights in the dtype of the forward pass
    TAG_GRAD,       // gradients
    TAG_OPTIMIZER,  // fp32 master weights and moments
    TAG_ACTIVATION, // kept by the forward pass for the backward pass, and the batch
    TAG_WORKSPACE,  // scratch of kernels, logits of one row chunk
    TAG_COMM,       // buffers of collectives
    NTAG
};

const char *tag_name(enum Tag tag);

// The nearest to the computation first.
enum TierKind { TIER_DEVICE, TIER_CPU, TIER_NVME, NTIER };

const char *tier_name(enum TierKind kind); // "device", "cpu", "nvme"

// The blocks that tiers have had since a log was opened, for traces; also those that are freed.
struct LoggedBlock {
    enum TierKind kind;
    enum Tag tag;
    size_t bytes;
    const void *mem;
    uint64_t offset;        // NVMe: as in struct Block
    double reserved, freed; // base_seconds; freed 0: it exists
    char purpose[64];
};
struct BlockLog {
    size_t n, room;
    struct LoggedBlock *block;
};
void block_log_close(struct BlockLog *log); // zeroed: does nothing

struct Tier {
    enum TierKind kind;
    struct Device *device; // whose memory, or whose host's memory, it is; NULL: dry, or files
    size_t capacity;       // bytes; SIZE_MAX: no limit
    uint64_t end[NTAG];    // NVMe: end of each tag's file; its blocks follow one another
    size_t used[NTAG];     // bytes now
    size_t most[NTAG];     // the peak, by tag
    size_t total, peak;    // bytes now, and their peak
    struct BlockLog *log;  // where its blocks are listed; NULL: nowhere
};

// A piece of a tier. The tier owns the memory until tier_free.
struct Block {
    struct Tier *tier;
    enum Tag tag;
    size_t bytes;
    void *mem;       // NULL on NVMe, and if bytes is 0
    uint64_t offset; // NVMe: where the block begins in its tag's file
};

static inline bool tier_is_dry(const struct Tier *t) {
    return t->kind != TIER_NVME && !t->device;
}

void tier_init(struct Tier *t, enum TierKind kind, struct Device *device, size_t capacity);

// Allocates `bytes` (rounded up to 64; on NVMe to 4096, the size of a disk's blocks) for `tag`. The
// device can copy to and from host memory while it computes (alloc_host); its contents are
// undefined, like the device's. `purpose` names the buffer in the error line. Errors: -ENOMEM when
// the capacity or the machine's memory is exceeded.
int tier_alloc(struct Tier *t, enum Tag tag, const char *purpose, size_t bytes, struct Block *out,
               struct Error *e);
void tier_free(struct Block *b); // of a zeroed Block: does nothing

#endif
