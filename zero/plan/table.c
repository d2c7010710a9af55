// Footprints as text and as JSON: what each rank takes, and where ranks share a process the process
// too. After a run the measurement stands beside the forecast.
#include "zero/plan/table.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 2 };
#define AT(field) offsetof(struct Footprint, field)

struct Columns {
    FILE *out;
    int n;
    const struct Footprint *of[MAX_COLUMNS];
    const char *unit; // of which they say what is sent and moved
};

static void print_row(const struct Columns *c, const char *name, const size_t bytes[]) {
    fprintf(c->out, "  %-16s", name);
    for (int i = 0; i < c->n; i++)
        fprintf(c->out, " %10.2f", (double)bytes[i] / (1 << 20));
    fputc('\n', c->out);
}

static void print_head(const struct Columns *c, const char *what, const char *one,
                       const char *second) {
    fprintf(c->out, "%-18s %10s", what, c->n > 1 ? "predicted" : one);
    fprintf(c->out, c->n > 1 ? " %10s\n" : "\n", second);
}

// Prints a row of the bytes that each footprint has at `at`, if any has some, or always; and a line
// if a measurement is not the forecast: it must be, to the byte.
static void print_counted(const struct Columns *c, const char *name, size_t at, bool always) {
    size_t bytes[MAX_COLUMNS] = {0};
    for (int i = 0; i < c->n; i++)
        bytes[i] = *(const size_t *)((const char *)c->of[i] + at);
    if (always || bytes[0] || bytes[1])
        print_row(c, name, bytes);
    if (c->n > 1 && bytes[0] != bytes[1])
        fprintf(c->out, "  %s: predicted %zu bytes, measured %zu\n", name, bytes[0], bytes[1]);
}
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "bytes are counted in both");

static bool is_used(const struct Footprint *f, enum TierKind kind) {
    return kind == TIER_DEVICE || f->tier[kind].peak > 0;
}

// Returns the footprint of the rank that is shown: a plan shows of each tier the one that takes
// most of it; a run, the one that has measured.
static const struct Footprint *shown_footprint(const struct Columns *c, const struct Forecast *f,
                                               enum TierKind kind) {
    return c->n > 1 ? &f->is : &f->demand.of[kind].is;
}

// Prints a tier's limit in the table's unit and in those in which it may be given: 24G, of 1000s,
// is less than 24Gi.
static void print_limit(FILE *out, const char *flag, size_t bytes) {
    if (bytes && bytes != SIZE_MAX)
        fprintf(out, "  %-16s %10.2f  %.2f GB, %.2f GiB\n", flag, (double)bytes / (1 << 20),
                (double)bytes / 1e9, (double)bytes / (1 << 30));
}

// Prints a tier's rows by tag; but for the device's, only those that hold something.
static void print_tier(const struct Columns *c, const struct Forecast *f, enum TierKind kind) {
    size_t row[MAX_COLUMNS];
    char name[32];
    snprintf(name, sizeof name, "%s (MiB)",
             kind == TIER_DEVICE || c->n == 1 ? "memory" : tier_name(kind));
    print_head(c, name, tier_name(kind), "measured");
    for (int tag = 0; tag < NTAG; tag++)
        print_counted(c, tag_name((enum Tag)tag), AT(tier[kind].most[tag]), kind == TIER_DEVICE);
    for (int i = 0; i < c->n; i++)
        row[i] = c->of[i]->tier[kind].peak;
    int most = f->demand.of[kind].rank, rank = c->n > 1 ? f->settings.rank : most;
    if (f->unlike)
        snprintf(name, sizeof name, "rank %d%s", rank, rank == most ? ", the most" : "");
    else
        snprintf(name, sizeof name, "each of %d ranks", f->settings.ranks);
    print_row(c, f->settings.ranks > 1 ? name : "sum", row);
    if (c->n == 1 && kind == TIER_DEVICE)
        print_limit(c->out, "--device-mem", f->settings.device_bytes);
    if (c->n == 1 && kind == TIER_CPU)
        print_limit(c->out, "--host-mem-per-rank", f->settings.rank_host_bytes);
}

