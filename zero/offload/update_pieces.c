// Pieces of an update whose optimizer state is on NVMe: they come and go through some buffers in
// turn, so that the disk reads one piece and writes another while a third is updated
// (ZeRO-Infinity, arXiv 2104.07857, section 6):
//
//   host's in        | read 2 | read 3   | read 4   | ...
//   host's compute   | piece 1 | piece 2 | piece 3  | ...
//   host's out       | write 0 | write 1 | write 2  | ...
//
// Called by update.c. Read next: move.h.
#include "zero/offload/offload.h"

enum { DISK_ALIGN = 4096 };

// ---- buffers ----

bool host_state_is_on_disk(const struct Zero *z) {
    return lies_on(&z->plan.optimizer, TIER_NVME);
}

// True if the parameters' pieces go to NVMe beside the rest: not if they are the master weights,
// which the rest has, nor if they are installed later.
static bool param_with_pieces(const struct Zero *z) {
    return z->plan.has_master && z->plan.masters->format != MASTER_BF16 &&
           lies_on(&z->plan.param, TIER_NVME) && !offload_of(z)->options.delayed;
}

// True if the pieces of split master weights include their upper halves, the parameters.
static bool param_is_read(const struct Zero *z) {
    return param_with_pieces(z) && z->plan.masters->format == MASTER_SPLIT;
}

static size_t array_bytes(size_t piece, enum Dtype dtype) {
    return round_up(piece * dtype_size(dtype), DISK_ALIGN);
}

// True if this array of optimizer state is on disk, too: master weights may be the new weights,
// which wait in host memory.
static bool array_is_on_disk(struct Zero *z, int g, enum State what) {
    return zero_state_location(z, g, what).block->tier->kind == TIER_NVME;
}

int pieces_open(struct Zero *z, struct Error *e) {
    struct Offload *o = offload_of(z);
    struct HostUpdate *h = &o->update;
    size_t most = 0;
    int err = 0, first = o->first_offloaded;
    while (first < z->params->ngroup && !host_updates(z, first))
        first++;
    if (first == z->params->ngroup || !host_state_is_on_disk(z))
        return 0;
    for (int g = first; g < z->params->ngroup; g++)
        most = size_max(most, host_updates(z, g) ? zero_owned_numel(z, g) : 0);
    h->piece = size_min(HOST_PIECE, most);
    size_t bytes = param_with_pieces(z) ? array_bytes(h->piece, z->plan.param.dtype) : 0;
    for (enum State what = STATE_MASTER; what < NSTATE; what++)
        if (array_is_on_disk(z, first, what))
            bytes += array_bytes(h->piece, zero_state_location(z, first, what).dtype);
    for (int i = 0; i < HOST_BUFFERS && !err; i++) {
        struct HostBuffer *b = &h->buffer[i];
        zero_open_mark(z, &b->arrived, "piece arrived");
        zero_open_mark(z, &b->updated, "piece updated");
        zero_open_mark(z, &b->stored, "piece stored");
        move_add_buffer(&o->mover, &b->block);
        err = tier_alloc(&o->tier[TIER_CPU], TAG_WORKSPACE, "pieces of optimizer state", bytes,
                         &b->block, e);
    }
    return err;
}

void pieces_close(struct Zero *z) {
    for (int i = 0; i < HOST_BUFFERS; i++) {
        struct HostBuffer *b = &offload_of(z)->update.buffer[i];
        mark_close(&b->arrived);
        mark_close(&b->updated);
        mark_close(&b->stored);
        tier_free(&b->block);
    }
}

// ---- the update of one group, piece by piece ----

// Returns the part of an update that updates elements [i, i + n).
static struct AdamW slice_adamw(const struct AdamW *whole, size_t i, size_t n) {
    struct AdamW a = *whole;
    a.n = n;
    a.n_decay = whole->n_decay > i ? size_min(n, whole->n_decay - i) : 0;
    a.grad = dtype_at(whole->grad, whole->grad_dtype, i);
    a.param = whole->param ? dtype_at(whole->param, whole->param_dtype, i) : NULL;
    a.master =
        whole->master ? dtype_at(whole->master, master_dtype(whole->master_format), i) : NULL;
    a.index = whole->index + i;
    return a;
}

