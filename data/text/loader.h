// Data that are open, as two files share them: loader.c opens and closes them, loader_ask.c answers
// what data.h lets others ask.
#ifndef DATA_TEXT_LOADER_H
#define DATA_TEXT_LOADER_H
#include "data/text/data.h"
#include "data/text/prepare.h"
#include "data/text/shards.h"

#include <pthread.h>

struct Data {
    struct DataSpec spec;
    struct Source source, val_source;
    struct Prepared prepared;    // of text
    struct Tokenizer *tokenizer; // of shards and random ids
    char *fitted;                // --tokenizer, where the text chose it
    char *own;                   // the tokenizer's file in the model's folder, or NULL
    bool aside;                  // shards have that one, which changes nothing but what is printed
    struct SourceFiles made[2];  // the prepared shards, as files of a source
    struct ShardSet train, val;
    size_t vocab;
    uint64_t fingerprint;
    pthread_mutex_t lock; // over the shard sets
};

// Readers of files say --data of whatever they read. Where the file is one of --val-data's, or was
// to be fetched, the line gets the flag that it came from.
void loader_blame(const struct Data *d, int code, struct Error *e);

static inline const struct Tokenizer *loader_tokenizer(const struct Data *d) {
    return d->tokenizer ? d->tokenizer : d->prepared.tokenizer;
}

#endif