// Prints the bytes of a node's ranks together, with buffers; nothing for one, printed already.
static void print_node(const struct Columns *c, const struct Forecast *f) {
    int ranks = footprint_node_ranks(&f->settings);
    char name[32];
    snprintf(name, sizeof name, "node of %d", ranks);
    if (c->n > 1 || !f->demand.node_bytes)
        return;
    if (ranks > 1)
        print_row(c, name, &f->demand.node_bytes);
    print_limit(c->out, "--host-mem", f->settings.host_bytes);
}

static void print_memory(const struct Columns *c, const struct Forecast *f) {
    size_t row[MAX_COLUMNS];
    for (enum TierKind kind = TIER_DEVICE; kind < NTIER; kind++)
        if (is_used(shown_footprint(c, f, kind), kind))
            print_tier(
                &(struct Columns){c->out, c->n, {shown_footprint(c, f, kind), c->of[1]}, NULL}, f,
                kind);
    const struct Footprint *on_disk = shown_footprint(c, f, TIER_NVME);
    if (c->n == 1 && on_disk->io_bytes)
        print_row(c, "buffers on host", &on_disk->io_bytes);
    print_node(c, f);
    if (!f->is.process_bytes) // a plan for a GPU that is not here: what CUDA takes is not known
        return;
    if (c->n == 1)
        print_row(c, "process itself", &f->is.process_bytes);
    for (int i = 0; i < c->n; i++)
        row[i] = c->of[i]->all_bytes;
    print_row(c, "all, about", row); // tags are exact, the process itself is not
    for (int i = 0; i < c->n; i++)
        row[i] = c->of[i]->host_bytes;
    if (f->settings.device == DEVICE_CUDA && settings_needs_offload(&f->settings))
        print_row(c, "host, about", row);
}

// Returns for what a forecast says what is sent, moved and computed.
static const char *time_unit(const struct RankSettings *s) {
    return !s->inference ? "step" : s->cache_tokens ? "token" : "batch";
}

static void print_moving(const struct Columns *c, const char *verb, const char *who) {
    char what[32];
    snprintf(what, sizeof what, "%s a %s (MiB)", verb, c->unit);
    print_head(c, what, who, "counted");
}

static void print_traffic(const struct Columns *c, const char *who) {
    size_t sum[MAX_COLUMNS] = {0};
    print_moving(c, "sent", who);
    for (int kind = 0; kind < NCOLLECTIVE; kind++) {
        for (int i = 0; i < c->n; i++)
            sum[i] += c->of[i]->traffic.bytes[kind];
        print_counted(c, collective_name((enum Collective)kind), AT(traffic.bytes[kind]), false);
    }
    print_row(c, "sum", sum);
    print_counted(c, "to other nodes", AT(traffic.inter_node), false);
}

// Prints the bytes that cross the bus and go to and from the disk, if there are any.
static void print_moved(const struct Columns *c, const char *who) {
    uint64_t all = 0;
    for (int i = 0; i < c->n; i++) {
        const struct Moved *m = &c->of[i]->moved;
        all += m->in + m->out + m->read + m->written;
    }
    if (all)
        print_moving(c, "moved", who);
    print_counted(c, "to the device", AT(moved.in), false);
    print_counted(c, "from the device", AT(moved.out), false);
    print_counted(c, "from disk", AT(moved.read), false);
    print_counted(c, "to disk", AT(moved.written), false);
}

// Prints the time of a part of a step, and what it follows from; nothing if it takes none, or is
// not known.
static void print_time(FILE *out, const char *name, double seconds, const char *note, ...) {
    va_list args;
    if (!(seconds > 0))
        return;
    fprintf(out, "  %-16s %10.2f  ", name, seconds * 1e3);
    va_start(args, note);
    vfprintf(out, note, args);
    va_end(args);
    fputc('\n', out);
}

