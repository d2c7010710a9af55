// Draws the progress line: see progress.h for its forms.
#include "data/log/progress.h"

#include "kernels/show.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const double REDRAW_S = 0.1;       // more often only costs time
static const double SMOOTHING_MIN = 0.02; // the rate remembers about 50 steps

// True for a terminal that understands "erase to the end of the line".
static bool can_redraw(FILE *out) {
    const char *term = getenv("TERM");
    return isatty(fileno(out)) && term && *term && strcmp(term, "dumb");
}

void progress_open(struct Progress *p, FILE *out, uint64_t step_done, uint64_t steps,
                   uint64_t log_every) {
    *p = (struct Progress){.out = out, .live = can_redraw(out), .steps = steps};
    p->log_every = log_every;
    p->step_last = step_done;
    p->clock = base_seconds;
    p->time_shown = p->clock();
}

// ---- text ----

enum { PART_BYTES = 48, NPART = 8 };

static void format_rate(char *text, double x) {
    const char *unit = x >= 1e9 ? "G" : x >= 1e6 ? "M" : x >= 1e3 ? "k" : "";
    double scaled = x / (x >= 1e9 ? 1e9 : x >= 1e6 ? 1e6 : x >= 1e3 ? 1e3 : 1);
    snprintf(text, PART_BYTES, "%.*f%s tok/s", scaled < 100 && *unit ? 1 : 0, scaled, unit);
}

static void format_time_left(char *text, double seconds) {
    uint64_t s = (uint64_t)(fmin(fmax(seconds, 0), 1e12) + 0.5);
    if (s < 60)
        snprintf(text, PART_BYTES, "%" PRIu64 "s left", s);
    else if (s < 3600)
        snprintf(text, PART_BYTES, "%" PRIu64 "m%02" PRIu64 "s left", s / 60, s % 60);
    else if (s < 86400)
        snprintf(text, PART_BYTES, "%" PRIu64 "h%02" PRIu64 "m left", s / 3600, s / 60 % 60);
    else
        snprintf(text, PART_BYTES, "%" PRIu64 "d%02" PRIu64 "h left", s / 86400, s / 3600 % 24);
}

// Joins the parts that fit into `width` columns. The least important are dropped first; the step
// always stays.
static void join_parts(char *text, char parts[NPART][PART_BYTES], size_t width) {
    // order of parts: step, loss, norm, lr, rate, light, MFU, time left
    static const int first_to_go[NPART - 1] = {3, 2, 5, 6, 4, 7, 1};
    size_t length = strlen(parts[0]);
    for (int i = 1; i < NPART; i++)
        length += *parts[i] ? 2 + strlen(parts[i]) : 0;
    for (int i = 0; i < NPART - 1 && length > width; i++) {
        char *part = parts[first_to_go[i]];
        length -= *part ? 2 + strlen(part) : 0;
        *part = 0;
    }
    size_t n = 0;
    for (int i = 0; i < NPART; i++)
        if (*parts[i])
            n += (size_t)snprintf(text + n, PROGRESS_TEXT_BYTES - n, "%s%s", i ? "  " : "",
                                  parts[i]);
    text[size_min(n, width)] = 0;
}

// Returns x for printf: a NaN without the sign that the processor happened to give it.
static double plain_nan(float x) {
    return isnan(x) ? (double)NAN : (double)x;
}

// Formats a norm with three digits, also a round one: 2.00, and 100 without a point.
static void format_norm(char *text, float norm) {
    int n = snprintf(text, PART_BYTES, "norm %#.3g", plain_nan(norm));
    if (text[n - 1] == '.')
        text[n - 1] = 0;
}

static void format_line(const struct Progress *p, const struct LogStep *s, size_t width,
                        char *text) {
    char parts[NPART][PART_BYTES];
    int digits = snprintf(NULL, 0, "%" PRIu64, p->steps);
    snprintf(parts[0], PART_BYTES, "step %*" PRIu64 "/%" PRIu64, digits, s->step, p->steps);
    snprintf(parts[1], PART_BYTES, "loss %.4f", plain_nan(s->loss));
    format_norm(parts[2], s->grad_norm);
    snprintf(parts[3], PART_BYTES, "lr %.2e", (double)s->lr);
    format_rate(parts[4], s->tokens_per_s);
    *parts[5] = 0;
    if (s->light > 0)
        snprintf(parts[5], PART_BYTES, "%.0f%% of speed of light", 100 * fmin(s->light, 1));
    *parts[6] = 0;
    if (s->mfu > 0)
        snprintf(parts[6], PART_BYTES, "%.1f%% MFU", 100 * s->mfu);
    *parts[7] = 0;
    if (s->step < p->steps)
        format_time_left(parts[7], (double)(p->steps - s->step) * p->step_s);
    join_parts(text, parts, width);
}

// ---- drawing ----

// Returns the columns to use. The last one stays free: writing there makes some terminals wrap.
static size_t usable_columns(FILE *out) {
    struct winsize size;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) || size.ws_col < 2)
        return 79;
    return size_min(size.ws_col, PROGRESS_TEXT_BYTES) - 1;
}

// Erases the live line, before each message.
static void erase(struct Progress *p) {
    base_wait_for_reader(p->out);
    if (p->live && *p->text)
        fputs("\r\033[K", p->out);
}

