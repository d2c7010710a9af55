// --init and --export: see init.h.
#include "data/flags/init.h"
#include "data/hf/config.h"
#include "data/json.h"
#include "data/peft/kind.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char FINE_TUNING_LR[] = "1e-5";
static const char FINE_TUNING_SOURCE[] = "the defaults of --init"; // the source of those values

// ---- the kind -----------------------------------------------------------------------------------

static bool has_use(const struct WeightsKind *kind, enum InitUse use) {
    return use == INIT_FROM ? kind->open != NULL : kind->make != NULL;
}

const struct WeightsKind *init_kind(WeightsKinds *kinds, enum InitUse use, const char *value,
                                    const char **path) {
    for (; value && *kinds; kinds++) {
        size_t n = strlen((*kinds)->prefix);
        if (!has_use(*kinds, use) || strncmp(value, (*kinds)->prefix, n) != 0 || !value[n])
            continue;
        *path = value + n;
        return *kinds;
    }
    return NULL;
}

int init_refuse(WeightsKinds *kinds, enum InitUse use, const char *value, struct Error *e) {
    char expected[128] = "";
    size_t left = 0;
    for (size_t i = 0; kinds[i]; i++)
        left += has_use(kinds[i], use);
    for (size_t at = 0; *kinds; kinds++)
        if (has_use(*kinds, use)) {
            const char *separator = --left > 1 ? ", " : left ? " or " : "";
            at += (size_t)snprintf(expected + at, sizeof expected - at, "%s%s%s", (*kinds)->prefix,
                                   (*kinds)->place, separator);
        }
    return error_set(
        e, -EINVAL, E_INIT_NAME,
        "--%s %s: it does not begin with a kind of files, or has no path behind it; expected %s",
        use == INIT_FROM ? "init" : "export", value, expected);
}

// ---- the model's flags --------------------------------------------------------------------------

// The model's sequence length is only a default of the new run.
static const char LENGTH[] = "seq-len";

// True if the flag belongs to the model. --positions does for gpt2 alone.
static bool is_model_flag(const cJSON *flags, const char *name) {
    bool has_positions = strcmp(json_text(flags, "family"), "gpt2") == 0;
    return has_positions || strcmp(name, "positions") != 0;
}

static int refuse_model(struct Flags *f, const char *init, struct Error *e) {
    char *model = flags_value(f, "model");
    int err = error_set(e, -EINVAL, E_INIT_MODEL,
                        "--model %s: --init %s already says what the model is; leave out --model",
                        model, init);
    free(model);
    return err;
}

// Refuses a flag that the user has set to another value than the item's, which `where` has.
static int check_value(struct Flags *f, const cJSON *item, const char *where, struct Error *e) {
    bool is_text = cJSON_IsString(item);
    char *mine = flags_value(f, item->string);
    char *theirs =
        is_text ? base_format("%s", item->valuestring) : base_format("%.9g", item->valuedouble);
    bool same =
        is_text ? hf_config_same_text(mine, theirs) : strtod(mine, NULL) == item->valuedouble;
    int err = 0;
    if (flags_was_set(f, item->string) && !same)
        err = error_set(e, -EINVAL, E_INIT_FLAG, "--%s %s: %s has %s; leave out --%s", item->string,
                        mine, where, theirs, item->string);
    free(mine);
    free(theirs);
    return err;
}

// Refuses --model, and a flag of the line or a file that differs from the model's, which `where`
// names. --seq-len may differ, and so may a flag that is left to the model (0, auto).
static int refuse_contradiction(struct Flags *f, const char *value, const char *where,
                                const cJSON *flags, struct Error *e) {
    const cJSON *item;
    int err = flags_was_set(f, "model") ? refuse_model(f, value, e) : 0;
    cJSON_ArrayForEach(item, flags) {
        if (err || !flags_was_set(f, item->string) || !is_model_flag(flags, item->string))
            continue;
        if (flags_forget_if_default(f, item->string) || strcmp(item->string, LENGTH) == 0)
            continue;
        err = check_value(f, item, where, e);
    }
    return err;
}

char *init_model_json(const struct Flags *f, size_t vocab) {
    cJSON *flags = cJSON_CreateObject();
    for (const struct Flag *flag = f->table; flag < f->table + f->n; flag++) {
        if (flag->identity != FLAG_MODEL)
            continue;
        char *value = flags_value(f, flag->name);
        if (flag_is_number(flag))
            cJSON_AddNumberToObject(flags, flag->name, strtod(value, NULL));
        else
            cJSON_AddStringToObject(flags, flag->name, value);
        free(value);
    }
    cJSON_AddNumberToObject(flags, "vocab", (double)vocab);
    hf_config_complete(flags);
    return json_line_text(flags);
}

