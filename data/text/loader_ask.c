// Queries of open data, from the vocabulary to a batch: see data.h.
#include "data/text/loader.h"
#include "kernels/dtype.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t data_vocab(const struct Data *d) {
    return d->vocab;
}

size_t data_seq_len(const struct Data *d) {
    return d->spec.seq_len;
}

const char *data_chosen_tokenizer(const struct Data *d) {
    return d->chosen_tokenizer;
}

const struct Tokenizer *data_tokenizer(const struct Data *d) {
    return d->tokenizer ? d->tokenizer : d->source[0].prepared.tokenizer;
}

const char *data_tokenizer_path(const struct Data *d) {
    return tokenizer_path(data_tokenizer(d));
}

bool data_packed(const struct Data *d) {
    return d->spec.pack != PACK_OFF && loader_has_documents(d);
}

// Returns the sum of count(part) over the training or the validation parts of all sources.
static uint64_t sum_over_sources(const struct Data *d, bool val,
                                 uint64_t (*count)(const struct ShardSet *)) {
    uint64_t sum = 0;
    for (size_t s = 0; s < d->named.count; s++)
        sum += count(val ? &d->source[s].val : &d->source[s].train);
    return sum;
}

uint64_t data_train_tokens(const struct Data *d) {
    return sum_over_sources(d, false, shards_tokens);
}

uint64_t data_val_tokens(const struct Data *d) {
    return sum_over_sources(d, true, shards_tokens);
}

uint64_t data_epoch_samples(const struct Data *d) {
    return sum_over_sources(d, false, shards_windows);
}

uint64_t data_val_samples(const struct Data *d) {
    return sum_over_sources(d, true, shards_windows);
}

double data_bits_per_byte(const struct Data *d, double loss) {
    double bytes = 0;
    for (size_t s = 0; s < d->named.count && (s == 0 || !d->spec.val_data); s++)
        bytes += (double)d->source[s].prepared.val_bytes;
    return bytes > 0 ? loss / M_LN2 * (double)data_val_tokens(d) / bytes : 0;
}

uint64_t data_fingerprint(const struct Data *d) {
    return d->fingerprint;
}

// A sample's set, and its number there. `seed` points to source_seed, which shuffles the set; NULL:
// the set is not shuffled.
struct SamplePosition {
    const struct ShardSet *set;
    uint64_t number, source_seed;
    const uint64_t *seed;
};

static void find_train_sample(const struct Data *d, uint64_t i, struct SamplePosition *at) {
    size_t s = mix_find(&d->mix, i, &at->number);
    at->source_seed = s ? rng_bits(d->spec.seed, s) : d->spec.seed;
    at->seed = &at->source_seed;
    at->set = &d->source[s].train;
}

// i < data_val_samples(d).
static void find_val_sample(const struct Data *d, uint64_t i, struct SamplePosition *at) {
    size_t s = 0;
    for (uint64_t here; s + 1 < d->named.count; s++, i -= here)
        if (i < (here = shards_windows(&d->source[s].val)))
            break;
    *at = (struct SamplePosition){.set = &d->source[s].val, .number = i};
}

// Reads samples into `batch`; or, if `counted` is not NULL, only counts their targets that count.
static int read_samples(const struct Data *d, bool val, uint64_t first, uint64_t n,
                        const struct Batch *batch, uint64_t *counted, struct Error *e) {
    size_t t = d->spec.seq_len;
    uint64_t one, total = 0;
    int code = 0;
    for (uint64_t i = 0; !code && i < n; i++) {
        struct SamplePosition at = {0};
        (val ? find_val_sample : find_train_sample)(d, first + i, &at);
        if (counted) {
            code = shards_counted(at.set, at.seed, at.number, &one, e);
            total += one;
        } else {
            struct Batch row = {batch->inputs + i * t, batch->targets + i * t,
                                batch->starts ? batch->starts + i * t : NULL};
            code = shards_read(at.set, at.seed, at.number, &row, e);
        }
    }
    if (code)
        loader_correct_flag(d, code, e);
    else if (counted)
        *counted = total;
    return code;
}

int data_train_batch(void *data, uint64_t first, size_t n, const struct Batch *batch,
                     struct Error *e) {
    return read_samples(data, false, first, n, batch, NULL, e);
}

int data_val_batch(void *data, uint64_t first, size_t n, const struct Batch *batch,
                   struct Error *e) {
    return read_samples(data, true, first, n, batch, NULL, e);
}

int data_train_counted(void *data, uint64_t first, uint64_t n, uint64_t *counted, struct Error *e) {
    return read_samples(data, false, first, n, NULL, counted, e);
}

int data_val_counted(void *data, uint64_t first, uint64_t n, uint64_t *counted, struct Error *e) {
    return read_samples(data, true, first, n, NULL, counted, e);
}

int data_prompt(const struct Data *d, const char *prompt, bool given, struct Ids *ids,
                struct Error *e) {
    const struct Tokenizer *t = data_tokenizer(d);
    if (tokenizer_begin(t) >= 0)
        ids_append(ids, tokenizer_begin(t));
    int err = tokenizer_encode(t, prompt, strlen(prompt), ids, e);
    if (!err && !ids->count && !given)
        ids_append(ids, 0);
    if (!err && !ids->count)
        err = error_set(e, -EINVAL, E_PROMPT_EMPTY,
                        "--prompt \"%s\": it has no token; give some text or ids, or no --prompt",
                        prompt);
    return err;
}

// Returns the line, which it frees, with the path of the set's first file and how many follow.
static char *add_path(char *line, const char *part, const struct ShardSet *set) {
    const char *path = set->count ? set->shard[0].file.path : NULL;
    char more[40] = "";
    if (set->count > 1)
        snprintf(more, sizeof more, " and %zu more", set->count - 1);
    char *longer = path ? base_format("%s%s%s %s%s", line, *line ? ", " : "", part, path, more)
                        : base_format("%s", line);
    free(line);
    return longer;
}

char *data_places(const struct Data *d) {
    char *line = base_format("%s", "");
    for (size_t s = 0; s < d->named.count; s++) {
        line = add_path(line, "train", &d->source[s].train);
        line = add_path(line, "validation", &d->source[s].val);
    }
    return line;
}
