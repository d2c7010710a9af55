// Loads a checkpoint: every rank takes the elements it keeps from the files that have them.
//
//   file 0  |--------|                     a group's elements, as four ranks wrote them
//   file 1           |--------|
//   file 2                    |--------|
//   file 3                             |---|
//   rank 0  |--------------|               what each of three ranks keeps
//   rank 1                 |-------------|
//
// No file is used before its hash is known to be right: rank 0 checks the first file, which says
// how many there are, then the ranks share out the others, and only when all of them are intact do
// they read the heads and check that this is a checkpoint of this run. Then they agree, and read
// (read.c).
//
// All files are opened below one folder that stays open, so that they are of one checkpoint even if
// another takes its name meanwhile, and the first is locked, so that nobody prunes it.
#include "zero/checkpoint/files.h"

#include "zero/offload/offload.h"
#include "zero/report.h"
#include "zero/settings/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- is it of this run? Its identity is compared with the run's, line by line ----

struct IdentityLine {
    const char *text; // NULL: there is none
    size_t n, name;   // bytes: without the line feed; of its name
};

static bool is_flag(const struct IdentityLine *l) {
    return l->n >= 2 && !memcmp(l->text, "--", 2);
}

// Returns the setting's flag, by its oldest name (options_identity); NULL: it names none.
static const struct Flag *flag_of(const struct IdentityLine *l) {
    for (const struct Flag *f = settings_table; f < settings_table + settings_count; f++) {
        const char *name = f->was ? f->was : f->name;
        if (is_flag(l) && strlen(name) == l->name - 2 && !memcmp(l->text + 2, name, l->name - 2))
            return f;
    }
    return NULL;
}

// True if a run of another number of ranks may change it.
static bool is_of_the_ranks(const struct IdentityLine *l) {
    const struct Flag *f = flag_of(l);
    return f && f->identity == FLAG_RANKS;
}

// Returns it as a user writes it; free() it.
static char *line_text(const struct IdentityLine *l) {
    const struct Flag *f = flag_of(l);
    if (f)
        return base_format("--%s%.*s", f->name, (int)(l->n - l->name), l->text + l->name);
    return base_format("%.*s", (int)l->n, l->text);
}

// Returns the first line of a text, and moves the text past it. A flag's name ends at the first
// space; any other name, which may have spaces itself, at the last.
static struct IdentityLine next_line(const char **text) {
    struct IdentityLine l = {*text, strcspn(*text, "\n"), 0};
    if (is_flag(&l))
        l.name = strcspn(l.text, " \n");
    for (size_t i = 0; i < l.n && !is_flag(&l); i++)
        if (l.text[i] == ' ')
            l.name = i;
    *text += l.n + (l.text[l.n] == '\n');
    return l;
}

// True for the two lines that name what computes: the device, or the CPU's kernels.
static bool names_kernels(const struct IdentityLine *l) {
    return (l->name == 8 && !memcmp(l->text, "--device", 8)) ||
           (l->name == 9 && !memcmp(l->text, "--kernels", 9));
}

// Returns the line of a text that has another's name.
static struct IdentityLine line_named(const char *text, const struct IdentityLine *as) {
    while (*text) {
        struct IdentityLine l = next_line(&text);
        if ((l.name == as->name && !memcmp(l.text, as->text, l.name)) ||
            (names_kernels(&l) && names_kernels(as)))
            return l;
    }
    return (struct IdentityLine){0};
}

// A wanted value of * matches any.
static bool is_same(const struct IdentityLine *has, const struct IdentityLine *want) {
    bool any = want->text && want->n == want->name + 2 && want->text[want->n - 1] == '*';
    return any || (want->text && has->n == want->n && !memcmp(has->text, want->text, has->n));
}

// Finds the first flag, or else other line, of `text` that the other identity has with another
// value; with `missing`, that it lacks.
static bool find_difference(const char *text, const char *other, bool missing, bool flags,
                            bool same_ranks, struct IdentityLine *line, struct IdentityLine *its) {
    while (*text) {
        *line = next_line(&text);
        *its = line_named(other, line);
        bool differs = missing ? !its->text : !is_same(line, its);
        if (differs && is_flag(line) == flags && (same_ranks || !is_of_the_ranks(line)))
            return true;
    }
    return false;
}

