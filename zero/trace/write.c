// Writes the file of --trace-zero: docs/trace.md has its format.
#include "zero/trace/record.h"
#include "zero/qlora/qlora.h"
#include "kernels/show.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Writer {
    FILE *f;
    const struct ZeroTrace *t;
    const struct ZeroTraceRun *run;
    struct Operations operations;
    struct Lives lives;
    int *id; // (log.n) of the file's blocks; -1: it is not in the file
};

static const char *const tags[NTAG] = {"param",      "grad",      "optimizer",
                                       "activation", "workspace", "comm"};
static const char *const queues[TRACE_QUEUES] = {
    "compute", "comm", "in", "out", "host compute", "host comm", "host in", "host out"};
static const char *const chains[NCHAIN] = {"fetch", "accumulate", "reduce", "update", "publish"};

static void write_text(FILE *f, const char *text) {
    putc('"', f);
    for (; *text; text++)
        if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ')
            fprintf(f, "\\u%04x", (unsigned)(unsigned char)*text);
        else
            putc(*text, f);
    putc('"', f);
}

static double micros_since_begin(const struct Writer *w, double at) {
    return (at - w->operations.begin) * 1e6;
}

// ---- the head ----

// Writes the words of this process's command, as a shell reads them.
static void write_command(FILE *f) {
    char *word = NULL, *line = NULL;
    size_t room = 0, bytes;
    FILE *from = fopen("/proc/self/cmdline", "r"), *to = open_memstream(&line, &bytes);
    if (!to)
        base_out_of_memory(0, "a command");
    for (int i = 0; from && getdelim(&word, &room, 0, from) > 0; i++) {
        if (i)
            putc(' ', to);
        show_word(to, word);
    }
    fclose(to);
    if (from)
        fclose(from);
    write_text(f, line);
    free(line);
    free(word);
}

// Writes what is offloaded; the blocks say to which tier.
static void write_offload(const struct Writer *w) {
    const struct ZeroTraceRun *r = w->run;
    const enum TierKind tier[] = {r->opt_tier, r->param_tier, r->act_tier};
    const char *const what[] = {"optimizer", "param", "activations"};
    const char *comma = "";
    fprintf(w->f, "\"offload\":[");
    for (int i = 0; i < 3; i++) {
        if (tier[i] == TIER_DEVICE)
            continue;
        fprintf(w->f, "%s\"%s\"", comma, what[i]);
        comma = ",";
    }
    fprintf(w->f, "],");
}

static void write_run(const struct Writer *w, uint64_t step) {
    const struct ZeroTraceRun *r = w->run;
    const struct ZeroPlan *plan = &w->t->parts.zero->plan;
    const int *size = r->grid.size;
    FILE *f = w->f;
    fprintf(f, "{\"format\":\"zero.c trace 1\",\n\"run\":{\"model\":");
    write_text(f, r->model);
    fprintf(f, ",\"layers\":%zu,", r->layers);
    fprintf(f, "\"dtype\":\"%s\",\"grad_dtype\":\"%s\",\"stage\":%d,",
            dtype_name(plan->param.dtype), dtype_name(plan->grad.dtype), r->stage);
    write_offload(w);
    fprintf(f, "\"ranks\":%d,\"replicas\":%d,\"dp\":%d,\"tp\":%d,\"pp\":%d,", r->ranks,
            size[AXIS_REPLICA], size[AXIS_DP], size[AXIS_TP], size[AXIS_PP]);
    fprintf(f, "\"prefetch\":%zu,\"micro_batch\":%zu,\"micro_batches\":%zu,\"seq_len\":%zu,",
            plan->prefetch, r->micro_batch, plan->nmicro, r->seq_len);
    fprintf(f, "\"device\":");
    write_text(f, r->device);
    fprintf(f, ",\"command\":");
    write_command(f);
    fprintf(f, "},\n\"rank\":%d,\"place\":{\"replica\":%d,\"dp\":%d,\"tp\":%d,\"pp\":%d},", r->rank,
            grid_coord(&r->grid, r->rank, AXIS_REPLICA), grid_coord(&r->grid, r->rank, AXIS_DP),
            grid_coord(&r->grid, r->rank, AXIS_TP), grid_coord(&r->grid, r->rank, AXIS_PP));
    fprintf(f, "\"step\":%llu,\"start\":%.9f,", (unsigned long long)step, w->operations.begin);
    fprintf(f, "\"lost\":%d,\n", w->operations.lost);
}

