// Open data, shared by this module's files: loader.c opens and closes them, loader_source.c one
// source of several, loader_predict.c predicts them, loader_ask.c has the queries of data.h.
#ifndef DATA_TEXT_LOADER_H
#define DATA_TEXT_LOADER_H
#include "data/text/data.h"
#include "data/text/mix.h"
#include "data/text/named.h"
#include "data/text/prepare.h"
#include "data/text/shards.h"

enum { FIT_SEQ_LEN_MIN = 8 }; // the shortest sequences of short data

// A source: one name of --data.
struct DataSource {
    const char *name; // owned by `named`
    struct Source files;
    struct Prepared prepared; // of text
    uint64_t number[2];       // in the names of the prepared folders: training, validation
    // Of JSONL, training and validation: the shards' paths, and the hashes of their inputs.
    char *examples_path[2], key[2][SHA256_HEX_BYTES];
    struct ShardSet train, val;
};

struct Data {
    struct DataSpec spec;
    struct NamedSources named;
    struct DataSource *source; // [named.count], all of one kind. With --val-data, the first has the
        // only validation part
    struct Source val_source;
    struct Mix mix;
    struct Tokenizer *tokenizer; // of all kinds but text
    char *chosen_tokenizer;      // what was chosen as --tokenizer, which was not given; or NULL
    char *model_tokenizer;       // the path of the file in the model's folder, or NULL
    bool display_only;           // `tokenizer` is that file's, for printing ids and --eval alone
    size_t vocab;
    uint64_t fingerprint;
};

// Corrects the flag of an error: readers of files always say --data. An error of a file of
// --val-data gets that flag, and one without a flag gets --data.
void loader_correct_flag(const struct Data *d, int code, struct Error *e);

// True if any of the files marks where documents begin.
bool loader_has_documents(const struct Data *d);

// Opens --data and --val-data, which must be of one kind that goes with the other flags.
int loader_open_names(struct Data *d, const char *cache_dir, struct Error *e);
void loader_close_names(struct Data *d);

// Returns the path of the tokenizer's file in the model's folder; NULL: there is none. free() it.
char *loader_find_model_tokenizer(const struct DataSpec *spec);

// Open the tokenizer of ids or JSONL, by --tokenizer or its default; and choose the vocabulary.
int loader_open_tokenizer(struct Data *d, struct Error *e);
int loader_choose_vocab(struct Data *d, struct Error *e);

// Refuses --tokenizer ids for a source of JSONL, or of text. Returns -EINVAL.
int loader_refuse_ids(const char *source, bool is_jsonl, struct Error *e);

// Opens source s: prepares what has to be, or opens what another process has prepared. Shards that
// are to be fetched come later. The tokenizer is open, unless it is text that brings its own.
int loader_open_source(struct Data *d, size_t s, const char *cache_dir, struct Error *e);
void loader_close_source(struct DataSource *s);

// Prepares the text of source s, or with `fit` only finds the tokenizer that fits it, and
// *val_bytes. Sets the files of *spec, and frees the bytes of pipes that are no longer needed.
int loader_read_text(struct Data *d, size_t s, struct PrepareSpec *spec, struct TokenizerSpec *fit,
                     size_t *val_bytes, struct Error *e);

// Logs that sequences are shorter than the default, for a plan and for a run.
void loader_log_seq_len(size_t n, size_t usual, uint64_t val_tokens);

#endif
