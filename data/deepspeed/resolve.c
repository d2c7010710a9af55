// Resolves the text of a configuration: see deepspeed.h.
//
// First, each key of the file, in its order: it must have a row and a type that the row allows, and
// must not be refused. Second, groups of keys that are resolved together (groups.c, groups_train.c,
// sparse.c) set flags, also for absent keys; and keys of a single flag (Flag.deepspeed) set theirs.
// Third, each flag that was set is compared with the line, and with other keys that set it. All
// problems go into one text.
#include "data/deepspeed/plan.h"
#include "data/json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// ---- the plan ----

void plan_refuse(struct DsPlan *p, const char *format, ...) {
    char *text = NULL;
    va_list list;
    va_start(list, format);
    if (vasprintf(&text, format, list) < 0)
        base_out_of_memory(0, "a refusal");
    va_end(list);
    base_append(&p->problems, "%s%s", *p->problems ? "; " : "", text);
    free(text);
}

const cJSON *plan_any_value(const struct DsPlan *p, const char *key) {
    const cJSON *value = p->root;
    while (value && *key) { // a name, then the path after its dot
        char *name = base_format("%.*s", (int)strcspn(key, "."), key);
        value = cJSON_GetObjectItemCaseSensitive(value, name);
        key += strlen(name);
        key += *key == '.';
        free(name);
    }
    return value;
}

const cJSON *plan_value(const struct DsPlan *p, const char *key) {
    const cJSON *value = plan_any_value(p, key);
    char ignored[80];
    bool inside, no_value = !value || cJSON_IsNull(value) || ds_is_auto(value);
    return no_value || !ds_fits(ds_row(&p->tables, key, &inside), value, ignored, sizeof ignored)
               ? NULL
               : value;
}

static struct DsLine *find_line(const struct DsPlan *p, const char *key) {
    for (size_t i = 0; i < p->out->n; i++)
        if (strcmp(p->out->lines[i].key, key) == 0)
            return &p->out->lines[i];
    return NULL;
}

static struct DsLine *add_line(struct DsPlan *p, const char *key, const cJSON *value,
                               enum DsVerdict verdict) {
    struct DeepSpeed *d = p->out;
    d->lines = base_realloc(d->lines, (d->n + 1) * sizeof *d->lines, "a configuration");
    struct DsLine *line = &d->lines[d->n++];
    *line = (struct DsLine){.key = base_format("%s", key),
                            .value = value ? ds_format_json(value) : base_format("absent"),
                            .absent = !value,
                            .verdict = verdict};
    return line;
}

void plan_set(struct DsPlan *p, const char *key, const char *flag, char *flag_value) {
    struct DsLine *line = find_line(p, key);
    bool second = line && line->flag; // a key may set two flags
    if (!line || second) {
        size_t at = line ? (size_t)(line - p->out->lines) + 1 : p->out->n;
        struct DsLine added = *add_line(p, key, plan_any_value(p, key), DS_HONOURED);
        line = &p->out->lines[at];
        memmove(line + 1, line, (p->out->n - 1 - at) * sizeof *line);
        *line = added;
    }
    line->flag = flag;
    line->flag_value = flag_value;
}

void plan_copy_value(struct DsPlan *p, const char *key, const char *flag) {
    const cJSON *value = plan_value(p, key);
    if (value)
        plan_set(p, key, flag, ds_format_flag(value));
}

void plan_copy_count(struct DsPlan *p, const char *key, const char *flag) {
    const cJSON *value = plan_value(p, key);
    if (value)
        plan_set(p, key, flag, base_format("%.0f", value->valuedouble));
}

void plan_note(struct DsPlan *p, const char *key, const char *why) {
    struct DsLine *line = find_line(p, key);
    if (!line)
        return;
    free(line->why);
    line->why = base_format("%s", why);
}

// ---- key by key ----

