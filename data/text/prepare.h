// Makes token shards of text: splits it, trains a tokenizer, encodes, and stores them in the cache.
//
// Without --tokenizer, the training text decides the number of pieces: a power of two from 512 to
// 8192, at most one for each 512 bytes of text, so that each is seen often enough to be learned;
// but at least twice the number of the text's characters; and bytes for less than 256 KiB. (On 2.3
// MB of English, a GPT of 4 million parameters reached 2.43, 2.37 and 2.30 bits per byte with 1024,
// 2048 and 4096 pieces, in the same number of steps.)
//
// The validation part is the last tenth of the text, split before encoding: neither the tokenizer
// nor the model sees it in training. The shards lie in one folder of the cache (made.h). Called by
// data/text/loader_source.c.
#ifndef DATA_TEXT_PREPARE_H
#define DATA_TEXT_PREPARE_H
#include "data/text/sources.h"
#include "data/text/tokenizer.h"

struct PrepareSpec {
    const struct SourceFile *files; // text files, and folders of them
    size_t file_count;
    const struct SourceFile *val_files; // none: the validation part is the last tenth of the text
    size_t val_file_count;
    struct TokenizerSpec tokenizer; // anything but TOKENIZER_IDS; TOKENIZER_FIT: as above
    const char *cache_dir;
};

struct Prepared {
    char *train_path, *val_path; // token shards
    size_t val_bytes;            // bytes of the validation part's text
    char *model_path;            // the tokenizer's file; NULL for bytes
    struct Tokenizer *tokenizer;
    struct TokenizerSpec spec; // the given tokenizer, or the one that fits
    uint64_t number;           // in the folder's name
};

// Prepares a text, or opens what an earlier run prepared. Errors: -errno of files and folders;
// those of cache_check; -EINVAL for files that are no text (data/text/text.h), text too short to
// split, or with too little variety for the given tokenizer.
int prepare_text(struct Prepared *p, const struct PrepareSpec *spec, struct Error *e);
// Opens the folder `number`, which has been prepared with spec->tokenizer. Reads no text.
int prepare_open(struct Prepared *p, const struct PrepareSpec *spec, uint64_t number,
                 size_t val_bytes, struct Error *e);
// Finds the tokenizer that fits the text, and the bytes of its validation part, without making
// anything. (For a very repetitive text, with too few pieces, prepare_text uses bytes instead.)
// Errors: those of reading.
int prepare_predict(const struct PrepareSpec *spec, struct TokenizerSpec *fit, size_t *val_bytes,
                    struct Error *e);
void prepare_free(struct Prepared *p);

#endif