// Prints the bounds of a rank's step. Says that the speed of a disk is not known if the disk is not
// named, or not here.
static void print_bound(FILE *out, const struct Forecast *f) {
    const struct Speeds *s = &f->speeds;
    struct Bound b = bound_of(&f->work, s);
    const char *longest = bound_longest(&b),
               *updates = f->work.update > 0 ? ", and the update" : "";
    char takes[32];
    if (!(b.compute > 0 || b.bus > 0 || b.disk > 0 || b.host > 0))
        return;
    snprintf(takes, sizeof takes, "a %s takes (ms)", time_unit(&f->settings));
    fprintf(out, "%-18s %10s\n", takes, "at least");
    print_time(out, "compute", b.compute, "at %.3g GFLOP/s%s", s->flops / 1e9, updates);
    print_time(out, "host's update", b.host, "at %.3g GB/s", s->host_update / 1e9);
    print_time(out, "bus", b.bus, "at %.3g GB/s to the device, %.3g from it", s->in / 1e9,
               s->out / 1e9);
    print_time(out, "network", b.sent, "at %.3g GB/s from each rank", s->sent / 1e9);
    print_time(out, "disk", b.disk, "at %.3g GB/s read, %.3g written, by all ranks", s->read / 1e9,
               s->written / 1e9);
    if (!(b.disk > 0) && settings_uses_disk(&f->settings))
        fprintf(out, "  %-16s not known%s\n", "disk",
                f->settings.nvme.folder ? "" : ": --nvme-path names none");
    print_time(out, time_unit(&f->settings), b.step, "the %s takes longest",
               strcmp(longest, "compute") ? longest : "computation");
}

// Prints the device and the dtype, and who chose them if the user did not.
static void print_device(FILE *out, const struct RankSettings *s) {
    const char *const names[] = {"device", "dtype"};
    const char *const values[] = {device_kind_name(s->device), dtype_name(s->model.dtype)};
    const char *const from[] = {s->device_from, s->dtype_from};
    for (int i = 0; i < 2; i++)
        fprintf(out, "%s%s: %s%s%s%s", i ? ", " : "", names[i], values[i], from[i] ? " (" : "",
                from[i] ? from[i] : "", from[i] ? ")" : "");
    fputc('\n', out);
}

void table_print(FILE *out, const struct Forecast *f, const struct Footprint *measured) {
    struct Columns c = {out, measured ? 2 : 1, {&f->is, measured}, time_unit(&f->settings)};
    char rank[24];
    snprintf(rank, sizeof rank, "rank %d", f->settings.rank);
    const char *who = f->unlike ? rank : "each rank";
    print_memory(&c, f);
    if (f->settings.ranks > 1 && (!measured || measured->stepped))
        print_traffic(&c, who);
    if (settings_needs_offload(&f->settings) && (!measured || measured->moved_known))
        print_moved(&c, who);
    if ((settings_needs_offload(&f->settings) || f->speeds.whose[0]) && !measured)
        print_bound(out, f);
    if (!measured) {
        print_device(out, &f->settings);
        if (f->speeds.whose[0])
            fprintf(out, "rates: %s: no GPU is here; --cluster names another\n", f->speeds.whose);
        uint64_t trained = params_trained(&f->settings.model);
        fprintf(out, "parameters: %llu", (unsigned long long)f->parameters);
        if (trained < f->parameters)
            fprintf(out, ", of which %llu are trained", (unsigned long long)trained);
        fputc('\n', out);
    }
    fflush(out);
}

// ---- stages of a pipeline ----

// Writes "embedding, 0-3", "4" or "5-7, head".
static void describe_part(const struct StageHas *has, char *text, size_t bytes) {
    int at = snprintf(text, bytes, "%s", has->embedding ? "embedding" : "");
    if (has->layers)
        at += snprintf(text + at, bytes - (size_t)at, "%s%d", at ? ", " : "", has->first_layer);
    if (has->layers > 1)
        at += snprintf(text + at, bytes - (size_t)at, "-%d", has->first_layer + has->layers - 1);
    if (has->head)
        snprintf(text + at, bytes - (size_t)at, "%shead", at ? ", " : "");
}

static bool is_used_by_any(const struct PipelineForecast *s, enum TierKind kind) {
    int i = 0;
    while (i < s->n && !is_used(&s->stage[i].is, kind))
        i++;
    return i < s->n;
}