static void add_not_applicable(struct DsPlan *p, const char *key, const cJSON *value,
                               const char *why) {
    add_line(p, key, value, DS_NOT_APPLICABLE)->why = base_format("%s", why);
}

// Reports a key without a row. DeepSpeed ignores most of them, also misspelt ones.
static void report_unknown(struct DsPlan *p, const char *key, const cJSON *value) {
    // The error line is full: no more suggestions.
    char *nearest = strlen(p->problems) < ERROR_TEXT_BYTES ? ds_nearest(&p->tables, key) : NULL;
    if (nearest)
        plan_refuse(p, "unknown key %.80s; did you mean %s?", key, nearest);
    else if (ds_is_closed(key))
        plan_refuse(p, "unknown key %.80s; --help deepspeed lists all keys", key);
    else
        add_not_applicable(p, key, value, "DeepSpeed has no such key, and passes over it, too");
    free(nearest);
}

static void refuse_type(struct DsPlan *p, const char *key, const cJSON *value,
                        const char *expected) {
    char *text = ds_format_json(value);
    plan_refuse(p, "%s %s: expected %s", key, text, expected);
    free(text);
}

// Adds the line of a key with a DS_REFUSED row. Refuses a value that is on, if its object is, too.
static void check_refused(struct DsPlan *p, const struct DsRow *row, const char *key,
                          const cJSON *value, bool off) {
    bool on = !off && ds_is_on(row, value);
    struct DsLine *line = add_line(p, key, value, on ? DS_REFUSED : DS_NOT_APPLICABLE);
    line->why = base_format("%s", on ? row->why : "it is off");
    if (!on)
        return;
    plan_refuse(p, "%s %s is refused: %s", key, line->value, row->why);
}

static void resolve_object(struct DsPlan *p, const cJSON *object, const char *path);

// Checks a key inside an object, which `row` allows or refuses. An object may have two rows: the
// first is its own, and the second refuses keys inside.
static void check_inside(struct DsPlan *p, const struct DsRow *row, const char *key,
                         const cJSON *value) {
    bool ignored;
    const struct DsRow *object_row = ds_row(&p->tables, row->key, &ignored);
    if (object_row != row && !cJSON_IsNull(value) && !ds_is_auto(value))
        plan_refuse(p, "%s is refused: %s", key, row->why);
    if (cJSON_IsObject(value) && ds_lists_inside(row, key))
        resolve_object(p, value, key);
}

static void check_enabled(struct DsPlan *p, const char *path, const cJSON *object) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, "enabled");
    if (!value || cJSON_IsBool(value) || cJSON_IsNull(value) || ds_is_auto(value))
        return;
    char *key = base_format("%s.enabled", path);
    refuse_type(p, key, value, "true or false");
    free(key);
}

// Resolves a key. `off`: its object has "enabled": false.
static void resolve_key(struct DsPlan *p, const char *key, const cJSON *value, bool off) {
    bool inside;
    char expected[80];
    const struct DsRow *row = ds_row(&p->tables, key, &inside);
    if (!row && off) {
        add_not_applicable(p, key, value, "it is off");
    } else if (!row) {
        report_unknown(p, key, value);
    } else if (inside) {
        check_inside(p, row, key, value);
    } else if (!ds_fits(row, value, expected, sizeof expected)) {
        refuse_type(p, key, value, expected);
    } else {
        if (row->verdict == DS_REFUSED)
            check_refused(p, row, key, value, off);
        else if (!cJSON_IsObject(value) || row->inner) {
            struct DsLine *line = add_line(p, key, value, row->verdict);
            line->why = row->why ? base_format("%s", row->why) : NULL;
        }
        bool any = row->inner && *row->inner == '*';
        if (row->inner && row->verdict == DS_REFUSED)
            check_enabled(p, key, value);
        if (cJSON_IsObject(value) && !any)
            resolve_object(p, value, key);
    }
}

// True for a key that is a comment, or commented out.
static bool is_comment(const char *key) {
    return (*key && strchr("_/#$", *key)) || strncasecmp(key, "comment", strlen("comment")) == 0;
}

