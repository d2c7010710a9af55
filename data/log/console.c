// Writes a run's files for its readers, and its progress line: see console.h.
#include "data/log/console.h"

#include "data/file.h"
#include "kernels/folder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// ---- the folder ----

int console_check(const char *folder, struct Error *e) {
    static const char *const names[] = {"log.jsonl", "config.json", "memory.json"};
    int err = file_check_folder(folder, "--out", e);
    if (err)
        return err;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *path = base_format("%s/%s", folder, names[i]);
        struct stat st;
        bool taken = lstat(path, &st) == 0 && !S_ISREG(st.st_mode);
        free(path);
        if (taken)
            return error_set(
                e, -EINVAL, E_FILE_KIND,
                "--out %s: %s is %s there, not a file: remove it, or name another folder", folder,
                names[i],
                S_ISLNK(st.st_mode)   ? "a link"
                : S_ISDIR(st.st_mode) ? "a folder"
                                      : "a pipe or a device");
    }
    return 0;
}

int console_open(struct Console *t, const struct Flags *flags, const char *folder,
                 int64_t last_step, bool tensorboard, struct Error *e) {
    char *config = base_format("%s/config.json", folder);
    int err = folder_make(folder, "--out", 0777, NULL, e);
    if (!err)
        err = flags_save_json(flags, config, e);
    free(config);
    if (!err)
        err = runlog_open(&t->log, folder, last_step, e);
    return err || !tensorboard ? err : event_file_open(&t->events, folder, last_step, e);
}

int console_memory(const char *folder, const char *json, struct Error *e) {
    char *path = base_format("%s/memory.json", folder);
    int err = file_replace(path, json, strlen(json), e);
    free(path);
    return err;
}

int console_close(struct Console *t, struct Error *e) {
    struct Error ignored;
    int err = appender_close(&t->log, e);
    int events_err = appender_close(&t->events.file, err ? &ignored : e);
    return err ? err : events_err;
}

// ---- steps ----

void console_step(void *teller, struct LogStep *s, double seconds) {
    struct Console *t = teller;
    s->tokens_per_s = t->tokens / seconds;
    s->step_ms = seconds * 1e3;
    double flops = s->tokens_per_s * t->flops;
    s->light = flops / t->light;
    s->mfu = t->peak > 0 ? flops / t->peak : 0;
    progress_show(&t->progress, s);
    runlog_write_step(&t->log, s);
    event_file_write_step(&t->events, s);
}

void console_note(void *teller, const struct LogNote *note) {
    struct Console *t = teller;
    runlog_write_note(&t->log, note);
    event_file_write_note(&t->events, note);
}

void console_validation(void *teller, uint64_t step, float loss, float bits_per_byte,
                        uint64_t samples, uint64_t all) {
    struct Console *t = teller;
    runlog_write_val(&t->log, step, loss, bits_per_byte);
    event_file_write_val(&t->events, step, loss, bits_per_byte);
    progress_validation(&t->progress, step, loss, bits_per_byte, samples, all);
}

void console_evaluation(struct Console *t, uint64_t step, const struct EvalTask *task,
                        const double *logprob) {
    struct EvalResult result = evals_result(task, logprob);
    runlog_write_eval(&t->log, step, &result);
    event_file_write_eval(&t->events, step, &result);
    progress_evaluation(&t->progress, step, &result);
}

int console_sync(void *teller, struct Error *e) {
    struct Console *t = teller;
    int err = appender_sync(&t->log, e);
    return err ? err : appender_sync(&t->events.file, e);
}

void console_line(void *teller, const char *line) {
    progress_message(&((struct Console *)teller)->progress, "%s", line);
}
