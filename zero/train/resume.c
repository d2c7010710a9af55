// Finds the checkpoint to resume: see resume.h. Next: zero/checkpoint/checkpoint.c.
#include "zero/train/resume.h"

#include "zero/train/diverged.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const *folders_of(const struct Resume *r) {
    return (const char *const *)r->folder;
}

// True if --resume was given as that word.
static bool asks_for(const struct Resume *r, const char *word) {
    return r->asked.which && strcmp(r->asked.which, word) == 0;
}

// Returns the flag whose folder holds the newest checkpoint.
static const char *newest_flag(const struct Resume *r) {
    return r->newest_in_backup ? "--backup-dir" : "--out";
}

static const char *newest_folder(const struct Resume *r) {
    return r->newest_in_backup ? r->asked.also : r->asked.out;
}

// Refuses a checkpoint's step that is past the end of the run.
static int check_end(const struct Resume *r, uint64_t step, struct Error *e) {
    if (step <= r->asked.steps)
        return 0;
    return error_set(
        e, -EINVAL, E_STEPS_DONE,
        "--steps %llu: the checkpoint is already of step %llu; raise --steps to train on",
        (unsigned long long)r->asked.steps, (unsigned long long)step);
}

// Refuses a checkpoint's step that is past the end of the run, or before the newest one.
static int check_step(const struct Resume *r, uint64_t step, struct Error *e) {
    int err = check_end(r, step, e);
    if (err)
        return err;
    if (r->newest > step)
        return error_set(
            e, -EEXIST, E_RESUME_LATER,
            "--resume %s: %s %s holds a later checkpoint, of step %llu; expected another "
            "%s, or --resume auto",
            r->asked.which, newest_flag(r), newest_folder(r), (unsigned long long)r->newest,
            newest_flag(r));
    return 0;
}

// ---- checkpoints that processes see, each on its disk ----

// Returns the largest value of all processes.
static uint64_t world_most(const struct World *w, uint64_t mine) {
    return ~world_least(w, ~mine);
}

// Sets r->newest to the step of the newest checkpoint that any process sees; 0: there is none.
static int find_newest(struct Resume *r, struct Error *e) {
    char *path;
    uint64_t step = 0;
    int found = checkpoint_newest(folders_of(r), UINT64_MAX, &path, &step, e);
    bool in_backup = found == 1 && !checkpoint_is_below(path, r->folder[0]);
    uint64_t newest = world_most(r->asked.world, found == 1 ? step << 1 | !in_backup : 0);
    free(found == 1 ? path : NULL);
    r->newest = newest >> 1;
    r->newest_in_backup = newest && !(newest & 1);
    return found < 0 ? found : 0;
}

// True if the checkpoint is of a run that has diverged, by a note in any of its folders.
static bool has_diverged(const struct Resume *r) {
    char *above = base_format("%s/..", r->asked.which);
    bool newest = asks_for(r, "auto"), any = !newest && diverged_has_note(above);
    for (int i = 0; newest && r->folder[i]; i++)
        any = any || diverged_has_note(r->folder[i]);
    free(above);
    return world_most(r->asked.world, any);
}

// In this order: the least of all processes is what the checkpoint is.
enum Whole { DAMAGED, WHOLE, NOT_HERE };

// Checks what this process's disk has of the newest checkpoint.
static enum Whole check_newest(const struct Resume *r) {
    struct CheckpointHead head;
    struct Error ignored;
    char *folder = checkpoint_path(r->folder[r->newest_in_backup], r->newest);
    int err = checkpoint_file_look(folder, &head, &ignored);
    enum Whole is = err == -ENOENT || err == -ENOTDIR ? NOT_HERE : err ? DAMAGED : WHOLE;
    for (uint32_t i = 0; is == WHOLE && i < head.size; i++) {
        char *path = checkpoint_rank_path(folder, (int)i);
        err = checkpoint_file_check(AT_FDCWD, path, &ignored);
        if (err && !(err == -ENOENT && disk_is_local(&r->disk[r->newest_in_backup])))
            is = DAMAGED;
        free(path);
    }
    checkpoint_head_free(&head);
    free(folder);
    return is;
}