static void resolve_object(struct DsPlan *p, const cJSON *object, const char *path) {
    const cJSON *enabled = cJSON_GetObjectItemCaseSensitive(object, "enabled");
    bool off = cJSON_IsFalse(enabled);
    const cJSON *m;
    cJSON_ArrayForEach(m, object) {
        char *key = base_format("%s%s%s", path, *path ? "." : "", m->string);
        if (is_comment(m->string))
            add_not_applicable(p, key, m, "a comment");
        else if (strchr(m->string, '.')) // it would look like a path
            report_unknown(p, key, m);
        else
            resolve_key(p, key, m, off);
        free(key);
    }
}

// Resolves all keys. Refuses a file without any known key, such as a model's config.json.
static void resolve_root(struct DsPlan *p) {
    bool inside, known = !p->root->child;
    const cJSON *m;
    cJSON_ArrayForEach(m, p->root) known = known || ds_row(&p->tables, m->string, &inside);
    resolve_object(p, p->root, "");
    if (!known && !*p->problems)
        plan_refuse(p, "none of its keys is DeepSpeed's; --help deepspeed lists all keys");
}

// ---- the flags ----

bool ds_user_gave(const struct Flags *f, const char *flag) {
    size_t i = flags_find(f, flag);
    char *config = flags_value(f, "config");
    bool given = f->source[i] == FLAG_FROM_LINE ||
                 (f->source[i] == FLAG_FROM_FILE && f->file[i] && strcmp(f->file[i], config) == 0);
    free(config);
    return given;
}

static void set_single_flags(struct DsPlan *p) {
    const struct DsTable *t = &p->tables.table[DS_FLAGS];
    for (const struct DsRow *row = t->rows; row < t->rows + t->n; row++) {
        const cJSON *value = plan_value(p, row->key);
        if (cJSON_IsBool(value))
            plan_set(p, row->key, row->flag,
                     base_format("%s", cJSON_IsTrue(value) ? "true" : "false"));
        else if (*row->kinds == 'i')
            plan_copy_count(p, row->key, row->flag);
        else
            plan_copy_value(p, row->key, row->flag);
    }
}

// Returns an earlier key that sets the same flag, with which line i must agree; NULL: none.
static const struct DsLine *find_earlier_setter(const struct DeepSpeed *d, size_t i) {
    for (size_t j = 0; j < i; j++)
        if (d->lines[j].flag && strcmp(d->lines[j].flag, d->lines[i].flag) == 0)
            return &d->lines[j];
    return NULL;
}

// True if the values are equal, byte by byte: both were {0} before they were read.
static bool is_same(const struct Flag *flag, const union FlagValue *a, const union FlagValue *b) {
    bool text = flag->type == FLAG_STRING || flag->type == FLAG_LIST || flag->type == FLAG_OPTIONAL;
    return text ? strcmp(a->text, b->text) == 0 : memcmp(a, b, sizeof *a) == 0;
}

// Parses the text as a value of the flag. *same: it is the present one, `mine`.
static int parse_and_compare(const struct Flag *flag, const char *where, const char *text,
                             const char *mine, bool *same, struct Error *e) {
    union FlagValue asked = {0}, present = {0};
    struct Error ignored;
    int err = flag_value_parse(flag, where, text, &asked, e);
    *same = !err && !flag_value_parse(flag, where, mine, &present, &ignored) &&
            is_same(flag, &asked, &present);
    return err;
}

