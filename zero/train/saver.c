// Decides where a checkpoint is saved, and when to try again: see saver.h.
#include "zero/train/saver.h"

#include "zero/process/request.h"
#include "zero/train/diverged.h"

#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <time.h>

// ---- disk space ----

// Returns "1.234 GB" or "0.057 MB"; free() it.
static char *size_text(uint64_t bytes) {
    bool large = bytes >= 1000 * 1000 * 1000;
    return base_format("%.3f %s", (double)bytes * (large ? 1e-9 : 1e-6), large ? "GB" : "MB");
}

// Finds the free bytes of the file system of the nearest folder at or above `folder` that exists.
static bool free_bytes(const char *folder, uint64_t *bytes) {
    struct statvfs fs;
    char *text = base_format("%s", folder), *path = text;
    int err = statvfs(path, &fs);
    while (err && errno == ENOENT && strcmp(path, ".") != 0) {
        path = dirname(path);
        err = statvfs(path, &fs);
    }
    free(text);
    *bytes = err ? 0 : (uint64_t)fs.f_bavail * fs.f_frsize;
    return !err;
}

// Checks one folder, on rank 0; if the free space is unknown, saving is tried.
static int check_disk_space(const char *folder, uint64_t wanted, struct Error *e) {
    uint64_t bytes;
    if (!free_bytes(folder, &bytes) || bytes >= wanted)
        return 0;
    char *takes = size_text(wanted), *free_now = size_text(bytes);
    int err = error_set(e, -ENOSPC, E_DISK_FULL,
                        "no space for a checkpoint in %s: it takes %s, but only %s are free; free "
                        "space on that disk",
                        folder, takes, free_now);
    free(takes);
    free(free_now);
    return err;
}

// ---- which disk ----

static bool writes_folder(const struct Saver *s, int dir) {
    return local_disk_is_writer(&s->disk[dir], s->zero->all->rank);
}

// Returns the bytes of a checkpoint on this rank's disk of a folder. All ranks call it.
static uint64_t wanted_bytes(const struct Saver *s, int dir) {
    const struct LocalDisk *d = &s->disk[dir];
    const struct Comm *c = s->zero->all;
    const uint64_t *all = zero_share(s->zero, checkpoint_bytes(s->zero, s->identity));
    uint64_t sum = 0;
    for (int r = 0; r < c->size; r++)
        if (!disk_is_local(d) || d->keeper[r] == d->keeper[c->rank])
            sum += all[r];
    return sum;
}

// Adds the node's name to an error of another disk than rank 0's.
static void add_node_to_error(const struct Saver *s, int dir, struct Error *e) {
    const struct LocalDisk *d = &s->disk[dir];
    int rank = s->zero->all->rank;
    struct Error cause = *e;
    if (disk_is_local(d) && d->keeper[rank] && e->text[0])
        error_set(e, -EIO, cause.id, "node %s: %s", d->host[rank], cause.text);
}

// Checks that a folder has space, and that nothing is in the way of a checkpoint in the first.
static int check_any_space(const struct Saver *s, uint64_t wanted, struct Error *e) {
    struct Error other;
    int err = check_disk_space(s->folder[0], wanted, e);
    if (err && s->folder[1] && !check_disk_space(s->folder[1], wanted, &other)) {
        log_line(LOG_NORMAL, "%s", e->text);
        e->text[0] = 0;
        err = 0;
    }
    return err ? err : checkpoint_clear(s->folder[0], e);
}

// Returns the first rank whose `mine` is true; the number of ranks if there is none. All call it.
static int first_rank(const struct Saver *s, bool mine) {
    const uint64_t *all = zero_share(s->zero, mine);
    int first = 0;
    while (first < s->zero->all->size && !all[first])
        first++;
    return first;
}

// Waiting does not lift `ulimit -f`. The first rank whose file is too large reports it.
static int check_limit(const struct Saver *s, struct Error *e) {
    const struct Comm *c = s->zero->all;
    struct rlimit most;
    uint64_t bytes = checkpoint_bytes(s->zero, s->identity);
    int first = first_rank(s, !getrlimit(RLIMIT_FSIZE, &most) && bytes > most.rlim_cur);
    if (first != c->rank)
        return first < c->size ? -EFBIG : 0;
    char *takes = size_text(bytes), *allowed = size_text(most.rlim_cur);
    int err = error_set(
        e, -EFBIG, E_FILE_SIZE_LIMIT,
        "no checkpoint can be written: a rank's file takes %s, but `ulimit -f` allows %s; raise it",
        takes, allowed);
    free(takes);
    free(allowed);
    return err;
}

