// Moves state between tiers: see move.h. Next: nvme_files.c, the disk.
//
// A disk that fails ends the run, since it held the only copy. The error names the file; the newest
// checkpoint is unaffected.
#include "zero/offload/move.h"

#include <string.h>

void moved_add(struct Moved *to, struct Moved m) {
    to->in += m.in;
    to->out += m.out;
    to->read += m.read;
    to->written += m.written;
}

struct Moved moved_since(struct Moved now, struct Moved before) {
    return (struct Moved){now.in - before.in, now.out - before.out, now.read - before.read,
                          now.written - before.written};
}

// A buffer beyond the list's end is read and written all the same, a little slower.
void move_add_buffer(struct Mover *m, const struct Block *b) {
    if (m->nbuffer < MOVE_BUFFERS)
        m->buffer[m->nbuffer++] = b;
}

void move_open_disk(struct Mover *m, struct Nvme *nvme) {
    m->nvme = nvme;
    for (int i = 0; i < m->nbuffer; i++)
        nvme_register(nvme, m->buffer[i]->mem, m->buffer[i]->bytes);
}

int staging_open(struct Staging *s, struct Mover *m, enum Tag tag, const char *purpose,
                 size_t bytes, struct Tier *cpu, struct Error *e) {
    bool kept = tag == TAG_ACTIVATION;
    mark_open(&s->arrived, kept ? "layer staging arrived" : "staging arrived", m->device, m->host);
    mark_open(&s->drained, kept ? "layer staging drained" : "staging drained", m->device, m->host);
    mark_open(&s->copied, kept ? "layer staging copied" : "staging copied", m->device, m->host);
    mark_open(&s->stored, kept ? "layer staging stored" : "staging stored", m->device, m->host);
    move_add_buffer(m, &s->block);
    return tier_alloc(cpu, tag, purpose, bytes, &s->block, e);
}

void staging_close(struct Staging *s) {
    struct Mark *marks[] = {&s->arrived, &s->drained, &s->copied, &s->stored};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        mark_close(marks[i]);
    tier_free(&s->block);
}

// ---- the disk, in the host's queues ----

_Noreturn static void fail_on_disk_error(const struct Mover *m, const struct Error *e) {
    comm_fail(m->all, e->id, "%s", e->text);
}

struct DiskCall {
    const struct Mover *mover;
    struct MovePieces pieces;
    bool write;
};
_Static_assert(sizeof(struct DiskCall) <= DEVICE_CALL_BYTES, "arguments of a call");

static void run_disk_call(const void *args) {
    const struct DiskCall *c = args;
    struct Error e;
    if (c->write && c->pieces.unless && *c->pieces.unless)
        return;
    int (*transfer)(struct Nvme *, const struct NvmePiece *, int, struct Error *) =
        c->write ? nvme_write : nvme_read;
    if (transfer(c->mover->nvme, c->pieces.piece, c->pieces.n, &e))
        fail_on_disk_error(c->mover, &e);
}

static void queue_disk_call(struct Mover *m, struct Device *d, const struct MovePieces *p,
                            bool write) {
    struct DiskCall c = {.mover = m, .write = write};
    c.pieces = *p; // in the initializer, gcc 12 loses it under AddressSanitizer
    size_t bytes = 0;
    for (int i = 0; i < p->n; i++) {
        struct Moved *moved = &m->moved[p->piece[i].file];
        *(write ? &moved->written : &moved->read) += p->piece[i].bytes;
        bytes += p->piece[i].bytes;
    }
    if (m->watch.queued)
        m->watch.queued(m->watch.context, p, write);
    d->label.what = write ? "write" : "read";
    d->label.bytes = bytes;
    device_call(d, write ? QUEUE_OUT : QUEUE_IN, run_disk_call, &c, sizeof c);
    d->label.what = NULL;
    d->label.bytes = 0;
}

void move_pieces(struct Mover *m, const struct MovePieces *p, bool write) {
    queue_disk_call(m, m->host, p, write);
}

// ---- between a store and the device ----

