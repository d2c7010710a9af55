// Writes log.jsonl: see log.h for the lines.
#include "data/log/log.h"
#include "data/file.h"
#include "data/json.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- resume ----

// Opens a regular file and nothing else: no link, which another user may have planted, and no pipe,
// whose open would wait for a reader.
static int open_regular_file(const char *path, int flags, int *fd, struct Error *e) {
    struct stat st;
    *fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (*fd < 0)
        return error_io(e, -errno, E_FILE_WRITE, "cannot open %s", path);
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode))
        return 0;
    close(*fd);
    *fd = -1;
    return error_set(e, -EINVAL, E_FILE_KIND, "cannot open %s: it is not a regular file; remove it",
                     path);
}

// Returns the step of a line; -1: it is no complete line with a JSON object that has a step.
static int64_t step_of_line(const char *line, size_t n) {
    struct Error ignored;
    uint64_t step;
    if (line[0] != '{' || line[n - 1] != '\n') // its number may have been cut
        return -1;
    cJSON *object = json_parse_object(line, n, "", &ignored);
    bool found = json_is_count(cJSON_GetObjectItemCaseSensitive(object, "step"), &step);
    cJSON_Delete(object);
    return found ? (int64_t)step : -1;
}

// Moves the lines of steps up to `last_step` to the text's beginning. Returns their bytes.
static size_t keep_lines(char *text, size_t bytes, int64_t last_step, size_t *unreadable) {
    size_t kept = 0;
    for (size_t at = 0, n; at < bytes; at += n) {
        const char *newline = memchr(text + at, '\n', bytes - at);
        n = newline ? (size_t)(newline + 1 - text) - at : bytes - at;
        int64_t step = step_of_line(text + at, n);
        *unreadable += step < 0;
        if (step < 0 || step > last_step)
            continue;
        memmove(text + kept, text + at, n);
        kept += n;
    }
    return kept;
}

static int drop_later_lines(const char *path, int64_t last_step, struct Error *e) {
    struct stat st;
    size_t unreadable = 0;
    int fd, err = open_regular_file(path, O_RDONLY, &fd, e);
    if (err)
        return err;
    size_t bytes = fstat(fd, &st) ? 0 : (size_t)st.st_size;
    char *text = base_realloc(NULL, bytes, "the log");
    ssize_t n = file_pread(fd, text, bytes, 0);
    close(fd);
    if (n < 0)
        err = error_io(e, (int)n, E_FILE_READ, "cannot read %s", path);
    else
        err = file_replace(path, text, keep_lines(text, (size_t)n, last_step, &unreadable), e);
    free(text);
    if (!err && unreadable)
        log_line(LOG_NORMAL, "%s: dropped %zu line%s that cannot be read", path, unreadable,
                 unreadable == 1 ? "" : "s");
    return err;
}

// ---- the interface ----

int runlog_open(struct Appender *l, const char *folder, int64_t last_step, struct Error *e) {
    *l = (struct Appender){.fd = -1, .path = base_format("%s/log.jsonl", folder)};
    bool fresh = last_step == RUNLOG_FRESH;
    int code = fresh ? file_replace(l->path, "", 0, e) : drop_later_lines(l->path, last_step, e);
    if (code == -ENOENT && !fresh) { // the log was moved away: a new one begins
        e->text[0] = 0;
        code = 0;
    }
    if (!code)
        code = open_regular_file(l->path, O_WRONLY | O_CREAT | O_APPEND, &l->fd, e);
    if (code) {
        free(l->path);
        *l = (struct Appender){.fd = -1};
    }
    return code;
}

enum { NUMBER_BYTES = 32 };

// Formats the shortest decimal that reads back to the same float, or null. Returns `text`.
static const char *float_text(char text[NUMBER_BYTES], float x) {
    int digits = 1;
    do
        snprintf(text, NUMBER_BYTES, "%.*g", digits, (double)x);
    while (digits++ < 9 && strtof(text, NULL) != x);
    return isfinite(x) ? text : "null";
}

