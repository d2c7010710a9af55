// Configuration files: the flags of a run as one JSON object.
//
// flags_save_json writes every flag, set or not, so that a program with other defaults repeats the
// run. But a flag that was not set may be derived from others, so the key "given" lists the flags
// that the user set. A file written by hand needs no such list: all flags in it count as set.
//
// Numbers go through the same text parser as on the line, so "device-mem": "16G" works in a file.
// JSON numbers are doubles to cJSON: integers past 2^53 are written as strings, and as numbers they
// are refused.
#include "data/file.h"
#include "data/flags/flags.h"
#include "data/json.h"
#include "kernels/show.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 1 << 20 };
static const char *const GIVEN = "given";
static const double EXACT_INTEGER_MAX = 0x1p53;

// ---- reading ----

// Formats a scalar as a user would write it on the line; *text NULL: it is null. free() *text.
static int scalar_text(const struct Flag *flag, const cJSON *item, const char *where, char **text,
                       struct Error *e) {
    double x = item->valuedouble;
    bool whole = x == floor(x) && fabs(x) <= EXACT_INTEGER_MAX;
    *text = NULL;
    if (cJSON_IsString(item))
        *text = base_format("%s", item->valuestring);
    else if (cJSON_IsBool(item))
        *text = base_format("%s", cJSON_IsTrue(item) ? "true" : "false");
    else if (cJSON_IsNumber(item) && flag->type != FLAG_FLOAT && fabs(x) > EXACT_INTEGER_MAX)
        return error_set(e, -EINVAL, E_CONFIG_VALUE,
                         "%s %.17g: a JSON number past 2^53 loses digits; write it as a string, "
                         "\"...\"",
                         where, x);
    else if (cJSON_IsNumber(item))
        *text = base_format(whole ? "%.0f" : "%.17g", x);
    else if (!cJSON_IsNull(item))
        return error_set(e, -EINVAL, E_CONFIG_VALUE, "%s: it is %s; expected one value", where,
                         cJSON_IsArray(item) ? "a list [...]" : "an object {...}");
    return 0;
}

// False for a JSON type that cannot be meant for this flag, although its text would do.
static bool type_fits(const struct Flag *flag, const cJSON *item) {
    if (flag->type == FLAG_BOOL)
        return cJSON_IsBool(item);
    if (flag_is_switch(flag))
        return cJSON_IsBool(item) || cJSON_IsString(item);
    if (flag->type == FLAG_STRING || flag->type == FLAG_LIST || flag->type == FLAG_OPTIONAL)
        return cJSON_IsString(item) || cJSON_IsNull(item);
    return cJSON_IsNumber(item) || cJSON_IsString(item);
}

static int load_value(struct Flags *f, size_t i, const cJSON *item, const char *where,
                      bool counts_as_set, struct Error *e) {
    bool is_number = flag_is_number(&f->table[i]);
    const char *expected = f->table[i].type == FLAG_BOOL ? "true or false"
                           : is_number                   ? "a number"
                                                         : "a string";
    char *text;
    int code = scalar_text(&f->table[i], item, where, &text, e);
    if (!code && !type_fits(&f->table[i], item))
        code = error_set(e, -EINVAL, E_CONFIG_VALUE, "%s: %s is not %s", where,
                         text ? text : "null", expected);
    union FlagValue v = {0};
    if (!code && text)
        code = flag_value_parse(&f->table[i], where, text, &v, e);
    if (!code && f->source[i] != FLAG_FROM_LINE) {
        flags_store(f, i, &v, counts_as_set ? FLAG_FROM_FILE : FLAG_FROM_DEFAULT);
        f->altered[i] = !counts_as_set && !flags_is_default(f, i);
    }
    free(text);
    return code;
}

static int refuse_key(const struct Flags *f, const char *path, const char *key, struct Error *e) {
    const char *ours = flags_known_as(f, key), *nearest = ours ? ours : flags_nearest(f, key);
    if (nearest)
        return error_set(e, -EINVAL, E_CONFIG_KEY, "%s: unknown key \"%s\"; did you mean \"%s\"?",
                         path, key, nearest);
    return error_set(e, -EINVAL, E_CONFIG_KEY,
                     "%s: unknown key \"%s\"; the keys are the flags of --help without --", path,
                     key);
}

// Marks in counts_as_set[n] which flags do: those of the list "given", or all without such a list.
static int load_given(const struct Flags *f, const cJSON *root, const char *path,
                      bool *counts_as_set, struct Error *e) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, GIVEN), *item;
    memset(counts_as_set, !list, f->n);
    if (list && !cJSON_IsArray(list))
        return error_set(e, -EINVAL, E_CONFIG_VALUE,
                         "%s: \"%s\" is not a list of flag names; expected [\"NAME\", ...]", path,
                         GIVEN);
    cJSON_ArrayForEach(item, list) {
        if (!cJSON_IsString(item))
            return error_set(e, -EINVAL, E_CONFIG_VALUE,
                             "%s: \"%s\" is not a list of flag names; expected [\"NAME\", ...]",
                             path, GIVEN);
        size_t i = flags_find(f, item->valuestring);
        if (i == f->n)
            return refuse_key(f, path, item->valuestring, e);
        counts_as_set[i] = true;
    }
    return 0;
}

