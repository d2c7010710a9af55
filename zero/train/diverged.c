// The end of a run that has diverged: see diverged.h. Next: resume.c.
#include "zero/train/diverged.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double LOWER = 0.1; // of the rate, for the next try

static char *note_path(const char *folder) {
    return base_format("%s/diverged", folder);
}

bool diverged_once(const char *folder) {
    char *path = note_path(folder);
    bool found = access(path, F_OK) == 0;
    free(path);
    return found;
}

void diverged_forget(const char *folder) {
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

// Quotes a word for a shell's command line; free() it.
static char *shell_word(const char *text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./:=@%+,";
    if (*text && strspn(text, plain) == strlen(text))
        return base_format("%s", text);
    char *word = base_format("'");
    for (const char *rest = text; *rest;) {
        size_t n = strcspn(rest, "'");
        char *longer = base_format("%s%.*s%s", word, (int)n, rest, rest[n] ? "'\\''" : "");
        free(word);
        word = longer;
        rest += n + (rest[n] != 0);
    }
    char *all = base_format("%s'", word);
    free(word);
    return all;
}

// Returns " --FLAG VALUE", as a shell takes it; "" if the value is NULL. Frees the value.
static char *flag_text(const char *flag, char *value) {
    char *word = value ? shell_word(value) : NULL;
    char *text = word ? base_format(" --%s %s", flag, word) : base_format("%s", "");
    free(word);
    free(value);
    return text;
}

// Returns the first of FOLDER-again, FOLDER-again-again, ... that does not exist; NULL for NULL.
static char *unused_folder_name(const char *folder) {
    size_t n = folder ? strlen(folder) : 0;
    while (n > 1 && folder[n - 1] == '/')
        n--;
    char *path = folder ? base_format("%.*s-again", (int)n, folder) : NULL;
    while (path && access(path, F_OK) == 0) {
        char *next = base_format("%s-again", path);
        free(path);
        path = next;
    }
    return path;
}

// Returns the flags in front of the rate, which say where to resume. A checkpoint that leads to the
// divergence again stays, and so the run goes on in other folders.
static char *resume_flags(const struct Diverged *d, const char *path, bool newest) {
    const char *resume = newest ? "auto" : path;
    char *config = newest ? NULL : base_format("%s/config.json", d->out);
    char *part[] = {
        flag_text("config", config),
        flag_text("out", newest ? base_format("%s", d->out) : unused_folder_name(d->out)),
        flag_text("backup-dir", newest ? NULL : unused_folder_name(d->also)),
        flag_text("resume", resume ? base_format("%s", resume) : NULL)};
    char *way = base_format("%s%s%s%s", part[0], part[1], part[2], part[3]);
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++)
        free(part[i]);
    return way;
}

int diverged_end(const struct Diverged *d, struct Error *e) {
    char *path = NULL, *last = NULL, *where, lowest[40] = "";
    uint64_t step = 0, newest = 0;
    struct Error ignored;
    for (const char *const *folder = d->folders; *folder; folder++)
        leave_note(d, *folder);
    bool any = checkpoint_newest(d->folders, UINT64_MAX, &last, &newest, &ignored) == 1;
    bool found = checkpoint_newest(d->folders, d->good, &path, &step, &ignored) == 1;
    char *way = resume_flags(d, found ? path : NULL, !any || (found && step == newest));
    if (found)
        where = base_format("the checkpoint of step %llu", (unsigned long long)step);
    else
        where = base_format("the beginning, as no checkpoint is older");
    if (d->rates->min_lr > LOWER * d->rates->lr)
        snprintf(lowest, sizeof lowest, " --min-lr %g", LOWER * d->rates->lr);
    error_set(e, -EDOM, E_DIVERGED,
              "%s, and the last good step is %llu: try a lower --lr, from %s: ./train%s --lr %g%s",
              d->what, (unsigned long long)d->good, where, way, LOWER * d->rates->lr, lowest);
    free(where);
    free(way);
    free(path);
    free(last);
    return -EDOM;
}
