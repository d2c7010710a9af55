// Updates of offloaded optimizer state: AdamW on the host, beside the device's next forward pass.
//
// The device is done with a step when the gradients have left and the norm is known. From then on
// the host updates group after group in the order in which the next forward pass uses them, and a
// group's new weights are installed just before its unit: the update is hidden, and exact
// (ZeRO-Offload, arXiv 2101.06840, section 4).
//
//   host's compute         | update 0 | update 1 | update 2 | ...
//   in                                | copy 0   | copy 1   | ...
//   compute   ... backward |                     | unit 0   | unit 1 ...
//
// Where the state lies on NVMe it comes and goes in pieces that take turns in some buffers, so that
// the disk reads one piece and writes another while a third is updated (ZeRO-Infinity, arXiv
// 2104.07857, section 6):
//
//   host's in        | read 2 | read 3   | read 4   | ...
//   host's compute   | piece 1 | piece 2 | piece 3  | ...
//   host's out       | write 0 | write 1 | write 2  | ...
//
// A LATE update (--delay-update) has the whole next step for its work: its weights are installed at
// that step's end, and two gradients take turns in host memory (ZeRO-Offload, section 5.2).
//
//   out -> host's compute     told       norm and settings are here, and before them all gradients
//   host's compute -> in      computed        new weights may be copied
//   host's queues: read, computed, written of each piece's buffer; kept: the state is on disk again
//   in -> host's compute      updated         late: the weights before these have been copied
//   compute -> in             clipped         the weights before these have been used
//
// The settings are read where the step's results came to (struct HostEnd), which the third step
// after it writes again: by then the next step's updates, which wait for these, have been
// installed.
//
// Called by opt.c, step.c and param.c. Read next: move.c.
#include "zero/zero.h"

#include <stdlib.h>

enum {
    PIECE_ELEMENTS = 1 << 20, // long enough for a disk, short enough to fill the pipe soon
    GROUPS_AHEAD = 2,         // queued before the walk is there: longer queues hold up the caller
    DISK_ALIGN = 4096,
};

bool host_updates(const struct Zero *z, int g) {
    return g >= z->plan.offload_from;
}

// ---- opening ----

static bool on_disk(const struct Zero *z) {
    return lies_on(&z->plan.optimizer, TIER_NVME);
}

// The parameters' pieces go to NVMe with the rest, unless they are installed later.
static bool param_with_pieces(const struct Zero *z) {
    return z->plan.own_master && lies_on(&z->plan.param, TIER_NVME) && !z->plan.delayed;
}

static size_t array_bytes(size_t piece, enum Dtype dtype) {
    return round_up(piece * dtype_size(dtype), DISK_ALIGN);
}

static int open_buffers(struct Zero *z, struct HostUpdate *h, struct Tier *cpu, struct Error *e) {
    size_t most = 0;
    int err = 0;
    for (int g = z->plan.offload_from; g < z->params->ngroup; g++)
        most = size_max(most, zero_kept_numel(z, g));
    h->piece = size_min(PIECE_ELEMENTS, most);
    size_t bytes = array_bytes(h->piece, F32) + 2 * array_bytes(h->piece, z->plan.moments_dtype);
    if (param_with_pieces(z))
        bytes += array_bytes(h->piece, z->plan.param.dtype);
    for (int i = 0; i < HOST_BUFFERS && !err; i++) {
        struct HostBuffer *b = &h->buffer[i];
        mark_open(&b->read, z->device, z->host);
        mark_open(&b->computed, z->device, z->host);
        mark_open(&b->written, z->device, z->host);
        move_add_buffer(&z->mover, &b->block);
        err = tier_alloc(cpu, TAG_WORKSPACE, "pieces of optimizer state", bytes, &b->block, e);
    }
    return err;
}

int host_open(struct Zero *z, struct Tier *cpu, struct Error *e) {
    if (z->plan.offload_from == z->params->ngroup)
        return 0;
    struct HostUpdate *h = z->host_update = base_alloc_zeroed(sizeof *h);
    h->next = z->params->ngroup;
    for (int i = 0; i < HOST_ENDS; i++)
        mark_open(&z->host_end[i].told, z->device, z->host);
    return on_disk(z) ? open_buffers(z, h, cpu, e) : 0;
}

void host_close(struct Zero *z) {
    struct HostUpdate *h = z->host_update;
    if (!h)
        return;
    for (int i = 0; i < HOST_ENDS; i++)
        mark_close(&z->host_end[i].told);
    for (int i = 0; i < HOST_BUFFERS; i++) {
        mark_close(&h->buffer[i].read);
        mark_close(&h->buffer[i].computed);
        mark_close(&h->buffer[i].written);
        tier_free(&h->buffer[i].block);
    }
    free(h);
    z->host_update = NULL;
}