static void unit_name(const struct Params *p, int u, char name[32]) {
    const struct Unit *unit = &p->unit[u];
    if (unit->kind == UNIT_BLOCK)
        snprintf(name, 32, "block.%d", p->first_layer + unit->layer);
    else
        snprintf(name, 32, "%s", unit->kind == UNIT_EMBEDDING ? "embedding" : "head");
}

static void write_model(const struct Writer *w) {
    const struct Params *p = w->t->parts.zero->params;
    FILE *f = w->f;
    char name[32];
    fprintf(f, "\"parameters\":%llu,\"first_unit\":%d,\n\"units\":[", (unsigned long long)p->real,
            p->first_unit);
    for (int u = 0; u < p->nunit; u++) {
        unit_name(p, u, name);
        fprintf(f, "%s\"%s\"", u ? "," : "", name);
    }
    fprintf(f, "],\n\"groups\":[");
    for (int g = 0; g < p->ngroup; g++) {
        fprintf(f, "%s{\"name\":", g ? "," : "");
        write_text(f, p->group[g].name);
        fprintf(f, ",\"numel\":%zu,\"padded\":%zu,\"frozen\":%s", p->group[g].numel,
                p->group[g].padded, p->group[g].frozen ? "true" : "false");
        if (params_packs(p, g))
            fprintf(f, ",\"packed\":%zu", qlora_bytes(w->t->parts.zero, g, p->group[g].padded));
        fprintf(f, "}");
    }
    fprintf(f, "],\n");
}

// ---- memory ----

// Numbers the blocks of the file: those that were freed before the step are not in it.
static void number_blocks(struct Writer *w) {
    const struct BlockLog *log = &w->t->log;
    int n = 0;
    w->id = base_alloc((log->n + 1) * sizeof *w->id);
    for (size_t i = 0; i < log->n; i++) {
        double freed = log->block[i].freed;
        w->id[i] = freed && freed < w->operations.begin ? -1 : n++;
    }
}

static void write_blocks(const struct Writer *w) {
    const struct BlockLog *log = &w->t->log;
    fprintf(w->f, "\"blocks\":[");
    for (size_t i = 0; i < log->n; i++) {
        const struct LoggedBlock *b = &log->block[i];
        if (w->id[i] < 0)
            continue;
        fprintf(w->f, "%s\n{\"id\":%d,\"tier\":\"%s\",\"tag\":\"%s\",\"bytes\":%zu,\"purpose\":",
                w->id[i] ? "," : "", w->id[i], tier_name(b->kind), tags[b->tag], b->bytes);
        write_text(w->f, b->purpose);
        if (b->reserved > w->operations.begin)
            fprintf(w->f, ",\"reserved\":%.3f", micros_since_begin(w, b->reserved));
        if (b->freed)
            fprintf(w->f, ",\"freed\":%.3f", micros_since_begin(w, b->freed));
        fprintf(w->f, "}");
    }
    fprintf(w->f, "],\n");
}

// Returns a word for what a block holds; messages are told apart by their purpose.
static const char *block_content(const struct LoggedBlock *b) {
    const char *const of[NTAG] = {"weights",     "gradient", "optimizer",
                                  "activations", "scratch",  "message"};
    if (b->tag != TAG_COMM)
        return of[b->tag];
    return strstr(b->purpose, "gradients") ? "gradient"
           : strstr(b->purpose, "weights") ? "weights"
                                           : "message";
}

static void write_lives(const struct Writer *w) {
    const char *comma = "";
    fprintf(w->f, "\"lives\":[");
    for (size_t i = 0; i < w->lives.n; i++) {
        const struct Life *l = &w->lives.life[i];
        if (w->id[l->block] < 0)
            continue;
        fprintf(w->f,
                "%s\n{\"block\":%d,\"offset\":%llu,\"bytes\":%zu,\"holds\":\"%s\",\"group\":%d,"
                "\"from\":%d,\"until\":%d}",
                comma, w->id[l->block], (unsigned long long)l->offset, l->bytes,
                block_content(&w->t->log.block[l->block]), l->group, l->from, l->until);
        comma = ",";
    }
    fprintf(w->f, "],\n");
}

