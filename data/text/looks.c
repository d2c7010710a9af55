// What a text looks like: see looks.h.
#include "data/text/looks.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { HEAD_BYTES = 4096 };

// Of examples (data/chat/line.h), and of the two other forms that conversations are handed on in.
static const char *const members[] = {"\"text\"",        "\"prompt\"",        "\"completion\"",
                                      "\"messages\"",    "\"conversations\"", "\"instruction\"",
                                      "\"conversation\""};

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

static bool is_named_json(const char *name) {
    size_t n = strlen(name);
    return n > 5 && !strcmp(name + n - 5, ".json");
}

int looks_check(const char *flag, const char *name, const char *head, size_t bytes,
                struct Error *e) {
    size_t n = size_min(bytes, HEAD_BYTES), at = n >= 3 && !memcmp(head, "\xef\xbb\xbf", 3) ? 3 : 0;
    bool list = at < n && head[at] == '[';
    if (list)
        at = pass_space(head, n, at + 1);
    if (at == n || head[at] != '{')
        return 0;
    at = pass_space(head, n, at + 1);
    if (at == n || head[at] != '"' || !(has_member(head, n) || is_named_json(name)))
        return 0;
    return error_set(e, -EINVAL,
                     "%s %s: it begins with a JSON %s, as examples do; expected a file NAME.jsonl "
                     "with an object on each line%s, or an empty line in front of what is text",
                     flag, name, list ? "list of objects" : "object",
                     list ? " (jq -c '.[]' makes one)" : "");
}

int looks_check_file(const char *flag, const char *path, struct Error *e) {
    char head[HEAD_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, head, sizeof head) : 0;
    if (fd >= 0)
        close(fd);
    return n > 0 ? looks_check(flag, path, head, (size_t)n, e) : 0;
}