int saver_check(const struct Saver *s, struct Error *e) {
    int limited = check_limit(s, e);
    if (limited)
        return limited;
    uint64_t wanted = wanted_bytes(s, 0);
    int err = writes_folder(s, 0) ? check_any_space(s, wanted, e) : 0;
    add_node_to_error(s, 0, e);
    return zero_agree(s->zero, err);
}

// ---- one try ----

// Forces the log to disk, below --out: if that disk is full, a checkpoint in the other folder is
// worth more than the log's last lines.
static int run_pre_save(const struct Saver *s, int dir, struct Error *e) {
    struct Error cause;
    int err = s->pre_save(s->context, &cause);
    if (err && dir)
        log_line(LOG_NORMAL, "%s; the checkpoint is still written to %s", cause.text,
                 s->folder[dir]);
    return err && !dir ? error_set(e, err, cause.id, "%s", cause.text) : 0;
}

static int check_lock(const struct Saver *s, int dir, struct Error *e) {
    return writes_folder(s, dir) ? run_lock_check(&s->lock[dir], e) : 0;
}

// Checks a folder's lock and disk space, and forces the log to disk. All ranks return the same.
static int prepare(struct Saver *s, int dir, struct Error *e) {
    uint64_t bytes = wanted_bytes(s, dir);
    int err = check_lock(s, dir, e);
    if (!err && writes_folder(s, dir))
        err = check_disk_space(s->folder[dir], bytes, e);
    if (!err && s->zero->all->rank == 0)
        err = run_pre_save(s, dir, e);
    return zero_agree(s->zero, err);
}

static void note_saved(struct Saver *s, int dir, uint64_t step) {
    struct CheckpointRefused *refused = s->keep.refused;
    // Forgets that this step was refused: it is saved anew, whatever was wrong with the old one.
    for (size_t i = 0; i < refused->n; i++)
        if (refused->step[i] == step)
            refused->step[i--] = refused->step[--refused->n];
    s->saved = step;
    s->dir_index = dir;
    s->unproven = true;
    s->post_save(s->context);
}

void saver_prove(struct Saver *s, uint64_t step) {
    struct Error ignored;
    if (!s->unproven || step <= s->saved)
        return;
    s->unproven = false;
    for (int i = 0; i < SAVER_FOLDERS && s->folder[i]; i++) {
        if (!writes_folder(s, i) || check_lock(s, i, &ignored))
            continue;
        diverged_remove_note(s->folder[i]);
        if (i == s->dir_index)
            checkpoint_prune(s->folder[i], s->saved, s->keep);
    }
}

static int save_in(struct Saver *s, int dir, struct Error *e) {
    int err = prepare(s, dir, e);
    if (!err)
        err = checkpoint_save(s->zero, s->folder[dir], s->identity, &s->disk[dir], e);
    add_node_to_error(s, dir, e);
    if (err)
        return err;
    s->synchronous = dir != 0;
    note_saved(s, dir, s->zero->step);
    return 0;
}

static void log_failure(uint64_t step, const struct Error *e) {
    log_line(LOG_NORMAL, "step %llu is not saved: %s", (unsigned long long)step, e->text);
}

// Called on all ranks; those that have seen the failure have an error line, and the first of them
// prints it. (A full disk is full for all of them.)
static void log_failure_once(const struct Saver *s, uint64_t step, const struct Error *e) {
    if (first_rank(s, e->text[0] != 0) == s->zero->all->rank)
        log_failure(step, e);
}

// Tries all folders in their order.
static int try_folders(struct Saver *s, struct Error *e) {
    int err = -ENOENT;
    for (int i = 0; i < SAVER_FOLDERS && s->folder[i] && err; i++) {
        e->text[0] = 0;
        err = save_in(s, i, e);
        if (err)
            log_failure_once(s, s->zero->step, e);
    }
    return err;
}

// ---- from a snapshot ----

// Begins to write, into the first folder only; the other one is for when that fails.
static int try_snapshot(struct Saver *s, struct Error *e) {
    int err = prepare(s, 0, e);
    if (err)
        return err;
    err = checkpoint_begin(&s->save, s->zero, s->folder[0], &s->disk[0], e);
    if (!err)
        err =
            zero_agree(s->zero, checkpoint_snapshot(&s->snapshot, s->zero, s->save.tmp_path,
                                                    s->identity, s->snapshot_memory, &s->word, e));
    if (!err) {
        s->under_way = true;
        return 0;
    }
    struct Error ignored;
    checkpoint_snapshot_close(s->snapshot, &ignored);
    s->snapshot = NULL;
    atomic_store(&s->word, 0);
    checkpoint_end(&s->save, err, &ignored);
    checkpoint_close(&s->save, err);
    return err;
}

