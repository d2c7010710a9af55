// The table of the calculator, and the page around it: see page.h. Next: page.html.
//
// The table is one JSON object. "dials" has each dial's values with the flags that they are;
// "command" is what stands before these. A point is a value of each dial, the last dial turns
// fastest. "columns" has for each number of `--plan --json` one text: its values at all points, in
// base 36, a comma between two; V*N stands for N points with the value V.
#include "zero/plan/page.h"
#include "kernels/show.h"

#include "kernels/atomic_file.h"
#include "model/presets.h"
#include "zero/plan/footprint.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// page.html, as it stood when this was compiled.
__asm__(".pushsection .rodata\n"
        "page_text: .incbin \"zero/plan/page.html\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char page_text[] __attribute__((visibility("hidden")));
static const char place[] = "@PLANS@"; // of the table in it

// ---- the dials ----

enum { DIAL_MODEL, DIAL_DTYPE, DIAL_STAGE, DIAL_OFFLOAD, DIAL_RANKS, DIAL_BATCH, NDIAL };
enum { DIAL_FLAGS = 3, DIAL_WORDS = 2 * DIAL_FLAGS, DIAL_VALUES = 8 };
static const struct Dial {
    const char *name, *flag[DIAL_FLAGS]; // those that set it
    const char *value[DIAL_VALUES];      // of the first flag; offload's stand for words
} dials[] = {
    [DIAL_MODEL] = {"model", {"--model", "--init"}, {NULL}}, // the presets
    [DIAL_DTYPE] = {"dtype", {"--dtype"}, {"bf16", "fp32"}},
    [DIAL_STAGE] = {"stage", {"--zero"}, {"0", "1", "2", "3"}},
    [DIAL_OFFLOAD] = {"offload",
                      {"--offload-optimizer", "--offload-param", "--offload-activations"},
                      {"none", "optimizer", "all"}},
    [DIAL_RANKS] = {"ranks", {"--ranks"}, {"1", "2", "4", "8", "16", "32", "64"}},
    [DIAL_BATCH] = {"batch", {"--batch"}, {"1", "2", "4", "8"}},
};

struct DialValue {
    const char *name, *words[DIAL_WORDS];
};

static bool user_gives(const struct PageRequest *r, const char *flag) {
    return r->said->source(r->said->flags, flag) != FLAG_FROM_DEFAULT;
}

// True if a flag that the user gives sets the dial.
static bool is_set(const struct PageRequest *r, const struct Dial *d) {
    bool set = false;
    for (int i = 0; i < DIAL_FLAGS && d->flag[i]; i++)
        set |= user_gives(r, d->flag[i] + strlen("--"));
    return set;
}

// Returns a dial's value number i in *out; false: it has none. One that is set has one, without
// words.
static bool dial_value(const struct PageRequest *r, int dial, int i, struct DialValue *out) {
    static const int offloaded[] = {0, 1, DIAL_FLAGS}; // none, optimizer, all: flags that say cpu
    const struct Dial *d = &dials[dial];
    const struct Preset *preset = dial == DIAL_MODEL ? preset_at((size_t)i) : NULL;
    *out = (struct DialValue){"as given", {NULL}};
    if (is_set(r, d))
        return i == 0;
    out->name = preset ? preset->name : i < DIAL_VALUES ? d->value[i] : NULL;
    if (!out->name)
        return false;
    for (int k = 0; k < (dial == DIAL_OFFLOAD ? offloaded[i] : 1); k++) {
        out->words[2 * k] = d->flag[k];
        out->words[2 * k + 1] = dial == DIAL_OFFLOAD ? "cpu" : out->name;
    }
    return true;
}

// ---- the columns ----

enum {
    OF_TIERS = 0,
    OF_TRAFFIC = OF_TIERS + NTIER * (NTAG + 1),
    OF_MOVED = OF_TRAFFIC + NCOLLECTIVE + 1,
    OF_REST = OF_MOVED + 4,
};
static const char *const rest[] = {
    "node_host", "ranks", "stage", "batch", "micro_batches", "model.parameters",
    // Of ZeRO's formulas: bytes a parameter, and over how many ranks they are cut; the bytes a
    // parameter that are sent, times (N - 1) / N; parts of the model (tensor, pipeline parallel).
    "formula.param", "formula.param_over", "formula.grad", "formula.grad_over", "formula.optimizer",
    "formula.optimizer_over", "formula.sent", "formula.parts",
    "refused" // 0, or a number of the list of that name, from 1 on
};
enum { NREST = sizeof rest / sizeof rest[0], NCOLUMN = OF_REST + NREST, REFUSED = NCOLUMN - 1 };

// Writes a column's name in `--plan --json`, with a tier's in place of its index.
static void column_name(int i, char *text, size_t bytes) {
    static const char *const moved[] = {"in", "out", "read", "written"};
    int tag = i % (NTAG + 1), kind = i - OF_TRAFFIC;
    const char *tier = tier_name((enum TierKind)(i / (NTAG + 1)));
    if (i < OF_TRAFFIC && tag < NTAG)
        snprintf(text, bytes, "tiers.%s.tags.%s", tier, tag_name((enum Tag)tag));
    else if (i < OF_TRAFFIC)
        snprintf(text, bytes, "tiers.%s.peak", tier);
    else if (i < OF_MOVED)
        snprintf(text, bytes, "traffic.%s",
                 kind < NCOLLECTIVE ? collective_name((enum Collective)kind) : "far");
    else if (i < OF_REST)
        snprintf(text, bytes, "moved.%s", moved[i - OF_MOVED]);
    else
        snprintf(text, bytes, "%s", rest[i - OF_REST]);
}

// A state's bytes a parameter, and the number of ranks over which they are cut.
struct Share {
    uint64_t bytes, over;
};

// Returns a state's share. times_ranks: its bytes, summed over `many` ranks; below `many`: it is
// cut.
static struct Share share_of(uint64_t times_ranks, uint64_t many, const struct RankSettings *s) {
    if (times_ranks < many)
        return (struct Share){times_ranks, (uint64_t)settings_shard_ranks(s)};
    return (struct Share){times_ranks / many, 1};
}

// Computes the ZeRO paper's formulas: section 3.1 of what a rank holds, section 7 of what it sends.
static int formula_values(const struct RankSettings *s, uint64_t *v, struct Error *e) {
    enum { MANY = 1 << 16 };
    const struct ZeroStage *stage = zero_stage(s->stage);
    struct ZeroOptions options = settings_zero(s);
    struct OffloadOptions offload = {
        .param_tier = s->param_tier, .opt_tier = s->opt_tier, .ratio = 1, .delayed = s->delayed};
    struct ModelStates one;
    int err = footprint_of_parameters(1, &options, &offload, MANY, &one, e);
    if (err)
        return err;
    struct Share param = share_of(one.param, MANY, s), grad = share_of(one.grad, MANY, s),
                 optimizer = share_of(one.optimizer, MANY, s);
    size_t gathered = stage->shards_param ? 2 * s->nmicro : stage->shards_optimizer;
    size_t reduced = stage->shards_grad ? s->nmicro : stage->shards_optimizer ? 1 : 2;
    const uint64_t values[] = {
        param.bytes,
        param.over,
        grad.bytes,
        grad.over,
        optimizer.bytes,
        optimizer.over,
        gathered * dtype_size(s->model.dtype) + reduced * dtype_size(s->grad_dtype),
        (uint64_t)(settings_tp_size(s) * settings_stages(s)),
    };
    memcpy(v, values, sizeof values);
    return 0;
}

static int point_values(const struct Forecast *f, uint64_t v[NCOLUMN], struct Error *e) {
    const struct Footprint *is = &f->is;
    for (int kind = 0; kind < NTIER; kind++) {
        uint64_t *tier = v + OF_TIERS + kind * (NTAG + 1);
        for (int tag = 0; tag < NTAG; tag++)
            tier[tag] = is->tier[kind].most[tag];
        tier[NTAG] = is->tier[kind].peak;
    }
    memcpy(v + OF_TRAFFIC, is->traffic.bytes, sizeof is->traffic.bytes);
    v[OF_TRAFFIC + NCOLLECTIVE] = is->traffic.inter_node;
    const uint64_t moved[] = {is->moved.in, is->moved.out, is->moved.read, is->moved.written};
    memcpy(v + OF_MOVED, moved, sizeof moved);
    const struct RankSettings *s = &f->settings;
    const uint64_t others[] = {
        f->demand.node_bytes, (uint64_t)s->ranks, (uint64_t)s->stage, s->batch, s->nmicro,
        f->parameters};
    memcpy(v + OF_REST, others, sizeof others);
    v[REFUSED] = 0;
    return formula_values(s, v + OF_REST + sizeof others / sizeof others[0], e);
}

// ---- the points ----

struct Page {
    const struct PageRequest *request;
    char **words; // of the command, without a dial's
    int nword, count[NDIAL];
    size_t n, made;         // points; those that are not refused
    uint64_t *value;        // (n, NCOLUMN)
    struct cJSON *refusals; // texts
    struct Device *device;  // lent to all dry ranks; NULL: not opened yet
    struct Device *host;    // likewise
    struct Error last;      // of the last point that was refused
};

static int value_index(const struct Page *p, size_t point, int dial) {
    for (int d = NDIAL - 1; d > dial; d--)
        point /= (size_t)p->count[d];
    return (int)(point % (size_t)p->count[dial]);
}

// Reads the command of a point into a rank's settings, which live until `forget`.
static int read_point(struct Page *p, size_t point, struct RankSettings *out, struct Error *e) {
    char **argv = base_alloc(((size_t)p->nword + NDIAL * DIAL_WORDS) * sizeof *argv);
    int argc = p->nword;
    memcpy(argv, p->words, (size_t)argc * sizeof *argv);
    for (int d = 0; d < NDIAL; d++) {
        struct DialValue value;
        dial_value(p->request, d, value_index(p, point, d), &value);
        for (int i = 0; i < DIAL_WORDS && value.words[i]; i++)
            argv[argc++] = (char *)value.words[i];
    }
    int err = p->request->read(p->request->context, argc, argv, out, e);
    free(argv);
    return err;
}

static int lend_devices(struct Page *p, struct RankSettings *s, struct Error *e) {
    int err = p->device ? 0 : rank_device_open(&p->device, s, true, e);
    if (!err && !p->host)
        err = device_open_cpu(&p->host, s->threads, s->kernels, e);
    s->borrowed = p->device;
    s->borrowed_host = p->host;
    return err;
}

// Returns the refusal's number in the list, from 1; points that are refused alike share one.
static uint64_t refusal_number(struct Page *p, const struct Error *e) {
    char *text = base_format("%s [%s]", e->text, error_name(e->id));
    const cJSON *x = p->refusals->child;
    uint64_t number = 1;
    for (; x && strcmp(x->valuestring, text) != 0; x = x->next)
        number++;
    if (!x)
        cJSON_AddItemToArray(p->refusals, cJSON_CreateString(text));
    free(text);
    return number;
}

// Forecasts a point, or notes its refusal.
static void make_point(struct Page *p, size_t point) {
    uint64_t *v = p->value + point * NCOLUMN;
    struct RankSettings s;
    struct Forecast f;
    struct Error e = {0};
    int err = read_point(p, point, &s, &e);
    if (!err)
        err = lend_devices(p, &s, &e);
    if (!err)
        err = footprint_predict(&s, 0, s.ranks, &f, &e);
    if (!err)
        err = point_values(&f, v, &e);
    p->made += !err;
    if (err) {
        memset(v, 0, NCOLUMN * sizeof *v);
        v[REFUSED] = refusal_number(p, &e);
        p->last = e;
    }
    p->request->forget(p->request->context);
}

// ---- the command ----

static void add_word(struct Page *p, const char *word) {
    p->words = base_realloc(p->words, ((size_t)p->nword + 1) * sizeof *p->words, "a command");
    p->words[p->nword++] = base_format("%s", word);
}

static void add_flag(struct Page *p, const char *name, const char *value) {
    add_word(p, name);
    add_word(p, value);
}

// Begins the command with the user's line, as a plan.
static void begin_command(struct Page *p) {
    const struct PageRequest *r = p->request;
    add_flag(p, "./train", "--plan");
    for (int i = 1; i < r->argc; i++) {
        const char *word = r->argv[i];
        bool html = !strcmp(word, "--html");
        if (!html && strcmp(word, "--plan") != 0 && strncmp(word, "--html=", 7) != 0)
            add_word(p, word);
        i += html; // its value
    }
}

// Makes the command a plan that any machine repeats: for a GPU, unless the line names a device, as
// what a CPU takes depends on its threads and kernels. Errors: those of the last point, where every
// one is refused.
static int end_command(struct Page *p, struct Error *e) {
    const struct PageRequest *r = p->request;
    struct RankSettings s;
    int err = -EINVAL;
    if (!user_gives(r, "device") && !user_gives(r, "kernels"))
        add_flag(p, "--device", "cuda");
    for (size_t i = 0; i < p->n && err; i++) {
        *e = (struct Error){0};
        err = read_point(p, i, &s, e);
        if (err)
            r->forget(r->context);
    }
    if (err)
        return err;
    bool cpu = s.device == DEVICE_CPU;
    if (cpu && !user_gives(r, "threads")) {
        add_flag(p, "--threads", "1");
        s.threads = 1;
    }
    err = lend_devices(p, &s, e);
    if (!err && cpu && !user_gives(r, "kernels"))
        add_flag(p, "--kernels", p->device->kernels->name);
    r->forget(r->context);
    return err;
}

// ---- the table ----

static void write_base36(FILE *f, uint64_t value) {
    char text[16];
    size_t at = sizeof text;
    do
        text[--at] = "0123456789abcdefghijklmnopqrstuvwxyz"[value % 36];
    while (value /= 36);
    fwrite(text + at, 1, sizeof text - at, f);
}

// Returns a column as text; free() it. NULL: it is 0 everywhere.
static char *column_text(const struct Page *p, int column) {
    char *text;
    size_t bytes;
    bool any = false;
    FILE *f = open_memstream(&text, &bytes);
    CHECK(f, "no memory");
    for (size_t i = 0, end; i < p->n; i = end) {
        uint64_t value = p->value[i * NCOLUMN + (size_t)column];
        for (end = i + 1; end < p->n && p->value[end * NCOLUMN + (size_t)column] == value; end++)
            ;
        any |= value != 0;
        fputs(i ? "," : "", f);
        write_base36(f, value);
        if (end > i + 1) {
            fputc('*', f);
            write_base36(f, end - i);
        }
    }
    fclose(f);
    if (any)
        return text;
    free(text);
    return NULL;
}

static char *command_text(char *const *words, int n) {
    char *text;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    CHECK(f, "no memory");
    for (int i = 0; i < n; i++) {
        fputs(i ? " " : "", f);
        show_word(f, words[i]);
    }
    fclose(f);
    return text;
}

static void add_text(cJSON *to, const char *name, char *text) {
    cJSON_AddStringToObject(to, name, text);
    free(text);
}

static void add_dials(cJSON *to, const struct Page *p) {
    cJSON *all = cJSON_AddArrayToObject(to, "dials");
    for (int d = 0; d < NDIAL; d++) {
        cJSON *dial = cJSON_CreateObject();
        cJSON_AddStringToObject(dial, "name", dials[d].name);
        cJSON *values = cJSON_AddArrayToObject(dial, "values");
        struct DialValue value;
        for (int i = 0; dial_value(p->request, d, i, &value); i++) {
            int n = 0;
            while (n < DIAL_WORDS && value.words[n])
                n++;
            cJSON *is = cJSON_CreateObject();
            cJSON_AddStringToObject(is, "name", value.name);
            add_text(is, "flags", command_text((char *const *)value.words, n));
            cJSON_AddItemToArray(values, is);
        }
        cJSON_AddItemToArray(all, dial);
    }
}

// Returns the table; free() it. A page's script ends at the first "</", so no "<" stays.
static char *table_text(struct Page *p) {
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "format", "zero.c plans 1");
    add_text(o, "command", command_text(p->words, p->nword));
    add_dials(o, p);
    cJSON *columns = cJSON_AddObjectToObject(o, "columns");
    for (int i = 0; i < NCOLUMN; i++) {
        char name[64], *text = column_text(p, i);
        column_name(i, name, sizeof name);
        if (text)
            add_text(columns, name, text);
    }
    cJSON_AddItemToObject(o, "refused", p->refusals);
    p->refusals = NULL;
    char *text = cJSON_PrintUnformatted(o), *safe = base_format("%s", "");
    cJSON_Delete(o);
    for (char *at = text, *end; at; at = end ? end + 1 : NULL) {
        end = strchr(at, '<');
        base_append(&safe, end ? "%.*s\\u003c" : "%.*s", (int)(end ? end - at : (long)strlen(at)),
                    at);
    }
    cJSON_free(text);
    return safe;
}

