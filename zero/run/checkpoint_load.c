// Loading a checkpoint: every rank takes the elements it keeps from the files that have them.
//
//   file 0  |--------|                     a group's elements, as four ranks wrote them
//   file 1           |--------|
//   file 2                    |--------|
//   file 3                             |---|
//   rank 0  |--------------|               what each of three ranks keeps
//   rank 1                 |-------------|
//
// Nothing of a file is believed before its hash is known to be right: rank 0 checks the first file,
// which says how many there are, then the ranks share out the others, and only when all of them are
// intact do they read the heads and ask whether this is a checkpoint of this run. Then they agree,
// and read. The elements of padding are zeros already.
//
// All files are opened below one folder that stays open, so that they are of one checkpoint even if
// another takes its name meanwhile, and the first is held, so that nobody prunes it.
#include "zero/run/checkpoint.h"

#include "zero/offload/offload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILES = 1 << 16 };

// ---- is it the right run? ----

// What a run of another number of ranks may change: they shape bits, but not what is computed.
static bool is_of_the_shape(const char *line) {
    static const char *const names[] = {"--batch ", "--threads ", "--grad-dtype ",
                                        "--zero-shard-size "};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strncmp(line, names[i], strlen(names[i])))
            return true;
    return false;
}

struct Line {
    const char *text; // NULL: there is none
    size_t n, name;   // bytes: without the line feed; of its name
};

static bool is_flag(const struct Line *l) {
    return l->n >= 2 && !memcmp(l->text, "--", 2);
}

// The first line of a text; the text goes on behind it. A flag's name ends at the first space, and
// any other, which may have spaces itself, at the last.
static struct Line next_line(const char **text) {
    struct Line l = {*text, strcspn(*text, "\n"), 0};
    if (is_flag(&l))
        l.name = strcspn(l.text, " \n");
    for (size_t i = 0; i < l.n && !is_flag(&l); i++)
        if (l.text[i] == ' ')
            l.name = i;
    *text += l.n + (l.text[l.n] == '\n');
    return l;
}

// One of the two says what a run computes with.
static bool says_the_kernels(const struct Line *l) {
    return (l->name == 8 && !memcmp(l->text, "--device", 8)) ||
           (l->name == 9 && !memcmp(l->text, "--kernels", 9));
}

// The line of a text that has another's name.
static struct Line line_named(const char *text, const struct Line *as) {
    while (*text) {
        struct Line l = next_line(&text);
        if ((l.name == as->name && !memcmp(l.text, as->text, l.name)) ||
            (says_the_kernels(&l) && says_the_kernels(as)))
            return l;
    }
    return (struct Line){0};
}

// The first flag, or else the first other line, in which two identities differ; either may lack it.
static bool find_difference(const char *stored, const char *wanted, bool flags, bool same_ranks,
                            struct Line *has, struct Line *want) {
    for (const char *s = stored; *s;) {
        *has = next_line(&s);
        *want = line_named(wanted, has);
        bool same = want->text && has->n == want->n && !memcmp(has->text, want->text, has->n);
        if (!same && is_flag(has) == flags && (same_ranks || !is_of_the_shape(has->text)))
            return true;
    }
    for (const char *w = wanted; *w;) {
        *want = next_line(&w);
        *has = line_named(stored, want);
        if (!has->text && is_flag(want) == flags && (same_ranks || !is_of_the_shape(want->text)))
            return true;
    }
    return false;
}

// What two identities differ in, as an error: a flag before a hash, which other flags change too.
static int compare_identity(const char *path, const char *stored, const char *wanted,
                            bool same_ranks, struct Error *e) {
    struct Line has, want;
    if (!find_difference(stored, wanted, true, same_ranks, &has, &want) &&
        !find_difference(stored, wanted, false, same_ranks, &has, &want))
        return 0;
    if (!has.text)
        return error_set(e, -EINVAL, "checkpoint %s is of another run: it has no \"%.*s\"", path,
                         (int)want.n, want.text);
    if (!want.text)
        return error_set(e, -EINVAL,
                         "checkpoint %s is of another run: it has \"%.*s\", and this run has not",
                         path, (int)has.n, has.text);
    return error_set(e, -EINVAL, "checkpoint %s is of another run: it has \"%.*s\", not \"%.*s\"",
                     path, (int)has.n, has.text, (int)want.n, want.text);
}

