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
// A DELAYED update (--delay-update) may take the whole next step: its weights are installed at that
// step's end, and two gradients take turns in host memory (ZeRO-Offload, section 5.2).
//
// docs/events.md says what orders these queues, and what happens without it.
//
// The settings are read from the host copy of the step's results (struct HostCopy), which the third
// step after it overwrites: by then the next step's updates, which wait for these, have been
// installed.
//
// A step's end calls host_step_reported, then host_step_queued. From then on the walk calls
// host_install_due just before it reads or fetches a group. If the optimizer state is on NVMe, an
// update goes piece by piece (update_pieces.c). Read next: activations.h.
#include "zero/offload/offload.h"

enum { GROUPS_AHEAD = 2 }; // queued ahead of the walk: longer queues hold up the caller

bool host_updates(const struct Zero *z, int g) {
    const struct Offload *o = offload_of(z);
    return o && g >= o->first_offloaded && zero_trains(z, g);
}

// ---- opening ----

// True if the host's new weights wait in a buffer before they are installed: always, unless it
// writes them right to where they are kept.
bool host_needs_new_weights(const struct Zero *z, int g) {
    const struct ZeroPlan *p = &z->plan;
    if (!host_updates(z, g) || !p->has_master)
        return false; // the parameters are the master weights
    if (lies_on(&p->param, TIER_DEVICE) || offload_of(z)->options.delayed)
        return true; // the host cannot write there, or not yet
    return lies_on(&p->param, TIER_NVME) &&
           !host_state_is_on_disk(z); // else they go with its pieces
}

int host_open(struct Zero *z, struct Error *e) {
    struct HostUpdate *h = &offload_of(z)->update;
    h->next = z->params->ngroup;
    for (int i = 0; i < HOST_COPIES; i++)
        zero_open_mark(z, &h->results_received[i], "results received");
    return pieces_open(z, e);
}

void host_close(struct Zero *z) {
    struct HostUpdate *h = &offload_of(z)->update;
    for (int i = 0; i < HOST_COPIES; i++)
        mark_close(&h->results_received[i]);
    pieces_close(z);
}

static struct Mark *results_received_mark(struct Zero *z, const struct HostCopy *copy) {
    return &offload_of(z)->update.results_received[copy - z->reports->host_copy];
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

// In a delayed run also a rank that updates nothing is late from then on, as the others are.
void host_step_reported(struct Zero *z) {
    struct HostCopy *copy = zero_host_copy(z);
    if (offload_of(z)->first_offloaded == z->params->ngroup && !offload_is_delayed(z))
        return;
    mark_record(results_received_mark(z, copy), z->device, QUEUE_OUT);
    offload_of(z)->update.newest = copy;
    host_install_late(z);
    begin_update(z);
}

// Queues the due updates of groups 0 .. g, and of a few more. Chain UPDATE is host_adamw, adamw
// and, where new weights wait, a hop that installs them. host_adamw runs here, instead of adamw;
// the last hop is marked `not_ahead`, so the chain stops before it. install_group has
// update_group run the rest, from update_next on.
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

// ---- one group's update ----

static struct AdamW host_update_args(struct Zero *z, int g) {
    const struct HostUpdate *h = &offload_of(z)->update;
    const struct Block *grad = offload_grad(z, g, h->turn);
    struct AdamW a = update_args(z, g);
    size_t before_own = zero_owned_begin(z, g) - z->state[g].grad_begin;
    a.state = h->copy->received_control;
    a.grad = dtype_at(grad->mem, z->plan.grad.dtype, before_own);
    return a;
}

// Queues AdamW of a group on the host. New weights wait in their buffer, if they have one, until
// they are installed.
static void run_host_adamw(struct Zero *z, const struct HopArgs *args) {
    int g = args->group;
    struct Device *host = z->backing.host;
    struct HostUpdate *h = &offload_of(z)->update;
    struct OffloadGroup *s = &offload_of(z)->group[g];
    struct Mark *updated = &z->state[g].updated;
    struct AdamW a = host_update_args(z, g);
    host->label = (struct Label){.unit = params_update_unit(z->params, g), .step = h->label_step};
    // Results leave behind the gradients, and so after all passes that read the old weights.
    mark_wait(results_received_mark(z, h->copy), host, QUEUE_COMPUTE);
    if (h->late) // the last update's new weights, in the same buffer, are only now being installed
        mark_wait(updated, host, QUEUE_COMPUTE);
    if (host_state_is_on_disk(z))
        pieces_update(z, g, &a);
    else
        host->kernels->adamw(host->queue[QUEUE_COMPUTE], &a);
    mark_record(&s->new_weights_made, host, QUEUE_COMPUTE);
    bool with_pieces = host_state_is_on_disk(z) && lies_on(&z->plan.param, TIER_NVME);
    if (!host_needs_new_weights(z, g))
        mark_record(updated, host, with_pieces ? QUEUE_OUT : QUEUE_COMPUTE);
    host->label = (struct Label){.unit = -1};
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

// Makes a queue of the host wait for the newest step's results, and so for all of its passes, which
// read the weights in use.
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

static void install_group(struct Zero *z, int g) {
    offload_of(z)->group[g].pending = PENDING_NOT;
    update_group(z, g);
}

// Installs the host's new weights before they are read or fetched; compute also waits for `updated`
// of whole ones on the device, unless a gather follows it.
void host_install_due(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    if (lies_on(&z->plan.param, TIER_DEVICE) && !host_updates(z, g))
        return;
    queue_updates(z, g);
    if (offload_of(z)->group[g].pending == PENDING_NOW)
        install_group(z, g);
    if (!s->slots && s->gathered.last < 0)
        mark_wait(&s->updated, z->device, QUEUE_COMPUTE);
}

void host_install_late(struct Zero *z) {
    host_queue_due(z);
    for (int g = 0; g < z->params->ngroup; g++)
        if (offload_of(z)->group[g].pending != PENDING_NOT)
            install_group(z, g);
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
