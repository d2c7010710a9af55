// Turns a stage into placements, and allocates the memory of a run's state.
//
// zero_open allocates every byte of parameters, gradients and optimizer state that training will
// use. Over a dry tier it only counts them: the memory of a run is predicted by the same lines that
// allocate it. The last parts are what the core does where zero/pipe and zero/offload do more: a
// rank has all layers, and state is on the device.
//
// Called by zero/rank/rank.c.
#include "zero/state.h"
#include "zero/report.h"

#include "model/grad.h"

#include <stdio.h>
#include <stdlib.h>

struct ZeroPlan zero_plan(const struct ZeroOptions *o) {
    const struct ZeroStage *s = zero_stage(o->stage);
    struct Tier *device = &o->tier[TIER_DEVICE];
    return (struct ZeroPlan){
        .param = {s->shards_param ? o->shard_group : NULL, device, o->dtype},
        .grad = {s->shards_grad ? o->shard_group : NULL, device, o->grad_dtype},
        .optimizer = {s->shards_optimizer ? o->shard_group : NULL, device, F32},
        .moments_dtype = o->moments_dtype,
        .pack = o->pack,
        .host_threads = o->host_threads,
        .masters = o->masters ? o->masters : &zero_masters_fp32,
        .has_master = o->dtype != F32 && !o->inference,
        .inference = o->inference,
        .unquantized_shard = o->quantized_weights && s->shards_optimizer && !s->shards_param,
        .weight_slots = s->shards_param,
        .buckets = s->shards_grad && !o->inference,
        .nmicro = o->nmicro,
        .prefetch = o->prefetch,
    };
}

// ---- memory ----

size_t weights_bytes(const struct Zero *z, int g) {
    size_t n = zero_part_numel(z, &z->plan.param, g);
    return params_packs(z->params, g) ? z->plan.pack->bytes(z, g, n)
                                      : n * dtype_size(z->plan.param.dtype);
}

size_t weights_whole_bytes(const struct Zero *z, int g) {
    return round_up(z->params->group[g].padded * dtype_size(z->plan.param.dtype), 64);
}

size_t weights_slot_bytes(const struct Zero *z, int g) {
    const struct Placement *p = &z->plan.param;
    bool arrives = params_packs(z->params, g) &&
                   (p->shard_group || z->state[g].param_tier->kind != TIER_DEVICE);
    size_t parts = p->shard_group ? (size_t)p->shard_group->size : 1;
    return weights_whole_bytes(z, g) + (arrives ? parts * weights_bytes(z, g) : 0);
}

static int alloc_block(const struct Zero *z, struct Tier *tier, enum Tag tag, const char *what,
                       int g, size_t bytes, struct Block *out, struct Error *e) {
    char purpose[64];
    snprintf(purpose, sizeof purpose, "%s of %s", what, z->params->group[g].name);
    return tier_alloc(tier, tag, purpose, bytes, out, e);
}

static int alloc_group(struct Zero *z, int g, struct Error *e) {
    struct GroupState *s = &z->state[g];
    const struct ZeroPlan *p = &z->plan;
    size_t owned = zero_owned_numel(z, g);
    size_t unquantized = p->unquantized_shard ? owned * dtype_size(p->param.dtype) : 0;
    size_t moments = zero_trains(z, g) ? owned * dtype_size(p->moments_dtype) : 0;
    bool no_master = !zero_has_master(z, g) ||
                     (s->masters->format == MASTER_BF16 && s->update_dst != &s->master);
    int err = alloc_block(z, s->param_tier, TAG_PARAM, "parameters", g, weights_bytes(z, g),
                          &s->param, e);
    if (!err && unquantized)
        err = alloc_block(z, s->param_tier, TAG_PARAM, "this rank's part", g, unquantized,
                          &s->unquantized, e);
    if (!err)
        err = alloc_block(z, s->grad_tier, TAG_GRAD, "gradients", g,
                          s->grad_numel * dtype_size(p->grad.dtype), &s->grad, e);
    if (!err && !no_master)
        err = alloc_block(z, s->optimizer_tier, TAG_OPTIMIZER, "master weights", g,
                          owned * dtype_size(master_dtype(s->masters->format)), &s->master, e);
    if (!err)
        err = alloc_block(z, s->optimizer_tier, TAG_OPTIMIZER, "momentum", g, moments, &s->m, e);
    if (!err)
        err = alloc_block(z, s->optimizer_tier, TAG_OPTIMIZER, "variance", g, moments, &s->v, e);
    return err;
}

