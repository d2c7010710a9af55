// The lines of a file, one at a time: memory for the longest alone. Used by example.c.
#ifndef DATA_CHAT_LINES_H
#define DATA_CHAT_LINES_H
#include "kernels/base.h"

enum { LINES_LINE_MAX = 64 << 20 };

struct Lines {
    int fd;
    const char *path;
    char *buffer;
    size_t room, begin, end; // what was read and not yet taken
    uint64_t at;             // of the file
    size_t number;           // of the last line taken; the first is 1
};

// `flag` opens the error line. Errors: those of file_open.
int lines_open(struct Lines *s, const char *path, const char *flag, struct Error *e);
void lines_close(struct Lines *s);

// The next line, without its newline, until the next call; its bytes may be changed. 1: there was
// one; 0: none is left. Errors: -errno of reading; -EFBIG for a line past LINES_LINE_MAX.
int lines_next(struct Lines *s, char **line, size_t *bytes, struct Error *e);

#endif
