// Token batches by turns: see feed.h.
//
//   in -> compute   tokens arrived  a unit reads tokens that have not come yet
//   in -> host      tokens arrived  the host overwrites tokens that have not been sent yet
//   compute -> in   tokens drained  the next batch overwrites tokens that are still read
#include "zero/run/feed.h"

#include "kernels/trace.h"

#include <stdlib.h>

static struct FeedSlot *slot_of(struct Feed *f, uint64_t count) {
    return &f->slot[count % FEED_SLOTS];
}

size_t feed_host_bytes(size_t tokens) {
    return FEED_SLOTS * 2 * tokens * sizeof(int32_t);
}

int feed_open(struct Feed *f, struct Device *d, size_t tokens, struct Tier *tier, struct Error *e) {
    *f = (struct Feed){.device = d, .tokens = tokens};
    for (int i = 0; i < FEED_SLOTS; i++) {
        struct FeedSlot *s = &f->slot[i];
        size_t bytes = 2 * tokens * sizeof *s->host;
        s->host =
            tier->device ? device_alloc_host(d, bytes) : NULL; // none where all is only counted
        s->arrived = device_open_event(d, "tokens arrived");
        s->drained = device_open_event(d, "tokens drained");
        int err = tier_alloc(tier, TAG_ACTIVATION, "a batch of tokens", bytes, &s->block, e);
        if (err)
            return err;
    }
    return 0;
}

void feed_close(struct Feed *f) {
    for (int i = 0; f->device && i < FEED_SLOTS; i++) {
        struct FeedSlot *s = &f->slot[i];
        tier_free(&s->block);
        device_free_host(f->device, s->host);
        device_close_event(f->device, s->arrived);
        device_close_event(f->device, s->drained);
    }
    *f = (struct Feed){0};
}

int32_t *feed_host(struct Feed *f) {
    CHECK(f->sent - f->taken < FEED_SLOTS, "both slots hold batches that were not taken");
    struct FeedSlot *s = slot_of(f, f->sent);
    double begin = base_seconds();
    device_sync_event(f->device, s->arrived);
    trace_host_waited(f->device, "tokens arrived", begin);
    return s->host;
}

void feed_send(struct Feed *f) {
    struct FeedSlot *s = slot_of(f, f->sent++);
    device_wait(f->device, QUEUE_IN, s->drained);
    device_copy(f->device, QUEUE_IN, s->block.mem, s->host, 2 * f->tokens * sizeof *s->host);
    device_record(f->device, QUEUE_IN, s->arrived);
}

const int32_t *feed_take(struct Feed *f) {
    CHECK(f->taken < f->sent, "no batch was sent");
    struct FeedSlot *s = slot_of(f, f->taken);
    device_wait(f->device, QUEUE_COMPUTE, s->arrived);
    return s->block.mem;
}

void feed_done(struct Feed *f) {
    device_record(f->device, QUEUE_COMPUTE, slot_of(f, f->taken++)->drained);
}

int feed_read(struct Feed *f, BatchReader *read, void *context, uint64_t first, size_t n,
              struct Error *e) {
    int32_t *inputs = feed_host(f);
    struct Batch batch = {.inputs = inputs, .targets = inputs + f->tokens};
    int err = read(context, first, n, &batch, e);
    if (!err)
        feed_send(f);
    return err;
}