// True if the newest checkpoint can be read: a damaged one does not show how far the run has come,
// and resume_load will fall back to an older one. One process of each node checks.
static bool newest_is_whole(const struct Resume *r) {
    const struct World *w = r->asked.world;
    return world_least(w, w->node_rank ? NOT_HERE : check_newest(r)) == WHOLE;
}

// Reads the step of the checkpoint that the user named.
static int read_step(const struct Resume *r, uint64_t *step, struct Error *e) {
    struct CheckpointHead head;
    struct Error cause;
    int err = checkpoint_file_look(r->asked.which, &head, &cause);
    *step = world_most(r->asked.world, head.step);
    checkpoint_head_free(&head);
    if (*step && (err == -ENOENT || err == -ENOTDIR))
        return 0; // another node has it
    if (err == -ENOENT || err == -ENOTDIR)
        return error_set(e, err, E_CHECKPOINT_MISSING,
                         "--resume %s: this folder holds no checkpoint; expected auto, or a folder "
                         "like %s/step-00000100",
                         r->asked.which, r->folder[0]);
    return err ? error_set(e, err, cause.id, "--resume %s: %s", r->asked.which, cause.text) : 0;
}

// Returns the best step, as the newest readable checkpoint records it.
static uint64_t best_step(const struct Resume *r) {
    uint64_t step = UINT64_MAX, best = 0;
    struct Error ignored;
    char *path;
    bool read = false;
    while (!read && checkpoint_newest(folders_of(r), step, &path, &step, &ignored) == 1) {
        struct CheckpointHead head;
        read = checkpoint_file_look(path, &head, &ignored) == 0;
        best = read ? head.best.step : 0;
        checkpoint_head_free(&head);
        free(path);
    }
    return world_most(r->asked.world, best);
}

// Replaces --resume best by the folder of that checkpoint. Any process may see it.
static int find_best(struct Resume *r, struct Error *e) {
    uint64_t step = best_step(r);
    if (!step)
        return error_set(e, -ENOENT, E_RESUME_BEST,
                         "--resume best: --out %s has no checkpoint that says which one is the "
                         "best; use --resume auto, or the --out of a run with --keep-best",
                         r->asked.out);
    for (int i = 0; r->folder[i] && !r->best; i++) {
        char *path = checkpoint_path(r->folder[i], step);
        if (world_most(r->asked.world, access(path, F_OK) == 0))
            r->best = path;
        else
            free(path);
    }
    if (!r->best)
        return error_set(
            e, -ENOENT, E_RESUME_BEST,
            "--resume best: the best checkpoint, of step %llu, is gone; use --resume auto",
            (unsigned long long)step);
    r->asked.which = r->best;
    return 0;
}

// True if a line after the first is `name value`, and has a line feed.
static bool has_line(const char *identity, const char *name, const char *value) {
    char *line = base_format("\n%s %s\n", name, value);
    bool found = strstr(identity, line) != NULL;
    free(line);
    return found;
}

// Reads the device and dtype of the checkpoint's run. False: they are not known, since it cannot be
// read, or its hash, which nobody has checked yet, will turn out to be wrong.
static bool peek_head(const char *folder, struct SettingsUse *use) {
    struct CheckpointHead head;
    struct Error ignored; // resume_check will report it, or resume_load for the newest
    bool found = false;
    (void)checkpoint_file_look(folder, &head, &ignored);
    const char *text = head.identity ? head.identity : "";
    bool cuda = has_line(text, "--device", "cuda"), cpu = strstr(text, "\n--kernels ") != NULL;
    for (enum Dtype d = F32; cuda != cpu && d < NDTYPE; d++)
        if (has_line(text, "--dtype", dtype_name(d))) {
            use->chosen = (struct Chosen){.device = cuda ? DEVICE_CUDA : DEVICE_CPU,
                                          .dtype = {d, d},
                                          .from = "the checkpoint's"};
            found = true;
        }
    checkpoint_head_free(&head);
    return found;
}

