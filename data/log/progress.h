// What a person sees while it trains.
//
// On a terminal: one line that is redrawn in place, as wide as the window allows,
//
//     step 120/2000  loss 4.1234  norm 0.871 lr 6.00e-04  12.3k tok/s  71% of speed of light  ...
//
// Elsewhere (a file, a pipe, a terminal that cannot erase): the same text on a line of its own for
// the first step, every log_every-th and the last. Whoever else has something to say meanwhile uses
// progress_message, which keeps the two apart. Called by train.c; the struct of a rank that is not
// to speak stays zeroed, and all calls with it do nothing.
#ifndef DATA_LOG_PROGRESS_H
#define DATA_LOG_PROGRESS_H
#include "data/eval/evals.h"

#include <stdarg.h>
#include <stdio.h>

enum { PROGRESS_TEXT_BYTES = 256 };

struct Progress {
    FILE *out;
    bool live;             // redraw one line
    uint64_t steps;        // the step at which the run ends
    uint64_t log_every;    // 0: the first and the last line alone
    double (*clock)(void); // seconds, monotonic
    bool exceeded;         // a step was faster than the speed of light, which was measured too low
    double time_shown;     // when a step was last reported
    double time_drawn;     // when the live line was last redrawn
    double step_s;         // smoothed seconds per step
    double token_s;        // likewise per token, of steps alone
    uint64_t count;        // steps reported so far
    uint64_t step_last;
    char text[PROGRESS_TEXT_BYTES]; // the live line as it stands, "" when there is none
};

struct ProgressStep {
    uint64_t step; // counted from 1
    float loss, grad_norm, lr;
    double tokens_per_s; // of this step, as light and mfu; the line tells them smoothed
    double light; // share of the matmul speed of light; 0: not known, not shown; above 1: as 1
    double mfu;   // share of the peak that somebody named; 0: nobody did
};

// `step_done` is the last step that is already done (0 for a fresh run), `steps` the last to do.
void progress_open(struct Progress *p, FILE *out, uint64_t step_done, uint64_t steps,
                   uint64_t log_every);
void progress_show(struct Progress *p, const struct ProgressStep *s);

// Prints a line (or several) above the live line, which is redrawn below. The newline at the end is
// added.
void progress_message(struct Progress *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void progress_vmessage(struct Progress *p, const char *format, va_list args);

// The line of a validation on `samples` sequences of `all`, with the loss's perplexity.
// bits_per_byte 0: not known.
void progress_validation(struct Progress *p, uint64_t step, float loss, float bits_per_byte,
                         uint64_t samples, uint64_t all);

// The line of an evaluation, with the accuracies that are known.
void progress_evaluation(struct Progress *p, uint64_t step, const struct EvalResult *result);

// A sample, as a message; `alone`: its text and no word more, for a pipe.
void progress_sample(struct Progress *p, uint64_t step, const char *text, bool alone);

// x as printf is to show it to people: a NaN without the sign that a processor happened to give it.
double progress_plain_nan(float x);

// Ends the live line; it stays in view. May be called twice.
void progress_close(struct Progress *p);

#endif
