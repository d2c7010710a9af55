// Finds the row of a key, and checks values against it: see rows.h.
#include "data/deepspeed/rows.h"

#include "kernels/nearest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Returns the type of a flag's key: a switch, a text, a number or a whole number.
static const char *flag_kind(const struct Flag *f) {
    return flag_is_switch(f)        ? "b"
           : f->type == FLAG_STRING ? "t"
           : f->type == FLAG_FLOAT  ? "n"
                                    : "i";
}

struct DsTables ds_tables_open(const struct Flags *f) {
    struct DsRow *rows = base_alloc(f->n * sizeof *rows);
    size_t count = 0;
    for (const struct Flag *flag = f->table; flag < f->table + f->n; flag++)
        if (flag->deepspeed)
            rows[count++] = (struct DsRow){.key = flag->deepspeed,
                                           .kinds = flag_kind(flag),
                                           .verdict = DS_HONOURED,
                                           .flag = flag->name};
    return (struct DsTables){
        {{"batches, precision, optimizer, schedule", ds_train_rows, ds_train_count},
         {"ZeRO, offload, disks", ds_zero_rows, ds_zero_count},
         {"the rest", ds_rest_rows, ds_rest_count},
         {"flags by another name", rows, count}},
        rows};
}

void ds_tables_close(struct DsTables *t) {
    free(t->flag_rows);
}

// ---- a key's row ----

// True if `key` is one of the names in `list`, which are separated by `separator`.
static bool is_one_of(const char *list, char separator, const char *key, size_t n) {
    const char both[] = {separator, 0};
    for (const char *at = list; *at; at += at[0] == separator) {
        size_t length = strcspn(at, both);
        if (length == n && memcmp(at, key, n) == 0)
            return true;
        at += length;
    }
    return false;
}

static size_t first_name_length(const struct DsRow *row) {
    return strcspn(row->key, "|");
}

static bool is_inside(const struct DsRow *row, const char *key) {
    size_t n = first_name_length(row);
    if (!row->inner || strncmp(row->key, key, n) != 0 || key[n] != '.')
        return false;
    const char *rest = key + n + 1;
    return *row->inner == '*' || is_one_of(row->inner, ' ', rest, strlen(rest));
}

const struct DsRow *ds_row(const struct DsTables *tables, const char *key, bool *inside) {
    const struct DsRow *found = NULL;
    *inside = false;
    for (const struct DsTable *t = tables->table; t < tables->table + DS_TABLES; t++) {
        for (size_t i = 0; i < t->n; i++) {
            const struct DsRow *row = &t->rows[i];
            if (is_one_of(row->key, '|', key, strlen(key))) {
                *inside = false;
                return row;
            }
            if (!found && is_inside(row, key)) {
                found = row;
                *inside = true;
            }
        }
    }
    return found;
}

bool ds_lists_inside(const struct DsRow *row, const char *key) {
    const char *rest = key + first_name_length(row) + 1, *dot;
    size_t n = strlen(rest);
    for (const char *at = row->inner; (dot = strchr(at, '.')); at = dot + 1)
        if ((size_t)(dot - row->inner) >= n && strncmp(dot - n, rest, n) == 0)
            return true;
    return false;
}

// ---- the nearest key ----

static const char *last_name(const char *path, size_t *parent_bytes) {
    const char *dot = strrchr(path, '.');
    *parent_bytes = dot ? (size_t)(dot - path) : 0;
    return dot ? dot + 1 : path;
}

// Keeps the path in *nearest if it is nearer to the key than *best, which is twice the distance of
// the last names, plus 1 for a path in another object. Such a path counts only if the last names
// are equal.
static void try_path(const char *key, const char *path, size_t *best, char **nearest) {
    size_t here, there;
    const char *name = last_name(key, &here), *known = last_name(path, &there);
    bool same = here == there && strncmp(key, path, here) == 0;
    if (!same && strcmp(name, known) != 0)
        return;
    size_t distance = nearest_distance(name, known);
    if (distance >= nearest_limit(name))
        return;
    distance = 2 * distance + !same;
    if (distance >= *best)
        return;
    *best = distance;
    free(*nearest);
    *nearest = base_format("%s", path);
}

static void try_row(const char *key, const struct DsRow *row, size_t *best, char **nearest) {
    for (const char *at = row->key; *at; at += *at == '|') {
        char *path = base_format("%.*s", (int)strcspn(at, "|"), at);
        try_path(key, path, best, nearest);
        at += strlen(path);
        free(path);
    }
    for (const char *at = row->inner ? row->inner : ""; *at && *at != '*'; at += *at == ' ') {
        size_t n = strcspn(at, " ");
        char *path = base_format("%.*s.%.*s", (int)first_name_length(row), row->key, (int)n, at);
        try_path(key, path, best, nearest);
        at += n;
        free(path);
    }
}

