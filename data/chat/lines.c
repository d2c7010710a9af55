// Reads the lines of a file: see lines.h.
#include "data/chat/lines.h"
#include "data/chat/scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { READ_BYTES = 1 << 18 };

int lines_open(struct Lines *s, const char *path, const char *flag, struct Error *e) {
    *s = (struct Lines){.path = path, .flag = flag, .values = stream_ends_in(path, ".json")};
    return stream_open(&s->stream, path, flag, e);
}

void lines_close(struct Lines *s) {
    stream_close(&s->stream);
    free(s->buffer);
}

struct LinesPlace lines_place(const struct Lines *s) {
    struct LinesPlace p;
    if (s->values)
        snprintf(p.text, sizeof p.text, "%s %zu (line %zu)", s->list ? "element" : "value",
                 s->number, s->line);
    else
        snprintf(p.text, sizeof p.text, "line %zu", s->number);
    return p;
}

// Reads more of the file behind the bytes that are not yet taken. Returns 1, 0 at its end, -errno.
static int fill_buffer(struct Lines *s, struct Error *e) {
    size_t kept = s->end - s->begin;
    if (s->begin)
        memmove(s->buffer, s->buffer + s->begin, kept);
    s->begin = 0;
    s->end = kept;
    if (s->room - kept < READ_BYTES) {
        s->room = size_max(2 * s->room, 2 * READ_BYTES);
        s->buffer = base_realloc(s->buffer, s->room, "a line");
    }
    ssize_t n = stream_read(&s->stream, s->buffer + kept, s->room - kept, e);
    if (n < 0)
        return (int)n;
    s->begin = s->at ? 0 : file_mark_bytes(s->buffer, (size_t)n);
    s->end += (size_t)n;
    s->at += (uint64_t)n;
    return n > 0;
}

// Refuses a line or value past LINES_LINE_MAX, of which `bytes` have been read.
static int check_length(struct Lines *s, size_t bytes, struct Error *e) {
    if (bytes <= LINES_LINE_MAX)
        return 0;
    s->number++;
    s->line = s->newlines + 1;
    return error_set(e, -EFBIG, E_LINE_TOO_LONG, "%s %s: %s: longer than %d MiB; split the example",
                     s->flag, s->path, lines_place(s).text, LINES_LINE_MAX >> 20);
}

static int next_line(struct Lines *s, char **line, size_t *bytes, struct Error *e) {
    char *newline = NULL;
    size_t seen = 0;
    int more = 1;
    while (!newline && more > 0) {
        size_t held = s->end - s->begin;
        newline = held > seen ? memchr(s->buffer + s->begin + seen, '\n', held - seen) : NULL;
        seen = held;
        more = check_length(s, newline ? (size_t)(newline - s->buffer) - s->begin : held, e);
        if (!more)
            more = newline ? 1 : fill_buffer(s, e);
    }
    if (more < 0 || s->begin == s->end)
        return more < 0 ? more : 0;
    *line = s->buffer + s->begin;
    *bytes = newline ? (size_t)(newline - *line) : s->end - s->begin;
    s->begin += *bytes + (newline != NULL);
    s->number++;
    return 1;
}

// ---- values -------------------------------------------------------------------------------------

// Finds the next byte that is no white space, *c, and does not take it. Returns 1, 0: none, -errno.
static int find_nonspace(struct Lines *s, char *c, struct Error *e) {
    int more = 1;
    *c = 0;
    while (more > 0) {
        for (; s->begin < s->end; s->begin++) {
            char here = s->buffer[s->begin];
            if (here != ' ' && here != '\t' && here != '\r' && here != '\n') {
                *c = here;
                return 1;
            }
            s->newlines += here == '\n';
        }
        more = fill_buffer(s, e);
    }
    return more;
}

static int refuse_syntax(const struct Lines *s, const char *what, struct Error *e) {
    return error_set(e, -EINVAL, E_JSON_SYNTAX, "%s %s: byte %llu (line %zu): %s", s->flag, s->path,
                     (unsigned long long)(s->at - (s->end - s->begin)) + 1, s->newlines + 1, what);
}