// Reports a flag before a hash, which other flags change too.
static int compare_identity(const char *path, const char *stored, const char *wanted,
                            bool same_ranks, struct Error *e) {
    struct IdentityLine has, want;
    bool found = false;
    for (int others = 0; others < 2 && !found; others++)
        found = find_difference(stored, wanted, false, !others, same_ranks, &has, &want) ||
                find_difference(wanted, stored, true, !others, same_ranks, &want, &has);
    if (!found)
        return 0;
    char *had = has.text ? line_text(&has) : NULL, *wants = want.text ? line_text(&want) : NULL;
    char *why = !had     ? base_format("lacks \"%s\"", wants)
                : !wants ? base_format("has \"%s\", which this run lacks", had)
                         : base_format("has \"%s\", not \"%s\"", had, wants);
    error_set(e, -EINVAL, E_CHECKPOINT_IDENTITY,
              "checkpoint %s is of another run: it %s; give the flags and data of that run", path,
              why);
    free(had);
    free(wants);
    free(why);
    return -EINVAL;
}

// ---- do the files belong together, and to this model? ----

static bool same_scale(const struct LossScale *a, const struct LossScale *b) {
    return a->scale == b->scale && a->hysteresis == b->hysteresis && a->good == b->good;
}

static int refuse_shape(const char *path, struct Error *e) {
    return error_set(e, -EINVAL, E_CHECKPOINT_SHAPE,
                     "checkpoint %s holds a model of another shape; give the model's flags of the "
                     "run that saved it, or --config with the config.json in its --out",
                     path);
}

// Checks that a file fits among those of this model. *next: for each TP rank and group, where the
// files before it end; becomes where it ends.
static int check_file(const struct CheckpointFiles *f, int number, uint64_t *next,
                      struct Error *e) {
    const char *path = f->file[number].path;
    const struct CheckpointHead *h = &f->file[number].head, *first = &f->file[0].head;
    if (h->rank != (uint32_t)number || h->size != first->size || h->step != first->step ||
        h->updates != first->updates || h->narray != first->narray ||
        !same_scale(&h->loss_scale, &first->loss_scale) ||
        memcmp(&h->best, &first->best, sizeof h->best) != 0 ||
        memcmp(&h->grid, &first->grid, sizeof h->grid) != 0 || h->base_hash != first->base_hash ||
        strcmp(h->identity, first->identity) != 0)
        return checkpoint_damaged(e, path, "this file belongs to another checkpoint");
    const struct Params *saved = &f->saved[checkpoint_tp_rank(f, number)];
    next += checkpoint_tp_rank(f, number) * saved->ngroup;
    bool same = h->ngroup == (uint32_t)saved->ngroup;
    for (int g = 0; same && g < saved->ngroup; g++) {
        const struct CheckpointGroup *part = &h->group[g];
        bool elsewhere = !part->numel && !part->count; // another pipeline stage has it
        same = elsewhere || part->numel == saved->group[g].numel;
        if (same && part->count && part->begin != next[g])
            return checkpoint_damaged(
                e, path, "its part begins at element %llu, not where the part before ends",
                (unsigned long long)part->begin);
        next[g] += part->count;
    }
    return same ? 0 : refuse_shape(path, e);
}

// ---- the files ----

static void files_close(struct CheckpointFiles *f) {
    const int descriptor[] = {f->held, f->folder, f->fetched};
    for (int i = 0; i < 3; i++)
        if (descriptor[i] >= 0)
            close(descriptor[i]);
    for (int i = 0; i < f->count; i++) {
        checkpoint_head_free(&f->file[i].head);
        free(f->file[i].path);
    }
    for (int i = 0; i < f->tp_size; i++)
        params_free(&f->saved[i]);
    free(f->saved);
    free(f->file);
    *f = (struct CheckpointFiles){0};
}

// Closes the file again: a checkpoint may have more files than a process may open.
static int read_head(struct CheckpointFiles *f, int i, struct Error *e) {
    struct CheckpointFile *file = &f->file[i];
    int fd, err = checkpoint_file_open(f->folder, file->path, &fd, &file->head, e);
    if (!err)
        close(fd);
    return err;
}

static int open_folder(struct CheckpointFiles *f, const char *folder, struct Error *e) {
    f->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->folder < 0)
        return error_io(e, -errno, E_CHECKPOINT_READ, "cannot open checkpoint %s", folder);
    f->held = checkpoint_hold(f->folder);
    return 0;
}

// Opens the first file, which says how many there are.
static int open_first(struct Zero *z, const char *folder, struct CheckpointFiles *f,
                      struct Error *e) {
    *f = (struct CheckpointFiles){.held = -1,
                                  .fetched = -1,
                                  .count = 1,
                                  .file = base_alloc_zeroed(sizeof *f->file),
                                  .whole = f->whole};
    f->file[0] = (struct CheckpointFile){.path = checkpoint_rank_path(folder, 0)};
    int err = open_folder(f, folder, e);
    if (!err && z->all->rank == 0)
        err = checkpoint_file_check(f->folder, f->file[0].path, e);
    err = zero_agree(z, err);
    return zero_agree(z, err ? err : read_head(f, 0, e));
}

