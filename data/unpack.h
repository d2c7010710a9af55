// Unpacks bytes: a struct of operations for each format. stream.c calls them.
//
// A file is a sequence of streams (gzip calls them members, zstd frames), each of which marks its
// own end. Without a library, its operations are those of unpack_..._none.c.
#ifndef DATA_UNPACK_H
#define DATA_UNPACK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The packed bytes that are still to be read, and the free space for unpacked ones.
struct Unpacking {
    const uint8_t *in;
    size_t in_bytes;
    uint8_t *out;
    size_t out_bytes;
};

// Bytes that `begins` reads, and bytes that the first step of a stream gets, unless the file ends.
enum { UNPACK_MAGIC_BYTES = 4, UNPACK_HEAD_BYTES = 18 };

struct Unpack {
    const char *ending;                     // of a file's name
    const char *format, *library, *package; // package: Debian's name
    bool padded;                            // zero bytes may follow a stream
    bool (*begins)(const uint8_t magic[UNPACK_MAGIC_BYTES]);
    void *(*open)(void); // NULL: this build cannot; else close() it
    // Unpacks until input or space is used up: 0; 1: the stream has ended, and the next call begins
    // another. -1: it is damaged, and *wrong says how.
    int (*step)(void *state, struct Unpacking *u, const char **wrong);
    void (*close)(void *state);
};
extern const struct Unpack unpack_gz, unpack_zst;

#endif
