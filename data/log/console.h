// Reports a run's steps while it trains: to the files in --out (report.h) and to the terminal
// (progress.h), both at once.
//
// The struct is zero until one of the two is opened; calls do nothing for one that is not open.
// Called by train.c, on rank 0 alone.
#ifndef DATA_LOG_CONSOLE_H
#define DATA_LOG_CONSOLE_H
#include "data/log/progress.h"
#include "data/log/report.h"

struct Console {
    struct Report report;
    struct Progress progress;
    double tokens; // of a step, on all ranks
    double flops;  // of a token
    double light;  // flops that all ranks can do in a second by measurement: the speed of light
    double peak;   // the same by --peak-tflops; 0: not given
};

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

// Syncs the report to the disk, before a checkpoint is. Errors: -errno of the report.
int console_sync(void *teller, struct Error *e);

void console_line(void *teller, const char *line);

#endif
