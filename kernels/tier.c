// Accounted memory: see tier.h.
#include "kernels/tier.h"

#include "kernels/tier_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const tag_names[NTAG] = {"parameters",  "gradients", "optimizer",
                                            "activations", "workspace", "communication"};

static const char *const tier_names[NTIER] = {"device", "cpu", "nvme"};
static const size_t tier_align[NTIER] = {64, 64, 4096};

const char *tag_name(enum Tag tag) {
    return tag_names[tag];
}

const char *tier_name(enum TierKind kind) {
    return tier_names[kind];
}

void tier_init(struct Tier *t, enum TierKind kind, struct Device *device, size_t capacity) {
    *t = (struct Tier){.kind = kind, .device = device, .capacity = capacity};
}

// Returns `bytes` of the tier's memory, or NULL.
static void *alloc_bytes(const struct Tier *t, size_t bytes) {
    if (t->kind == TIER_DEVICE)
        return t->device->ops->alloc(t->device, bytes);
    return t->device->ops->alloc_host(t->device, bytes);
}

static void free_bytes(const struct Block *b) {
    struct Device *d = b->tier->device;
    if (b->tier->kind == TIER_DEVICE)
        d->ops->free(d, b->mem, b->bytes);
    else
        d->ops->free_host(d, b->mem);
}

// ---- the log ----

static void log_block(const struct Block *b, const char *purpose) {
    struct BlockLog *log = b->tier->log;
    if (!log || !b->bytes)
        return;
    log->block = base_grow(log->block, log->n, &log->room, sizeof *log->block, "blocks of memory");
    struct LoggedBlock *logged = &log->block[log->n++];
    *logged = (struct LoggedBlock){b->tier->kind, b->tag,         b->bytes, b->mem,
                                   b->offset,     base_seconds(), 0,        ""};
    snprintf(logged->purpose, sizeof logged->purpose, "%s", purpose);
}

static void log_freed(const struct Block *b) {
    struct BlockLog *log = b->tier->log;
    for (size_t i = 0; log && i < log->n; i++) {
        struct LoggedBlock *l = &log->block[i];
        if (!l->freed && l->kind == b->tier->kind && l->tag == b->tag && l->mem == b->mem &&
            l->offset == b->offset && l->bytes == b->bytes)
            l->freed = base_seconds();
    }
}

void block_log_close(struct BlockLog *log) {
    free(log->block);
    *log = (struct BlockLog){0};
}

int tier_alloc(struct Tier *t, enum Tag tag, const char *purpose, size_t bytes, struct Block *out,
               struct Error *e) {
    const char *name = tier_name(t->kind);
    bytes = round_up(bytes, tier_align[t->kind]);
    *out = (struct Block){0};
    if (bytes > t->capacity - t->total)
        return error_set(
            e, -ENOMEM, E_TIER_FULL,
            "%s memory: %s (%s) needs %zu bytes, but %zu of %zu bytes are taken; raise "
            "%s, lower --batch, or give --fit auto",
            name, purpose, tag_names[tag], bytes, t->total, t->capacity,
            t->kind == TIER_DEVICE ? "--device-mem" : "--host-mem or --host-mem-per-rank");
    void *mem = tier_is_dry(t) && bytes ? (void *)tier_align[t->kind] : NULL;
    if (t->device && bytes) {
        mem = alloc_bytes(t, bytes);
        if (!mem)
            return error_set(e, -ENOMEM, E_MEMORY_REFUSED,
                             "%s memory: cannot allocate %zu bytes for %s (%s); end other "
                             "programs, lower --batch, or give --fit auto",
                             name, bytes, purpose, tag_names[tag]);
    }
    *out = (struct Block){t, tag, bytes, mem, t->end[tag]};
    if (mem && t->device && t->kind != TIER_DEVICE)
        tier_check_add(t->device, mem, bytes, name, purpose);
    t->used[tag] += bytes;
    t->most[tag] = size_max(t->most[tag], t->used[tag]);
    t->total += bytes;
    t->peak = size_max(t->peak, t->total);
    t->end[tag] += bytes;
    log_block(out, purpose);
    return 0;
}

void tier_free(struct Block *b) {
    if (!b->tier)
        return;
    log_freed(b);
    bool is_real = b->mem && b->tier->device;
    if (is_real && b->tier->kind != TIER_DEVICE)
        tier_check_remove(b->tier->device, b->mem);
    if (is_real)
        free_bytes(b);
    b->tier->used[b->tag] -= b->bytes;
    b->tier->total -= b->bytes;
    *b = (struct Block){0};
}