// Checks that the flag takes the value of line i, and that the command line and other keys give no
// other. DeepSpeed's default of an absent key gives way.
static void check_flag(struct DsPlan *p, size_t i) {
    struct DsLine *line = &p->out->lines[i];
    const struct DsLine *earlier = find_earlier_setter(p->out, i);
    const struct Flag *flag = &p->flags->table[flags_find(p->flags, line->flag)];
    bool by_user = ds_user_gave(p->flags, line->flag), same;
    char *mine = flags_value(p->flags, line->flag);
    char *where = base_format("%s%s", line->key, line->absent ? ", which is absent" : "");
    struct Error e = {0};
    int err = parse_and_compare(flag, where, line->flag_value, mine, &same, &e);
    if (err) {
        plan_refuse(p, "%s", e.text);
    } else if (earlier && strcmp(earlier->flag_value, line->flag_value) != 0) {
        plan_refuse(p, "%s sets --%s %s, but %s sets it to %s; make them agree", where, line->flag,
                    line->flag_value, earlier->key, earlier->flag_value);
    } else if (by_user && !same && !line->absent) {
        plan_refuse(p, "%s sets --%s %s, but --%s %s is given; drop one of them", where, line->flag,
                    line->flag_value, line->flag, mine);
    } else if (by_user && !same) {
        free(line->flag_value);
        line->flag_value = base_format("%s", mine);
        free(line->why);
        line->why = base_format("given");
    }
    free(mine);
    free(where);
}

// Notes the flag of an "auto" in its line. The flag's value may still depend on other flags, the
// data or --fit.
static void set_auto_flag(const struct DsPlan *p, struct DsLine *line) {
    bool inside;
    const struct DsRow *row = ds_row(&p->tables, line->key, &inside);
    if (!line->flag && strcmp(line->value, "\"auto\"") == 0 && row)
        line->auto_flag = row->flag;
}

static int check_flags(struct DsPlan *p, struct Error *e) {
    for (size_t i = 0; i < p->out->n; i++)
        set_auto_flag(p, &p->out->lines[i]);
    for (size_t i = 0; i < p->out->n; i++)
        if (p->out->lines[i].flag)
            check_flag(p, i);
    return *p->problems
               ? error_set(e, -EINVAL, E_DEEPSPEED_KEYS, "%s: %s", p->out->path, p->problems)
               : 0;
}

static int resolve(struct DsPlan *p, struct Error *e) {
    resolve_root(p);
    plan_batches(p);
    plan_precision(p);
    plan_optimizer(p);
    plan_scheduler(p);
    plan_offload(p);
    plan_sparse(p);
    plan_rest(p);
    set_single_flags(p);
    return check_flags(p, e);
}

// Returns a key that any object in the value has twice, which DeepSpeed refuses; NULL: none.
static const char *find_repeated_key(const cJSON *value) {
    const char *twice = cJSON_IsObject(value) ? json_repeated_key(value) : NULL;
    const cJSON *m;
    cJSON_ArrayForEach(m, value) twice = twice ? twice : find_repeated_key(m);
    return twice;
}

int ds_resolve(const char *text, size_t n, const char *path, const struct Flags *flags,
               size_t ranks, struct DeepSpeed *out, struct Error *e) {
    *out = (struct DeepSpeed){.path = base_format("%s", path)};
    cJSON *root = json_parse_object(text, n, path, e);
    if (!root)
        return -EINVAL;
    const char *twice = find_repeated_key(root);
    struct DsTables tables = ds_tables_open(flags);
    struct DsPlan p = {root, flags, ranks, tables, out, base_format("%s", "")};
    int err = twice ? error_set(e, -EINVAL, E_JSON_DUPLICATE_KEY,
                                "%s: an object has the key \"%s\" twice; keep one of them", path,
                                json_shown(twice).text)
                    : resolve(&p, e);
    free(p.problems);
    ds_tables_close(&tables);
    cJSON_Delete(root);
    return err;
}

void deepspeed_close(struct DeepSpeed *d) {
    for (size_t i = 0; i < d->n; i++) {
        free(d->lines[i].key);
        free(d->lines[i].value);
        free(d->lines[i].flag_value);
        free(d->lines[i].why);
    }
    free(d->lines);
    free(d->path);
    *d = (struct DeepSpeed){0};
}
