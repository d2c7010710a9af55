// Footprints as text: what each rank takes, and where ranks share a process the process too. After
// a run the measurement stands beside the forecast.
#include "zero/table.h"

#include <stdlib.h>

enum { MAX_COLUMNS = 2 };

struct Columns {
    FILE *out;
    int n;
    const struct Footprint *of[MAX_COLUMNS];
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

// Says it where a measurement is not the forecast: it must be, to the byte.
static void compare(const struct Columns *c, const char *name, const size_t bytes[]) {
    if (c->n > 1 && bytes[0] != bytes[1])
        fprintf(c->out, "  %s: predicted %zu bytes, measured %zu\n", name, bytes[0], bytes[1]);
}

static void print_memory(const struct Columns *c, const struct Forecast *f) {
    size_t row[MAX_COLUMNS];
    char name[32];
    print_head(c, "memory (MiB)", tier_name(TIER_DEVICE), "measured");
    for (int tag = 0; tag < NTAG; tag++) {
        for (int i = 0; i < c->n; i++)
            row[i] = c->of[i]->tier[TIER_DEVICE].most[tag];
        print_row(c, tag_name((enum Tag)tag), row);
        compare(c, tag_name((enum Tag)tag), row);
    }
    for (int i = 0; i < c->n; i++)
        row[i] = c->of[i]->tier[TIER_DEVICE].peak;
    snprintf(name, sizeof name, "each of %d ranks", f->settings.ranks);
    print_row(c, f->settings.ranks > 1 ? name : "sum", row);
    if (!f->is.process_bytes) // a plan for a GPU that is not here: what CUDA takes is not known
        return;
    if (c->n == 1)
        print_row(c, "process itself", &f->is.process_bytes);
    for (int i = 0; i < c->n; i++)
        row[i] = c->of[i]->all_bytes;
    print_row(c, "all", row);
}

static void print_traffic(const struct Columns *c) {
    size_t row[MAX_COLUMNS], sum[MAX_COLUMNS] = {0};
    print_head(c, "sent a step (MiB)", "each rank", "counted");
    for (int kind = 0; kind < NCOLLECTIVE; kind++) {
        bool any = false;
        for (int i = 0; i < c->n; i++) {
            row[i] = c->of[i]->traffic.bytes[kind];
            sum[i] += row[i];
            any = any || row[i];
        }
        if (any)
            print_row(c, collective_name((enum Collective)kind), row);
        compare(c, collective_name((enum Collective)kind), row);
    }
    print_row(c, "sum", sum);
}

void table_print(FILE *out, const struct Forecast *f, const struct Footprint *measured) {
    struct Columns c = {out, measured ? 2 : 1, {&f->is, measured}};
    print_memory(&c, f);
    if (f->settings.ranks > 1 && (!measured || measured->stepped))
        print_traffic(&c);
    if (!measured)
        fprintf(out, "parameters: %llu\n", (unsigned long long)f->parameters);
    fflush(out);
}

static void print_states(FILE *out, const struct ModelStates *s) {
    const char *const names[] = {"parameters", "gradients", "optimizer", "sum"};
    uint64_t rows[] = {s->param, s->grad, s->optimizer, s->param + s->grad + s->optimizer};
    fprintf(out, "model states of %llu parameters, GB on each of %llu ranks\n",
            (unsigned long long)s->parameters, (unsigned long long)s->ranks);
    for (int i = 0; i < 4; i++)
        fprintf(out, "  %-16s %12.3f\n", names[i], (double)rows[i] / (double)s->ranks / 1e9);
}

int table_of_parameters(FILE *out, uint64_t parameters, const struct ZeroOptions *options,
                        int ranks, bool json, struct Error *e) {
    struct ModelStates s;
    int err = footprint_of_parameters(parameters, options, ranks, &s, e);
    if (err)
        return err;
    if (!json) {
        print_states(out, &s);
        return 0;
    }
    char *text = table_json_states(&s, options);
    fputs(text, out);
    free(text);
    return 0;
}