// Names OUT/checkpoints and ALSO/checkpoints.
static void name_folders(struct Resume *r) {
    const char *home[] = {r->asked.out, r->asked.also};
    for (int i = 0, n = 0; i < 2; i++)
        if (home[i] && !r->folder[n])
            r->folder[n++] = base_format("%s/checkpoints", home[i]);
}

void resume_close(struct Resume *r) {
    for (int i = 0; r->folder[i]; i++)
        free(r->folder[i]);
    r->folder[0] = r->folder[1] = NULL;
    free(r->best);
    r->best = NULL;
    for (int i = 0; i < 2; i++)
        local_disk_unlock(&r->disk[i], &r->lock[i]);
}

// Gives a node without checkpoints the choice of those that have one: of the newest.
static void agree_on_chosen(const struct Resume *r, bool found, uint64_t step,
                            struct SettingsUse *use) {
    enum { CUDA = 128 };
    struct Chosen *c = &use->chosen;
    uint64_t mine = step << 8 | (uint64_t)c->dtype[0] | (c->device == DEVICE_CUDA ? CUDA : 0);
    uint64_t least = world_least(r->asked.world, found ? mine ^ UINT64_MAX << 8 : UINT64_MAX);
    if (found || least == UINT64_MAX)
        return;
    enum Dtype d = (enum Dtype)(least & (CUDA - 1));
    *c = (struct Chosen){.device = least & CUDA ? DEVICE_CUDA : DEVICE_CPU,
                         .dtype = {d, d},
                         .from = "the checkpoint's"};
}

void resume_peek(const struct Resume *resume, struct SettingsUse *use) {
    struct Resume r = *resume;
    use->resumed = r.asked.which != NULL;
    if (!r.asked.which)
        return;
    name_folders(&r);
    char *path;
    bool of_this_run = asks_for(&r, "best") || asks_for(&r, "auto");
    bool found = !of_this_run && peek_head(r.asked.which, use);
    struct Error ignored;
    uint64_t step = of_this_run ? UINT64_MAX : 0;
    while (of_this_run && !found &&
           checkpoint_newest(folders_of(&r), step, &path, &step, &ignored) == 1) {
        found = peek_head(path, use);
        free(path);
    }
    agree_on_chosen(&r, found, step, use);
    resume_close(&r);
}

// Takes the locks, on one process per disk. All processes agree on the result.
static int lock_disks(struct Resume *r, struct Error *e) {
    static const char *const flag[] = {"--out", "--backup-dir"};
    const char *home[] = {r->asked.out, r->asked.also};
    const struct World *w = r->asked.world;
    int err = 0;
    for (int i = 0; i < 2 && home[i] && !err; i++)
        err = local_disk_lock(&r->disk[i], w, &r->lock[i], home[i], flag[i], e);
    return err;
}

bool resume_is_fresh(const struct Resume *r) {
    return !r->newest && (!r->asked.which || asks_for(r, "auto"));
}

int resume_check(struct Resume *r, struct Error *e) {
    name_folders(r);
    int lock_err = r->asked.only ? 0 : lock_disks(r, e);
    if (lock_err || (r->asked.only && !r->asked.which))
        return lock_err;
    int find_err = world_agree(r->asked.world, find_newest(r, e), e);
    if (find_err)
        return find_err;
    if (asks_for(r, "best") && (find_err = find_best(r, e)))
        return find_err;
    r->may_change_rate = r->asked.which && !r->asked.only && has_diverged(r);
    bool found = r->newest;
    if (found && !r->asked.which)
        return error_set(e, -EEXIST, E_OUT_HOLDS_RUN,
                         "%s %s holds a checkpoint of step %llu: add --resume auto, or choose "
                         "another folder",
                         newest_flag(r), newest_folder(r), (unsigned long long)r->newest);
    bool is_auto = asks_for(r, "auto");
    if (!found && r->asked.only && is_auto)
        return error_set(e, -ENOENT, E_CHECKPOINT_MISSING,
                         "%s: --out %s holds no checkpoint; give the --out of a run that saved one",
                         r->asked.only, r->asked.out);
    if (!found && is_auto && r->asked.world->first == 0)
        log_line(LOG_NORMAL,
                 "--resume auto: --out %s holds no checkpoint; training starts from step 0",
                 r->asked.out);
    uint64_t step = is_auto ? r->newest : 0;
    if (step > r->asked.steps && !r->asked.only && !newest_is_whole(r))
        step = 0;
    int err = r->asked.which && !is_auto ? read_step(r, &step, e) : 0;
    return err || r->asked.only || !step ? err : check_step(r, step, e);
}

