// The lines of a file, one at a time: memory for the longest alone. Used by example.c.
//
// Of a file NAME.json they are its JSON values, however they are spread over lines: the elements of
// the list that it is, or one behind another. What is no JSON in them is left to the reader of a
// line (line.h).
#ifndef DATA_CHAT_LINES_H
#define DATA_CHAT_LINES_H
#include "data/stream.h"

enum { LINES_LINE_MAX = 64 << 20 };

struct Lines {
    struct DataStream stream;
    const char *path, *flag;
    char *buffer;
    size_t room, begin, end; // what was read and not yet taken
    uint64_t at;             // of the text
    size_t number;           // of the last line taken; the first is 1
    bool values;             // JSON values are taken, not lines
    bool list;               // and are elements
    size_t newlines, line;   // values: taken until now; where the last value began
};

// `flag` opens the error lines. Errors: those of stream_open. lines_close it, also after an error.
int lines_open(struct Lines *s, const char *path, const char *flag, struct Error *e);
void lines_close(struct Lines *s);

// The next line, without its newline, until the next call; its bytes may be changed. 1: there was
// one; 0: none is left. Errors: those of stream_read; -EFBIG past LINES_LINE_MAX bytes; -EINVAL
// for a list that does not end, or has something else between its elements or behind it.
int lines_next(struct Lines *s, char **line, size_t *bytes, struct Error *e);

// Whether a file of lines begins with a JSON list, or with one value over several lines; *list is
// true of the first. What is no JSON is neither.
bool lines_spread(const char *path, bool *list);

// Which the last one was: "line 3"; "element 3 (line 17)".
struct LinesPlace {
    char text[64];
};
struct LinesPlace lines_place(const struct Lines *s);

#endif
