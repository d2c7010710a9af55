// A line of an HTTP answer's head (RFC 9110, section 5): what it says of one field. Used by
// download.c.
#ifndef DATA_TEXT_HTTP_LINE_H
#define DATA_TEXT_HTTP_LINE_H
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

// The value of header `name` (with its colon), cut to `room` bytes; false for another header.
static inline bool header_value(const char *line, size_t n, const char *name, char *value,
                                size_t room) {
    size_t skip = strlen(name);
    if (n <= skip || strncasecmp(line, name, skip))
        return false;
    while (skip < n && line[skip] == ' ')
        skip++;
    while (n > skip && (line[n - 1] == '\r' || line[n - 1] == '\n' || line[n - 1] == ' '))
        n--;
    snprintf(value, room, "%.*s", (int)(n - skip), line + skip);
    return true;
}

#endif
