// The plans of a calculator's page (zero/plan/page.h) beside those of the commands that it shows.
//
//   page_points PAGE COUNT SEED     of points drawn at random: all bytes are `--plan --json`'s, the
//                                   formula is `--plan --params`'s, refusals are the command's
//   page_points PAGE refused        how many points are refused
//
// TRAIN names the program (default ./train). Prints a line for each difference, and at the end how
// many points were compared. Status 1: there were differences; 2: the page cannot be read.
#include "kernels/base.h"
#include "kernels/dtype.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

struct Page {
    cJSON *table;
    const cJSON *dials, *columns;
    size_t points, differences;
    bool models; // it has several: --params has none, and takes none from the line
};

static const cJSON *get(const cJSON *o, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(o, name);
}

static char *read_all(FILE *f) {
    char *text = base_alloc(1), piece[4096];
    size_t n = 0;
    for (size_t more; (more = fread(piece, 1, sizeof piece, f)) > 0; n += more) {
        text = base_realloc(text, n + more + 1, "a text");
        memcpy(text + n, piece, more);
    }
    text[n] = '\0';
    return text;
}

static bool open_page(struct Page *p, const char *path) {
    static const char opens[] = "<script type=\"application/json\" id=\"plans\">";
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    char *text = read_all(f), *begin = strstr(text, opens);
    fclose(f);
    *p = (struct Page){.points = 1};
    p->table = begin ? cJSON_ParseWithOpts(begin + sizeof opens - 1, NULL, false) : NULL;
    free(text);
    p->dials = get(p->table, "dials");
    p->columns = get(p->table, "columns");
    const cJSON *dial;
    cJSON_ArrayForEach(dial, p->dials) p->points *= (size_t)cJSON_GetArraySize(get(dial, "values"));
    const cJSON *models = get(cJSON_GetArrayItem(p->dials, 0), "values");
    p->models = cJSON_GetArraySize(models) > 1;
    return p->columns != NULL;
}

// The value of a column at a point: 0 where the page leaves the column out.
static uint64_t value_of(const struct Page *p, const char *name, size_t point) {
    const cJSON *column = get(p->columns, name);
    const char *at = column ? column->valuestring : "0";
    for (size_t first = 0; column; at++) {
        char *end;
        uint64_t value = strtoull(at, &end, 36), n = 1;
        if (*end == '*')
            n = strtoull(end + 1, &end, 36);
        first += n;
        if (point < first)
            return value;
        CHECK(*end == ',', "%s has %zu points of %zu", name, first, p->points);
        at = end;
    }
    return 0;
}

// Returns the command of a point, that of --model only if `shape`; free() it.
static char *command_of(const struct Page *p, size_t point, bool shape, const char *more) {
    const char *train = getenv("TRAIN"), *said = get(p->table, "command")->valuestring;
    char *text = base_format("%s%s", train ? train : "./train", said + strlen("./train"));
    size_t left = p->points;
    const cJSON *dial;
    cJSON_ArrayForEach(dial, p->dials) {
        const cJSON *values = get(dial, "values");
        left /= (size_t)cJSON_GetArraySize(values);
        const cJSON *value = cJSON_GetArrayItem(values, (int)(point / left));
        point %= left;
        if (shape || strcmp(get(dial, "name")->valuestring, "model") != 0)
            base_append(&text, " %s", get(value, "flags")->valuestring);
    }
    base_append(&text, " %s", more);
    return text;
}

static __attribute__((format(printf, 3, 4))) void differ(struct Page *p, const char *command,
                                                         const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("%s: ", command);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
    p->differences++;
}

static char *run(const char *command, int *status) {
    FILE *f = popen(command, "r");
    CHECK(f, "cannot run %s", command);
    char *text = read_all(f);
    *status = WEXITSTATUS(pclose(f));
    return text;
}

// A column and what the command has of it.
static size_t compare(struct Page *p, const char *command, const char *name, const cJSON *is,
                      size_t point) {
    uint64_t value = value_of(p, name, point);
    if (!is || (double)value != is->valuedouble)
        differ(p, command, "%s: the page has %" PRIu64 ", the plan %.0f", name, value,
               is ? is->valuedouble : NAN);
    return value != 0;
}

// All numbers of an object but its sums, under a name; returns how many are not 0.
static size_t compare_all(struct Page *p, const char *command, const char *under, const cJSON *of,
                          size_t point) {
    size_t seen = 0;
    const cJSON *x;
    cJSON_ArrayForEach(x, of) {
        char name[96];
        snprintf(name, sizeof name, "%s.%s", under, x->string);
        if (cJSON_IsObject(x))
            seen += compare_all(p, command, name, x, point);
        else if (cJSON_IsNumber(x) && strcmp(name, "traffic.sum") != 0)
            seen += compare(p, command, name, x, point);
    }
    return seen;
}

// Columns that are not 0, of what `--json` has.
static size_t count_known(const struct Page *p, size_t point) {
    size_t n = 0;
    const cJSON *x;
    cJSON_ArrayForEach(x, p->columns) n +=
        strncmp(x->string, "formula.", 8) != 0 && value_of(p, x->string, point) != 0;
    return n;
}