// ---- the page ----

static int open_page(struct Page *p, const struct PageRequest *r, struct Error *e) {
    struct DialValue unused;
    *p = (struct Page){.request = r, .n = 1, .refusals = cJSON_CreateArray()};
    for (int d = 0; d < NDIAL; d++) {
        while (dial_value(r, d, p->count[d], &unused))
            p->count[d]++;
        p->n *= (size_t)p->count[d];
    }
    p->value = base_alloc(p->n * NCOLUMN * sizeof *p->value);
    begin_command(p);
    return end_command(p, e);
}

static void close_page(struct Page *p) {
    cJSON_Delete(p->refusals);
    free(p->value);
    for (int i = 0; i < p->nword; i++)
        free(p->words[i]);
    free(p->words);
    if (p->host)
        device_close(p->host);
    if (p->device)
        device_close(p->device);
}

int page_write(const struct PageRequest *r, struct Error *e) {
    struct Page p;
    int err = open_page(&p, r, e);
    for (size_t i = 0; i < p.n && !err; i++)
        make_point(&p, i);
    if (!err && !p.made) {
        *e = p.last;
        err = -EINVAL;
    }
    if (!err) {
        const char *at = strstr(page_text, place);
        char *table = table_text(&p);
        char *page =
            base_format("%.*s%s%s", (int)(at - page_text), page_text, table, at + sizeof place - 1);
        size_t bytes = strlen(page);
        err = file_replace(r->path, page, bytes, e);
        if (!err)
            printf("%s: %zu plans, %zu refused, %.2f MB; open it in a browser\n", r->path, p.made,
                   p.n - p.made, (double)bytes / 1e6);
        free(page);
        free(table);
    }
    close_page(&p);
    return err;
}