// Opens the others: each rank checks its share of them, and then reads all heads.
static int open_others(struct Zero *z, const char *folder, struct CheckpointFiles *f,
                       struct Error *e) {
    uint32_t count = f->file[0].head.size;
    if (count < 1 || count > CHECKPOINT_FILES_MAX)
        return checkpoint_damaged(e, folder, "its first file counts %u ranks", count);
    f->file = base_realloc(f->file, count * sizeof *f->file, "the files of a checkpoint");
    int err = 0;
    for (; f->count < (int)count; f->count++)
        f->file[f->count] = (struct CheckpointFile){.path = checkpoint_rank_path(folder, f->count)};
    for (int i = 1; i < f->count && !err; i++)
        if (i % z->all->size == z->all->rank)
            err = checkpoint_file_check(f->folder, f->file[i].path, e);
    err = zero_agree(z, err);
    for (int i = 1; i < f->count && !err; i++)
        err = read_head(f, i, e);
    return err;
}

// A resumed run may have a delayed update on its way after the checkpoint's step.
static int check_late(const struct Zero *z, const struct CheckpointFile *f, struct Error *e) {
    bool has = f->head.narray == NSTATE_LATE;
    if (has == offload_is_late_after(z, f->head.step))
        return 0;
    return checkpoint_damaged(e, f->path, "it %s the weights before a delayed update",
                              has ? "should not have" : "lacks");
}

// The groups that this run trains must have been trained.
static int check_arrays(const struct Zero *z, const struct CheckpointFiles *f, struct Error *e) {
    for (int i = 0; i < f->count; i++)
        for (int g = 0; g < z->params->ngroup; g++) {
            const struct CheckpointGroup *part = &f->file[i].head.group[z->params->group[g].number];
            if (zero_trains(z, g) && part->count && part->narray < f->file[i].head.narray)
                return checkpoint_damaged(e, f->file[i].path,
                                          "it lacks the optimizer state of a group");
        }
    return 0;
}

// Adapters are of one base; and a checkpoint of adapters is no model.
static int check_base(const struct Zero *z, const struct CheckpointFiles *f, const char *path,
                      struct Error *e) {
    uint64_t has = f->file[0].head.base_hash, wants = f->whole ? 0 : z->base_hash;
    if (has == wants)
        return 0;
    if (!wants)
        return error_set(
            e, -EINVAL, E_CHECKPOINT_BASE,
            "checkpoint %s holds adapters, and not the model that they are for; give "
            "--lora-rank and --init of that run, or --init hf:DIR after --export hf:DIR",
            path);
    if (!has)
        return error_set(e, -EINVAL, E_CHECKPOINT_BASE,
                         "checkpoint %s holds a model, and no adapters; leave out --lora-rank, or "
                         "begin with --init run:DIR instead of --resume",
                         path);
    return error_set(e, -EINVAL, E_CHECKPOINT_BASE,
                     "checkpoint %s holds adapters of a base whose weights hash is %016llx; that "
                     "of this run has %016llx: give the --init, or the seed, of that run",
                     path, (unsigned long long)has, (unsigned long long)wants);
}

// Lays out the groups of each TP rank that saved.
static int lay_out(const struct Zero *z, struct CheckpointFiles *f, struct Error *e) {
    const struct CheckpointHead *h = &f->file[0].head;
    struct Error ignored;
    int tp_size = h->grid.size[AXIS_TP];
    if (model_config_check_parts(&z->params->config, (size_t)tp_size, &ignored))
        return refuse_shape(f->file[0].path, e);
    f->saved = base_alloc_zeroed((size_t)tp_size * sizeof *f->saved);
    struct ModelConfig config = z->params->config;
    config.lora.rank = f->whole ? 0 : config.lora.rank;
    for (f->tp_size = 0; f->tp_size < tp_size; f->tp_size++)
        params_layout(&config, 1, (size_t)f->tp_size, (size_t)tp_size, &f->saved[f->tp_size]);
    return 0;
}

