// The end of a run that has diverged: see diverged.h. Next: resume.c.
#include "zero/train/diverged.h"

#include "kernels/show.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double LOWER = 0.1; // of the rate, for the next try

static char *note_path(const char *folder) {
    return base_format("%s/diverged", folder);
}

bool diverged_has_note(const char *folder) {
    char *path = note_path(folder);
    bool found = access(path, F_OK) == 0;
    free(path);
    return found;
}

void diverged_remove_note(const char *folder) {
    char *path = note_path(folder);
    if (unlink(path) && errno != ENOENT)
        log_line(LOG_NORMAL, "cannot remove %s: %s; remove it yourself", path, strerror(errno));
    free(path);
}

// Leaves the note in a folder; without checkpoints (no folder) there is nothing to resume.
static void leave_note(const struct Diverged *d, const char *folder) {
    char *path = note_path(folder), *text;
    text = base_format("%s; the last good step is %llu, with --lr %g: a resume may take another\n",
                       d->what, (unsigned long long)d->good, d->rates->lr);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    int err = fd < 0 ? -errno : base_write(fd, text, strlen(text), -1);
    if (fd >= 0 && close(fd) && !err)
        err = -errno;
    if (err && err != -ENOENT)
        log_line(LOG_NORMAL,
                 "cannot write %s: %s; make this file yourself before a resume with another --lr",
                 path, strerror(-err));
    free(text);
    free(path);
}

// Writes " --FLAG VALUE", as a shell takes it; nothing if the value is NULL.
static void write_flag(FILE *to, const char *flag, const char *value) {
    if (!value)
        return;
    fprintf(to, " --%s ", flag);
    show_word(to, value);
}

// Returns the first of FOLDER-again, FOLDER-again-again, ... that does not exist; NULL for NULL.
static char *unused_folder_name(const char *folder) {
    if (!folder)
        return NULL;
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    char *path = base_format("%.*s-again", (int)n, folder);
    while (access(path, F_OK) == 0)
        base_append(&path, "-again");
    return path;
}

// Returns the flags in front of the rate: resume from `path` (NULL: none) or, is_newest, from auto.
// A checkpoint that leads to the divergence again stays, and so the run goes on in other folders.
// free() them.
static char *resume_flags(const struct Diverged *d, const char *path, bool is_newest) {
    char *text, *out = unused_folder_name(d->out), *also = unused_folder_name(d->also);
    char *config = base_format("%s/config.json", d->out);
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    CHECK(to, "no memory");
    write_flag(to, "config", is_newest ? NULL : config);
    write_flag(to, "out", is_newest ? d->out : out);
    write_flag(to, "backup-dir", is_newest ? NULL : also);
    write_flag(to, "resume", is_newest ? "auto" : path);
    fclose(to);
    free(config);
    free(also);
    free(out);
    return text;
}

int diverged_end(const struct Diverged *d, struct Error *e) {
    char *path = NULL, *last = NULL, *where, lowest[40] = "";
    uint64_t step = 0, newest = 0;
    struct Error ignored;
    for (const char *const *folder = d->folders; *folder; folder++)
        leave_note(d, *folder);
    bool any = checkpoint_newest(d->folders, UINT64_MAX, &last, &newest, &ignored) == 1;
    bool found = checkpoint_newest(d->folders, d->good, &path, &step, &ignored) == 1;
    char *flags = resume_flags(d, found ? path : NULL, !any || (found && step == newest));
    if (found)
        where = base_format("the checkpoint of step %llu", (unsigned long long)step);
    else
        where = base_format("the beginning, as no checkpoint is older");
    if (d->rates->min_lr > LOWER * d->rates->lr)
        snprintf(lowest, sizeof lowest, " --min-lr %g", LOWER * d->rates->lr);
    error_set(e, -EDOM, E_DIVERGED,
              "%s, and the last good step is %llu: try a lower --lr, from %s: ./train%s --lr %g%s",
              d->what, (unsigned long long)d->good, where, flags, LOWER * d->rates->lr, lowest);
    free(where);
    free(flags);
    free(path);
    free(last);
    return -EDOM;
}
