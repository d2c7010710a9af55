// The progress line that a person sees during training.
//
// On a terminal: one line that is redrawn in place, as wide as the window allows,
//
//     step 120/2000  loss 4.1234  norm 0.871 lr 6.00e-04  12.3k tok/s  71% of speed of light  ...
//
// Elsewhere (a file, a pipe, a terminal that cannot erase): the same text on a line of its own for
// the first step, every log_every-th and the last. Other output during training uses
// progress_message, which keeps the two apart. Called by train.c; ranks that do not print have a
// zeroed struct, with which all calls do nothing.
#ifndef DATA_LOG_PROGRESS_H
#define DATA_LOG_PROGRESS_H
#include "data/eval/evals.h"
#include "kernels/log_step.h"

#include <stdio.h>

enum { PROGRESS_TEXT_BYTES = 256 };

struct Progress {
    FILE *out;
    bool live;             // redraw one line
    uint64_t steps;        // the step at which the run ends
    uint64_t log_every;    // 0: only the first and the last line
    double (*clock)(void); // seconds, monotonic
    bool exceeded;         // a step was faster than the speed of light, which was measured too low
    double time_shown;     // when a step was last reported
    double time_drawn;     // when the live line was last redrawn
    double step_s;         // smoothed seconds per step
    double token_s;        // smoothed seconds per token, without validation and the like
    uint64_t count;        // steps reported so far
    uint64_t step_last;    // the step that was last reported
    char text[PROGRESS_TEXT_BYTES]; // the present live line; "": none
};

// step_done: the last step that is already done (0 for a fresh run); steps: the last one to do.
void progress_open(struct Progress *p, FILE *out, uint64_t step_done, uint64_t steps,
                   uint64_t log_every);
// Shows a step, with smoothed speeds; a share of the speed of light above 1 as 1.
void progress_show(struct Progress *p, const struct LogStep *s);

// Prints a line (or several) above the live line, which is redrawn below. Adds a newline at the
// end.
void progress_message(struct Progress *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Prints a validation on `samples` sequences of `all`, with the loss's perplexity. bits_per_byte 0:
// not known.
void progress_validation(struct Progress *p, uint64_t step, float loss, float bits_per_byte,
                         uint64_t samples, uint64_t all);

void progress_evaluation(struct Progress *p, uint64_t step, const struct EvalResult *result);

// Prints a sample as a message; `alone`: only its text, for a pipe.
void progress_sample(struct Progress *p, uint64_t step, const char *text, bool alone);

// Ends the live line; it stays in view. May be called twice.
void progress_close(struct Progress *p);

#endif
