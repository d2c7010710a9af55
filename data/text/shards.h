// Token shards as one endless sequence of samples.
//
// A sample is a window of seq_len + 1 tokens: seq_len inputs and, one place on, their targets.
// Windows lie side by side at stride seq_len inside a shard, so that every token but the first is a
// target once per epoch. An epoch takes the shards in order, so that of shards that are fetched a
// run needs those alone that its samples lie in, and the windows of a shard in an order shuffled by
// (seed, epoch, shard). Of shards that say where documents begin, windows are what pack.h makes of
// those.
//
// A set is filled before ranks read; they only read it, any number of them at once. Used by
// data/text/loader*.c alone.
#ifndef DATA_TEXT_SHARDS_H
#define DATA_TEXT_SHARDS_H
#include "data/text/pack.h"
#include "data/text/sha256.h"
#include "data/text/sources.h"
#include "data/text/tokens.h"

struct Shard {
    struct SourceFile file; // not owned
    bool ready;             // it is here, and its header is read
    size_t begin, end;      // its tokens of this set, once it is ready
    struct TokenFile tokens;
    struct Pack pack; // of documents
};

struct ShardSet {
    struct Shard *shard;
    size_t count, seq_len, vocab;
    bool has_documents; // the files say where documents begin: all or none; shard[0] decides
    bool random;        // ids drawn by chance: shard[0] has a size and no file
    uint64_t random_seed;
};

// The files' paths and URLs stay the caller's, and must outlive the set.
void shards_open(struct ShardSet *set, const struct SourceFiles *files, size_t seq_len,
                 size_t vocab);
void shards_open_random(struct ShardSet *set, size_t tokens, size_t seq_len, size_t vocab,
                        uint64_t seed);
void shards_close(struct ShardSet *set);

// Opens shard s, whose file is here. Errors: those of token_file_attach; -EINVAL where it has
// documents and the first has none, or the other way.
int shards_open_shard(struct ShardSet *set, size_t s, struct Error *e);

// Moves the last tenth of `train`'s tokens, or documents, into `val`, which is opened. All files
// must be here.
int shards_hold_out(struct ShardSet *train, struct ShardSet *val, struct Error *e);

// Raises *longest to the positions of the longest document, as pack_longest does.
int shards_longest(struct ShardSet *set, size_t *longest, struct Error *e);

// Makes sequences of documents, if the set has any: together, as pack_make says. *loss grows.
int shards_pack(struct ShardSet *set, bool together, struct PackLoss *loss, struct Error *e);

// Count the tokens and windows of the open shards, which are all shards if the files are local.
uint64_t shards_tokens(const struct ShardSet *set);
uint64_t shards_windows(const struct ShardSet *set);

// Reads sample i of the endless sequence: epoch i / windows, shuffled; or, with seed NULL, window i
// in order, i below the number of windows. Writes b's first row: (seq_len) each. Errors: those of
// token_file_read.
int shards_read(const struct ShardSet *set, const uint64_t *seed, uint64_t i, const struct Batch *b,
                struct Error *e);

// Counts the targets of sample i that count, as shards_read sets them. Errors: shards_read's.
int shards_counted(const struct ShardSet *set, const uint64_t *seed, uint64_t i, uint64_t *counted,
                   struct Error *e);

// Adds what tells this set from another to `h`: the numbers of tokens and the tokens themselves,
// with masks and documents (of large shards 256 stretches of them); of files to be fetched, their
// names.
int shards_hash(const struct ShardSet *set, struct Sha256 *h, struct Error *e);

#endif