// Returns the rest of the identity's line that begins with prefix, name and a space; NULL: there is
// none. free() it.
static char *find_identity_value(const char *identity, const char *prefix, const char *name) {
    char *begin = base_format("\n%s%s ", prefix, name), *value = NULL;
    char *all = base_format("\n%s", identity); // so that the first line follows a "\n", too
    const char *found = strstr(all, begin);
    if (found) {
        found += strlen(begin);
        value = base_format("%.*s", (int)strcspn(found, "\n"), found);
    }
    free(begin);
    free(all);
    return value;
}

// Adds a number of the identity; value NULL: it has none. Frees value. False: it is no number.
static bool add_number(cJSON *flags, const char *name, char *value) {
    char *end = value;
    double number = value ? strtod(value, &end) : 0;
    bool good = !value || (end != value && !*end);
    if (value && good)
        cJSON_AddNumberToObject(flags, name, number);
    free(value);
    return good;
}

// Adds the identity's value of a flag. False: it is no value, or it is missing and required.
static bool add_flag(cJSON *flags, const struct Flag *flag, const char *identity) {
    char *value = find_identity_value(identity, "--", flag->name);
    bool present = value || flag->identity_if;
    if (flag_is_number(flag))
        return add_number(flags, flag->name, value) && present;
    if (value)
        cJSON_AddStringToObject(flags, flag->name, value);
    free(value);
    return present;
}

// Adds the values of flags that an older identity lacks.
static void add_missing_defaults(cJSON *flags) {
    static const char *const defaults[][2] = {
        {"family", "gpt2"}, {"tie", "on"}, {"rope-scaling", "none"}};
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++)
        if (!cJSON_HasObjectItem(flags, defaults[i][0]))
            cJSON_AddStringToObject(flags, defaults[i][0], defaults[i][1]);
}

int init_identity_flags(const struct Flag *table, size_t n, const char *identity, const char *where,
                        char **text, struct Error *e) {
    cJSON *flags = cJSON_CreateObject();
    bool good = add_number(flags, "vocab", find_identity_value(identity, "", "vocabulary")) &&
                cJSON_HasObjectItem(flags, "vocab");
    for (const struct Flag *f = table; f < table + n; f++)
        good = (f->identity != FLAG_MODEL || add_flag(flags, f, identity)) && good;
    add_missing_defaults(flags);
    if (strcmp(cJSON_GetObjectItem(flags, "family")->valuestring, "gpt2") != 0 &&
        !cJSON_HasObjectItem(flags, "positions"))
        cJSON_AddNumberToObject(flags, "positions", 0); // it has no position embedding
    *text = json_line_text(flags);
    if (good)
        return 0;
    free(*text);
    *text = NULL;
    return error_set(e, -EINVAL, E_INIT_CONFIG,
                     "%s does not say what model it has; give a folder that a run of zero.c wrote",
                     where);
}

// Reads the model at `path` as flags with all their defaults; cJSON_Delete *flags.
static int read_model(const struct WeightsKind *kind, const char *path, cJSON **flags, char **where,
                      struct Error *e) {
    char *text = NULL;
    int err = kind->flags(path, &text, where, e);
    *flags = err ? NULL : cJSON_Parse(text);
    if (!err)
        hf_config_complete(*flags);
    free(text);
    return err;
}

int init_check_resumed(const struct Flags *resolved, WeightsKinds *kinds, const char *value,
                       struct Error *e) {
    const char *path;
    const struct WeightsKind *kind = init_kind(kinds, INIT_FROM, value, &path);
    if (!kind)
        return init_refuse(kinds, INIT_FROM, value, e);
    cJSON *model;
    char *where = NULL;
    struct Error cause;
    int err = read_model(kind, path, &model, &where, &cause);
    if (err == -ENOENT) { // a resume without --export does not need it
        log_line(LOG_NORMAL, "--init %s: %s; the run goes on without it", value, cause.text);
        return 0;
    }
    if (err)
        return error_set(e, err, cause.id, "--init %s: %s", value, cause.text);
    char *mine = init_model_json(resolved, 0), *source = base_format("--init %s: %s", value, where);
    cJSON *run = cJSON_Parse(mine);
    err = hf_config_check_same(model, source, run, "give --init the model that the run began with",
                               e);
    cJSON_Delete(model);
    cJSON_Delete(run);
    free(source);
    free(mine);
    free(where);
    return err;
}

