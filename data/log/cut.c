// Which lines of the log a resume keeps: see cut.h.
#include "data/log/cut.h"

#include "data/file.h"
#include "data/json.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// What becomes of a line that is no step's.
enum { LINE_DROPPED = -1, LINE_KEPT = -2 };

// Lines that went for one reason: how many, and which was the first.
struct Gone {
    size_t count, line; // counted from 1
    int64_t step;
};

struct Cut {
    const char *path;
    int64_t last_step;
    int64_t *line; // the step of a line that is kept for its step, or what becomes of it
    size_t lines, room;
    struct Gone unreadable, disordered;
    int64_t missing, first_missing;
};

static void go(struct Cut *c, struct Gone *gone, size_t line, int64_t step) {
    c->line[line] = LINE_DROPPED;
    if (!gone->count++)
        *gone = (struct Gone){1, line + 1, step};
}

// ---- the lines ----

// The step of a line, or -1 for anything but a JSON object with one. `is_step`: and with a loss.
static int64_t step_of_line(const char *line, size_t n, bool *is_step) {
    struct Error ignored;
    uint64_t step;
    *is_step = false;
    if (!n || line[0] != '{' || line[n - 1] != '\n') // its number may have been cut
        return -1;
    cJSON *object = json_parse_object(line, n, "", &ignored);
    bool found = json_is_count(cJSON_GetObjectItemCaseSensitive(object, "step"), &step);
    *is_step = found && step && cJSON_GetObjectItemCaseSensitive(object, "loss");
    cJSON_Delete(object);
    return found ? (int64_t)step : -1;
}

static void look_at_line(struct Cut *c, const char *line, size_t n) {
    bool is_step;
    int64_t step = step_of_line(line, n, &is_step);
    if (c->lines == c->room) {
        c->room = c->room ? 2 * c->room : 1024;
        c->line = base_realloc(c->line, c->room * sizeof *c->line, "lines of the log");
    }
    if (step < 0)
        go(c, &c->unreadable, c->lines, step);
    else if (step > c->last_step)
        c->line[c->lines] = LINE_DROPPED;
    else
        c->line[c->lines] = is_step ? step : LINE_KEPT;
    c->lines++;
}

// ---- lines taken in their order ----

struct Taker {
    struct Cut *cut;
    const struct FileAside *to; // NULL: they are looked at
    char *text;                 // what waits to be written: a call for each line would take longer
    size_t bytes, at;           // at: the line
};

enum { WRITE_BYTES = 1 << 16 };

static int write_text(struct Taker *t, struct Error *e) {
    int code = t->bytes ? file_write(t->to->fd, t->to->path_aside, t->text, t->bytes, e) : 0;
    t->bytes = 0;
    return code;
}

static int take_line(struct Taker *t, const char *line, size_t n, struct Error *e) {
    struct Cut *c = t->cut;
    if (!t->to) {
        look_at_line(c, line, n);
        return 0;
    }
    size_t i = t->at++;
    if (i >= c->lines || c->line[i] == LINE_DROPPED)
        return 0;
    int code = t->bytes + n > WRITE_BYTES ? write_text(t, e) : 0;
    if (code || n > WRITE_BYTES)
        return code ? code : file_write(t->to->fd, t->to->path_aside, line, n, e);
    memcpy(t->text + t->bytes, line, n);
    t->bytes += n;
    return 0;
}

// All lines of the file. Returns 0 or -errno with the line in `e`.
static int take_lines(struct Taker *t, FILE *from, struct Error *e) {
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int code = 0;
    rewind(from);
    errno = 0;
    while (!code && (n = getline(&line, &room, from)) > 0)
        code = take_line(t, line, (size_t)n, e);
    if (!code && !feof(from)) // a line too long for the memory that there is ends it, too
        code = error_set(e, errno ? -errno : -EIO, E_FILE_READ, "cannot read %s: %s", t->cut->path,
                         strerror(errno ? errno : EIO));
    free(line);
    return code;
}

// ---- the order of the steps ----

static bool steps_rise(const struct Cut *c) {
    int64_t last = 0;
    for (size_t i = 0; i < c->lines; i++) {
        if (c->line[i] >= 0 && c->line[i] <= last)
            return false;
        if (c->line[i] >= 0)
            last = c->line[i];
    }
    return true;
}

