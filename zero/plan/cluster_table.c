// A cluster's forecast in print: see cluster.h.
#include "zero/plan/cluster.h"
#include "zero/plan/table.h"

#include "kernels/show.h"

#include <cjson/cJSON.h>

// The parts of a step, one after another; together they are the step.
enum { NPART = 6 };
static const struct {
    const char *text, *key;
    size_t at;
} parts[NPART] = {
    {"kernels", "kernels", offsetof(struct ClusterForecast, kernels)},
    {"tensor sums", "tensor_sums", offsetof(struct ClusterForecast, sums)},
    {"stage to stage", "stage_to_stage", offsetof(struct ClusterForecast, handed)},
    {"bubble", "bubble", offsetof(struct ClusterForecast, bubble)},
    {"update", "update", offsetof(struct ClusterForecast, update)},
    {"waits", "waits", offsetof(struct ClusterForecast, waits)},
};

static double part_of(const struct ClusterForecast *f, int i) {
    return *(const double *)((const char *)f + parts[i].at);
}

static double gpus(const struct ClusterForecast *f) {
    return (double)f->rank.settings.ranks;
}

static double speed(const struct ClusterForecast *f) {
    return f->tokens / f->step / gpus(f); // tokens per second, of a GPU
}

// ---- text ----

static void print_row(FILE *out, const char *name, double value, const char *format, double note) {
    fprintf(out, "  %-16s %12.2f", name, value);
    if (format)
        fprintf(out, format, note);
    fputc('\n', out);
}

static void print_grid(FILE *out, const struct Cluster *c, const struct ClusterForecast *f) {
    const struct RankSettings *s = &f->rank.settings;
    size_t nodes = ceil_div((size_t)s->ranks, c->node_gpus);
    char name[4 * sizeof c->name]; // a file's
    show_line(name, sizeof name, c->name);
    fprintf(out, "%s: %d GPUs on %zu node%s\n", name, s->ranks, nodes, nodes > 1 ? "s" : "");
    fprintf(out,
            "grid: tp %zu, pp %zu, dp %zu; ZeRO stage %d; a step of %zu micro-batch%s of %zu, "
            "%.0f tokens\n",
            f->tp_size, f->stages, f->data, s->stage, s->nmicro, s->nmicro > 1 ? "es" : "",
            s->batch, f->tokens);
    fprintf(out, "parameters: %.0f\n", f->parameters);
}

static void print_memory(FILE *out, const struct Cluster *c, const struct ClusterForecast *f) {
    const struct RankSettings *s = &f->rank.settings;
    fprintf(out, "%-18s %12s\n", "memory (GB)", "needed");
    print_row(out, "each GPU", (double)f->device / 1e9, "  of %.2f",
              (double)cluster_limit(c->device_bytes, s->device_bytes) / 1e9);
    if (s->rank_host_bytes)
        print_row(out, "each GPU's host", (double)f->rank.is.tier[TIER_CPU].peak / 1e9, "  of %.2f",
                  (double)s->rank_host_bytes / 1e9);
    if (f->host)
        print_row(out, "each node's host", (double)f->host / 1e9, "  of %.2f",
                  (double)cluster_limit(c->host_bytes, s->host_bytes) / 1e9);
    if (f->disk)
        print_row(out, "each node's disks", (double)f->disk / 1e9, "  of %.2f",
                  (double)c->disk_bytes / 1e9);
}

static void print_step(FILE *out, const struct ClusterForecast *f) {
    const struct Bound *b = &f->bound;
    const struct {
        const char *name;
        double seconds;
    } overlapping[] = {{"ZeRO's network", b->sent},
                       {"bus to the host", b->bus},
                       {"host's update", b->host},
                       {"disks", b->disk}};
    fprintf(out, "%-18s %12s\n", "a step (ms)", "takes");
    for (int i = 0; i < NPART; i++)
        if (part_of(f, i) > 0)
            print_row(out, parts[i].text, part_of(f, i) * 1e3, "  %.1f%%",
                      part_of(f, i) / f->step * 100);
    print_row(out, "sum", f->step * 1e3, NULL, 0);
    fprintf(out, "%-18s %12s\n", "beside it (ms)", "hidden or not");
    for (int i = 0; i < 4; i++)
        if (overlapping[i].seconds > 0)
            print_row(out, overlapping[i].name, overlapping[i].seconds * 1e3, NULL, 0);
}

// Prints what of the forecast no run can do yet.
static void print_limits(FILE *out, const struct ClusterForecast *f) {
    const struct RankSettings *s = &f->rank.settings;
    if (s->ranks > GPU_MAX_RANKS)
        fprintf(out, "more than %d GPUs are predicted alone: no run has them\n", GPU_MAX_RANKS);
    if (s->model.channels > GPU_MAX_CHANNELS)
        fprintf(out, "more than %d channels are predicted alone: no GPU's kernels take them\n",
                GPU_MAX_CHANNELS);
}

void cluster_print(FILE *out, const struct Cluster *c, const struct ClusterForecast *f) {
    print_grid(out, c, f);
    print_memory(out, c, f);
    print_step(out, f);
    fprintf(out, "%.0f tokens/s on each GPU, %.1f TFLOP/s of the model's\n", speed(f),
            speed(f) * f->flops_per_token / 1e12);
    print_limits(out, f);
    fflush(out);
}

// ---- JSON ----

static void add_seconds(cJSON *to, const struct ClusterForecast *f) {
    static const char *const phases[NSENDPHASE] = {"forward", "backward", "last", "update"};
    cJSON *seconds = cJSON_AddObjectToObject(to, "seconds");
    for (int i = 0; i < NPART; i++)
        cJSON_AddNumberToObject(seconds, parts[i].key, part_of(f, i));
    cJSON_AddNumberToObject(seconds, "step", f->step);
    cJSON *overlapping = cJSON_AddObjectToObject(to, "beside");
    for (int i = 0; i < NSENDPHASE; i++)
        cJSON_AddNumberToObject(overlapping, phases[i], f->sent[i]);
    cJSON_AddNumberToObject(overlapping, "bus", f->bound.bus);
    cJSON_AddNumberToObject(overlapping, "host", f->bound.host);
    cJSON_AddNumberToObject(overlapping, "disk", f->bound.disk);
}

char *cluster_json(const struct Cluster *c, const struct ClusterForecast *f) {
    const struct RankSettings *s = &f->rank.settings;
    struct Error ignored;
    cJSON *o = cJSON_CreateObject();
    const struct {
        const char *key;
        double value;
    } number[] = {{"ranks", gpus(f)},
                  {"tp", (double)f->tp_size},
                  {"pp", (double)f->stages},
                  {"dp", (double)f->data},
                  {"stage", s->stage},
                  {"batch", (double)s->batch},
                  {"micro_batches", (double)s->nmicro},
                  {"parameters", f->parameters},
                  {"tokens", f->tokens},
                  {"device", (double)f->device},
                  {"host", (double)f->host},
                  {"disk", (double)f->disk},
                  {"tokens_per_second", speed(f)},
                  {"flops_per_token", f->flops_per_token}};
    cJSON_AddStringToObject(o, "cluster", c->name);
    for (size_t i = 0; i < sizeof number / sizeof number[0]; i++)
        cJSON_AddNumberToObject(o, number[i].key, number[i].value);
    cJSON_AddBoolToObject(o, "fits", cluster_check_room(c, f, &ignored) == 0);
    add_seconds(o, f);
    return table_print_json(o);
}
