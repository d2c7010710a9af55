// What a run tells of its steps while it trains: to those who read --out (report.h) and to whoever
// watches (progress.h), both at once.
//
// The struct stays zeroed until one of the two is opened; of what is not open, all calls do
// nothing. Called by train.c, on rank 0 alone.
#ifndef DATA_LOG_CONSOLE_H
#define DATA_LOG_CONSOLE_H
#include "data/log/progress.h"
#include "data/log/report.h"

struct Console {
    struct Report report;
    struct Progress progress;
    double tokens; // of a step, on all ranks
    double flops;  // that a token takes
    double light;  // and that all ranks could do in a second: the speed of light,
    double peak;   // and that of --peak-tflops; 0: nobody said
};

// For all below: `teller` is a struct Console.

// A step that took so many seconds; what follows from them in *s is filled in here.
void console_step(void *teller, struct LogStep *s, double seconds);

// Something else about a step, for the logs alone.
void console_note(void *teller, const struct LogNote *note);

// A validation after that step, on `samples` sequences of `all`, with its perplexity exp(loss).
// bits_per_byte 0: not known.
void console_validation(void *teller, uint64_t step, float loss, float bits_per_byte,
                        uint64_t samples, uint64_t all);

// An evaluation of items after that step, by the log-probabilities of their sequences.
void console_evaluation(struct Console *t, uint64_t step, const struct EvalTask *task,
                        const double *logprob);

// Before a checkpoint: what was told so far is on the disk before it is. Errors: -errno of the
// report.
int console_sync(void *teller, struct Error *e);

void console_line(void *teller, const char *line);

#endif