static struct MovePieces disk_piece(const struct Block *store, size_t offset, void *mem,
                                    size_t bytes) {
    return (struct MovePieces){.piece = {{store->tag, store->offset + offset, mem, bytes}}, .n = 1};
}

static bool store_is_on_disk(const struct Block *store) {
    return store->tier->kind == TIER_NVME;
}

// Returns the bytes of a move that cross the bus.
static size_t bytes_over_bus(const struct Move *v) {
    return v->store->tier->kind == TIER_DEVICE ? 0 : v->bytes;
}

void move_begin(struct Mover *m, const struct Move *v) {
    if (!store_is_on_disk(v->store))
        return;
    struct Staging *s = v->staging;
    struct MovePieces piece = disk_piece(v->store, v->offset, s->block.mem, v->bytes);
    mark_wait(&s->drained, m->host, QUEUE_IN);
    mark_wait(&s->stored, m->host, QUEUE_IN);
    move_pieces(m, &piece, false);
    mark_record(&s->arrived, m->host, QUEUE_IN);
}

// The device's own queue reads from the disk, or writes there, where its memory is the host's.
static void move_directly(struct Mover *m, const struct Move *v, bool write) {
    struct MovePieces piece = disk_piece(v->store, v->offset, v->mem, v->bytes);
    queue_disk_call(m, m->device, &piece, write);
}

void move_in(struct Mover *m, const struct Move *v) {
    struct Device *d = m->device;
    if (store_is_on_disk(v->store) && !v->staging) {
        move_directly(m, v, false);
        return;
    }
    m->moved[v->store->tag].in += bytes_over_bus(v);
    if (!store_is_on_disk(v->store)) {
        device_copy(d, QUEUE_IN, v->mem, (char *)v->store->mem + v->offset, v->bytes);
        return;
    }
    mark_wait(&v->staging->arrived, d, QUEUE_IN);
    device_copy(d, QUEUE_IN, v->mem, v->staging->block.mem, v->bytes);
    mark_record(&v->staging->drained, d, QUEUE_IN);
}

void move_out(struct Mover *m, const struct Move *v) {
    struct Device *d = m->device;
    if (store_is_on_disk(v->store) && !v->staging) {
        move_directly(m, v, true);
        return;
    }
    m->moved[v->store->tag].out += bytes_over_bus(v);
    if (!store_is_on_disk(v->store)) {
        device_copy(d, QUEUE_OUT, (char *)v->store->mem + v->offset, v->mem, v->bytes);
        return;
    }
    struct Staging *s = v->staging;
    struct MovePieces piece = disk_piece(v->store, v->offset, s->block.mem, v->bytes);
    // Bytes that came from disk through this buffer were used before these existed: no wait.
    mark_wait(&s->stored, d, QUEUE_OUT);
    device_copy(d, QUEUE_OUT, s->block.mem, v->mem, v->bytes);
    mark_record(&s->copied, d, QUEUE_OUT);
    mark_wait(&s->copied, m->host, QUEUE_OUT);
    move_pieces(m, &piece, true);
    mark_record(&s->stored, m->host, QUEUE_OUT);
}

void move_now(struct Mover *m, const struct Block *b, size_t offset, void *mem, size_t bytes,
              bool to_block) {
    struct NvmePiece piece = {b->tag, b->offset + offset, mem, bytes};
    struct Error e;
    if (b->tier->kind == TIER_NVME) {
        if (to_block ? nvme_write(m->nvme, &piece, 1, &e) : nvme_read(m->nvme, &piece, 1, &e))
            fail_on_disk_error(m, &e);
        return;
    }
    char *at = (char *)b->mem + offset, *to = to_block ? at : mem, *from = to_block ? mem : at;
    enum Queue q = to_block ? QUEUE_IN : QUEUE_OUT; // the device's
    if (b->tier->kind == TIER_CPU) {
        memcpy(to, from, bytes);
    } else {
        device_copy(m->device, q, to, from, bytes);
        device_sync_queue(m->device, q);
    }
}