// ---- the defaults of fine-tuning ----------------------------------------------------------------

// --lr and its like default to values for training from random weights. Fine-tuning has gentler
// defaults, for each of these flags that is not given.
void init_lower_learning_rate(struct Flags *f) {
    if (flags_was_set(f, "lr"))
        return;
    size_t i = flags_find(f, "lr");
    union FlagValue v = {0};
    struct Error e;
    CHECK(!flag_value_parse(&f->table[i], "--lr", FINE_TUNING_LR, &v, &e), "%s", e.text);
    flags_store(f, i, &v, FLAG_FROM_DEFAULT);
}

// Sets the defaults of fine-tuning, and --seq-len to the model's, which is removed from its flags.
static int load_fine_tuning_defaults(struct Flags *f, cJSON *model, struct Error *e) {
    const struct {
        const char *flag;
        double value;
    } rows[] = {{"lr", strtod(FINE_TUNING_LR, NULL)},
                {"weight-decay", 0},
                {"warmup", floor(INIT_WARMUP * flags_number(f, "steps"))}};
    cJSON *flags = cJSON_CreateObject();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!flags_was_set(f, rows[i].flag))
            cJSON_AddNumberToObject(flags, rows[i].flag, rows[i].value);
    cJSON *length = cJSON_DetachItemFromObject(model, LENGTH);
    if (length && !flags_was_set(f, LENGTH))
        cJSON_AddItemToObject(flags, LENGTH, length);
    else
        cJSON_Delete(length);
    char *text = json_line_text(flags);
    int err = flags_load_json_text(f, FINE_TUNING_SOURCE, text, strlen(text), e);
    free(text);
    return err;
}

bool init_is_fine_tuning_default(const struct Flags *f, const char *name) {
    size_t i = flags_find(f, name);
    return f->source[i] == FLAG_FROM_FILE && strcmp(f->file[i], FINE_TUNING_SOURCE) == 0;
}

void init_log_defaults(const struct Flags *f) {
    char *lr = flags_value(f, "lr"), *decay = flags_value(f, "weight-decay");
    char *warmup = flags_value(f, "warmup");
    log_line(LOG_NORMAL, "--init: --lr %s --weight-decay %s --warmup %s", lr, decay, warmup);
    free(lr);
    free(decay);
    free(warmup);
}

int init_read_flags(struct Flags *f, WeightsKinds *kinds, const char *value, struct Error *e) {
    const char *path;
    const struct WeightsKind *kind = init_kind(kinds, INIT_FROM, value, &path);
    if (!kind)
        return init_refuse(kinds, INIT_FROM, value, e);
    cJSON *flags;
    char *text = NULL, *where = NULL;
    struct Error cause;
    int err = read_model(kind, path, &flags, &where, &cause);
    if (err)
        error_set(e, err, cause.id, "--init %s: %s%s", value, cause.text,
                  access(path, F_OK) ? ": it must be on this machine, because nothing is downloaded"
                  : err == -ENOTDIR  ? ": expected the folder that the file is in"
                                     : "");
    if (!err) {
        err = refuse_contradiction(f, value, where, flags, e);
        if (err)
            flags_describe_sources(f, false, e);
        err = err ? err : load_fine_tuning_defaults(f, flags, e);
        text = json_line_text(flags);
    }
    if (!err)
        err = flags_load_json_text(f, where, text, strlen(text), e);
    free(text);
    free(where);
    return err;
}

int init_read_adapter(struct Flags *f, const char *dir, struct Error *e) {
    char *family = flags_value(f, "family"), *text = NULL;
    char *where = base_format("%s/adapter_config.json", dir);
    struct Error cause;
    int err = peft_flags(dir, !strcmp(family, "gpt2"), &text, &cause);
    if (err)
        error_set(e, err, cause.id, "--init-adapter %s: %s", dir, cause.text);
    cJSON *flags = err ? NULL : cJSON_Parse(text);
    const cJSON *item;
    if (flags && flags_was_set(f, "lora-dropout"))
        cJSON_DeleteItemFromObject(flags, "lora-dropout");
    cJSON_ArrayForEach(item, flags) if (!err) err = check_value(f, item, where, e);
    free(text);
    text = flags ? json_line_text(flags) : NULL;
    if (!err)
        err = flags_load_json_text(f, where, text, strlen(text), e);
    free(family);
    free(where);
    free(text);
    return err;
}