// ---- one group's update ----

// Where its new weights go, if not into the master weights alone; NULL: with the pieces.
static void *new_weights(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    if (s->fresh.tier)
        return s->fresh.mem;
    if (!z->plan.own_master || !s->param.mem)
        return NULL;
    return dtype_at(s->param.mem, z->plan.param.dtype, params_own_offset(z, g));
}

// The part of group g's update that updates elements [i, i + n).
static struct AdamW part_of(const struct AdamW *whole, size_t i, size_t n) {
    struct AdamW a = *whole;
    a.n = n;
    a.n_decay = whole->n_decay > i ? size_min(n, whole->n_decay - i) : 0;
    a.grad = dtype_at(whole->grad, whole->grad_dtype, i);
    a.param = whole->param ? dtype_at(whole->param, whole->param_dtype, i) : NULL;
    return a;
}

// Of n elements of one array, the bytes that are read and written. A block begins at a page of the
// disk and ends with one, so that the last piece may be longer than what is left, but not where the
// block holds other ranks' parts, too.
static size_t disk_bytes(struct Zero *z, int g, enum State what, size_t n) {
    struct StatePlace place = zero_state_place(z, g, what);
    bool shared = place.block == &z->state[g].param && z->plan.optimizer.sharded;
    size_t bytes = n * dtype_size(place.dtype);
    return shared && !z->plan.param.sharded ? bytes : round_up(bytes, DISK_ALIGN);
}

// The arrays of a piece in its buffer and on disk.
static struct MovePieces pieces_of(struct Zero *z, const struct HostBuffer *b, int g, size_t i,
                                   size_t n, struct AdamW *a) {
    struct MovePieces p = {.unless = &z->host_update->end->received_control->skip};
    char *mem = b->block.mem;
    for (enum State what = STATE_MASTER; what < NSTATE; what++) {
        struct StatePlace place = zero_state_place(z, g, what);
        size_t size = dtype_size(place.dtype);
        p.piece[p.n++] =
            (struct NvmePiece){place.block->tag, place.block->offset + place.offset + i * size, mem,
                               disk_bytes(z, g, what, n)};
        mem += array_bytes(z->host_update->piece, place.dtype);
    }
    a->master = p.piece[STATE_MASTER].mem;
    a->m = p.piece[STATE_M].mem;
    a->v = p.piece[STATE_V].mem;
    if (!param_with_pieces(z))
        return p;
    const struct Block *param = &z->state[g].param;
    size_t size = dtype_size(z->plan.param.dtype);
    a->param = mem;
    p.piece[p.n++] = (struct NvmePiece){
        param->tag, param->offset + (params_own_offset(z, g) + i) * size, mem, n * size};
    return p;
}

struct Moved host_moves(struct Zero *z, int g) {
    struct Moved m = {0};
    uint64_t weights = zero_kept_numel(z, g) * dtype_size(z->plan.param.dtype);
    for (enum State what = STATE_MASTER; what < NSTATE && on_disk(z); what++) {
        m.read += disk_bytes(z, g, what, zero_kept_numel(z, g));
        m.written += disk_bytes(z, g, what, zero_kept_numel(z, g));
    }
    if (on_disk(z) && param_with_pieces(z))
        m.written += weights;
    if (z->state[g].fresh.tier && lies_on(&z->plan.param, TIER_DEVICE))
        m.in += weights;
    if (z->state[g].fresh.tier && lies_on(&z->plan.param, TIER_NVME))
        m.written += weights;
    return m;
}

static void queue_piece(struct Zero *z, int g, const struct AdamW *whole, size_t i, size_t n) {
    struct HostUpdate *h = z->host_update;
    struct Device *host = z->host;
    struct HostBuffer *b = &h->buffer[h->pieces++ % HOST_BUFFERS];
    struct AdamW a = part_of(whole, i, n);
    struct MovePieces out = pieces_of(z, b, g, i, n, &a), in = out;
    in.n = NSTATE;
    mark_wait(&b->written, host, QUEUE_IN);
    move_read(&z->mover, &in);
    mark_record(&b->read, host, QUEUE_IN);
    mark_wait(&b->read, host, QUEUE_COMPUTE);
    host->kernels->adamw(host->queue[QUEUE_COMPUTE], &a);
    mark_record(&b->computed, host, QUEUE_COMPUTE);
    mark_wait(&b->computed, host, QUEUE_OUT);
    move_write(&z->mover, &out);
    mark_record(&b->written, host, QUEUE_OUT);
}