// Writes what each tier holds now, and ends the file.
static void write_accounts(const struct Writer *w) {
    fprintf(w->f, "\"accounts\":{");
    for (int kind = 0; kind < NTIER; kind++) {
        const struct Tier *t = &w->t->tiers[kind];
        fprintf(w->f, "%s\"%s\":{", kind ? "," : "", tier_name(t->kind));
        for (int tag = 0; tag < NTAG; tag++)
            fprintf(w->f, "\"%s\":%zu,", tags[tag], t->used[tag]);
        fprintf(w->f, "\"total\":%zu}", t->total);
    }
    fprintf(w->f, "}}\n");
}

// ---- operations ----

static int compare_touches(const void *a, const void *b) {
    const struct OpTouch *x = a, *y = b;
    if (x->operation != y->operation)
        return x->operation - y->operation;
    if (x->block != y->block)
        return x->block - y->block;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

// Writes as list `key` the bytes of one operation's n touches that read, or that write (`how`).
// They are sorted by compare_touches, so those of a block that overlap or adjoin become one span.
static void write_touches(const struct Writer *w, const char *key, const struct OpTouch *touch,
                          size_t n, unsigned how) {
    const char *comma = "";
    fprintf(w->f, ",\"%s\":[", key);
    for (size_t i = 0; i < n; i++) {
        struct OpTouch span = touch[i];
        if (!(span.how & how) || w->id[span.block] < 0)
            continue;
        for (; i + 1 < n && touch[i + 1].block == span.block &&
               (!(touch[i + 1].how & how) || touch[i + 1].offset <= span.offset + span.bytes);
             i++) {
            uint64_t end = touch[i + 1].offset + touch[i + 1].bytes;
            if (touch[i + 1].how & how && end > span.offset + span.bytes)
                span.bytes = (size_t)(end - span.offset);
        }
        fprintf(w->f, "%s[%d,%llu,%zu]", comma, w->id[span.block], (unsigned long long)span.offset,
                span.bytes);
        comma = ",";
    }
    fprintf(w->f, "]");
}

static void write_moved(const struct Writer *w, const struct Operation *p) {
    const struct {
        const char *key;
        double bytes;
    } moved[] = {{"sent", (double)p->work.sent},  {"in", (double)p->in},
                 {"out", (double)p->out},         {"read", (double)p->read},
                 {"written", (double)p->written}, {"kernel", p->kernel}};
    const char *comma = "";
    fprintf(w->f, ",\"moved\":{");
    for (size_t i = 0; i < sizeof moved / sizeof moved[0]; i++) {
        if (!(moved[i].bytes > 0))
            continue;
        fprintf(w->f, "%s\"%s\":%.0f", comma, moved[i].key, moved[i].bytes);
        comma = ",";
    }
    if (p->work.sent)
        fprintf(w->f, ",\"over\":\"%s\",\"others\":%d", p->work.over, p->work.others);
    fprintf(w->f, "}");
}

// Returns the name of an operation that is for no hop and no unit: of a copy, its direction.
static const char *operation_name(const struct Operation *p) {
    return p->in ? "h2d" : p->out ? "d2h" : p->name;
}

static void write_what(const struct Writer *w, const struct Operation *p) {
    const struct Params *params = w->t->parts.zero->params;
    const struct Origin *k = &p->work;
    const char *const kinds[] = {"other", "hop", "unit"};
    char name[32];
    bool has_pass = k->kind == ORIGIN_UNIT || (k->kind == ORIGIN_HOP && k->micro != SIZE_MAX);
    int group = k->group;
    snprintf(name, sizeof name, "%s", k->kind == ORIGIN_OTHER ? operation_name(p) : p->name);
    if (k->kind == ORIGIN_UNIT) {
        unit_name(params, k->unit - params->first_unit, name);
        group = params->unit[k->unit - params->first_unit].group;
    }
    fprintf(w->f, "\"kind\":\"%s\",\"name\":\"%s\",\"hop\":%llu", kinds[k->kind], name,
            (unsigned long long)k->number);
    if (k->kind == ORIGIN_HOP)
        fprintf(w->f, ",\"chain\":\"%s\"", chains[k->chain]);
    if (k->unit >= 0)
        fprintf(w->f, ",\"unit\":%d", k->unit);
    if (group >= 0)
        fprintf(w->f, ",\"group\":%d", group);
    if (has_pass)
        fprintf(w->f, ",\"micro\":%zu,\"pass\":\"%s\"", k->micro,
                k->backward ? "backward" : "forward");
    fprintf(w->f, ",\"queue\":\"%s\",\"begin\":%.3f,\"end\":%.3f", queues[p->queue],
            micros_since_begin(w, p->begin), micros_since_begin(w, p->end));
}

// Writes where the hop's row is, or the function that queued the unit.
static void write_where(const struct Writer *w, const struct Operation *p) {
    const struct Params *params = w->t->parts.zero->params;
    const struct Origin *k = &p->work;
    const char *pass = k->backward ? "backward" : "forward";
    if (k->kind == ORIGIN_HOP && k->hop->where)
        fprintf(w->f, ",\"where\":\"%s\"", k->hop->where);
    if (k->kind != ORIGIN_UNIT)
        return;
    enum UnitKind kind = params->unit[k->unit - params->first_unit].kind;
    if (kind == UNIT_BLOCK)
        fprintf(w->f, ",\"where\":\"model/block.c: block_%s\"", pass);
    else
        fprintf(w->f, ",\"where\":\"model/ends.c: %s_%s\"",
                kind == UNIT_HEAD ? "head" : "embedding", pass);
}

static void write_operation(const struct Writer *w, int i, const struct OpTouch *touch, size_t n) {
    const struct Operation *p = &w->operations.operation[i];
    fprintf(w->f, "%s\n{\"id\":%d,", i ? "," : "", i);
    write_what(w, p);
    write_moved(w, p);
    write_touches(w, "reads", touch, n, ACCESS_READ);
    write_touches(w, "writes", touch, n, ACCESS_WRITE);
    fprintf(w->f, ",\"after\":[");
    for (int k = 0; p->after[k] >= 0; k++)
        fprintf(w->f, "%s%d", k ? "," : "", p->after[k]);
    fprintf(w->f, "]");
    if (p->event)
        fprintf(w->f, ",\"waited\":%.3f,\"for\":\"%s\"", p->waited * 1e6, p->event);
    write_where(w, p);
    fprintf(w->f, "}");
}

static void write_operations(struct Writer *w) {
    struct Operations *p = &w->operations;
    size_t at = 0;
    qsort(p->touch, p->ntouch, sizeof *p->touch, compare_touches);
    fprintf(w->f, "\"operations\":[");
    for (int i = 0; i < p->n; i++) {
        size_t begin = at;
        while (at < p->ntouch && p->touch[at].operation == i)
            at++;
        write_operation(w, i, p->touch + begin, at - begin);
    }
    fprintf(w->f, "],\n");
}

// ---- the file ----

static void write_all(struct Writer *w, uint64_t step) {
    number_blocks(w);
    write_run(w, step);
    write_model(w);
    write_blocks(w);
    write_lives(w);
    write_operations(w);
    write_accounts(w);
    free(w->id);
}

int zero_trace_write(const struct ZeroTrace *t, const struct ZeroTraceRun *run, const char *path,
                     struct Error *e) {
    uint64_t step = t->parts.zero->step;
    struct Writer w = {.f = fopen(path, "w"), .t = t, .run = run};
    if (!w.f)
        return error_io(e, -errno, E_FILE_WRITE, "--trace-zero %s: cannot create the file", path);
    w.operations = order_operations(t, step);
    w.lives = lives_of(t, &w.operations);
    if (w.operations.lost)
        log_line(LOG_NORMAL,
                 "--trace-zero: the step had more operations than the trace can hold; the file "
                 "lacks %d of them: trace fewer --layers or micro-batches",
                 w.operations.lost);
    if (!w.operations.n && !w.operations.lost)
        log_line(LOG_NORMAL,
                 "--trace-zero: this process made no step, so the file has blocks alone, and no "
                 "operations; raise --steps");
    write_all(&w, step);
    free(w.lives.life);
    free(w.operations.operation);
    free(w.operations.touch);
    bool failed = ferror(w.f);
    if (fclose(w.f) != 0)
        return error_io(e, -errno, E_FILE_WRITE, "--trace-zero %s: cannot write the file", path);
    if (failed)
        return error_set(e, -EIO, E_FILE_WRITE,
                         "--trace-zero %s: cannot write the file; check the space on its disk",
                         path);
    return 0;
}
