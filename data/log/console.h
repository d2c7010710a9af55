// Reports a run's steps while it trains, to the terminal (progress.h) and to the files in --out for
// its readers: config.json, log.jsonl (log.h), a TensorBoard event file (tensorboard.h) and
// memory.json.
//
// The struct is zero until one of the two is opened; calls with it do nothing for one that is not
// open. Called by train.c, on rank 0 alone.
#ifndef DATA_LOG_CONSOLE_H
#define DATA_LOG_CONSOLE_H
#include "data/flags/flags.h"
#include "data/log/log.h"
#include "data/log/progress.h"
#include "data/log/tensorboard.h"

struct Console {
    struct Appender log;
    struct EventFile events;
    struct Progress progress;
    double tokens; // of a step, on all ranks
    double flops;  // of a token
    double light;  // flops that all ranks can do in a second by measurement: the speed of light
    double peak;   // the same by --peak-tflops; 0: not given
};

// Before a run: checks that console_open and the calls after it can write into the folder. Makes
// nothing. Each name must be free or a regular file; a link, a pipe, a device or a folder is
// refused. Errors: -EINVAL; file_check_folder's.
int console_check(const char *folder, struct Error *e);

// Makes the folder, --out, writes config.json and opens the logs. last_step: as in runlog_open.
// Errors: -errno.
int console_open(struct Console *t, const struct Flags *flags, const char *folder,
                 int64_t last_step, bool tensorboard, struct Error *e);

// Writes memory.json into the folder, which console_open has made: memory and traffic, predicted
// and measured. Errors: -errno.
int console_memory(const char *folder, const char *json, struct Error *e);

// Syncs both logs, and frees them also after an error. Errors: -errno.
int console_close(struct Console *t, struct Error *e);

// In all calls below, `teller` is a struct Console.

// Reports a step that took so many seconds, and fills in the fields of *s that follow from them.
void console_step(void *teller, struct LogStep *s, double seconds);

// Reports something else about a step, in the logs alone.
void console_note(void *teller, const struct LogNote *note);

// Reports a validation after that step, on `samples` sequences of `all`, with its perplexity
// exp(loss). bits_per_byte 0: not known.
void console_validation(void *teller, uint64_t step, float loss, float bits_per_byte,
                        uint64_t samples, uint64_t all);

// Reports an evaluation of items after that step, by the log-probabilities of their sequences.
void console_evaluation(struct Console *t, uint64_t step, const struct EvalTask *task,
                        const double *logprob);

// Syncs both logs to the disk. Called before a checkpoint, so that the log has no gap after a
// resume. Errors: -errno.
int console_sync(void *teller, struct Error *e);

void console_line(void *teller, const char *line);

#endif