static void queue_pieces(struct Zero *z, int g, const struct AdamW *whole) {
    struct GroupState *s = &z->state[g];
    mark_wait(&s->kept, z->host, QUEUE_IN);
    if (!z->plan.own_master)
        mark_wait(&s->gathered, z->host, QUEUE_IN);
    for (size_t i = 0; i < whole->n; i += z->host_update->piece)
        queue_piece(z, g, whole, i, size_min(z->host_update->piece, whole->n - i));
    mark_record(&s->kept, z->host, QUEUE_OUT);
}

static void queue_group(struct Zero *z, int g) {
    struct HostUpdate *h = z->host_update;
    struct GroupState *s = &z->state[g];
    struct AdamW a = update_of(z, g, h->turn);
    a.state = h->end->received_control;
    a.param = new_weights(z, g);
    z->host->label = (struct Label){.unit = g, .step = h->label_step};
    mark_wait(&h->end->told, z->host, QUEUE_COMPUTE);
    if (h->late)
        mark_wait(&s->updated, z->host, QUEUE_COMPUTE);
    if (on_disk(z))
        queue_pieces(z, g, &a);
    else
        z->host->kernels->adamw(z->host->queue[QUEUE_COMPUTE], &a);
    mark_record(&s->computed, z->host, QUEUE_COMPUTE);
    bool with_pieces = on_disk(z) && lies_on(&z->plan.param, TIER_NVME);
    if (!s->fresh.tier)
        mark_record(&s->updated, z->host, with_pieces ? QUEUE_OUT : QUEUE_COMPUTE);
    z->host->label = (struct Label){.unit = -1};
}

// ---- when ----

void host_told(struct Zero *z) {
    struct HostEnd *end = zero_host_end(z);
    if (!z->host_update)
        return;
    mark_record(&end->told, z->device, QUEUE_OUT);
    z->host_update->newest = end;
}

void host_update(struct Zero *z, int g) {
    struct HostUpdate *h = z->host_update;
    if (h->next == z->params->ngroup) { // the step's first
        h->next = g;
        h->turn = grads_turn(z);
        h->end = zero_host_end(z);
        h->late = z->plan.delayed && z->step >= z->plan.delay_after;
        h->label_step = z->step + 2; // they run beside the next step, and stand in its trace
    }
    z->state[g].pending = h->late ? PENDING_LATE : PENDING_NOW;
}

void host_advance(struct Zero *z, int g) {
    struct HostUpdate *h = z->host_update;
    for (; h && h->next < z->params->ngroup && h->next <= g + GROUPS_AHEAD; h->next++)
        queue_group(z, h->next);
}

static void install_on_device(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    struct Device *d = z->device;
    enum Dtype dtype = z->plan.param.dtype;
    size_t bytes = zero_kept_numel(z, g) * dtype_size(dtype);
    device_wait(d, QUEUE_IN, z->clipped);
    mark_wait(&s->computed, d, QUEUE_IN);
    device_copy(d, QUEUE_IN, dtype_at(s->param.mem, dtype, params_own_offset(z, g)), s->fresh.mem,
                bytes);
    z->mover.moved.in += bytes;
    mark_record(&s->updated, d, QUEUE_IN);
}

// Late weights, of which the host has the home, too.
static void install_at_home(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    struct Device *host = z->host;
    enum Dtype dtype = z->plan.param.dtype;
    size_t offset = params_own_offset(z, g) * dtype_size(dtype), n = zero_kept_numel(z, g);
    bool disk = lies_on(&z->plan.param, TIER_NVME);
    enum Queue q = disk ? QUEUE_OUT : QUEUE_COMPUTE;
    mark_wait(&z->host_update->newest->told, host, q);
    if (disk) // else the same queue has computed them
        mark_wait(&s->computed, host, q);
    if (disk)
        move_write(&z->mover,
                   &(struct MovePieces){.piece = {{s->param.tag, s->param.offset + offset,
                                                   s->fresh.mem, n * dtype_size(dtype)}},
                                        .n = 1});
    else
        host->kernels->cast(
            host->queue[q],
            &(struct Cast){n, dtype, dtype, (char *)s->param.mem + offset, s->fresh.mem});
    mark_record(&s->updated, host, q);
}

static void install(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    host_advance(z, g);
    s->pending = PENDING_NOT;
    if (s->fresh.tier && lies_on(&z->plan.param, TIER_DEVICE))
        install_on_device(z, g);
    else if (s->fresh.tier)
        install_at_home(z, g);
    z->stage->after_update(z, g);
}

void host_install(struct Zero *z, int g) {
    host_advance(z, g);
    if (z->state[g].pending == PENDING_NOW)
        install(z, g);
}

void host_install_late(struct Zero *z) {
    host_finish(z);
    for (int g = 0; g < z->params->ngroup; g++)
        if (z->state[g].pending != PENDING_NOT)
            install(z, g);
}

void host_finish(struct Zero *z) {
    host_advance(z, z->params->ngroup);
}