static void draw(struct Progress *p) {
    base_wait_for_reader(p->out);
    if (p->live && *p->text)
        fprintf(p->out, "\r%s\033[K", p->text);
    fflush(p->out);
}

// Measures a step as the time since the last report: validation, samples and checkpoints are in it,
// as they will be in the time left. The first step includes work that is done once (first touches
// of memory, code made by libraries), so the second replaces it.
static void measure_step(struct Progress *p, const struct LogStep *s, double now) {
    if (s->step <= p->step_last)
        return;
    double step_s = (now - p->time_shown) / (double)(s->step - p->step_last);
    double sample = p->count++ ? (double)p->count - 1 : 1; // 1, 1, 2, 3, ...
    double weight = fmax(1 / sample, SMOOTHING_MIN);       // at first a plain mean
    p->step_s += weight * (step_s - p->step_s);
    p->token_s =
        weight < 1 ? p->token_s + weight * (1 / s->tokens_per_s - p->token_s) : 1 / s->tokens_per_s;
    p->step_last = s->step;
    p->time_shown = now;
}

// Returns a step with the speed averaged over recent steps: on a host whose virtual machines take
// turns, one step runs at full speed and another stands.
static struct LogStep smooth_speeds(const struct Progress *p, const struct LogStep *s) {
    struct LogStep out = *s;
    double times = 1 / (p->token_s * s->tokens_per_s);
    if (isfinite(times)) {
        out.tokens_per_s *= times;
        out.light *= times;
        out.mfu *= times;
    }
    return out;
}

void progress_show(struct Progress *p, const struct LogStep *s) {
    if (!p->out)
        return;
    double now = p->clock();
    measure_step(p, s, now);
    struct LogStep shown = smooth_speeds(p, s);
    p->exceeded |= isfinite(s->light) && s->light > 1;
    bool first_or_last = p->count == 1 || s->step >= p->steps;
    if (!p->live) {
        char text[PROGRESS_TEXT_BYTES];
        if (!first_or_last && !(p->log_every && s->step % p->log_every == 0))
            return;
        format_line(p, &shown, PROGRESS_TEXT_BYTES - 1, text);
        base_wait_for_reader(p->out);
        fprintf(p->out, "%s\n", text);
        fflush(p->out);
        return;
    }
    format_line(p, &shown, usable_columns(p->out), p->text); // a message draws it, too
    if (!first_or_last && now - p->time_drawn < REDRAW_S)
        return;
    p->time_drawn = now;
    draw(p);
}

// Prints a line, or several, that need no escapes.
static void print_text(struct Progress *p, const char *text) {
    erase(p);
    fprintf(p->out, "%s\n", text);
    draw(p);
}

void progress_message(struct Progress *p, const char *format, ...) {
    va_list args;
    char *message;
    if (!p->out)
        return;
    va_start(args, format);
    if (vasprintf(&message, format, args) < 0)
        base_out_of_memory(0, "a line");
    va_end(args);
    size_t size = 4 * strlen(message) + 1; // enough if each byte is escaped
    char *text = base_alloc(size);
    show_text(text, size, message);
    print_text(p, text);
    free(text);
    free(message);
}

void progress_validation(struct Progress *p, uint64_t step, float loss, float bits_per_byte,
                         uint64_t samples, uint64_t all) {
    char bits[PART_BYTES] = "";
    if (bits_per_byte != 0)
        snprintf(bits, sizeof bits, "  %.4f bits per byte", plain_nan(bits_per_byte));
    progress_message(
        p, "step %" PRIu64 "  validation loss %.4f  perplexity %#.5g%s  (%s%" PRIu64 " sequence%s)",
        step, plain_nan(loss), plain_nan(expf(loss)), bits, samples == all ? "all " : "", samples,
        samples == 1 ? "" : "s");
}

void progress_evaluation(struct Progress *p, uint64_t step, const struct EvalResult *result) {
    const double *accuracy = result->accuracy;
    char harness[2 * PART_BYTES] = "", llmc[PART_BYTES] = "";
    if (accuracy[EVAL_ACC] >= 0)
        snprintf(harness, sizeof harness, "  lm-eval acc %.4f acc_norm %.4f", accuracy[EVAL_ACC],
                 accuracy[EVAL_ACC_NORM]);
    if (accuracy[EVAL_LLMC_ACC] >= 0)
        snprintf(llmc, sizeof llmc, "  llm.c %.4f", accuracy[EVAL_LLMC_ACC]);
    progress_message(p, "step %" PRIu64 "  %s%s%s  (%zu item%s)", step, result->name, harness, llmc,
                     result->items, result->items == 1 ? "" : "s");
}

void progress_sample(struct Progress *p, uint64_t step, const char *text, bool alone) {
    if (!p->out)
        return;
    char *all = alone ? base_format("%s", text)
                      : base_format("--- sample at step %" PRIu64 " ---\n%s\n---", step, text);
    print_text(p, all);
    free(all);
}

void progress_close(struct Progress *p) {
    if (!p->out)
        return;
    base_wait_for_reader(p->out);
    if (p->live && *p->text)
        fputc('\n', p->out);
    *p->text = 0;
    fflush(p->out);
}
