// What takes packed bytes apart: a struct of operations for each format. stream.c calls them.
//
// A file is a row of streams (gzip calls them members, zstd frames), each of which knows its own
// end. Where a library is missing, its operations are those of unpack_..._none.c.
#ifndef DATA_UNPACK_H
#define DATA_UNPACK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What is still to be read, and the room that is left for what comes out.
struct Unpacking {
    const uint8_t *in;
    size_t in_bytes;
    uint8_t *out;
    size_t out_bytes;
};

// `begins` looks at so many; and so many are there, if the file has them, when a stream begins.
enum { UNPACK_MAGIC_BYTES = 4, UNPACK_HEAD_BYTES = 18 };

struct Unpack {
    const char *ending;                     // of a file's name
    const char *format, *library, *package; // as people and Debian call them
    bool padded;                            // zero bytes may lie behind a stream
    bool (*begins)(const uint8_t magic[UNPACK_MAGIC_BYTES]);
    void *(*open)(void); // NULL: this build cannot; else close() it
    // Goes on, as far as input or room lasts: 0; or 1: the stream has ended, and the next call
    // begins another. -1: it is damaged, and *wrong says how.
    int (*step)(void *state, struct Unpacking *u, const char **wrong);
    void (*close)(void *state);
};
extern const struct Unpack unpack_gz, unpack_zst;

#endif
