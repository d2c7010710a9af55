// Token batches that use slots in turn: see feed.h.
#include "zero/rank/feed.h"

#include "kernels/trace.h"
#include "zero/settings/settings.h"

#include <stdlib.h>

static struct FeedSlot *slot_of(const struct Feed *f, uint64_t count) {
    return &f->slot[count % f->slots];
}

static struct Feed feed_of(const struct RankSettings *s) {
    const struct ModelConfig *c = &s->model;
    size_t window = c->window < c->seq_len ? c->window : 0;
    int arrays = s->packed && window            ? FEED_ARRAYS
                 : s->packed || s->cache_tokens ? FEED_FIRST
                                                : FEED_STARTS;
    return (struct Feed){.tokens = s->batch * c->seq_len,
                         .t = c->seq_len,
                         .window = window,
                         .arrays = arrays,
                         .packed = s->packed,
                         .slots = 1 + settings_acts_in_flight(s)};
}

static size_t slot_bytes(const struct Feed *f) {
    return (size_t)f->arrays * f->tokens * sizeof(int32_t);
}

size_t feed_host_bytes(const struct RankSettings *s) {
    struct Feed f = feed_of(s);
    return f.slots * slot_bytes(&f);
}

int feed_open(struct Feed *f, struct Device *d, const struct RankSettings *settings,
              struct Tier *tier, struct Error *e) {
    *f = feed_of(settings);
    f->device = d;
    f->slot = base_alloc_zeroed(f->slots * sizeof *f->slot);
    for (size_t i = 0; i < f->slots; i++) {
        struct FeedSlot *s = &f->slot[i];
        size_t bytes = slot_bytes(f);
        s->host =
            tier->device ? device_alloc_host(d, bytes) : NULL; // none if memory is only counted
        s->arrived = device_open_event(d, "tokens arrived");
        s->drained = device_open_event(d, "tokens drained");
        int err = tier_alloc(tier, TAG_ACTIVATION, "a batch of tokens", bytes, &s->block, e);
        if (err)
            return err;
    }
    return 0;
}

void feed_close(struct Feed *f) {
    for (size_t i = 0; f->device && i < f->slots; i++) {
        struct FeedSlot *s = &f->slot[i];
        tier_free(&s->block);
        device_free_host(f->device, s->host);
        device_close_event(f->device, s->arrived);
        device_close_event(f->device, s->drained);
    }
    free(f->slot);
    *f = (struct Feed){0};
}

int32_t *feed_host(struct Feed *f) {
    CHECK(f->sent - f->done < f->slots, "all slots hold batches that are still needed");
    struct FeedSlot *s = slot_of(f, f->sent);
    double begin = base_seconds();
    device_sync_event(f->device, s->arrived);
    trace_host_waited(f->device, "tokens arrived", begin);
    return s->host;
}

// Fills in each query's first key: that of its window, or its document's if that begins later.
static void fill_first(const struct Feed *f, int32_t *host) {
    const int32_t *starts = host + FEED_STARTS * f->tokens;
    int32_t *first = host + FEED_FIRST * f->tokens;
    for (size_t i = 0; i < f->tokens; i++) {
        size_t t = i % f->t;
        int32_t window = (int32_t)(t < f->window ? 0 : t - f->window + 1);
        first[i] = starts[i] > window ? starts[i] : window;
    }
}

void feed_send(struct Feed *f) {
    struct FeedSlot *s = slot_of(f, f->sent++);
    if (f->arrays > FEED_FIRST)
        fill_first(f, s->host);
    device_wait(f->device, QUEUE_IN, s->drained);
    device_copy(f->device, QUEUE_IN, s->block.mem, s->host, slot_bytes(f));
    device_record(f->device, QUEUE_IN, s->arrived);
}

const int32_t *feed_next(struct Feed *f) {
    CHECK(f->taken < f->sent, "no batch was sent");
    struct FeedSlot *s = slot_of(f, f->taken++);
    device_wait(f->device, QUEUE_COMPUTE, s->arrived);
    return s->block.mem;
}

const int32_t *feed_oldest(const struct Feed *f) {
    CHECK(f->done < f->taken, "no batch was taken");
    return slot_of(f, f->done)->block.mem;
}

void feed_done(struct Feed *f) {
    device_record(f->device, QUEUE_COMPUTE, slot_of(f, f->done++)->drained);
}

int feed_read(struct Feed *f, const struct BatchSource *from, uint64_t first, size_t n,
              struct Error *e) {
    int32_t *host = feed_host(f);
    struct Batch batch = {.inputs = host,
                          .targets = host + FEED_TARGETS * f->tokens,
                          .starts = f->packed ? host + FEED_STARTS * f->tokens : NULL};
    int err = from->read(from->data, first, n, &batch, e);
    if (!err)
        feed_send(f);
    return err;
}