static bool same_scale(const struct LossScale *a, const struct LossScale *b) {
    return a->scale == b->scale && a->hysteresis == b->hysteresis && a->good == b->good;
}

// Does a file have its place among `size` files of this model? *next: per group, where the files
// before it end; becomes where it ends.
static int check_file(const struct Zero *z, const char *path, const struct CheckpointHead *h,
                      const struct CheckpointHead *first, int number, uint64_t *next,
                      struct Error *e) {
    if (h->rank != (uint32_t)number || h->size != first->size || h->step != first->step ||
        h->updates != first->updates || h->narray != first->narray ||
        !same_scale(&h->loss_scale, &first->loss_scale) ||
        strcmp(h->identity, first->identity) != 0)
        return error_set(e, -EBADMSG, "checkpoint %s is damaged: it is of another checkpoint",
                         path);
    bool same = h->ngroup == (uint32_t)z->params->ngroup;
    for (int g = 0; same && g < z->params->ngroup; g++) {
        same = h->group[g].numel == z->params->group[g].numel;
        if (same && h->group[g].begin != next[g])
            return error_set(e, -EBADMSG, "checkpoint %s is damaged: it begins at element %llu",
                             path, (unsigned long long)h->group[g].begin);
        next[g] += h->group[g].count;
    }
    return same ? 0 : error_set(e, -EINVAL, "checkpoint %s is of a model of another shape", path);
}

// ---- the files ----

struct Files {
    int folder, held; // descriptors, -1: none
    int count;
    struct File {
        char *path;
        int fd; // while it is read
        struct CheckpointHead head;
    } * file;
};

static void files_close(struct Files *f) {
    if (f->held >= 0)
        close(f->held);
    if (f->folder >= 0)
        close(f->folder);
    for (int i = 0; i < f->count; i++) {
        checkpoint_head_free(&f->file[i].head);
        free(f->file[i].path);
    }
    free(f->file);
    *f = (struct Files){0};
}

// The file is closed again: a checkpoint may have more files than a process may open.
static int read_head(struct Files *f, int i, struct Error *e) {
    struct File *file = &f->file[i];
    int err = checkpoint_file_open(f->folder, file->path, &file->fd, &file->head, e);
    if (!err)
        close(file->fd);
    return err;
}

static int open_folder(struct Files *f, const char *folder, struct Error *e) {
    f->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->folder < 0)
        return error_set(e, -errno, "cannot open checkpoint %s: %s", folder, strerror(errno));
    f->held = checkpoint_hold(f->folder);
    return 0;
}

// The first file, which says how many they are.
static int open_first(struct Zero *z, const char *folder, struct Files *f, struct Error *e) {
    *f = (struct Files){.held = -1, .count = 1, .file = base_alloc_zeroed(sizeof *f->file)};
    f->file[0] = (struct File){.path = checkpoint_rank_path(folder, 0)};
    int err = open_folder(f, folder, e);
    if (!err && z->all->rank == 0)
        err = checkpoint_file_check(f->folder, f->file[0].path, e);
    err = zero_agree(z, err);
    return zero_agree(z, err ? err : read_head(f, 0, e));
}

