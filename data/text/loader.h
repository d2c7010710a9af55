// Data that are open, as the files of this module share them: loader.c opens and closes them,
// loader_source.c one source of several, loader_predict.c forecasts them, loader_ask.c answers what
// data.h lets others ask.
#ifndef DATA_TEXT_LOADER_H
#define DATA_TEXT_LOADER_H
#include "data/text/data.h"
#include "data/text/mix.h"
#include "data/text/named.h"
#include "data/text/prepare.h"
#include "data/text/shards.h"

enum { FIT_SEQ_LEN_MIN = 8 }; // of data that is short

// What one name stands for.
struct DataSource {
    const char *name; // the list's
    struct Source files;
    struct Prepared prepared; // of text
    uint64_t number[2];       // in the names of the folders that were made, by part
    // Of JSONL, by training and validation: the shards made of it, and what tells them from others.
    char *examples[2], key[2][SHA256_HEX_BYTES];
    struct ShardSet train, val;
};

struct Data {
    struct DataSpec spec;
    struct NamedSources named;
    struct DataSource *source; // [named.count], all of one kind. The first has --val-data's, which
        // is then the only validation part
    struct Source val_source;
    struct Mix mix;
    struct Tokenizer *tokenizer; // of all but text
    char *fitted;                // --tokenizer, where the text chose it
    char *own;                   // the tokenizer's file in the model's folder, or NULL
    bool display_only;           // the tokenizer is that one, for printing ids and for --eval alone
    size_t vocab;
    uint64_t fingerprint;
};

// Readers of files say --data of whatever they read. Where the file is one of --val-data's, or was
// to be fetched, the line gets the flag that it came from.
void loader_blame(const struct Data *d, int code, struct Error *e);

static inline const struct Tokenizer *loader_tokenizer(const struct Data *d) {
    return d->tokenizer ? d->tokenizer : d->source[0].prepared.tokenizer;
}

// Does any of the files say where documents begin?
bool loader_is_of_documents(const struct Data *d);

// Finds what the names stand for, and whether it is of one kind that goes with the other flags.
int loader_open_names(struct Data *d, const char *cache_dir, struct Error *e);
void loader_close_names(struct Data *d);

// The tokenizer's file in the model's folder; NULL: there is none. free() it.
char *loader_find_own(const struct DataSpec *spec);

// The tokenizer that --tokenizer names, of ids or JSONL, and the vocabulary.
int loader_open_tokenizer(struct Data *d, struct Error *e);
int loader_choose_vocab(struct Data *d, struct Error *e);

// Refuses --tokenizer ids for a source of JSONL, or of text. Returns -EINVAL.
int loader_refuse_ids(const char *source, bool jsonl, struct Error *e);

// Opens source s: prepares what has to be, or opens what another process has prepared. Shards that
// are to be fetched come later. The tokenizer is open, unless it is text that brings its own.
int loader_open_source(struct Data *d, size_t s, const char *cache_dir, struct Error *e);
void loader_close_source(struct DataSource *s);

// Text alone, of source s: prepares it, or with `fit` only tells what fits it.
int loader_read_text(struct Data *d, size_t s, struct PrepareSpec *spec, struct TokenizerSpec *fit,
                     size_t *val_bytes, struct Error *e);

// A plan says it as the run does.
void loader_log_seq_len(size_t n, size_t usual, uint64_t val_tokens);

#endif