// Bytes of the largest slot for a kind of group.
static size_t slot_bytes(const struct Zero *z, enum GroupKind kind) {
    size_t most = 0;
    for (int g = 0; g < z->params->ngroup; g++)
        if (z->params->group[g].kind == kind)
            most = size_max(most, weights_slot_bytes(z, g));
    return most;
}

// Allocates slots of whole weights, unless they are kept as units read them: for the unit at hand
// and those ahead; and buckets of gradients: two with prefetch, as one is still being reduced.
static int alloc_slots(struct Zero *z, enum Ring ring, struct Tier *device, struct Error *e) {
    const struct ZeroPlan *p = &z->plan;
    const struct Params *params = z->params;
    bool units = ring == RING_UNITS, packs = units && params->config.lora.base != BASE_PLAIN;
    enum GroupKind block = units ? GROUP_BLOCK : GROUP_ADAPTER;
    size_t grad = dtype_size(p->grad.dtype), groups = 0;
    for (int g = 0; g < params->ngroup; g++)
        groups += ring_of(params, g) == ring;
    if (!groups)
        return 0;
    int ahead = (int)size_min(p->prefetch, groups - 1), err = 0;
    bool fetches_ends = units && p->weight_slots;
    struct SlotsSpec weights = {
        .device = z->device,
        .host = z->backing.host,
        .params = z->params,
        .turns = ahead + 1,
        .bytes = {fetches_ends ? slot_bytes(z, GROUP_END) : 0, slot_bytes(z, block)},
        .tier = device,
        .purpose = "weights at hand",
        .mark_names = {"weights arrived", "weights drained"}};
    struct SlotsSpec buckets = {.device = z->device,
                                .host = z->backing.host,
                                .params = z->params,
                                .turns = ahead ? 2 : 1,
                                .bytes = {units * params_largest_trained(params, GROUP_END) * grad,
                                          params_largest_trained(params, block) * grad},
                                .tier = device,
                                .purpose = "a bucket of gradients",
                                .mark_names = {"bucket arrived", "bucket drained"}};
    if (p->weight_slots || packs)
        err = slots_open(&z->weights[ring], &weights, e);
    if (!err && p->buckets)
        err = slots_open(&z->buckets[ring], &buckets, e);
    return err;
}

// ---- the visits of a step ----

// Describes unit u's visit. In the last micro-batch reduce_after_pass reduces a tied head's copy.
static struct Visit make_visit(const struct Params *p, const struct Pass *pass, int u,
                               bool keeps_acts, bool last_micro) {
    const struct Unit *unit = &p->unit[u];
    int trained = params_trained_of(p, u), groups = unit->adapter < 0 ? 1 : 2;
    bool reads = !pass->backward || unit->reads_backward;
    bool completes = pass->backward && trained >= 0 && p->group[trained].first_unit == u;
    return (struct Visit){.unit = u,
                          .ngroup = reads ? groups : 0,
                          .group = {unit->group, unit->adapter},
                          .trained = trained,
                          .micro = pass->micro,
                          .backward = pass->backward,
                          .saves_acts = keeps_acts && u >= params_first_backward(p),
                          .grad_complete = completes,
                          .reduced_after_pass = completes && last_micro && p->group[trained].copy};
}

// Lists the visits of a step's passes, two a micro-batch, or of a forward pass; unit -1 ends them.
static struct Visit *list_visits(const struct Params *p, struct Pass *pass, size_t count) {
    int units = p->nunit, skipped = params_first_backward(p);
    bool is_step = count > 1;
    struct Visit *list = base_alloc_zeroed((count * (size_t)units + 1) * sizeof *list);
    struct Visit *v = list;
    for (size_t i = 0; i < count; i++) {
        pass[i].visit = v;
        pass[i].nvisit = pass[i].backward ? units - skipped : units;
        for (int n = 0; n < pass[i].nvisit; n++)
            *v++ = make_visit(p, &pass[i], pass[i].backward ? units - 1 - n : n,
                              is_step && !pass[i].backward, pass[i].micro + 1 == count / 2);
    }
    *v = (struct Visit){.unit = -1, .group = {-1, -1}, .trained = -1, .micro = SIZE_MAX};
    for (v = list; v->unit >= 0; v++)
        v->keep_resident = v->ngroup && v[1].ngroup && v[1].group[0] == v->group[0];
    return list;
}