// The others: each rank checks its share of them, and then reads all heads.
static int open_others(struct Zero *z, const char *folder, struct Files *f, struct Error *e) {
    uint32_t count = f->file[0].head.size;
    if (count < 1 || count > MAX_FILES)
        return error_set(e, -EBADMSG, "checkpoint %s is damaged: it is of %u ranks", folder, count);
    f->file = base_realloc(f->file, count * sizeof *f->file, "the files of a checkpoint");
    int err = 0;
    for (; f->count < (int)count; f->count++)
        f->file[f->count] = (struct File){.path = checkpoint_rank_path(folder, f->count)};
    for (int i = 1; i < f->count && !err; i++)
        if (i % z->all->size == z->all->rank)
            err = checkpoint_file_check(f->folder, f->file[i].path, e);
    err = zero_agree(z, err);
    for (int i = 1; i < f->count && !err; i++)
        err = read_head(f, i, e);
    return err;
}

// Whether the run that is resumed has a delayed update on its way after the checkpoint's step.
static bool is_late_by_then(const struct Zero *z, const struct CheckpointHead *h) {
    return offload_is_late_after(z, h->step);
}

static int check_late(const struct Zero *z, const struct File *f, struct Error *e) {
    bool has = f->head.narray == NSTATE_LATE;
    if (has == is_late_by_then(z, &f->head))
        return 0;
    return error_set(e, -EBADMSG,
                     "checkpoint %s is damaged: %s the weights before a delayed update", f->path,
                     has ? "it should not have" : "it lacks");
}

static int files_check(struct Zero *z, const struct Files *f, struct Error *e) {
    uint64_t *next = base_alloc_zeroed((size_t)z->params->ngroup * sizeof *next);
    int err = 0;
    for (int i = 0; i < f->count && !err; i++)
        err = check_file(z, f->file[i].path, &f->file[i].head, &f->file[0].head, i, next, e);
    for (int g = 0; g < z->params->ngroup && !err; g++)
        if (next[g] != z->params->group[g].numel)
            err = error_set(e, -EBADMSG, "checkpoint %s is damaged: elements are missing",
                            f->file[0].path);
    free(next);
    return err;
}

// ---- reading ----

// Elements [begin, begin + n) of one array of a file's group g, to element i of this rank's part.
static int read_part(struct Zero *z, const struct File *f, int g, enum State what, uint64_t begin,
                     size_t n, size_t i, float *chunk, struct Error *e) {
    uint64_t in_file = begin - f->head.group[g].begin;
    int err = checkpoint_file_seek(f->fd, f->path, &f->head, (uint32_t)g, (int)what, in_file, e);
    for (size_t end = i + n; i < end && !err; i += STATE_CHUNK) {
        size_t count = size_min(STATE_CHUNK, end - i);
        err = checkpoint_file_read(f->fd, f->path, chunk, count * sizeof *chunk, e);
        if (!err)
            zero_write_state(z, g, what, i, count, chunk);
    }
    return err;
}

// Whoever only wants a sample may have asked for no delayed updates: the newest weights will do.
static bool loads_late(const struct Zero *z, const struct CheckpointHead *h) {
    return offload_is_delayed(z) && h->narray == NSTATE_LATE;
}

// What this rank keeps of group g, as far as file f has it: the first `arrays` of the group's.
static int read_group(struct Zero *z, const struct File *f, int g, enum State arrays, float *chunk,
                      struct Error *e) {
    const struct CheckpointGroup *has = &f->head.group[g];
    uint64_t kept = zero_owned_begin(z, g), kept_end = kept + zero_owned_numel(z, g);
    uint64_t begin = has->begin > kept ? has->begin : kept;
    uint64_t end = has->begin + has->count < kept_end ? has->begin + has->count : kept_end;
    int err = 0;
    for (enum State what = 0; what < arrays && begin < end && !err; what++)
        err = read_part(z, f, g, what, begin, (size_t)(end - begin), (size_t)(begin - kept), chunk,
                        e);
    return err;
}

// Does this rank keep anything that the file has?
static bool is_wanted(const struct Zero *z, const struct File *f) {
    bool wanted = false;
    for (int g = 0; g < z->params->ngroup; g++) {
        const struct CheckpointGroup *has = &f->head.group[g];
        uint64_t kept = zero_owned_begin(z, g), end = kept + zero_owned_numel(z, g);
        wanted = wanted || (has->begin < end && kept < has->begin + has->count);
    }
    return wanted;
}

