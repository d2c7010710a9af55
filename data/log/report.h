// The files that a run writes into --out for its readers: config.json, log.jsonl (log.h), a
// TensorBoard event file (tensorboard.h) and memory.json.
#ifndef DATA_LOG_REPORT_H
#define DATA_LOG_REPORT_H
#include "data/flags/flags.h"
#include "data/log/log.h"
#include "data/log/tensorboard.h"

struct Report {
    struct Appender log;
    struct EventFile events;
    bool open;
};

// Before a run: checks that report_open and the calls after it can write into the folder. Makes
// nothing. Each name must be free or a regular file; a link, a pipe, a device or a folder is
// refused. Errors: -EINVAL; file_check_folder's.
int report_check(const char *folder, struct Error *e);

// Makes the folder, --out. last_step: as in runlog_open. Errors: -errno. If it is not open, as on
// ranks that do not write, the calls below do nothing.
int report_open(struct Report *r, const struct Flags *flags, const char *folder, int64_t last_step,
                bool tensorboard, struct Error *e);
void report_step(struct Report *r, const struct LogStep *s);
void report_note(struct Report *r, const struct LogNote *note);
// bits_per_byte 0: not known.
void report_val(struct Report *r, uint64_t step, float val_loss, float bits_per_byte);
void report_eval(struct Report *r, uint64_t step, const struct EvalResult *result);
// Writes memory.json into the folder: memory and traffic, predicted and measured. Errors: -errno.
int report_memory(struct Report *r, const char *folder, const char *json, struct Error *e);
// Writes into log.jsonl alone: see runlog_write_counts.
void report_counts(struct Report *r, uint64_t step, const char *what, const char *const names[],
                   const uint64_t counts[], int n);
// Syncs both logs to the disk. Called before a checkpoint, so that the log has no gap after a
// resume. Errors: -errno.
int report_sync(struct Report *r, struct Error *e);
// Syncs both, and frees them also after an error; a zeroed struct: does nothing. Errors: -errno.
int report_close(struct Report *r, struct Error *e);

#endif
