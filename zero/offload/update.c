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
// If the state is on NVMe it comes and goes in pieces that use some buffers in turn, so that the
// disk reads one piece and writes another while a third is updated (ZeRO-Infinity, arXiv
// 2104.07857, section 6):
//
//   host's in        | read 2 | read 3   | read 4   | ...
//   host's compute   | piece 1 | piece 2 | piece 3  | ...
//   host's out       | write 0 | write 1 | write 2  | ...
//
// A DELAYED update (--delay-update) may take the whole next step: its weights are installed at that
// step's end, and two gradients take turns in host memory (ZeRO-Offload, section 5.2).
//
// docs/events.md says what orders these queues, and what happens without it.
//
// The settings are read from the host copy of the step's results (struct HostCopy), which the third
// step after it overwrites: by then the next step's updates, which wait for these, have been
// installed.
//
// Called through hops and struct BackingOps (attach.c), and by weights.c. Read next: activations.h.
#include "zero/offload/offload.h"

enum {
    GROUPS_AHEAD = 2, // queued ahead of the walk: longer queues hold up the caller
    DISK_ALIGN = 4096,
};

bool host_updates(const struct Zero *z, int g) {
    const struct Offload *o = offload_of(z);
    return o && g >= o->first_offloaded && zero_trains(z, g);
}

// ---- opening ----

static bool state_is_on_disk(const struct Zero *z) {
    return lies_on(&z->plan.optimizer, TIER_NVME);
}

// True if the host's new weights wait in a buffer before they are installed: always, unless it
// writes them right to where they are kept.
bool host_needs_new_weights(const struct Zero *z, int g) {
    const struct ZeroPlan *p = &z->plan;
    if (!host_updates(z, g) || !p->has_master)
        return false; // the parameters are the master weights
    if (lies_on(&p->param, TIER_DEVICE) || offload_of(z)->options.delayed)
        return true; // the host cannot write there, or not yet
    return lies_on(&p->param, TIER_NVME) && !state_is_on_disk(z); // else they go with its pieces
}

// True if the parameters' pieces go to NVMe with the rest: they do unless they are installed later.
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

