// Text to token shards: split, train a tokenizer, encode, keep in the cache.
//
// Where nobody says how many pieces the tokenizer shall have, the training text does: a power of
// two from 512 to 8192, at most one for each 512 bytes of text, so that each is seen often enough
// to learn what it means; but twice as many as the text has letters, and bytes for less than
// 256 KiB. (Of 2.3 MB of English, a GPT of 4 million parameters predicted the same text in as many
// steps with 2.43, 2.37 and 2.30 bits per byte from 1024, 2048 and 4096 pieces.)
//
// The validation part is the last tenth of the text, split as text: neither the tokenizer nor the
// model ever sees it in training. What is made lies in one folder of the cache (made.h). Called by
// data/text/loader_source.c.
#ifndef DATA_TEXT_PREPARE_H
#define DATA_TEXT_PREPARE_H
#include "data/text/sources.h"
#include "data/text/tokenizer.h"

struct PrepareSpec {
    const struct SourceFile *files; // of text, and folders of it
    size_t file_count;
    const struct SourceFile *val_files; // none: the validation part is the last tenth of the text
    size_t val_file_count;
    struct TokenizerSpec tokenizer; // anything but TOKENIZER_IDS; TOKENIZER_FIT: as above
    const char *cache_dir;
};

struct Prepared {
    char *train_path, *val_path; // token shards
    size_t val_bytes;            // of the validation part, as text
    char *model_path;            // the tokenizer's .model file; NULL for bytes
    struct Tokenizer *tokenizer;
    struct TokenizerSpec spec; // of the tokenizer: what was asked for, or fits
    uint64_t number;           // in the folder's name
};

// Errors: -errno of files and folders; those of cache_check; -EINVAL for text that is none
// (data/text/text.h), too short to split, or too poor for the tokenizer asked for.
int prepare_text(struct Prepared *p, const struct PrepareSpec *spec, struct Error *e);
// What another process has prepared: that number, with spec->tokenizer. Reads no text.
int prepare_open(struct Prepared *p, const struct PrepareSpec *spec, uint64_t number,
                 size_t val_bytes, struct Error *e);
// The tokenizer that fits the text, and the bytes of its validation part, without making anything.
// (Of a text that repeats itself so much that it has not so many pieces, prepare_text makes bytes.)
// Errors: those of reading.
int prepare_predict(const struct PrepareSpec *spec, struct TokenizerSpec *fit, size_t *val_bytes,
                    struct Error *e);
void prepare_free(struct Prepared *p);

#endif
