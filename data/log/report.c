// Writes the two logs of a run, and its flags: see report.h.
#include "data/log/report.h"

#include "data/file.h"
#include "kernels/folder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int report_check(const char *folder, struct Error *e) {
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

int report_open(struct Report *r, const struct Flags *flags, const char *folder, int64_t last_step,
                bool tensorboard, struct Error *e) {
    char *config = base_format("%s/config.json", folder);
    int err = folder_make(folder, "--out", 0777, NULL, e);
    if (!err)
        err = flags_save_json(flags, config, e);
    free(config);
    if (err)
        return err;
    *r = (struct Report){.log.fd = -1, .events.file.fd = -1, .open = true};
    err = runlog_open(&r->log, folder, last_step, e);
    return err || !tensorboard ? err : event_file_open(&r->events, folder, last_step, e);
}

void report_step(struct Report *r, const struct LogStep *s) {
    runlog_write_step(&r->log, s);
    event_file_write_step(&r->events, s);
}

void report_note(struct Report *r, const struct LogNote *note) {
    runlog_write_note(&r->log, note);
    event_file_write_note(&r->events, note);
}

void report_val(struct Report *r, uint64_t step, float val_loss, float bits_per_byte) {
    runlog_write_val(&r->log, step, val_loss, bits_per_byte);
    event_file_write_val(&r->events, step, val_loss, bits_per_byte);
}

void report_eval(struct Report *r, uint64_t step, const struct EvalResult *result) {
    runlog_write_eval(&r->log, step, result);
    event_file_write_eval(&r->events, step, result);
}

int report_memory(struct Report *r, const char *folder, const char *json, struct Error *e) {
    if (!r->open)
        return 0;
    char *path = base_format("%s/memory.json", folder);
    int err = file_replace(path, json, strlen(json), e);
    free(path);
    return err;
}

void report_counts(struct Report *r, uint64_t step, const char *what, const char *const names[],
                   const uint64_t counts[], int n) {
    runlog_write_counts(&r->log, step, what, names, counts, n);
}

int report_sync(struct Report *r, struct Error *e) {
    int err = appender_sync(&r->log, e);
    return err ? err : appender_sync(&r->events.file, e);
}

int report_close(struct Report *r, struct Error *e) {
    struct Error ignored;
    int err = appender_close(&r->log, e);
    int events = appender_close(&r->events.file, err ? &ignored : e);
    r->open = false;
    return err ? err : events;
}
