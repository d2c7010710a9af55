// Footprints as JSON: see table.h. Numbers are whole bytes, written out in full, since a double
// would round those past 2^53.
#include "zero/plan/table.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>

static void add_number(cJSON *to, const char *name, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    cJSON_AddRawToObject(to, name, text);
}

static char *print(cJSON *o) {
    char *text = cJSON_Print(o), *line = base_format("%s\n", text);
    cJSON_free(text);
    cJSON_Delete(o);
    return line;
}

// ---- a model ----

static void add_model(cJSON *to, const struct Forecast *f) {
    const struct RankSettings *s = &f->settings;
    cJSON *model = cJSON_AddObjectToObject(to, "model");
    cJSON_AddStringToObject(model, "family", s->model.family->name);
    add_number(model, "layers", s->model.layers);
    add_number(model, "heads", s->model.heads);
    add_number(model, "channels", s->model.channels);
    add_number(model, "kv_heads", s->model.kv_heads);
    add_number(model, "head_size", s->model.head_size);
    add_number(model, "ffn", s->model.ffn);
    add_number(model, "seq_len", s->model.seq_len);
    add_number(model, "vocab", s->model.vocab);
    add_number(model, "vocab_padded", s->model.vocab_padded);
    add_number(model, "parameters", f->parameters);
    add_number(model, "padded", f->padded);
    add_number(to, "ranks", (uint64_t)s->ranks);
    add_number(to, "shard_size", (uint64_t)settings_shard_ranks(s));
    add_number(to, "hpz_size", s->hpz_size);
    add_number(to, "node_ranks", (uint64_t)settings_node_ranks(s));
    add_number(to, "ranks_here", (uint64_t)f->ranks_here);
    add_number(to, "tp", (uint64_t)settings_tp_size(s));
    add_number(to, "pp", (uint64_t)settings_stages(s));
    cJSON_AddBoolToObject(to, "sequence_parallel", s->sequence_parallel);
    cJSON_AddBoolToObject(to, "partition_activations", s->partition_activations);
    add_number(to, "stage", (uint64_t)s->stage);
    cJSON_AddStringToObject(to, "device", device_kind_name(s->device));
    cJSON_AddStringToObject(to, "dtype", dtype_name(s->model.dtype));
    add_number(to, "rank", (uint64_t)s->rank); // of which this is: no other has more on the device
    cJSON_AddStringToObject(to, "grad_dtype", dtype_name(s->grad_dtype));
    cJSON_AddStringToObject(to, "recompute", recompute_name(s->recompute));
    add_number(to, "batch", s->batch);
    add_number(to, "micro_batches", s->nmicro);
    add_number(to, "prefetch", s->prefetch);
    cJSON_AddStringToObject(to, "param_tier", tier_name(s->param_tier));
    cJSON_AddStringToObject(to, "optimizer_tier", tier_name(s->opt_tier));
    cJSON_AddStringToObject(to, "activation_tier", tier_name(s->act_tier));
}

static void add_tier(cJSON *tiers, const struct Tier *t) {
    cJSON *tier = cJSON_CreateObject();
    cJSON_AddStringToObject(tier, "name", tier_name(t->kind));
    cJSON *tags = cJSON_AddObjectToObject(tier, "tags");
    for (int tag = 0; tag < NTAG; tag++)
        add_number(tags, tag_name((enum Tag)tag), t->most[tag]);
    add_number(tier, "peak", t->peak);
    cJSON_AddItemToArray(tiers, tier);
}

static uint64_t most_of(const struct Footprint *f, enum Tag tag) {
    uint64_t bytes = 0;
    for (int kind = 0; kind < NTIER; kind++)
        bytes += f->tier[kind].most[tag];
    return bytes;
}

// One tier after another, as far as they are used; peak is the device's.
static void add_footprint(cJSON *to, const struct Footprint *f) {
    cJSON *tiers = cJSON_AddArrayToObject(to, "tiers");
    for (enum TierKind kind = TIER_DEVICE; kind < NTIER; kind++)
        if (kind == TIER_DEVICE || f->tier[kind].peak)
            add_tier(tiers, &f->tier[kind]);
    add_number(to, "peak", f->tier[TIER_DEVICE].peak);
    cJSON *states = cJSON_AddObjectToObject(to, "model_states");
    add_number(states, "param", most_of(f, TAG_PARAM));
    add_number(states, "grad", most_of(f, TAG_GRAD));
    add_number(states, "optimizer", most_of(f, TAG_OPTIMIZER));
    add_number(states, "sum", footprint_model_states(f));
    cJSON *traffic = cJSON_AddObjectToObject(to, "traffic");
    uint64_t sum = 0;
    for (int kind = 0; kind < NCOLLECTIVE; kind++) {
        add_number(traffic, collective_name((enum Collective)kind), f->traffic.bytes[kind]);
        sum += f->traffic.bytes[kind];
    }
    add_number(traffic, "sum", sum);
    add_number(traffic, "far", f->traffic.inter_node);
    if (!f->moved_known)
        return;
    cJSON *moved = cJSON_AddObjectToObject(to, "moved");
    add_number(moved, "in", f->moved.in);
    add_number(moved, "out", f->moved.out);
    add_number(moved, "read", f->moved.read);
    add_number(moved, "written", f->moved.written);
}