static void open_events(struct Zero *z) {
    struct Device *d = z->device;
    z->handed_over[0][QUEUE_COMPUTE] = device_open_event(d, "weights made");
    z->handed_over[0][QUEUE_COMM] = device_open_event(d, "weights gathered");
    z->handed_over[0][QUEUE_IN] = device_open_event(d, "weights part arrived");
    z->handed_over[1][QUEUE_COMPUTE] = device_open_event(d, "backward done");
    z->handed_over[1][QUEUE_COMM] = device_open_event(d, "gradient reduced");
}

static void close_events(struct Zero *z) {
    for (int q = 0; q < NQUEUE; q++)
        for (int kind = 0; kind < 2; kind++)
            device_close_event(z->device, z->handed_over[kind][q]);
}

void zero_open_mark(struct Zero *z, struct Mark *m, const char *name) {
    mark_open(m, name, z->device, z->backing.host);
}

// ---- opening and closing ----

// True if a hop of the stage is for group g. A frozen one has no gradient; another rank counts a
// copy's norm; a rank alone publishes only what is quantized; packed groups are not published.
static bool adds_hop(const struct Zero *z, int g, enum ChainKind kind, const struct Hop *hop) {
    bool alone = z->shard_group->size == 1 && !z->plan.unquantized_shard;
    bool counted_elsewhere = hop == &hop_grad_norm && z->params->group[g].copy;
    bool trains = kind == FETCH || kind == PUBLISH || zero_trains(z, g);
    bool published = !alone && !params_packs(z->params, g);
    return hop && trains && !counted_elsewhere && !(kind == PUBLISH && !published);
}

static void open_group(struct Zero *z, int g) {
    const struct ZeroPlan *p = &z->plan;
    struct GroupState *s = &z->state[g];
    *s = (struct GroupState){
        .slots = p->weight_slots || params_packs(z->params, g) ? &z->weights[ring_of(z->params, g)]
                                                               : NULL,
        .param_tier = p->param.tier,
        .grad_tier = p->grad.tier,
        .optimizer_tier = p->optimizer.tier,
        .grad_begin = zero_part_begin(z, &p->grad, g),
        .grad_numel = zero_trains(z, g) ? zero_part_numel(z, &p->grad, g) : 0,
        .masters = zero_trains(z, g) ? p->masters : &zero_masters_none,
        .update_dst = zero_has_master(z, g) ? zero_own_block(z, g) : NULL,
    };
    s->message_bytes = zero_shard_numel(z, g) * dtype_size(p->param.dtype);
    if (p->grad.shard_group && zero_trains(z, g))
        s->buckets = &z->buckets[ring_of(z->params, g)];
    for (int kind = 0; kind < NCHAIN; kind++)
        for (int i = 0; i < STAGE_HOPS; i++)
            if (adds_hop(z, g, (enum ChainKind)kind, z->stage->hops[kind][i]))
                chain_add(&s->chain[kind], z->stage->hops[kind][i], NULL);
    if (params_packs(z->params, g)) {
        s->message_bytes = weights_bytes(z, g);
        p->pack->attach(z, g);
    }
    zero_open_mark(z, &s->updated, "group updated");
    zero_open_mark(z, &s->gathered, "group gathered");
    z->backing.ops->attach(z, g);
}

