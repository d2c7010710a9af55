// Reads --deepspeed: see deepspeed.h.
#include "data/deepspeed/plan.h"
#include "data/file.h"
#include "data/flags/init.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 18 };

// ---- the printed table ----

static char *describe_source(const struct Flags *f, const char *name) {
    size_t i = flags_find(f, name);
    if (ds_user_gave(f, name))
        return base_format("given");
    if (f->source[i] == FLAG_FROM_FILE || f->altered[i])
        return base_format("from %s", f->file[i]);
    return base_format(flags_is_default(f, i) ? "the default" : "which follows");
}

// Returns "--batch 8, the default". The steps of --epochs are known only once the data are open.
static char *describe_flag(const struct Flags *f, const char *name) {
    char *value = flags_value(f, name), *epochs = flags_value(f, "epochs");
    char *source = describe_source(f, name), *text;
    bool has_epochs = strcmp(epochs, "0") != 0;
    if (has_epochs && strcmp(name, "steps") == 0)
        text = base_format("--%s are those of --epochs %s", name, epochs);
    else if (has_epochs && strcmp(name, "warmup") == 0 && init_is_fine_tuning_default(f, name))
        text = base_format("--%s is %g%% of the steps of --epochs %s", name, 100 * INIT_WARMUP,
                           epochs);
    else
        text = base_format("--%s %s, %s", name, value, source);
    free(value);
    free(epochs);
    free(source);
    return text;
}

void deepspeed_describe(struct DeepSpeed *d, const struct Flags *resolved, FILE *out) {
    for (struct DsLine *line = d->lines; line < d->lines + d->n; line++) {
        if (!line->auto_flag)
            continue;
        free(line->why);
        line->why = describe_flag(resolved, line->auto_flag);
    }
    deepspeed_print(d, out);
}

// ---- reading ----

static void store_flags(struct Flags *f, const struct DeepSpeed *d, const char *path) {
    for (size_t n = 0; n < d->n; n++) {
        const struct DsLine *line = &d->lines[n];
        if (!line->flag || ds_user_gave(f, line->flag))
            continue;
        size_t i = flags_find(f, line->flag);
        union FlagValue v = {0};
        struct Error e;
        CHECK(!flag_value_parse(&f->table[i], line->key, line->flag_value, &v, &e), "%s", e.text);
        flags_store(f, i, &v, FLAG_FROM_FILE);
        f->altered[i] = false;
        f->file[i] = path;
    }
}

int deepspeed_read_flags_text(struct Flags *f, const char *path, const char *text, size_t bytes,
                              size_t ranks, struct DeepSpeed *out, struct Error *e) {
    char *ranks_text = flags_value(f, "ranks");
    ranks = ranks ? ranks : (size_t)strtoull(ranks_text, NULL, 10);
    free(ranks_text);
    int err = ds_resolve(text, bytes, path, f, ranks, out, e);
    if (err)
        return err;
    f->files = base_realloc(f->files, (f->nfile + 1) * sizeof *f->files, "names of configurations");
    f->files[f->nfile] = base_format("%s", path);
    store_flags(f, out, f->files[f->nfile++]);
    return 0;
}

int deepspeed_read_flags(struct Flags *f, const char *path, size_t ranks, struct DeepSpeed *out,
                         struct Error *e) {
    char *text;
    size_t bytes;
    int err = file_read(path, FILE_BYTES_MAX, &text, &bytes, e);
    *out = (struct DeepSpeed){0};
    if (err)
        return err;
    err = deepspeed_read_flags_text(f, path, text, bytes, ranks, out, e);
    free(text);
    return err;
}
