// What a run leaves behind for its readers: config.json, log.jsonl (log.h), a TensorBoard event
// file (tensorboard.h) and memory.json, in one folder.
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

// Before a run: can report_open, and what follows it, write into the folder? Makes nothing. Each
// file's name is free, or a file's own: a link, a pipe, a device or a folder there is refused.
// Errors: -EINVAL; file_check_folder's.
int report_check(const char *folder, struct Error *e);

// Makes the folder, --out. last_step: as in runlog_open. Errors: -errno.
// Before it was opened, as on ranks that do not write, the calls below do nothing.
int report_open(struct Report *r, const struct Flags *flags, const char *folder, int64_t last_step,
                bool tensorboard, struct Error *e);
void report_step(struct Report *r, const struct LogStep *s);
void report_note(struct Report *r, const struct LogNote *note);
// bits_per_byte 0: not known.
void report_val(struct Report *r, uint64_t step, float val_loss, float bits_per_byte);
void report_eval(struct Report *r, uint64_t step, const struct EvalResult *result);
// Writes memory.json into the folder: memory and traffic, predicted and measured. Errors: -errno.
int report_memory(struct Report *r, const char *folder, const char *json, struct Error *e);
// Only in log.jsonl: see runlog_write_counts.
void report_counts(struct Report *r, uint64_t step, const char *what, const char *const names[],
                   const uint64_t counts[], int n);
// Forces to the disk what both have so far. What is on the disk before a checkpoint is, that
// checkpoint's resume finds: the log has no gap. Errors: -errno.
int report_sync(struct Report *r, struct Error *e);
// Forces both to the disk and releases them in any case; a zeroed struct: nothing. Errors: -errno.
int report_close(struct Report *r, struct Error *e);

#endif