static int load_item(struct Flags *f, const cJSON *item, const char *path,
                     const bool *counts_as_set, struct Error *e) {
    size_t i = flags_find(f, item->string);
    if (i == f->n)
        return refuse_key(f, path, item->string, e);
    if (f->table[i].identity == FLAG_NOW)
        return error_set(e, -EINVAL, E_CONFIG_KEY,
                         "%s: \"%s\" belongs on the command line, not in a file; move it there",
                         path, item->string);
    if (counts_as_set[i]) // the user need not change an old name that only the run wrote
        flags_note_name(f, i, item->string);
    if (f->file[i] == path) // this very file has set the flag already, by its other name
        return error_set(e, -EINVAL, E_CONFIG_KEY,
                         "%s: \"%s\" and \"%s\" are one flag; leave out \"%s\"", path,
                         f->table[i].name, f->table[i].was, f->table[i].was);
    char *where = base_format("%s: %s", path, item->string);
    int code = load_value(f, i, item, where, counts_as_set[i], e);
    if (!code && f->source[i] != FLAG_FROM_LINE)
        f->file[i] = path;
    free(where);
    return code;
}

static int load_object(struct Flags *f, const cJSON *root, const char *path, struct Error *e) {
    bool *counts_as_set = base_alloc_zeroed(f->n);
    int code = load_given(f, root, path, counts_as_set, e);
    const cJSON *item;
    cJSON_ArrayForEach(item, root) {
        if (!code && strcmp(item->string, GIVEN))
            code = load_item(f, item, path, counts_as_set, e);
    }
    free(counts_as_set);
    return code;
}

int flags_load_json_text(struct Flags *f, const char *path, const char *text, size_t bytes,
                         struct Error *e) {
    f->files = base_realloc(f->files, (f->nfile + 1) * sizeof *f->files, "names of configurations");
    f->files[f->nfile] = base_format("%s", path); // path may be an option that this file replaces
    path = f->files[f->nfile++];
    cJSON *root = json_parse_object(text, bytes, path, e);
    int code = root ? load_object(f, root, path, e) : -EINVAL;
    cJSON_Delete(root);
    return code;
}

int flags_load_json(struct Flags *f, const char *path, struct Error *e) {
    char *text;
    size_t bytes;
    int code = file_read(path, CONFIG_BYTES_MAX, &text, &bytes, e);
    if (code)
        return code;
    code = flags_load_json_text(f, path, text, bytes, e);
    free(text);
    return code;
}

// ---- writing ----

// True if the value is written as a JSON number. Of FLAG_EVERY, steps are one, and a time is not.
static bool is_json_number(const struct Flag *flag, const char *text) {
    return flag_is_number(flag) || (flag->type == FLAG_EVERY && !text[strspn(text, "0123456789")]);
}

// Returns the value of a flag that may be a URL, without its password and query, because others may
// read the file.
static cJSON *url_item(const char *text) {
    size_t room = 3 * strlen(text) + 1;
    char *masked = base_alloc(room);
    show_masked(masked, room, text);
    cJSON *item = cJSON_CreateString(masked);
    free(masked);
    return item;
}

// Returns a flag's value as an item of JSON; NULL: out of memory. cJSON's own printing of numbers
// allows an error of one bit, so numbers are added as finished text.
static cJSON *value_item(const struct Flag *flag, const void *at) {
    char *text = flag_value_format(flag, at);
    bool exact = flag->type == FLAG_FLOAT ||
                 (is_json_number(flag, text) && fabs(strtod(text, NULL)) < EXACT_INTEGER_MAX);
    cJSON *item;
    bool truth = flag_is_switch(flag) && (!strcmp(text, "true") || !strcmp(text, "false"));
    if (truth || exact)
        item = cJSON_CreateRaw(text);
    else if ((flag->type == FLAG_STRING || flag->type == FLAG_LIST ||
              flag->type == FLAG_OPTIONAL) &&
             !*(char *const *)at)
        item = cJSON_CreateNull();
    else if (strcmp(flag->name, "data") == 0 || strcmp(flag->name, "val-data") == 0)
        item = url_item(text);
    else
        item = cJSON_CreateString(text);
    free(text);
    return item;
}

static char *flags_to_json(const struct Flags *f) {
    cJSON *root = cJSON_CreateObject(), *given = cJSON_CreateArray();
    bool ok = root && given;
    for (size_t i = 0; ok && i < f->n; i++) {
        const struct Flag *flag = &f->table[i];
        if (flag->identity == FLAG_NOW)
            continue;
        cJSON *item = value_item(flag, (const char *)f->options + flag->offset);
        ok = item && cJSON_AddItemToObject(root, flag->name, item);
        if (ok && f->source[i] != FLAG_FROM_DEFAULT) {
            cJSON *name = cJSON_CreateString(flag->name);
            ok = name && cJSON_AddItemToArray(given, name);
        }
    }
    ok = ok && cJSON_AddItemToObject(root, GIVEN, given);
    if (!ok)
        base_out_of_memory(0, "a configuration");
    return json_file_text(root);
}

int flags_save_json(const struct Flags *f, const char *path, struct Error *e) {
    char *text = flags_to_json(f);
    int code = file_replace(path, text, strlen(text), e);
    free(text);
    return code;
}