// Returns the bytes to read and write for n elements of one array. A block begins and ends at a
// page of the disk, so the last piece may be longer than what is left, unless the block holds other
// ranks' parts, too.
static size_t disk_bytes(struct Zero *z, int g, enum State what, size_t n) {
    struct StateLocation location = zero_state_location(z, g, what);
    bool shared = location.block == &z->state[g].param && z->plan.optimizer.shard_group;
    size_t bytes = n * dtype_size(location.dtype);
    return shared && !z->plan.param.shard_group ? bytes : round_up(bytes, DISK_ALIGN);
}

// Points `a` to the arrays of a piece in its buffer; returns where those are that are on disk.
static struct MovePieces lay_out_piece(struct Zero *z, const struct HostBuffer *b, int g, size_t i,
                                       size_t n, struct AdamW *a) {
    struct MovePieces p = {.unless = &offload_of(z)->update.copy->received_control->skip};
    char *mem = b->block.mem;
    void **const array[NSTATE] = {&a->master, &a->m, &a->v};
    for (enum State what = STATE_MASTER; what < NSTATE; what++) {
        struct StateLocation location = zero_state_location(z, g, what);
        size_t size = dtype_size(location.dtype);
        if (!array_is_on_disk(z, g, what))
            continue;
        p.piece[p.n++] = (struct NvmePiece){location.block->tag,
                                            location.block->offset + location.offset + i * size,
                                            mem, disk_bytes(z, g, what, n)};
        *array[what] = mem;
        mem += array_bytes(offload_of(z)->update.piece, location.dtype);
    }
    if (!param_with_pieces(z))
        return p;
    const struct Block *param = &z->state[g].param;
    size_t size = dtype_size(z->plan.param.dtype);
    a->param = mem;
    p.piece[p.n++] = (struct NvmePiece){
        param->tag, param->offset + (weights_own_offset(z, g) + i) * size, mem, n * size};
    return p;
}

static void queue_piece_update(struct Zero *z, int g, const struct AdamW *whole, size_t i,
                               size_t n) {
    struct HostUpdate *h = &offload_of(z)->update;
    struct Device *host = z->backing.host;
    struct HostBuffer *b = &h->buffer[h->pieces++ % HOST_BUFFERS];
    struct AdamW a = slice_adamw(whole, i, n);
    struct MovePieces out = lay_out_piece(z, b, g, i, n, &a), in = out;
    in.n = out.n - (param_with_pieces(z) && !param_is_read(z)); // the last piece is the parameters'
    mark_wait(&b->stored, host, QUEUE_IN);
    move_pieces(&offload_of(z)->mover, &in, false);
    mark_record(&b->arrived, host, QUEUE_IN);
    mark_wait(&b->arrived, host, QUEUE_COMPUTE);
    host->kernels->adamw(host->queue[QUEUE_COMPUTE], &a);
    mark_record(&b->updated, host, QUEUE_COMPUTE);
    mark_wait(&b->updated, host, QUEUE_OUT);
    move_pieces(&offload_of(z)->mover, &out, true);
    mark_record(&b->stored, host, QUEUE_OUT);
}

// Waits for no gather: if the parameters are the master weights, whole ones that ranks gathered are
// on disk by now, since the host's in queue has read them there for the walk (move.h).
void pieces_update(struct Zero *z, int g, const struct AdamW *whole) {
    struct Offload *o = offload_of(z);
    size_t piece = o->update.piece;
    mark_wait(&o->group[g].state_stored, z->backing.host, QUEUE_IN);
    for (size_t i = 0; i < whole->n; i += piece)
        queue_piece_update(z, g, whole, i, size_min(piece, whole->n - i));
    mark_record(&o->group[g].state_stored, z->backing.host, QUEUE_OUT);
}