// The flags that may change when a diverged run is resumed.
static const char *const rates[] = {"--lr", "--min-lr"};
enum { NRATE = sizeof rates / sizeof rates[0] };

// Returns the value in the line of that name, not the first, as a part of the text; NULL: none.
static struct IdentityValue {
    const char *text;
    size_t n;
} value_of(const char *identity, const char *name) {
    char *begin = base_format("\n%s ", name);
    const char *found = strstr(identity, begin);
    struct IdentityValue v = {found ? found + strlen(begin) : NULL, 0};
    v.n = found ? strcspn(v.text, "\n") : 0;
    free(begin);
    return v;
}

// Returns the identity with * for the rates; free() it.
static char *any_rate(const char *identity) {
    char *text = base_format("%s", identity);
    for (int i = 0; i < NRATE; i++) {
        struct IdentityValue v = value_of(text, rates[i]);
        char *other = v.text ? base_format("%.*s*%s", (int)(v.text - text), text, v.text + v.n)
                             : base_format("%s", text);
        free(text);
        text = other;
    }
    return text;
}

// Logs which rates differ from the checkpoint's.
static void warn_rates(const struct Resume *r, uint64_t step, const char *identity) {
    struct CheckpointHead head = {0};
    struct Error ignored;
    bool is_auto = asks_for(r, "auto");
    char *path = is_auto ? NULL : base_format("%s", r->asked.which);
    if (is_auto && checkpoint_newest(folders_of(r), step + 1, &path, &step, &ignored) != 1)
        return;
    (void)checkpoint_file_look(path, &head, &ignored);
    for (int i = 0; head.identity && i < NRATE; i++) {
        struct IdentityValue was = value_of(head.identity, rates[i]),
                             is = value_of(identity, rates[i]);
        if (was.text && is.text && (was.n != is.n || memcmp(was.text, is.text, is.n) != 0))
            log_line(LOG_NORMAL, "%s is %.*s from here on, instead of %.*s", rates[i], (int)is.n,
                     is.text, (int)was.n, was.text);
    }
    checkpoint_head_free(&head);
    free(path);
}

// Loads the checkpoint. A sample needs the weights alone, so any one of this shape will do.
int resume_load(struct Resume *r, struct Zero *z, const char *identity, struct Error *e) {
    if (!r->asked.which)
        return 0;
    char *wanted = r->may_change_rate ? any_rate(identity) : base_format("%s", identity);
    int err = checkpoint_resume(z, folders_of(r), r->asked.which, r->asked.only ? NULL : wanted,
                                &r->refused, e);
    free(wanted);
    if (err || r->asked.only || !z->step)
        return err;
    // With "auto" a damaged checkpoint may be passed over for an older one, as intended.
    bool is_auto = asks_for(r, "auto");
    err = is_auto ? check_end(r, z->step, e) : check_step(r, z->step, e);
    if (err)
        return err;
    if (z->all->rank == 0)
        log_line(LOG_NORMAL, "resumed after step %llu (ranks %d, micro-batches %zu)",
                 (unsigned long long)z->step, z->all->size, z->plan.nmicro);
    if (z->all->rank == 0 && r->may_change_rate)
        warn_rates(r, z->step, identity);
    return 0;
}