// Waits for this rank's thread, when ranks cannot agree, because the next step is under way.
static void join_alone(struct Saver *s) {
    struct Error e = {0};
    if (checkpoint_snapshot_close(s->snapshot, &e))
        log_failure(s->save.step, &e);
}

// Ends the save that was under way, whose thread is done; failed: removes what it has written.
static void end_snapshot_save(struct Saver *s, bool failed) {
    struct Error ignored;
    uint64_t step = s->save.step;
    if (!s->save.ended)
        checkpoint_end(&s->save, failed ? -EIO : 0, &ignored);
    checkpoint_close(&s->save, failed ? -EIO : 0);
    s->snapshot = NULL;
    s->synchronous = failed;
    s->under_way = false;
    atomic_store(&s->word, 0);
    if (!failed)
        note_saved(s, 0, step);
}

// Gives the checkpoint its name, on the ranks that make a disk's folders.
static int name_checkpoint(struct Saver *s) {
    struct Error e = {0};
    int err = checkpoint_end(&s->save, 0, &e);
    add_node_to_error(s, 0, &e);
    if (err)
        log_failure(s->save.step, &e);
    return err;
}

void saver_hear(struct Saver *s, uint64_t words) {
    if (!s->under_way || words & WORD_WRITING)
        return;
    if (words & (WORD_FAILED | WORD_NAMED)) {
        join_alone(s);
        end_snapshot_save(s, words & WORD_FAILED);
    } else if (!s->save.ended && s->save.is_writer)
        atomic_store(&s->word, name_checkpoint(s) ? WORD_FAILED : WORD_NAMED);
}

void saver_finish(struct Saver *s) {
    struct Error e = {0};
    if (!s->under_way)
        return;
    int err = checkpoint_snapshot_close(s->snapshot, &e);
    if (!err && atomic_load(&s->word) & WORD_FAILED)
        err = -EIO; // name_checkpoint has logged the reason
    err = zero_agree(s->zero, err);
    if (err)
        log_failure_once(s, s->save.step, &e);
    if (!err && !s->save.ended && s->save.is_writer)
        err = name_checkpoint(s);
    end_snapshot_save(s, zero_agree(s->zero, err) != 0);
}

void saver_close(struct Saver *s) {
    if (!s->under_way)
        return;
    join_alone(s);
    s->save.named = false; // a checkpoint that has its name keeps it
    end_snapshot_save(s, true);
}

void saver_save(struct Saver *s) {
    struct Error error = {0};
    saver_finish(s);
    if (s->saved == s->zero->step)
        return;
    if (s->snapshot_memory->bytes && !s->synchronous) {
        if (try_snapshot(s, &error) == 0)
            return;
        add_node_to_error(s, 0, &error);
        log_failure_once(s, s->zero->step, &error);
    }
    if (try_folders(s, &error) && s->zero->all->rank == 0)
        log_line(LOG_NORMAL, "training goes on, and tries again when the next checkpoint is due");
}

// ---- until it is done ----

// Waits until it is time to try again; false: a signal came since request_stops() returned `stops`.
// Ranks check for signals together each second, so that all of them stop waiting at the same time.
static bool wait_to_retry(struct Saver *s, unsigned stops) {
    bool go_on = true;
    for (int i = 0; i < SAVER_AGAIN_S && go_on; i++) {
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        go_on = zero_agree(s->zero, request_stops() != stops ? -EINTR : 0) == 0;
    }
    return go_on;
}

// True if the last save failed and may succeed later: not if a file is larger than the limit.
static bool may_succeed_later(int err) {
    return err && err != -EFBIG;
}

int saver_save_last(struct Saver *s, struct Error *e) {
    unsigned stops = request_stops();
    saver_finish(s);
    int err = s->saved == s->zero->step ? 0 : try_folders(s, e);
    bool waits_on = may_succeed_later(err);
    if (waits_on && s->zero->all->rank == 0)
        log_line(LOG_NORMAL,
                 "trying again every %d s, until the checkpoint is saved or a signal ends the run",
                 SAVER_AGAIN_S);
    while (waits_on) { // there may be space when the signal comes
        bool goes_on = wait_to_retry(s, stops);
        err = try_folders(s, e);
        waits_on = may_succeed_later(err) && goes_on;
    }
    return err;
}