void table_print_pipeline(FILE *out, const struct PipelineForecast *s) {
    if (!s->n)
        return;
    fprintf(out, "stages: layers (MiB)       parameters");
    for (enum TierKind kind = TIER_DEVICE; kind < NTIER; kind++)
        if (is_used_by_any(s, kind))
            fprintf(out, " %10s", tier_name(kind));
    fprintf(out, " %10s %7s\n", "swaps", "work");
    for (int i = 0; i < s->n; i++) {
        const struct Footprint *is = &s->stage[i].is;
        char part[64];
        describe_part(&s->stage[i].stage, part, sizeof part);
        fprintf(out, "  %-3d %-20s %11llu", i, part,
                (unsigned long long)s->stage[i].stage.parameters);
        for (enum TierKind kind = TIER_DEVICE; kind < NTIER; kind++)
            if (is_used_by_any(s, kind))
                fprintf(out, " %10.2f", (double)is->tier[kind].peak / (1 << 20));
        fprintf(out, " %10.2f %6.1f%%\n", (double)is->traffic.bytes[COMM_SWAP] / (1 << 20),
                pipeline_share(s, i) * 100);
    }
    fprintf(out, "bubble: stages wait %.1f%% of a step\n", s->bubble * 100);
    fflush(out);
}

// ---- JSON ----

// Numbers are whole bytes, written out in full, since a double would round those past 2^53.
static void add_number(cJSON *to, const char *name, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    cJSON_AddRawToObject(to, name, text);
}

char *table_print_json(cJSON *o) {
    char *text = cJSON_Print(o), *line = base_format("%s\n", text);
    cJSON_free(text);
    cJSON_Delete(o);
    return line;
}

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
    add_number(model, "trained", params_trained(&s->model));
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

static uint64_t tag_bytes(const struct Footprint *f, enum Tag tag) {
    uint64_t bytes = 0;
    for (int kind = 0; kind < NTIER; kind++)
        bytes += f->tier[kind].most[tag];
    return bytes;
}

// Adds the tiers that are used, one after another; peak is the device's.
static void add_footprint(cJSON *to, const struct Footprint *f) {
    cJSON *tiers = cJSON_AddArrayToObject(to, "tiers");
    for (enum TierKind kind = TIER_DEVICE; kind < NTIER; kind++)
        if (is_used(f, kind))
            add_tier(tiers, &f->tier[kind]);
    add_number(to, "peak", f->tier[TIER_DEVICE].peak);
    cJSON *states = cJSON_AddObjectToObject(to, "model_states");
    add_number(states, "param", tag_bytes(f, TAG_PARAM));
    add_number(states, "grad", tag_bytes(f, TAG_GRAD));
    add_number(states, "optimizer", tag_bytes(f, TAG_OPTIMIZER));
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

// Adds the bounds that are known, in seconds.
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
    if (settings_needs_offload(&f->settings) || f->speeds.whose[0])
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
    return table_print_json(o);
}

// ---- a parameter count ----

// Prints the model states. If something is offloaded: also the tier of each, and a sum for each
// tier; of the host's, also that of a node's ranks.
static void print_states(FILE *out, const struct ModelStates *s,
                         const struct RankSettings *settings) {
    int node = footprint_node_ranks(settings);
    const char *const names[] = {"parameters", "gradients", "optimizer"};
    uint64_t rows[] = {s->param, s->grad, s->optimizer};
    enum TierKind tiers[] = {s->param_tier, s->grad_tier, s->opt_tier};
    bool offloads = s->param_tier != TIER_DEVICE || s->opt_tier != TIER_DEVICE;
    double ranks = (double)s->ranks;
    fprintf(out, "model states of %llu parameters, GB on each of %llu ranks\n",
            (unsigned long long)s->parameters, (unsigned long long)s->ranks);
    for (int i = 0; i < 3; i++)
        fprintf(out, "  %-16s %12.3f%s%s\n", names[i], (double)rows[i] / ranks / 1e9,
                offloads ? "  " : "", offloads ? tier_name(tiers[i]) : "");
    for (int kind = 0; kind < NTIER; kind++)
        if (offloads && s->sum[kind])
            fprintf(out, "  %-16s %12.3f  %s\n", "sum", (double)s->sum[kind] / ranks / 1e9,
                    tier_name((enum TierKind)kind));
    if (s->sum[TIER_CPU] && node > 1)
        fprintf(out, "  node of %-8d %12.3f  %s\n", node,
                (double)s->sum[TIER_CPU] / ranks / 1e9 * node, tier_name(TIER_CPU));
    if (!offloads)
        fprintf(out, "  %-16s %12.3f\n", "sum", (double)s->sum[TIER_DEVICE] / ranks / 1e9);
    print_device(out, settings);
}