int zero_open(struct Zero *z, const struct ZeroOptions *options, const struct ZeroPlan *plan,
              struct Error *e) {
    const struct Params *params = z->params;
    struct Tier *tier = &options->tier[TIER_DEVICE];
    z->plan = *plan;
    z->stage = zero_stage(options->stage);
    z->loss_scale_settings = options->dtype == F16 ? options->loss_scale : loss_scale_none;
    z->loss_scale = loss_scale_start(&z->loss_scale_settings);
    CHECK(z->loss_scale.scale > 0, "a loss scale of %g", z->loss_scale.scale);
    size_t n = (size_t)params->ngroup;
    z->state = base_alloc_zeroed(n * sizeof *z->state);
    z->w = base_alloc_zeroed(n * sizeof *z->w);
    z->dw = base_alloc_zeroed(n * sizeof(struct Grad));
    z->npass = 2 * plan->nmicro;
    z->pass = base_alloc_zeroed((z->npass + 1) * sizeof *z->pass);
    z->forward_pass = z->pass + z->npass;
    z->parallel->list(z->parallel, plan->nmicro, z->pass);
    z->step_visits = list_visits(params, z->pass, z->npass);
    *z->forward_pass = (struct Pass){.receives = z->parallel->stage > 0,
                                     .sends = z->parallel->stage + 1 < z->parallel->stages};
    z->forward_visits = list_visits(params, z->forward_pass, 1);
    open_events(z);
    int err = 0;
    for (int g = 0; g < params->ngroup; g++)
        open_group(z, g);
    for (int g = 0; g < params->ngroup && !err; g++)
        err = alloc_group(z, g, e);
    for (int ring = 0; ring < NRING && !err; ring++)
        err = alloc_slots(z, (enum Ring)ring, tier, e);
    if (!err)
        err = z->backing.ops->open(z, e);
    return err ? err : reports_open(z, tier, e);
}

static void close_group(struct GroupState *s) {
    struct Block *blocks[] = {&s->param, &s->unquantized, &s->grad, &s->master, &s->m, &s->v};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        tier_free(blocks[i]);
    mark_close(&s->updated);
    mark_close(&s->gathered);
}

void zero_close(struct Zero *z) {
    if (!z->state)
        return;
    for (int g = 0; g < z->params->ngroup; g++)
        close_group(&z->state[g]);
    z->backing.ops->close(z);
    for (int ring = 0; ring < NRING; ring++) {
        slots_close(&z->weights[ring]);
        slots_close(&z->buckets[ring]);
    }
    reports_close(z);
    close_events(z);
    free(z->state);
    free(z->w);
    free(z->dw);
    free(z->step_visits);
    free(z->pass);
    free(z->forward_visits);
    *z = (struct Zero){0};
}

// ---- a model whose layers are all on each rank ----

// Each micro-batch's backward pass follows its forward pass.
static void list_passes(const struct Parallel *parallel, size_t nmicro, struct Pass *out) {
    (void)parallel;
    for (size_t i = 0; i < 2 * nmicro; i++)
        out[i] = (struct Pass){.micro = i / 2, .backward = i % 2};
}

static void exchange_nothing(struct Zero *z, const struct Pass *p, struct Acts *acts) {
    (void)z;
    (void)p;
    (void)acts;
}

const struct Parallel zero_parallel_none = {.grid = {{1, 1, 1, 1}},
                                            .stages = 1,
                                            .list = list_passes,
                                            .receive = exchange_nothing,
                                            .send = exchange_nothing};

// ---- state that is on the device ----

static void do_nothing(struct Zero *z) {
    (void)z;
}
static void do_nothing_around_visit(struct Zero *z, const struct Visit *v) {
    (void)z;
    (void)v;
}
static int open_nothing(struct Zero *z, struct Error *e) {
    (void)z;
    (void)e;
    return 0;
}
static void do_nothing_for_group(struct Zero *z, int g) {
    (void)z;
    (void)g;
}
static bool return_false(const struct Zero *z) {
    (void)z;
    return false;
}

static void sync_queues(struct Zero *z) {
    for (int q = 0; q < NQUEUE; q++)
        device_sync_queue(z->device, (enum Queue)q);
}

static void copy_device(struct Zero *z, const struct Block *b, size_t offset, void *mem,
                        size_t bytes, bool to_block) {
    char *at = (char *)b->mem + offset;
    enum Queue q = to_block ? QUEUE_IN : QUEUE_OUT; // the device's
    device_copy(z->device, q, to_block ? at : mem, to_block ? mem : at, bytes);
    device_sync_queue(z->device, q);
}

static const struct BackingOps on_device = {
    .attach = do_nothing_for_group,
    .open = open_nothing,
    .close = do_nothing,
    .weights_due = do_nothing_for_group,
    .before_unit = do_nothing_around_visit,
    .after_unit = do_nothing_around_visit,
    .step_reported = do_nothing,
    .step_queued = do_nothing,
    .sync = sync_queues,
    .finish = sync_queues,
    .install_new_weights = do_nothing,
    .init = zero_init_group,
    .store = zero_store_group,
    .after_store = zero_after_store_group,
    .copy = copy_device,
    .is_late = return_false,
};

const struct Backing zero_on_device = {.ops = &on_device};