static int open_buffers(struct Zero *z, struct HostUpdate *h, struct Error *e) {
    struct Offload *o = offload_of(z);
    size_t most = 0;
    int err = 0, first = o->first_offloaded;
    while (first < z->params->ngroup && !host_updates(z, first))
        first++;
    if (first == z->params->ngroup)
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

int host_open(struct Zero *z, struct Error *e) {
    struct HostUpdate *h = &offload_of(z)->update;
    h->next = z->params->ngroup;
    for (int i = 0; i < HOST_COPIES; i++)
        zero_open_mark(z, &h->results_received[i], "results received");
    return offload_of(z)->first_offloaded < z->params->ngroup && state_is_on_disk(z)
               ? open_buffers(z, h, e)
               : 0;
}

void host_close(struct Zero *z) {
    struct HostUpdate *h = &offload_of(z)->update;
    for (int i = 0; i < HOST_COPIES; i++)
        mark_close(&h->results_received[i]);
    for (int i = 0; i < HOST_BUFFERS; i++) {
        mark_close(&h->buffer[i].arrived);
        mark_close(&h->buffer[i].updated);
        mark_close(&h->buffer[i].stored);
        tier_free(&h->buffer[i].block);
    }
}

static struct Mark *results_received_mark(struct Zero *z, const struct HostCopy *copy) {
    return &offload_of(z)->update.results_received[copy - z->reports->host_copy];
}

// ---- one group's update ----

// Returns the part of group g's update that updates elements [i, i + n).
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
    in.n = out.n - (param_with_pieces(z) && !param_is_read(z));
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

// If the parameters are the master weights, whole ones that ranks gathered are on disk by now:
// since then this queue has read them for the walk (move.h).
static void queue_piece_updates(struct Zero *z, int g, const struct AdamW *whole) {
    struct Offload *o = offload_of(z);
    size_t piece = o->update.piece;
    mark_wait(&o->group[g].state_stored, z->backing.host, QUEUE_IN);
    for (size_t i = 0; i < whole->n; i += piece)
        queue_piece_update(z, g, whole, i, size_min(piece, whole->n - i));
    mark_record(&o->group[g].state_stored, z->backing.host, QUEUE_OUT);
}

static struct AdamW host_update_args(struct Zero *z, int g) {
    const struct HostUpdate *h = &offload_of(z)->update;
    const struct Block *grad = offload_grad(z, g, h->turn);
    struct AdamW a = update_args(z, g);
    size_t before_own = zero_owned_begin(z, g) - z->state[g].grad_begin;
    a.state = h->copy->received_control;
    a.grad = dtype_at(grad->mem, z->plan.grad.dtype, before_own);
    return a;
}

// The hop's work; its result waits until the group's weights are due.
static void run_host_adamw(struct Zero *z, const struct HopArgs *args) {
    int g = args->group;
    struct Device *host = z->backing.host;
    struct HostUpdate *h = &offload_of(z)->update;
    struct OffloadGroup *s = &offload_of(z)->group[g];
    struct Mark *updated = &z->state[g].updated;
    struct AdamW a = host_update_args(z, g);
    host->label = (struct Label){.unit = params_update_unit(z->params, g), .step = h->label_step};
    // Results leave after all reductions, and so after all passes that read the old weights.
    mark_wait(results_received_mark(z, h->copy), host, QUEUE_COMPUTE);
    if (h->late)
        mark_wait(updated, host, QUEUE_COMPUTE);
    if (state_is_on_disk(z))
        queue_piece_updates(z, g, &a);
    else
        host->kernels->adamw(host->queue[QUEUE_COMPUTE], &a);
    mark_record(&s->new_weights_made, host, QUEUE_COMPUTE);
    bool with_pieces = state_is_on_disk(z) && lies_on(&z->plan.param, TIER_NVME);
    if (!host_needs_new_weights(z, g))
        mark_record(updated, host, with_pieces ? QUEUE_OUT : QUEUE_COMPUTE);
    host->label = (struct Label){.unit = -1};
}

// ---- scheduling updates ----

// Makes the updates of all groups that the host updates due.
static void begin_update(struct Zero *z) {
    struct Offload *o = offload_of(z);
    struct HostUpdate *h = &o->update;
    h->next = o->first_offloaded;
    h->turn = offload_turn(z);
    h->copy = zero_host_copy(z);
    h->late = o->options.delayed && z->step >= o->options.delay_after;
    h->label_step = z->step + 2; // they run beside the next step, and belong to its trace
    for (int g = o->first_offloaded; g < z->params->ngroup; g++)
        if (host_updates(z, g))
            o->group[g].pending = h->late ? PENDING_LATE : PENDING_NOW;
}

void host_step_reported(struct Zero *z) {
    struct HostCopy *copy = zero_host_copy(z);
    if (offload_of(z)->first_offloaded == z->params->ngroup && !offload_is_delayed(z))
        return;
    mark_record(results_received_mark(z, copy), z->device, QUEUE_OUT);
    offload_of(z)->update.newest = copy;
    host_install_late(z);
    begin_update(z);
}

// Queues the due updates of groups 0 .. g, and of a few more.
static void queue_updates(struct Zero *z, int g) {
    struct HostUpdate *h = &offload_of(z)->update;
    for (; h->next < z->params->ngroup && h->next <= g + GROUPS_AHEAD; h->next++) {
        struct GroupState *s = &z->state[h->next];
        CHECK(s->update_next == 0, "group %d: its last update is not installed", h->next);
        s->update_next = chain_run(z, UPDATE, 0, true, &(struct HopArgs){.group = h->next});
    }
}

void host_step_queued(struct Zero *z) {
    queue_updates(z, 0);
}

// ---- the hops of an update ----

// Copies new weights to the device, where they are kept.
static void load_new_weights(struct Zero *z, const struct HopArgs *a) {
    struct Offload *o = a->context;
    struct Device *d = z->device;
    size_t bytes = zero_owned_numel(z, a->group) * dtype_size(z->plan.param.dtype);
    // Late weights were made a step ago: all ranks must have read those in use.
    device_wait(d, QUEUE_IN, z->reports->clipped);
    mark_wait(&o->group[a->group].new_weights_made, d, QUEUE_IN);
    device_copy(d, QUEUE_IN, a->mem[BUFFER_SHARD], o->group[a->group].new_weights.mem, bytes);
    o->mover.moved[TAG_PARAM].in += bytes;
}

static void wait_results_received(struct Zero *z, enum Queue q) {
    const struct HostCopy *newest = offload_of(z)->update.newest;
    if (newest) // NULL: this process has made no step, and nothing is under way
        mark_wait(results_received_mark(z, newest), z->backing.host, q);
}

// Copies late weights to their store in host memory; the same queue has computed them.
static void cast_new_weights(struct Zero *z, const struct HopArgs *a) {
    struct Offload *o = a->context;
    enum Dtype dtype = z->plan.param.dtype;
    struct Cast cast = {zero_owned_numel(z, a->group), dtype, dtype, a->mem[BUFFER_SHARD],
                        o->group[a->group].new_weights.mem};
    wait_results_received(z, QUEUE_COMPUTE);
    z->backing.host->kernels->cast(z->backing.host->queue[QUEUE_COMPUTE], &cast);
}

// Writes late weights to their store on disk.
static void write_new_weights(struct Zero *z, const struct HopArgs *a) {
    struct Offload *o = a->context;
    const struct Block *param = &z->state[a->group].param;
    size_t size = dtype_size(z->plan.param.dtype);
    struct MovePieces piece = {
        .piece = {{param->tag, param->offset + weights_own_offset(z, a->group) * size,
                   o->group[a->group].new_weights.mem, zero_owned_numel(z, a->group) * size}},
        .n = 1};
    wait_results_received(z, QUEUE_OUT);
    mark_wait(&o->group[a->group].new_weights_made, z->backing.host, QUEUE_OUT);
    move_pieces(&o->mover, &piece, true);
}

static const struct Hop host_adamw = {
    "host_adamw",          POINT_BEFORE,  WHEN_ANY,        QUEUE_COMPUTE,  0,
    .run = run_host_adamw, .where = HERE, .on_host = true, .instead = true};
static const struct Hop new_weights_h2d = {"h2d",         POINT_AFTER,      WHEN_ANY,
                                           QUEUE_IN,      MAKES_STORE,      .run = load_new_weights,
                                           .where = HERE, .not_ahead = true};
static const struct Hop new_weights_cast = {"cast",        POINT_AFTER,     WHEN_ANY,
                                            QUEUE_COMPUTE, MAKES_STORE,     .run = cast_new_weights,
                                            .where = HERE, .on_host = true, .not_ahead = true};
static const struct Hop new_weights_write = {
    "write",       POINT_AFTER,     WHEN_ANY,
    QUEUE_OUT,     MAKES_STORE,     .run = write_new_weights,
    .where = HERE, .on_host = true, .not_ahead = true};

// Index of the link after host_adamw, which is the first one and runs instead of adamw.
enum { LINK_INSTALL = 1 };

void host_attach(struct Zero *z, int g) {
    static const struct Hop *const installs[NTIER] = {[TIER_DEVICE] = &new_weights_h2d,
                                                      [TIER_CPU] = &new_weights_cast,
                                                      [TIER_NVME] = &new_weights_write};
    struct Chain *c = &z->state[g].chain[UPDATE];
    // If no new weights wait, host_adamw writes the parameters where they are kept, and the chain
    // ends with it. Else it writes new_weights, and a second hop copies those when they are due.
    chain_add(c, &host_adamw, NULL);
    CHECK(c->link[LINK_INSTALL - 1].hop == &host_adamw, "host_adamw is not the first link");
    if (host_needs_new_weights(z, g))
        chain_add(c, installs[z->plan.param.tier->kind], offload_of(z));
}

// ---- installing new weights ----

static void install_new_weights(struct Zero *z, int g) {
    offload_of(z)->group[g].pending = PENDING_NOT;
    update_group(z, g);
}

void host_install(struct Zero *z, int g) {
    queue_updates(z, g);
    if (offload_of(z)->group[g].pending == PENDING_NOW)
        install_new_weights(z, g);
}

void host_install_late(struct Zero *z) {
    host_queue_due(z);
    for (int g = 0; g < z->params->ngroup; g++)
        if (offload_of(z)->group[g].pending != PENDING_NOT)
            install_new_weights(z, g);
    offload_of(z)->update.late = false;
}

void host_set_pending(struct Zero *z, int g, bool late) {
    offload_of(z)->update.late = late;
    late = late && host_updates(z, g);
    offload_of(z)->group[g].pending = late ? PENDING_LATE : PENDING_NOT;
    z->state[g].update_next = late ? LINK_INSTALL : 0;
}

void host_queue_due(struct Zero *z) {
    queue_updates(z, z->params->ngroup);
}