// Refuses a run whose states alone, of one rank or of a node's, exceed what the user allows of a
// tier.
static int check_states(const struct ModelStates *s, const struct RankSettings *settings,
                        struct Error *e) {
    int node = footprint_node_ranks(settings);
    const struct {
        const char *flag;
        enum TierKind kind;
        size_t most;
        int ranks;
    } limits[] = {{"--device-mem", TIER_DEVICE, settings->device_bytes, 1},
                  {"--host-mem-per-rank", TIER_CPU, settings->rank_host_bytes, 1},
                  {"--host-mem", TIER_CPU, settings->host_bytes, node}};
    char who[32] = "each rank";
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        double most = (double)limits[i].most;
        double bytes = (double)s->sum[limits[i].kind] / (double)s->ranks * limits[i].ranks;
        if (limits[i].ranks > 1)
            snprintf(who, sizeof who, "a node of %d ranks", node);
        bool device = limits[i].kind == TIER_DEVICE, higher = zero_stage(settings->stage + 1);
        enum TierKind from = device ? TIER_DEVICE : TIER_CPU;
        bool movable = s->param_tier == from || s->opt_tier == from;
        const char *offload = !device ? "offload them to nvme"
                              : s->opt_tier == TIER_DEVICE
                                  ? "offload them (--offload-optimizer cpu)"
                                  : "offload them (--offload-param cpu)";
        if (most > 0 && bytes > most)
            return error_set(e, -ENOMEM, E_MEMORY,
                             "%s %.3f GB is too small: model states alone take %.3f GB on %s; use "
                             "more --ranks%s%s%s%s",
                             limits[i].flag, most / 1e9, bytes / 1e9, who,
                             higher ? movable ? ", a higher --zero" : " or a higher --zero" : "",
                             movable ? ", or " : "", movable ? offload : "",
                             higher || movable ? "" : " or a smaller model");
    }
    return 0;
}

// Adds a fraction in lowest terms, and as a number.
static void add_share(cJSON *to, const char *name, uint64_t numerator, uint64_t denominator) {
    uint64_t divisor = size_gcd(numerator, denominator);
    cJSON *share = cJSON_AddObjectToObject(to, name);
    add_number(share, "numerator", numerator / divisor);
    add_number(share, "denominator", denominator / divisor);
    cJSON_AddNumberToObject(share, "bytes", (double)numerator / (double)denominator);
}

// Returns the JSON of model states; free() it. node: ranks of one.
static char *json_of_states(const struct ModelStates *s, const struct ZeroOptions *options,
                            int node) {
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
    cJSON *tiers = cJSON_AddObjectToObject(o, "tiers");
    for (int kind = 0; kind < NTIER; kind++)
        if (s->sum[kind])
            add_share(tiers, tier_name((enum TierKind)kind), s->sum[kind], s->ranks);
    uint64_t divisor = size_gcd((uint64_t)node, s->ranks);
    add_share(o, "node_host", s->sum[TIER_CPU] * ((uint64_t)node / divisor), s->ranks / divisor);
    return table_print_json(o);
}

int table_of_parameters(FILE *out, uint64_t parameters, const struct RankSettings *settings,
                        bool json, struct Error *e) {
    struct ZeroOptions options = settings_zero(settings);
    struct OffloadOptions offload = {.param_tier = settings->param_tier,
                                     .opt_tier = settings->opt_tier,
                                     .ratio = 1,
                                     .delayed = settings->delayed};
    struct ModelStates s;
    int err = footprint_of_parameters(parameters, &options, &offload, settings->ranks, &s, e);
    if (err)
        return err;
    int node = footprint_node_ranks(settings);
    char *text = json ? json_of_states(&s, &options, node) : NULL;
    if (json)
        fputs(text, out);
    else
        print_states(out, &s, settings);
    free(text);
    return check_states(&s, settings, e);
}
