// Accounted memory: see tier.h.
#include "kernels/tier.h"

#include <errno.h>
#include <string.h>

static const char *const tag_names[NTAG] = {"parameters",  "gradients", "optimizer",
                                            "activations", "workspace", "communication"};

enum { TIER_ALIGN = 64 };

const char *tag_name(enum Tag tag) {
    return tag_names[tag];
}

void tier_init(struct Tier *t, const char *name, struct Device *device, size_t capacity) {
    *t = (struct Tier){.name = name, .device = device, .capacity = capacity};
}

int tier_alloc(struct Tier *t, enum Tag tag, const char *purpose, size_t bytes, struct Block *out,
               struct Error *e) {
    bytes = round_up(bytes, TIER_ALIGN);
    *out = (struct Block){0};
    if (bytes > t->capacity - t->total)
        return error_set(e, -ENOMEM,
                         "%s memory: %s (%s) needs %zu bytes, but %zu of %zu bytes are taken",
                         t->name, purpose, tag_names[tag], bytes, t->total, t->capacity);
    void *mem = NULL;
    if (t->device && bytes) {
        mem = t->device->ops->alloc(t->device, bytes);
        if (!mem)
            return error_set(e, -ENOMEM, "%s memory: the machine has no %zu bytes more for %s (%s)",
                             t->name, bytes, purpose, tag_names[tag]);
    }
    t->used[tag] += bytes;
    t->most[tag] = size_max(t->most[tag], t->used[tag]);
    t->total += bytes;
    t->peak = size_max(t->peak, t->total);
    *out = (struct Block){t, tag, bytes, mem};
    return 0;
}

void tier_free(struct Block *b) {
    if (!b->tier)
        return;
    if (b->mem)
        b->tier->device->ops->free(b->tier->device, b->mem, b->bytes);
    b->tier->used[b->tag] -= b->bytes;
    b->tier->total -= b->bytes;
    *b = (struct Block){0};
}