static int read_file(struct Zero *z, int folder, struct File *f, enum State arrays, float *chunk,
                     struct Error *e) {
    struct CheckpointHead again;
    int err = checkpoint_file_open(folder, f->path, &f->fd, &again, e);
    if (err)
        return err;
    checkpoint_head_free(&again);
    for (int g = 0; g < z->params->ngroup && !err; g++)
        err = read_group(z, f, g, arrays, chunk, e);
    close(f->fd);
    return err;
}

static int read_all(struct Zero *z, const struct Files *f, enum State arrays, struct Error *e) {
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    int err = 0;
    zero_finish(z);
    for (int i = 0; i < f->count && !err; i++)
        if (is_wanted(z, &f->file[i]))
            err = read_file(z, f->folder, &f->file[i], arrays, chunk, e);
    device_free_host(z->device, chunk);
    return err;
}

// The file whose choices are this rank's: of another number of ranks one speaks for all.
static const struct CheckpointHead *choices_of(const struct Zero *z, const struct Files *f) {
    return &f->file[f->count == z->all->size ? z->all->rank : 0].head;
}

// Kernels of another kind compute other numbers, and a run does not change them on its way.
static int take_variants(struct Zero *z, const struct Files *f, struct Error *e) {
    const struct CheckpointHead *h = choices_of(z, f);
    return h->choices ? device_set_variants(z->device, h->choices, h->choices_bytes, e) : 0;
}

// A run of as many ranks computes with the algorithms that it had. Where that cannot be it goes on
// with others, and says so: its weights are right, and their bits are not those of a run that was
// never stopped.
static void take_choices(struct Zero *z, const struct Files *f) {
    const struct CheckpointHead *h = choices_of(z, f);
    struct Error why;
    if (f->count == z->all->size && h->choices &&
        device_set_choices(z->device, h->choices, h->choices_bytes, &why))
        log_line(LOG_NORMAL, "%s", why.text);
}

// Opens all files, and finds them intact, of that run and of this model. same_ranks: a run of as
// many ranks must be the same in what shapes its bits, too. files_close is due in any case.
static int open_all(struct Zero *z, const char *path, const char *identity, bool same_ranks,
                    struct Files *f, struct Error *e) {
    int err = open_first(z, path, f, e);
    if (!err)
        err = open_others(z, path, f, e);
    const struct CheckpointHead *head = &f->file[0].head;
    if (!err && identity)
        err = compare_identity(path, head->identity, identity,
                               same_ranks && head->size == (uint32_t)z->all->size, e);
    return err ? err : files_check(z, f, e);
}

int checkpoint_load(struct Zero *z, const char *path, const char *identity, struct Error *e) {
    struct Files f;
    int err = open_all(z, path, identity, true, &f, e);
    const struct CheckpointHead *head = &f.file[0].head;
    if (!err && identity)
        err = check_late(z, &f.file[0], e);
    if (!err && identity)
        err = take_variants(z, &f, e);
    err = zero_agree(z, err);
    if (!err)
        err = zero_agree(z, read_all(z, &f, loads_late(z, head) ? NSTATE_LATE : NSTATE, e));
    if (!err) {
        take_choices(z, &f);
        zero_store_params(z, loads_late(z, head));
        z->step = z->known = head->step;
        z->updates = head->updates;
        z->loss_scale = head->loss_scale;
        zero_send_counts(z);
    }
    files_close(&f);
    return err;
}

int checkpoint_load_weights(struct Zero *z, const char *path, const char *identity,
                            struct Error *e) {
    struct Files f;
    int err = zero_agree(z, open_all(z, path, identity, false, &f, e));
    if (!err)
        err = zero_agree(z, read_all(z, &f, STATE_MASTER + 1, e));
    if (!err)
        zero_store_params(z, false);
    files_close(&f);
    return err;
}
