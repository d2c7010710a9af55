// Reads a file line by line, with memory for the longest line alone. Used by example.c.
//
// The "lines" of a file NAME.json are its JSON values, however they are spread over lines: the
// elements of its list, or values one after another. Their syntax is checked by line.h.
#ifndef DATA_CHAT_LINES_H
#define DATA_CHAT_LINES_H
#include "data/stream.h"

enum { LINES_LINE_MAX = 64 << 20 };

struct Lines {
    struct DataStream stream;
    const char *path, *flag;
    char *buffer;
    size_t room, begin, end; // buffer's size; the bytes that are read and not yet taken
    uint64_t at;             // bytes of the text that are read
    size_t number;           // of the last line or value; the first is 1
    bool values;             // JSON values are taken, not lines
    bool list;               // the values are elements of a list
    size_t newlines, line;   // values: newlines until now; the line where the last value began
};

// `flag` opens the error lines. Errors: those of stream_open. lines_close it, also after an error.
int lines_open(struct Lines *s, const char *path, const char *flag, struct Error *e);
void lines_close(struct Lines *s);

// Reads the next line, without its newline. It is valid until the next call, and its bytes may be
// changed. Returns 1, or 0 at the end. Errors: those of stream_read; -EFBIG past LINES_LINE_MAX
// bytes; -EINVAL for a list without an end, or with anything else between or after its elements.
int lines_next(struct Lines *s, char **line, size_t *bytes, struct Error *e);

// The number of the last line or value: "line 3"; "element 3 (line 17)".
struct LinesPlace {
    char text[64];
};
struct LinesPlace lines_place(const struct Lines *s);

// Refuses the last line for `why`: "FLAG PATH: line 3: WHY". Adds what to do if the file begins
// with a JSON list, or with JSON over several lines. Returns `err`.
int lines_refuse(const struct Lines *s, int err, const struct Error *why, struct Error *e);

#endif