// In seconds, what is known of it.
static void add_bound(cJSON *to, const struct Forecast *f) {
    struct Bound b = bound_of(&f->work, &f->speeds);
    const char *const names[] = {"compute", "bus", "disk", "host", "network", "step"};
    double seconds[] = {b.compute, b.bus, b.disk, b.host, b.sent, b.step};
    cJSON *bound = cJSON_AddObjectToObject(to, "seconds");
    for (int i = 0; i < 6; i++)
        if (seconds[i] > 0)
            cJSON_AddNumberToObject(bound, names[i], seconds[i]);
    if (b.step > 0)
        cJSON_AddStringToObject(bound, "longest", bound_longest(&b));
}

static void add_stages(cJSON *to, const struct PipelineForecast *s) {
    cJSON *stages = cJSON_AddArrayToObject(to, "stages");
    for (int i = 0; i < s->n; i++) {
        const struct Forecast *f = &s->stage[i];
        cJSON *stage = cJSON_CreateObject(), *peak;
        add_number(stage, "rank", (uint64_t)f->settings.rank); // of which the rest is
        add_number(stage, "first_layer", (uint64_t)f->stage.first_layer);
        add_number(stage, "layers", (uint64_t)f->stage.layers);
        cJSON_AddBoolToObject(stage, "embedding", f->stage.embedding);
        cJSON_AddBoolToObject(stage, "head", f->stage.head);
        add_number(stage, "parameters", f->stage.parameters);
        peak = cJSON_AddObjectToObject(stage, "peak");
        for (enum TierKind kind = TIER_DEVICE; kind < NTIER; kind++)
            add_number(peak, tier_name(kind), f->is.tier[kind].peak);
        add_number(stage, "swaps", f->is.traffic.bytes[COMM_SWAP]);
        cJSON_AddNumberToObject(stage, "work", pipeline_share(s, i));
        cJSON_AddItemToArray(stages, stage);
    }
    cJSON_AddNumberToObject(to, "bubble", s->bubble);
}

char *table_json(const struct Forecast *f, const struct PipelineForecast *pipeline,
                 const struct Footprint *measured, const char *advice) {
    cJSON *o = cJSON_CreateObject();
    add_model(o, f);
    add_footprint(o, &f->is);
    add_number(o, "node_host", f->demand.node_bytes); // of a node's ranks together
    if (pipeline && pipeline->n)
        add_stages(o, pipeline);
    if (settings_offload(&f->settings) || f->speeds.whose[0])
        add_bound(o, f);
    if (f->speeds.whose[0])
        cJSON_AddStringToObject(o, "rates", f->speeds.whose); // of whom
    if (f->is.process_bytes) { // else it is not known, nor the sum with it (table.c)
        add_number(o, "process", f->is.process_bytes);
        add_number(o, "all", f->is.all_bytes);
        if (f->settings.device == DEVICE_CUDA)
            add_number(o, "host", f->is.host_bytes);
    }
    if (measured) {
        cJSON *to = cJSON_AddObjectToObject(o, "measured");
        add_footprint(to, measured);
        add_number(to, "all", measured->all_bytes);
        if (f->settings.device == DEVICE_CUDA)
            add_number(to, "host", measured->host_bytes);
    }
    if (advice)
        cJSON_AddStringToObject(o, "advice", advice);
    return print(o);
}

// ---- a parameter count ----

static uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// A fraction in lowest terms, and as a number.
static void add_share(cJSON *to, const char *name, uint64_t numerator, uint64_t denominator) {
    uint64_t divisor = common_divisor(numerator, denominator);
    cJSON *share = cJSON_AddObjectToObject(to, name);
    add_number(share, "numerator", numerator / divisor);
    add_number(share, "denominator", denominator / divisor);
    cJSON_AddNumberToObject(share, "bytes", (double)numerator / (double)denominator);
}

char *table_json_states(const struct ModelStates *s, const struct ZeroOptions *options, int node) {
    cJSON *o = cJSON_CreateObject();
    add_number(o, "parameters", s->parameters);
    add_number(o, "ranks", s->ranks);
    add_number(o, "stage", (uint64_t)options->stage);
    cJSON_AddStringToObject(o, "dtype", dtype_name(options->dtype));
    cJSON_AddStringToObject(o, "grad_dtype", dtype_name(options->grad_dtype));
    cJSON *states = cJSON_AddObjectToObject(o, "model_states");
    add_share(states, "param", s->param, s->ranks);
    add_share(states, "grad", s->grad, s->ranks);
    add_share(states, "optimizer", s->optimizer, s->ranks);
    add_share(states, "sum", s->param + s->grad + s->optimizer, s->ranks);
    uint64_t sums[NTIER] = {0};
    sums[s->param_tier] += s->param;
    sums[s->grad_tier] += s->grad;
    sums[s->opt_tier] += s->optimizer;
    cJSON *tiers = cJSON_AddObjectToObject(o, "tiers");
    for (int kind = 0; kind < NTIER; kind++)
        if (sums[kind])
            add_share(tiers, tier_name((enum TierKind)kind), sums[kind], s->ranks);
    uint64_t divisor = common_divisor((uint64_t)node, s->ranks);
    add_share(o, "node_host", sums[TIER_CPU] * ((uint64_t)node / divisor), s->ranks / divisor);
    return print(o);
}