static void compare_plan(struct Page *p, size_t point) {
    static const char *const single[] = {"node_host", "ranks", "stage", "batch", "micro_batches"};
    int status;
    char *command = command_of(p, point, true, "--json 2>/dev/null"), *text = run(command, &status);
    cJSON *plan = cJSON_Parse(text);
    size_t seen = 0;
    const cJSON *tier;
    cJSON_ArrayForEach(tier, get(plan, "tiers")) {
        char *under = base_format("tiers.%s", get(tier, "name")->valuestring);
        seen += compare_all(p, command, under, tier, point);
        free(under);
    }
    seen += compare_all(p, command, "traffic", get(plan, "traffic"), point);
    seen += compare_all(p, command, "moved", get(plan, "moved"), point);
    for (int i = 0; i < 5; i++)
        seen += compare(p, command, single[i], get(plan, single[i]), point);
    seen += compare(p, command, "model.parameters", get(get(plan, "model"), "parameters"), point);
    size_t known = count_known(p, point);
    if (seen != known)
        differ(p, command, "the page has %zu numbers, the plan %zu of them", known, seen);
    cJSON_Delete(plan);
    free(text);
    free(command);
}

// bytes Psi / over = numerator / denominator
static void compare_formula(struct Page *p, size_t point) {
    uint64_t psi = value_of(p, "model.parameters", point);
    char *more = base_format("--params %" PRIu64 " --json 2>/dev/null", psi);
    int status;
    char *command = command_of(p, point, false, more), *text = run(command, &status);
    cJSON *plan = cJSON_Parse(text);
    static const char *const states[] = {"param", "grad", "optimizer"};
    for (int i = 0; i < 3; i++) {
        const cJSON *is = get(get(plan, "model_states"), states[i]);
        char *bytes = base_format("formula.%s", states[i]);
        char *over = base_format("formula.%s_over", states[i]);
        double page =
            (double)value_of(p, bytes, point) * (double)psi / (double)value_of(p, over, point);
        if (!is || page != get(is, "numerator")->valuedouble / get(is, "denominator")->valuedouble)
            differ(p, command, "%s: the page's formula has %.17g", bytes, page);
        free(bytes);
        free(over);
    }
    cJSON_Delete(plan);
    free(text);
    free(command);
    free(more);
}

// The formula of what data-parallel ranks send is near what they do: padding and reports are a
// little; at stage 3 an embedding and a head that are apart are gathered once instead of twice.
static void check_sent(struct Page *p, size_t point) {
    static const char *const kinds[] = {"all_gather", "reduce_scatter", "all_reduce"};
    double n = (double)value_of(p, "ranks", point);
    double by = (double)value_of(p, "formula.sent", point) *
                (double)value_of(p, "model.parameters", point) * (n - 1) / n;
    double sent = 0, once = value_of(p, "stage", point) == 3 ? 0.66 : 0.99;
    for (int i = 0; i < 3; i++) {
        char *name = base_format("traffic.%s", kinds[i]);
        sent += (double)value_of(p, name, point);
        free(name);
    }
    if (value_of(p, "formula.parts", point) == 1 && (sent > by * 1.01 + 1e5 || sent < by * once))
        differ(p, "formula.sent", "point %zu sends %.0f bytes, by the formula %.0f", point, sent,
               by);
}

static void compare_refusal(struct Page *p, size_t point, uint64_t number) {
    int status;
    char *command = command_of(p, point, true, "--json 2>&1 >/dev/null");
    char *text = run(command, &status);
    const cJSON *said = cJSON_GetArrayItem(get(p->table, "refused"), (int)number - 1);
    char *line = base_format("train: %s\n", said ? said->valuestring : "");
    if (status != 2 || strcmp(text, line) != 0)
        differ(p, command, "status %d, %s the page has: %s", status, text, line);
    free(line);
    free(text);
    free(command);
}

static size_t count_refused(const struct Page *p) {
    size_t n = 0;
    for (size_t i = 0; i < p->points; i++)
        n += value_of(p, "refused", i) != 0;
    return n;
}

int main(int argc, char **argv) {
    struct Page p;
    if (argc < 3 || !open_page(&p, argv[1])) {
        fprintf(stderr, "page_points: cannot read %s; usage: page_points PAGE COUNT SEED\n",
                argc > 1 ? argv[1] : "a page");
        return 2;
    }
    size_t count = strtoull(argv[2], NULL, 10);
    if (!strcmp(argv[2], "refused"))
        printf("%zu of %zu points are refused\n", count_refused(&p), p.points);
    for (size_t i = 0; i < count; i++) {
        size_t point = rng_bits(strtoull(argv[3], NULL, 10), i) % p.points;
        uint64_t refused = value_of(&p, "refused", point);
        if (refused) {
            compare_refusal(&p, point, refused);
        } else {
            compare_plan(&p, point);
            check_sent(&p, point);
            if (p.models)
                compare_formula(&p, point);
        }
    }
    if (count)
        printf("%zu of %zu points compared, %zu differences\n", count, p.points, p.differences);
    cJSON_Delete(p.table);
    return p.differences > 0;
}