// Skips to where the next value begins. Returns 1; 0: there is none left; -errno, -EINVAL.
static int find_value(struct Lines *s, struct Error *e) {
    char c;
    int more = find_nonspace(s, &c, e);
    bool may_begin = !s->number;
    if (more > 0 && may_begin && c == '[') {
        s->list = true;
        s->begin++;
        more = find_nonspace(s, &c, e);
    } else if (more > 0 && s->list && c == ',') {
        s->begin++;
        more = find_nonspace(s, &c, e);
        may_begin = true;
        if (more > 0 && c == ']')
            return refuse_syntax(s, "expected an element after the comma", e);
    }
    if (!s->list || more < 0)
        return more;
    if (!more)
        return refuse_syntax(s, "the file ends inside of the list; expected ]", e);
    if (c != ']')
        return may_begin ? 1 : refuse_syntax(s, "expected , or ] after an element", e);
    s->begin++;
    more = find_nonspace(s, &c, e);
    return more > 0 ? refuse_syntax(s, "there is more after the list; remove it", e) : more;
}

// A JSON value, as far as it is read.
struct Value {
    size_t bytes, newlines;  // passed until now
    size_t depth;            // open brackets
    bool in_string, escaped; // inside of a string; after a backslash
};

// Passes one byte inside of a string. True: it ends the string.
static bool pass_string_byte(struct Value *v, char c) {
    bool ends = !v->escaped && c == '"';
    v->escaped = !v->escaped && c == '\\';
    v->in_string = !ends;
    return ends;
}

// True if c cannot be in a number or a word, which ends before it.
static bool ends_before(const struct Value *v, char c) {
    return v->bytes && !v->depth && c && strchr(" \t\r\n,]}[{\"", c);
}

// Continues a value that begins at `from`, of which n >= v->bytes bytes are there, by its brackets
// and quotes alone; line.h checks it. True: it ends after v->bytes. Passes at least one byte, if
// there is one.
static bool pass_value(struct Value *v, const char *from, size_t n) {
    while (v->bytes < n) {
        char c = from[v->bytes];
        if (!v->in_string && ends_before(v, c))
            return true;
        v->bytes++;
        v->newlines += c == '\n';
        if (v->in_string) {
            if (pass_string_byte(v, c) && !v->depth)
                return true;
        } else if (c == '"') {
            v->in_string = true;
        } else if (c == '{' || c == '[') {
            v->depth++;
        } else if (c == '}' || c == ']') {
            v->depth -= v->depth > 0;
            if (!v->depth)
                return true;
        }
    }
    return false;
}

static int next_value(struct Lines *s, char **line, size_t *bytes, struct Error *e) {
    struct Value v = {0};
    int more = find_value(s, e);
    if (more <= 0)
        return more;
    for (bool whole = false; more > 0 && !whole;) {
        whole = pass_value(&v, s->buffer + s->begin, s->end - s->begin);
        more = check_length(s, v.bytes, e);
        if (!more)
            more = whole ? 1 : fill_buffer(s, e);
    }
    if (more < 0)
        return more;
    *line = s->buffer + s->begin;
    *bytes = v.bytes; // if the file's end cuts it short, line_read refuses it
    s->line = s->newlines + 1;
    s->newlines += v.newlines;
    s->begin += v.bytes;
    s->number++;
    return 1;
}

int lines_next(struct Lines *s, char **line, size_t *bytes, struct Error *e) {
    return (s->values ? next_value : next_line)(s, line, bytes, e);
}

// True if a file begins with a JSON list (*list: true), or with one value over several lines. False
// if it does not begin with JSON.
static bool is_json_over_lines(const char *path, bool *list) {
    struct Lines s;
    struct Scan scan = {0};
    struct Error ignored;
    char *text;
    size_t bytes;
    int more = lines_open(&s, path, "", &ignored);
    s.values = true;
    if (!more)
        more = lines_next(&s, &text, &bytes, &ignored);
    if (more > 0)
        scan = scan_line(text, bytes);
    bool json = more > 0 && scan_skip(&scan, NULL) && scan_done(&scan);
    *list = s.list;
    lines_close(&s);
    return json && (s.list || s.newlines >= s.line);
}

int lines_refuse(const struct Lines *s, int err, const struct Error *why, struct Error *e) {
    bool list = false, spread = err == -EINVAL && !s->values && is_json_over_lines(s->path, &list);
    return error_set(
        e, err, why->id, "%s %s: %s: %s%s%s", s->flag, s->path, lines_place(s).text, why->text,
        !spread ? ""
        : list  ? "; the file begins with a JSON list"
                : "; the file begins with JSON over several lines",
        spread ? ": name it NAME.json, or write each object on a line of its own" : "");
}
