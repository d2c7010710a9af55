// The names that --data accepts, and the files they stand for.
//
//   a text file, a folder of text, a glob of text files   text
//   a token shard, a folder of them, a glob ("a_*.bin")   shards
//   NAME.jsonl, a folder of them alone, a glob of them     examples (data/chat/example.h)
//   NAME.json, a folder of them alone, a glob of them      the same, or a list of them
//   text or examples with .gz or .zst after the name       the unpacked file (data/stream.h)
//   http://, https:// or file:// URL                      fetched, then by its name and content
//   tinyshakespeare                                       1.1 MB of text
//   fineweb10B                                            103 shards of GPT-2 ids, of which those
//                                                         that the run trains on are fetched
//   random                                                ids drawn by chance, for benchmarks
//   a pipe ("<(COMMAND)", /dev/stdin)                     text, read to its end when it is opened
//
// A pipe can be read once, so its bytes are kept, and several processes cannot share it. Devices
// and sockets are refused before anything is read of them, and so is a pipe among files.
//
// The files of tinyshakespeare and fineweb10B come from their homes on the network, or from the URL
// $ZERO_MIRROR/NAME/FILE if that is set. Called by data/text/loader*.c.
#ifndef DATA_TEXT_SOURCES_H
#define DATA_TEXT_SOURCES_H
#include "data/text/tokens.h"

enum SourceKind { SOURCE_TEXT, SOURCE_SHARDS, SOURCE_RANDOM, SOURCE_JSONL };

struct SourceFile {
    char *path;
    char *url;     // where to fetch it from; NULL: it is local
    char *carried; // of a pipe: all its bytes, until source_free_carried; else NULL
    size_t carried_bytes;
};

struct SourceFiles {
    struct SourceFile *file;
    size_t count;
};

struct Source {
    enum SourceKind kind;
    struct SourceFiles train;
    struct SourceFiles val; // none: a part of the others is held out
};

// Finds the files that `data` names. Fetches text of a URL or a name; source_fetch fetches shards.
// `flag` ("--data", "--val-data") opens the error lines. Errors: -ENOENT and others of files;
// -EINVAL for files of different kinds, a device, and a pipe that is empty or carries JSONL or
// shards; -EFBIG for a pipe with more than a quarter of the memory; those of data/text/download.h.
int source_open(struct Source *s, const char *flag, const char *data, const char *cache_dir,
                struct Error *e);
void source_close(struct Source *s);

bool source_is_pipe(const char *data);

// Frees the bytes that pipes carried, once they are prepared.
void source_free_carried(struct Source *s);

// Downloads the file, unless it is local.
int source_fetch(const struct SourceFile *f, const char *cache_dir, struct Error *e);

#endif