// Formats a measurement with three decimals, from 1e15 on with six digits; not finite: null.
static const char *measure_text(char text[NUMBER_BYTES], double x) {
    snprintf(text, NUMBER_BYTES, fabs(x) < 1e15 ? "%.3f" : "%.6g", x);
    return isfinite(x) ? text : "null";
}

// Ends a line's object, writes the line and frees it.
static void put_line(struct Appender *l, char *line) {
    base_append(&line, "}\n");
    appender_put(l, line, strlen(line));
    free(line);
}

void runlog_write_step(struct Appender *l, const struct LogStep *s) {
    char loss[NUMBER_BYTES], norm[NUMBER_BYTES], lr[NUMBER_BYTES], rate[NUMBER_BYTES],
        number[NUMBER_BYTES];
    char *line = base_format("{\"step\":%" PRIu64 ",\"loss\":%s,\"grad_norm\":%s,\"lr\":%s,"
                             "\"tokens_per_s\":%s,\"step_ms\":%s",
                             s->step, float_text(loss, s->loss), float_text(norm, s->grad_norm),
                             float_text(lr, s->lr), measure_text(rate, s->tokens_per_s),
                             measure_text(number, s->step_ms));
    if (s->loss_scale > 0)
        base_append(&line, ",\"loss_scale\":%s", float_text(number, s->loss_scale));
    if (s->light > 0)
        base_append(&line, ",\"light\":%s", measure_text(number, s->light));
    if (s->mfu > 0)
        base_append(&line, ",\"mfu\":%s", measure_text(number, s->mfu));
    if (s->tokens_seen)
        base_append(&line, ",\"tokens_seen\":%" PRIu64, s->tokens_seen);
    put_line(l, line);
}

void runlog_write_val(struct Appender *l, uint64_t step, float val_loss, float bits_per_byte) {
    char loss[NUMBER_BYTES], number[NUMBER_BYTES];
    char *line = base_format("{\"step\":%" PRIu64 ",\"val_loss\":%s,\"perplexity\":%s", step,
                             float_text(loss, val_loss), float_text(number, expf(val_loss)));
    if (bits_per_byte != 0)
        base_append(&line, ",\"bits_per_byte\":%s", float_text(number, bits_per_byte));
    put_line(l, line);
}

void runlog_write_eval(struct Appender *l, uint64_t step, const struct EvalResult *result) {
    char *name = json_line_text(cJSON_CreateString(result->name)), number[NUMBER_BYTES];
    char *line =
        base_format("{\"step\":%" PRIu64 ",\"eval\":%s,\"items\":%zu", step, name, result->items);
    for (int m = 0; m < NEVALMEASURE; m++)
        if (result->accuracy[m] >= 0)
            base_append(&line, ",\"%s\":%s", eval_measure_names[m],
                        float_text(number, (float)result->accuracy[m]));
    free(name);
    put_line(l, line);
}

// Numbers, which are shares or seconds, have six decimals.
void runlog_write_note(struct Appender *l, const struct LogNote *note) {
    char *line = base_format("{\"step\":%" PRIu64 ",\"%s\":%s%s", note->step, note->what,
                             note->word ? "\"" : "{", note->word ? note->word : "");
    for (int i = 0; !note->word && i < note->n; i++) {
        double x = note->value[i].value;
        base_append(&line, "%s\"%s\":%.6f", i ? "," : "", note->value[i].name, isfinite(x) ? x : 0);
    }
    base_append(&line, note->word ? "\"" : "}");
    put_line(l, line);
}

void runlog_write_counts(struct Appender *l, uint64_t step, const char *what,
                         const char *const names[], const uint64_t counts[], int n) {
    char *line = base_format("{\"step\":%" PRIu64 ",\"%s\":{", step, what);
    for (int i = 0; i < n; i++)
        base_append(&line, "%s\"%s\":%" PRIu64, i ? "," : "", names[i], counts[i]);
    base_append(&line, "}");
    put_line(l, line);
}
