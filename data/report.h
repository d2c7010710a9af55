// What a run leaves behind for its readers: log.jsonl (log.h) and a TensorBoard event file
// (tensorboard.h), written together.
#ifndef DATA_REPORT_H
#define DATA_REPORT_H
#include "data/flags.h"
#include "data/log.h"
#include "data/tensorboard.h"

struct Report {
    struct RunLog log;
    struct EventFile events;
    bool open, has_events;
};

// Makes the folder if it is missing, writes the flags to its config.json, and opens both.
// last_step: as in runlog_open. Errors: -errno.
int report_open(struct Report *r, const char *folder, const struct Flags *flags, int64_t last_step,
                bool tensorboard, struct Error *e);
int report_step(struct Report *r, const struct LogStep *s, struct Error *e);
int report_val(struct Report *r, uint64_t step, float val_loss, struct Error *e);
// Only in log.jsonl: see runlog_write_counts.
int report_counts(struct Report *r, uint64_t step, const char *what, const char *const names[],
                  const uint64_t counts[], int n, struct Error *e);
// Forces both to the disk and releases them in any case; a zeroed struct: nothing. Errors: -errno.
int report_close(struct Report *r, struct Error *e);

#endif