// How many of the n lines, whose steps rise, have a lower step than `step`.
static size_t count_lower(const struct Cut *c, const size_t *lines, size_t n, int64_t step) {
    size_t low = 0, high = n;
    if (n && c->line[lines[n - 1]] < step)
        return n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (c->line[lines[middle]] < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Keeps a longest row of lines whose steps rise. With `end[k]`, the line with the lowest step that
// a row of k + 1 lines can end with, and the line before each in its row, it takes n log n (C.
// Schensted, Longest increasing and decreasing subsequences, 1961).
static void keep_longest_row(struct Cut *c) {
    size_t *end = base_alloc(c->lines * sizeof *end), n = 0, at = 0;
    size_t *before = base_alloc(c->lines * sizeof *before);
    for (size_t i = 0; i < c->lines; i++) {
        if (c->line[i] < 0)
            continue;
        size_t lower = count_lower(c, end, n, c->line[i]);
        before[i] = lower ? end[lower - 1] : SIZE_MAX;
        if (lower == n || c->line[i] < c->line[end[lower]]) // of equal ones the first stays
            end[lower] = i;
        n += lower == n;
    }
    size_t k = n;
    for (size_t i = n ? end[n - 1] : SIZE_MAX; i != SIZE_MAX; i = before[i])
        end[--k] = i; // the row from its end, over what is read no more
    for (size_t i = 0; i < c->lines; i++) {
        if (at < n && i == end[at])
            at++;
        else if (c->line[i] >= 0)
            go(c, &c->disordered, i, c->line[i]);
    }
    free(end);
    free(before);
}

static void count_missing(struct Cut *c) {
    int64_t next = 1;
    for (size_t i = 0; i <= c->lines; i++) {
        int64_t step = i == c->lines ? c->last_step + 1 : c->line[i];
        if (step < 0)
            continue;
        if (step > next && !c->missing)
            c->first_missing = next;
        c->missing += step - next;
        next = step + 1;
    }
}

// ---- as a whole ----

static void tell(const struct Cut *c) {
    const struct Gone *u = &c->unreadable, *d = &c->disordered;
    if (u->count)
        log_line(LOG_NORMAL, "%s: dropped %zu line%s that cannot be read, %sline %zu", c->path,
                 u->count, u->count == 1 ? "" : "s", u->count == 1 ? "" : "the first is ", u->line);
    if (d->count)
        log_line(LOG_NORMAL,
                 "%s: dropped %zu line%s of steps that stand twice or out of order, %sstep %" PRId64
                 " in line %zu",
                 c->path, d->count, d->count == 1 ? "" : "s", d->count == 1 ? "" : "the first is ",
                 d->step, d->line);
    if (c->missing == 1)
        log_line(LOG_NORMAL, "%s lacks step %" PRId64 " (of 1 to %" PRId64 ")", c->path,
                 c->first_missing, c->last_step);
    else if (c->missing)
        log_line(LOG_NORMAL,
                 "%s lacks %" PRId64 " steps, the first is %" PRId64 " (of 1 to %" PRId64 ")",
                 c->path, c->missing, c->first_missing, c->last_step);
}

static int write_kept(struct Cut *c, FILE *from, struct Error *e) {
    struct FileAside to;
    int code = file_aside_open(&to, c->path, e);
    if (code)
        return code;
    struct Taker t = {.cut = c, .to = &to, .text = base_alloc(WRITE_BYTES)};
    code = take_lines(&t, from, e);
    if (!code)
        code = write_text(&t, e);
    free(t.text);
    if (!code)
        return file_aside_commit(&to, e);
    file_aside_abandon(&to);
    return code;
}

int log_cut_back(FILE *from, const char *path, int64_t last_step, struct Error *e) {
    struct Cut c = {.path = path, .last_step = last_step};
    struct Taker reader = {.cut = &c};
    int code = from ? take_lines(&reader, from, e) : 0;
    if (!code && !steps_rise(&c))
        keep_longest_row(&c);
    if (!code && from)
        code = write_kept(&c, from, e);
    if (!code) {
        count_missing(&c);
        tell(&c);
    }
    free(c.line);
    return code;
}