static int files_check(const struct Zero *z, struct CheckpointFiles *f, struct Error *e) {
    int err = lay_out(z, f, e);
    if (err)
        return err;
    int groups = f->saved[0].ngroup;
    uint64_t *next = base_alloc_zeroed((size_t)(f->tp_size * groups) * sizeof *next);
    for (int i = 0; i < f->count && !err; i++)
        err = check_file(f, i, next, e);
    for (int i = 0; i < f->tp_size * groups && !err; i++) {
        const struct Params *saved = &f->saved[i / groups];
        if (next[i] != (params_saves(saved, i % groups) ? saved->group[i % groups].numel : 0))
            err = checkpoint_damaged(e, f->file[0].path, "its files lack some elements");
    }
    free(next);
    return err;
}

// ---- what is taken ----

// A run that only samples may have asked for no delayed updates: it gets the newest weights.
static bool loads_late(const struct Zero *z, const struct CheckpointHead *h) {
    return offload_is_delayed(z) && h->narray == NSTATE_LATE;
}

// True if it has as many ranks, TP ranks and pipeline stages as this run.
static bool is_as_wide(const struct Zero *z, const struct CheckpointHead *h) {
    return h->size == (uint32_t)z->all->size && h->grid.size[AXIS_TP] == (int)z->params->tp_size &&
           h->grid.size[AXIS_PP] == z->parallel->stages;
}

// Returns the file with this rank's choices: the first one's for another number of ranks.
static const struct CheckpointHead *choices_of(const struct Zero *z,
                                               const struct CheckpointFiles *f) {
    return &f->file[is_as_wide(z, &f->file[0].head) ? z->all->rank : 0].head;
}

// Restores the algorithms that a run of as many ranks had. If that fails it goes on with others,
// and logs that: its weights are right, but their bits are not those of a run that was never
// stopped.
static void restore_choices(struct Zero *z, const char *path, const struct CheckpointFiles *f) {
    const struct CheckpointHead *h = choices_of(z, f);
    struct Error why;
    if (is_as_wide(z, h) && h->choices &&
        device_set_choices(z->device, h->choices, h->choices_bytes, &why))
        log_line(LOG_NORMAL, "checkpoint %s: %s", path, why.text);
}

// Opens all files, and checks that they are intact, and of that run and this model. same_ranks:
// with as many ranks, flags that shape bits must be the same, too. Call files_close in any case.
static int open_all(struct Zero *z, const char *path, const char *identity, bool same_ranks,
                    struct CheckpointFiles *f, struct Error *e) {
    bool apart = checkpoint_is_local(z, path);
    int err = apart ? checkpoint_fetch(z, path, f, e) : open_first(z, path, f, e);
    if (!err && !apart)
        err = open_others(z, path, f, e);
    const struct CheckpointHead *head = &f->file[0].head;
    if (!err && identity)
        err =
            compare_identity(path, head->identity, identity, same_ranks && is_as_wide(z, head), e);
    if (!err)
        err = check_base(z, f, path, e);
    return err ? err : files_check(z, f, e);
}

int checkpoint_load(struct Zero *z, const char *path, const char *identity, struct Error *e) {
    struct CheckpointFiles f = {.whole = false};
    int err = open_all(z, path, identity, true, &f, e);
    const struct CheckpointHead *head = &f.file[0].head;
    if (!err && identity && !z->plan.inference)
        err = check_late(z, &f.file[0], e);
    if (!err)
        err = check_arrays(z, &f, e);
    // Kernels of another kind compute other numbers, and a run does not change them midway.
    const struct CheckpointHead *had = err ? NULL : choices_of(z, &f);
    if (!err && identity && had->choices)
        err = device_set_variants(z->device, had->choices, had->choices_bytes, e);
    err = zero_agree(z, err);
    enum State arrays = z->plan.inference     ? STATE_MASTER + 1
                        : loads_late(z, head) ? NSTATE_LATE
                                              : NSTATE;
    if (!err)
        err = zero_agree(z, checkpoint_read_arrays(z, &f, arrays, e));
    if (!err) {
        restore_choices(z, path, &f);
        zero_store_params(z, loads_late(z, head));
        z->step = z->known = head->step;
        z->updates = head->updates;
        z->loss_scale = head->loss_scale;
        z->best = head->best;
        zero_send_counts(z);
    }
    files_close(&f);
    return err;
}

int checkpoint_load_weights(struct Zero *z, const char *path, const char *identity,
                            struct Error *e) {
    struct CheckpointFiles f = {.whole = true};
    int err = zero_agree(z, open_all(z, path, identity, false, &f, e));
    if (!err)
        err = zero_agree(z, checkpoint_read_arrays(z, &f, STATE_MASTER + 1, e));
    if (!err)
        zero_store_params(z, false);
    files_close(&f);
    return err;
}
