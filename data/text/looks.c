// What a text looks like: see looks.h.
#include "data/text/looks.h"
#include "data/stream.h"

#include <errno.h>
#include <string.h>

enum { HEAD_BYTES = 4096 };

// Of examples (data/chat/shape.h), and one more that conversations are handed on in.
static const char *const members[] = {"\"text\"",         "\"prompt\"",        "\"completion\"",
                                      "\"messages\"",     "\"conversations\"", "\"instruction\"",
                                      "\"conversation\"", "\"question\""};

static size_t pass_space(const char *head, size_t n, size_t at) {
    while (at < n && strchr(" \t\r\n", head[at]) && head[at])
        at++;
    return at;
}

// Does one of those stand before a colon?
static bool has_member(const char *head, size_t n) {
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        size_t bytes = strlen(members[i]), at = 0;
        for (const char *found; (found = memmem(head + at, n - at, members[i], bytes));) {
            at = (size_t)(found - head) + bytes;
            size_t behind = pass_space(head, n, at);
            if (behind < n && head[behind] == ':')
                return true;
        }
    }
    return false;
}

// Does it begin with an object, or a list of such? An empty list is one of them.
static bool has_objects(const char *head, size_t n, bool *list) {
    size_t at = pass_space(head, n, file_mark_bytes(head, n));
    *list = at < n && head[at] == '[';
    if (*list)
        at = pass_space(head, n, at + 1);
    if (at == n || head[at] != '{')
        return *list && at < n && head[at] == ']';
    at = pass_space(head, n, at + 1);
    return at < n && (head[at] == '"' || head[at] == '}');
}

bool looks_named_jsonl(const char *path) {
    return file_ends_in(path, stream_bare(path), ".jsonl");
}

bool looks_named_json(const char *path) {
    return file_ends_in(path, stream_bare(path), ".json");
}

static ssize_t read_head(const char *path, char head[HEAD_BYTES]) {
    struct Stream s;
    struct Error ignored; // whoever reads all of it tells
    ssize_t n = stream_open(&s, path, "", &ignored);
    if (!n)
        n = stream_read(&s, head, HEAD_BYTES, &ignored);
    stream_close(&s);
    return n;
}

bool looks_examples(const char *path) {
    char head[HEAD_BYTES];
    bool list;
    if (!looks_named_json(path))
        return looks_named_jsonl(path);
    ssize_t n = read_head(path, head);
    return n < 0 || has_objects(head, (size_t)n, &list);
}

bool looks_member(const char *path) {
    char head[HEAD_BYTES];
    ssize_t n = read_head(path, head);
    return n < 0 || has_member(head, (size_t)n);
}

const char *looks_format(const char *head, size_t bytes, bool *rows) {
    static const struct {
        const char *begin, *name;
        bool rows;
    } formats[] = {{"PAR1", "Parquet", true},
                   {"ARROW1", "Arrow", true},
                   {"PK\3\4", "a zip file", false},
                   {"\3757zXZ", "packed by xz", false},
                   {"BZh91AY", "packed by bzip2", false},
                   {"SQLite format 3", "SQLite", false}};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        size_t n = strlen(formats[i].begin);
        *rows = formats[i].rows;
        if (bytes >= n && !memcmp(head, formats[i].begin, n))
            return formats[i].name;
    }
    return NULL;
}

const char *looks_table(const char *path) {
    size_t n = stream_bare(path);
    return file_ends_in(path, n, ".csv")   ? "read_csv"
           : file_ends_in(path, n, ".tsv") ? "read_table"
                                           : NULL;
}

int looks_check(const char *flag, const char *name, const char *head, size_t bytes,
                struct Error *e) {
    size_t n = size_min(bytes, HEAD_BYTES);
    bool list;
    if ((n && strchr(" \t\r\n", *head)) || !has_objects(head, n, &list) || !has_member(head, n))
        return 0;
    return error_set(e, -EINVAL, E_DATA_LOOKS_JSON,
                     "%s %s: it begins with a JSON %s, as examples do; expected a file NAME.jsonl "
                     "with an object on each line, or NAME.json, or an empty line in front of what "
                     "is text",
                     flag, name, list ? "list of objects" : "object");
}

int looks_check_file(const char *flag, const char *path, struct Error *e) {
    char head[HEAD_BYTES];
    ssize_t n = read_head(path, head);
    return n > 0 ? looks_check(flag, path, head, (size_t)n, e) : 0;
}
