// A file's bytes from front to back, unpacked where its name ends in .gz or .zst.
//
// What is packed is unpacked as it is read, in a memory that does not depend on the file. All of
// its streams are read, one behind the other; one that is damaged or cut short, or something else
// behind them, is refused with the byte of the file. Used for text and for lines (data/text/text.c,
// data/chat/lines.c). Next: unpack.h.
#ifndef DATA_STREAM_H
#define DATA_STREAM_H
#include "data/file.h"
#include "data/unpack.h"

struct DataStream {
    int fd;
    const char *path, *flag;
    uint64_t at;                 // of the file: what was read of it
    const struct Unpack *unpack; // NULL: the bytes are the file's
    void *state;
    uint8_t *buffer; // packed bytes that were read and not yet taken
    size_t begin, end;
    bool inside, any; // of a stream; there was one
};

// Returns how the file is packed, by the ending of its name; NULL: it is not packed.
const struct Unpack *stream_packing(const char *path);

// Counts the bytes of the bare name: those before ".gz" or ".zst", or all of it.
size_t stream_bare(const char *path);

// Whether the bare name ends so, in any case; a .ndjson ends in ".jsonl", too.
bool stream_ends_in(const char *path, const char *ending);

// `flag` opens the error lines; it and `path` must last. Errors: those of file_open; -ENOTSUP, with
// what to install, where this build cannot unpack. stream_close it, also after an error.
int stream_open(struct DataStream *s, const char *path, const char *flag, struct Error *e);
void stream_close(struct DataStream *s);

// Reads n bytes, or fewer at the end. Returns how many. Errors: -errno of reading; -EBADMSG.
ssize_t stream_read(struct DataStream *s, void *bytes, size_t n, struct Error *e);

// Returns the bytes of memory that a text of unknown size may take: a quarter of the machine's, or
// of the process's limit (RLIMIT_AS).
size_t stream_memory_max(void);

#endif