char *ds_nearest(const struct DsTables *tables, const char *key) {
    char *nearest = NULL;
    size_t best = SIZE_MAX;
    for (const struct DsTable *t = tables->table; t < tables->table + DS_TABLES; t++) {
        for (size_t i = 0; i < t->n; i++)
            try_row(key, &t->rows[i], &best, &nearest);
    }
    return nearest;
}

// ---- an object ----

bool ds_is_closed(const char *key) {
    // pydantic's models and constructors' arguments; other objects may have any key.
    static const char *const closed[] = {"comet.",
                                         "comms_logger.",
                                         "csv_monitor.",
                                         "hybrid_engine.",
                                         "optimizer.params.",
                                         "scheduler.params.",
                                         "tensorboard.",
                                         "timers.throughput.",
                                         "wandb.",
                                         "weight_quantization.",
                                         "zero_optimization."};
    for (size_t i = 0; i < sizeof closed / sizeof closed[0]; i++)
        if (strncmp(key, closed[i], strlen(closed[i])) == 0)
            return true;
    return false;
}

// ---- a value ----

bool ds_is_auto(const cJSON *value) {
    return cJSON_IsString(value) && strcmp(value->valuestring, "auto") == 0;
}

char *ds_format_flag(const cJSON *value) {
    if (cJSON_IsString(value))
        return base_format("%s", value->valuestring);
    if (!cJSON_IsNumber(value))
        return base_format("%s", cJSON_IsTrue(value) ? "true" : "false");
    char *text = base_format("%.15g", value->valuedouble);
    if (strtod(text, NULL) == value->valuedouble)
        return text;
    free(text);
    return base_format("%.17g", value->valuedouble);
}

char *ds_format_json(const cJSON *value) {
    enum { SHOWN_MAX = 40 };
    char *text = cJSON_PrintUnformatted(value);
    if (!text)
        base_out_of_memory(0, "a value of a configuration");
    char *shown = base_format("%.*s%s", SHOWN_MAX, text, strlen(text) > SHOWN_MAX ? "..." : "");
    cJSON_free(text);
    return shown;
}

static bool has_enabled(const cJSON *value) {
    const cJSON *enabled = cJSON_GetObjectItemCaseSensitive(value, "enabled"), *m;
    bool on = enabled && !cJSON_IsNull(enabled) && !ds_is_auto(enabled) && !cJSON_IsFalse(enabled);
    cJSON_ArrayForEach(m, value) on = on || has_enabled(m);
    return on;
}

bool ds_is_on(const struct DsRow *row, const cJSON *value) {
    if (ds_is_auto(value) || cJSON_IsNull(value) || cJSON_IsFalse(value))
        return false;
    if (cJSON_IsNumber(value))
        return value->valuedouble > row->most;
    if (!cJSON_IsObject(value))
        return true;
    const cJSON *enabled = cJSON_GetObjectItemCaseSensitive(value, "enabled");
    if (!enabled)
        return strchr(row->kinds, 'E') ? has_enabled(value) : strchr(row->kinds, 'O') != NULL;
    return cJSON_IsTrue(enabled);
}

bool ds_fits(const struct DsRow *row, const cJSON *value, char *text, size_t bytes) {
    static const struct {
        char letter;
        int types; // of cJSON
        const char *name;
    } kinds[] = {{'b', cJSON_True | cJSON_False, "true or false"},
                 {'i', cJSON_Number, "a whole number"},
                 {'n', cJSON_Number, "a number"},
                 {'t', cJSON_String, "a text"},
                 {'l', cJSON_Array, "a list"},
                 {'o', cJSON_Object, "an object"},
                 {'O', cJSON_Object, "an object"},
                 {'E', cJSON_Object, "an object"}};
    enum { NKIND = sizeof kinds / sizeof kinds[0] };
    *text = 0;
    bool fits = cJSON_IsNull(value) || ds_is_auto(value) || *row->kinds == '*';
    bool finite = !cJSON_IsNumber(value) || isfinite(value->valuedouble);
    for (int i = 0; i < NKIND; i++) {
        if (!strchr(row->kinds, kinds[i].letter))
            continue;
        bool whole = kinds[i].letter != 'i' || (value->valuedouble == floor(value->valuedouble) &&
                                                fabs(value->valuedouble) < 0x1p63);
        fits = fits || ((value->type & kinds[i].types) && finite && whole);
        size_t n = strlen(text);
        snprintf(text + n, bytes - n, "%s%s", n ? ", or " : "", kinds[i].name);
    }
    return fits;
}

const char *ds_verdict_name(enum DsVerdict verdict) {
    static const char *const names[] = {[DS_HONOURED] = "honoured",
                                        [DS_EQUAL] = "equal by design",
                                        [DS_NOT_APPLICABLE] = "not applicable",
                                        [DS_REFUSED] = "refused"};
    return names[verdict];
}
