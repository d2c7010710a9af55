// What is asked of data that are open, from the vocabulary to a batch: see data.h.
#include "data/text/loader.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t data_vocab(const struct Data *d) {
    return d->vocab;
}

size_t data_seq_len(const struct Data *d) {
    return d->spec.seq_len;
}

const char *data_fitted_tokenizer(const struct Data *d) {
    return d->fitted;
}

const struct Tokenizer *data_tokenizer(const struct Data *d) {
    return loader_tokenizer(d);
}

const char *data_tokenizer_path(const struct Data *d) {
    return tokenizer_path(loader_tokenizer(d));
}

static uint64_t ask(struct Data *d, struct ShardSet *set,
                    uint64_t (*question)(const struct ShardSet *)) {
    pthread_mutex_lock(&d->lock);
    uint64_t answer = question(set);
    pthread_mutex_unlock(&d->lock);
    return answer;
}

uint64_t data_train_tokens(struct Data *d) {
    return ask(d, &d->train, shards_tokens);
}

uint64_t data_val_tokens(struct Data *d) {
    return ask(d, &d->val, shards_tokens);
}

uint64_t data_epoch_samples(struct Data *d) {
    return ask(d, &d->train, shards_windows);
}

uint64_t data_val_samples(struct Data *d) {
    return ask(d, &d->val, shards_windows);
}

double data_bits_per_byte(struct Data *d, double loss) {
    double bytes = (double)d->prepared.val_bytes;
    return bytes > 0 ? loss / M_LN2 * (double)data_val_tokens(d) / bytes : 0;
}

uint64_t data_fingerprint(const struct Data *d) {
    return d->fingerprint;
}

static int read_batch(struct Data *d, struct ShardSet *set, const uint64_t *seed, uint64_t first,
                      size_t n, const struct Batch *batch, struct Error *e) {
    int code = 0;
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; !code && i < n; i++)
        code = shards_read(set, seed, first + i, batch->inputs + i * set->seq_len,
                           batch->targets + i * set->seq_len, e);
    pthread_mutex_unlock(&d->lock);
    if (code)
        loader_blame(d, code, e);
    return code;
}

int data_train_batch(void *data, uint64_t first, size_t n, const struct Batch *batch,
                     struct Error *e) {
    struct Data *d = data;
    return read_batch(d, &d->train, &d->spec.seed, first, n, batch, e);
}

int data_val_batch(void *data, uint64_t first, size_t n, const struct Batch *batch,
                   struct Error *e) {
    struct Data *d = data;
    return read_batch(d, &d->val, NULL, first, n, batch, e);
}

int data_prompt(const struct Data *d, const char *prompt, bool given, struct Ids *ids,
                struct Error *e) {
    const struct Tokenizer *t = loader_tokenizer(d);
    if (tokenizer_begin(t) >= 0)
        ids_append(ids, tokenizer_begin(t));
    int err = tokenizer_encode(t, prompt, strlen(prompt), ids, e);
    if (!err && !ids->count && !given)
        ids_append(ids, 0);
    if (!err && !ids->count)
        err = error_set(e, -EINVAL, "--prompt \"%s\": expected at least one token", prompt);
    return err;
}

char *data_printable(const struct Data *d, const int32_t *ids, size_t count) {
    size_t bytes;
    char *text = tokenizer_decode(loader_tokenizer(d), ids, count, &bytes);
    for (size_t i = 0; i < bytes; i++)
        if (iscntrl((unsigned char)text[i]) && text[i] != '\n' && text[i] != '\t')
            text[i] = '?';
    return text;
}
