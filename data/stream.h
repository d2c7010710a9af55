// Reads a file from front to back, and unpacks it if its name ends in .gz or .zst.
//
// A packed file is unpacked while it is read, in constant memory. All of its streams are read, one
// after another; a damaged or truncated one, or other bytes after them, are refused with their
// offset in the file. Used for text and for lines (data/text/text.c, data/chat/lines.c). Next:
// unpack.h.
#ifndef DATA_STREAM_H
#define DATA_STREAM_H
#include "data/file.h"
#include "data/unpack.h"

struct DataStream {
    int fd;
    const char *path, *flag;
    uint64_t at;                 // bytes of the file that are read
    const struct Unpack *unpack; // NULL: the bytes are the file's
    void *state;
    uint8_t *buffer; // packed bytes that are read and not yet unpacked
    size_t begin, end;
    bool inside, any; // inside of a stream; a stream has ended
};

// Returns how the file is packed, by the ending of its name; NULL: it is not packed.
const struct Unpack *stream_packing(const char *path);

// Counts the bytes of the bare name: those before ".gz" or ".zst", or all of it.
size_t stream_bare_bytes(const char *path);

// True if the bare name has this ending, in upper or lower case; .ndjson counts as ".jsonl", too.
bool stream_ends_in(const char *path, const char *ending);

// Opens a file. `flag` begins the error lines; it and `path` must outlive the stream. Errors: those
// of file_open; -ENOTSUP, with what to install, if this build cannot unpack. stream_close it, also
// after an error.
int stream_open(struct DataStream *s, const char *path, const char *flag, struct Error *e);
void stream_close(struct DataStream *s);

// Reads n bytes, or fewer at the end. Returns their number. Errors: -errno of reading; -EBADMSG.
ssize_t stream_read(struct DataStream *s, void *bytes, size_t n, struct Error *e);

// Returns the bytes of memory that a text of unknown size may take: a quarter of the machine's, or
// of the process's limit (RLIMIT_AS).
size_t stream_memory_max(void);

#endif
