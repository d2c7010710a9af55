// From --data, --val-data and --tokenizer to data that are open, or to a forecast of them: see
// data.h. Next: loader_ask.c, which makes batches of them.
#include "data/text/loader.h"

#include "data/cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DEFAULT_VOCAB = 50257, // GPT-2's: what ready-made shards are made of
    RANDOM_TOKENS = 1 << 24,
    MODEL_BYTES_MAX = 256 << 20,
    FIT_SEQ_LEN_MIN = 8, // of data that is short
};

// ---- opening ------------------------------------------------------------------------------------

static int choose_vocab(struct Data *d, struct Error *e) {
    size_t own = tokenizer_vocab(loader_tokenizer(d));
    d->vocab = d->spec.vocab ? d->spec.vocab : own;
    if (d->vocab < own)
        return error_set(e, -EINVAL, "--vocab %zu: the tokenizer alone has %zu ids: %s%s%s",
                         d->vocab, own, tokenizer_describe(loader_tokenizer(d)),
                         d->spec.model ? "; expected that of --init " : "",
                         d->spec.model ? d->spec.model : "");
    return 0;
}

// Prepares the text, or with `fit` only tells what fits it.
static int read_text(struct Data *d, struct PrepareSpec *spec, struct TokenizerSpec *fit,
                     size_t *val_bytes, struct Error *e) {
    spec->files = d->source.train.file;
    spec->file_count = d->source.train.count;
    spec->val_files = d->val_source.train.file;
    spec->val_file_count = d->val_source.train.count;
    int code = fit ? prepare_predict(spec, fit, val_bytes, e) : prepare_text(&d->prepared, spec, e);
    source_drop(&d->source);
    source_drop(&d->val_source);
    return code;
}

static int open_text(struct Data *d, const char *cache_dir, struct Error *e) {
    struct PrepareSpec spec = {.cache_dir = cache_dir, .tokenizer.kind = TOKENIZER_FIT};
    int code = d->spec.tokenizer ? tokenizer_parse(&spec.tokenizer, d->spec.tokenizer, e) : 0;
    if (!code && spec.tokenizer.kind == TOKENIZER_IDS)
        code = error_set(
            e, -EINVAL,
            "--tokenizer ids: --data is text; use train:8192, byte or a tokenizer's file");
    if (!code)
        code = read_text(d, &spec, NULL, NULL, e);
    if (!code)
        code = choose_vocab(d, e);
    if (code)
        return code;
    if (!d->spec.tokenizer && d->prepared.spec.kind == TOKENIZER_BYTE)
        d->fitted = base_format("byte");
    else if (!d->spec.tokenizer)
        d->fitted = base_format("train:%zu", d->prepared.spec.pieces);
    char *made[2] = {d->prepared.train_path, d->prepared.val_path};
    for (int i = 0; i < 2; i++) {
        d->made[i].file = base_alloc_zeroed(sizeof *d->made[i].file);
        d->made[i].file[0].path = made[i];
        d->made[i].count = 1;
        shards_open(i ? &d->val : &d->train, &d->made[i], d->spec.seq_len, d->vocab);
    }
    return 0;
}

// That of the model's folder, for shards: what is read with it is samples alone, so one that cannot
// be read is passed over, and that is said.
static void open_own(struct Data *d) {
    struct TokenizerSpec spec;
    struct Error e = {""};
    if (!d->own || d->spec.tokenizer || d->source.kind != SOURCE_SHARDS ||
        tokenizer_parse(&spec, d->own, &e))
        return;
    int code = tokenizer_open_spec(&d->tokenizer, &spec, &e);
    if (!code)
        code = choose_vocab(d, &e);
    d->aside = !code;
    if (d->aside)
        return;
    tokenizer_close(d->tokenizer);
    d->tokenizer = NULL;
    log_line(LOG_NORMAL, "--init %s: samples are numbers: %s", d->spec.model, e.text);
}

// The tokenizer of ids that others made: it can be given, or prompts and samples are numbers.
static int open_ids_tokenizer(struct Data *d, struct Error *e) {
    open_own(d);
    if (d->tokenizer)
        return 0;
    const char *name = d->spec.tokenizer ? d->spec.tokenizer : "ids";
    struct TokenizerSpec spec;
    int code = tokenizer_parse(&spec, name, e);
    if (code)
        return code;
    if (spec.kind == TOKENIZER_TRAIN)
        return error_set(e, -EINVAL,
                         "--tokenizer %s: --data %s holds ids, not text; give the tokenizer that "
                         "made them, or none",
                         name, d->spec.data);
    if (spec.kind == TOKENIZER_IDS)
        tokenizer_open_ids(&d->tokenizer, d->spec.vocab ? d->spec.vocab : DEFAULT_VOCAB);
    else if (spec.kind == TOKENIZER_BYTE)
        tokenizer_open_byte(&d->tokenizer);
    else
        code = tokenizer_open_spec(&d->tokenizer, &spec, e);
    return code ? code : choose_vocab(d, e);
}

static int open_shards(struct Data *d, struct Error *e) {
    int code = open_ids_tokenizer(d, e);
    if (code)
        return code;
    const struct Source *val = d->spec.val_data ? &d->val_source : &d->source;
    const struct SourceFiles *val_files = val->val.count ? &val->val : &val->train;
    shards_open(&d->train, &d->source.train, d->spec.seq_len, d->vocab);
    if (!d->spec.val_data && !d->source.val.count)
        return shards_hold_out(&d->train, &d->val, e);
    shards_open(&d->val, val_files, d->spec.seq_len, d->vocab);
    return 0;
}

static int open_random(struct Data *d, struct Error *e) {
    int code = open_ids_tokenizer(d, e);
    if (code)
        return code;
    size_t tokens = size_max(RANDOM_TOKENS, 64 * (d->spec.seq_len + 1));
    shards_open_random(&d->train, tokens, d->spec.seq_len, d->vocab, 2 * d->spec.seed);
    // The end of a run validates on all of it, and random ids teach nothing: so it is short.
    shards_open_random(&d->val, 8 * d->spec.seq_len + 1, d->spec.seq_len, d->vocab,
                       2 * d->spec.seed + 1);
    return 0;
}

// A pipe gives what it carries to one reader, and that once.
static int check_pipe(const struct Data *d, const char *flag, const char *name, struct Error *e) {
    if (d->spec.processes <= 1 || !name || !source_is_pipe(name))
        return 0;
    return error_set(e, -EINVAL,
                     "%s %s: it is a pipe, which only one of the %d processes could read: write "
                     "what it carries into a file",
                     flag, name, d->spec.processes);
}

// A model that others trained knows the ids of its own tokenizer, which are not those of one that
// fits the text.
static int check_model(struct Data *d, struct Error *e) {
    if (!d->spec.model || d->spec.tokenizer)
        return 0;
    if (d->own) {
        d->fitted = base_format("%s", d->own);
        d->spec.tokenizer = d->fitted;
        return 0;
    }
    return error_set(e, -EINVAL,
                     "--data %s is text, and --init %s brings no tokenizer: expected the model's "
                     "own as --tokenizer, or token shards that it made",
                     d->spec.data, d->spec.model);
}

// The file in the model's folder, if there is one.
static char *find_own(const struct DataSpec *spec) {
    struct TokenizerSpec folder = {.path = spec->folder};
    char *file = spec->folder ? tokenizer_file(&folder) : NULL;
    if (file && access(file, F_OK)) {
        free(file);
        file = NULL;
    }
    return file;
}

static int open_kinds(struct Data *d, const char *cache_dir, struct Error *e) {
    int code = cache_dir ? cache_check(cache_dir, e) : 0;
    if (!code)
        code = check_pipe(d, "--data", d->spec.data, e);
    if (!code)
        code = check_pipe(d, "--val-data", d->spec.val_data, e);
    if (!code)
        code = source_open(&d->source, "--data", d->spec.data, cache_dir, e);
    if (!code && d->spec.val_data)
        code = source_open(&d->val_source, "--val-data", d->spec.val_data, cache_dir, e);
    if (code)
        return code;
    if (d->spec.val_data && d->val_source.kind != d->source.kind)
        return error_set(e, -EINVAL,
                         "--val-data %s: it must be of one kind with --data %s: text, or token "
                         "shards",
                         d->spec.val_data, d->spec.data);
    return d->source.kind == SOURCE_TEXT ? check_model(d, e) : 0;
}

// A plan says it as the run does.
static void tell_seq_len(size_t n, size_t usual, uint64_t val_tokens) {
    log_line(LOG_NORMAL, "--seq-len %zu instead of %zu: there are %llu tokens to validate on", n,
             usual, (unsigned long long)val_tokens);
}

// What fits the data, if it is text, and how short it is.
static int predict_fit(struct Data *d, struct TokenizerSpec *fit, struct Error *e) {
    struct PrepareSpec spec = {0};
    size_t val_bytes = 0, usual = d->spec.seq_len;
    int code = open_kinds(d, d->spec.cache_dir, e);
    if (!code && d->source.kind == SOURCE_TEXT && d->spec.tokenizer)
        code = tokenizer_parse(fit, d->spec.tokenizer, e);
    else if (!code && d->source.kind == SOURCE_TEXT)
        code = read_text(d, &spec, fit, &val_bytes, e);
    while (val_bytes && fit->kind == TOKENIZER_BYTE && d->spec.seq_len_fits &&
           d->spec.seq_len >= val_bytes && d->spec.seq_len > FIT_SEQ_LEN_MIN)
        d->spec.seq_len /= 2;
    if (d->spec.seq_len < usual)
        tell_seq_len(d->spec.seq_len, usual, val_bytes);
    source_close(&d->source);
    source_close(&d->val_source);
    return code;
}

static void free_names(struct Data *d) {
    free(d->fitted);
    free(d->own);
}

int data_predict(const struct DataSpec *spec, size_t *vocab, size_t *seq_len, struct Error *e) {
    struct Data d = {.spec = *spec, .own = find_own(spec)};
    struct TokenizerSpec named = {.kind = TOKENIZER_IDS};
    if (!d.spec.data)
        d.spec.data = "random";
    int code = d.spec.tokenizer ? tokenizer_parse(&named, d.spec.tokenizer, e)
                                : predict_fit(&d, &named, e);
    if (code) {
        free_names(&d);
        return code;
    }
    if (named.kind == TOKENIZER_TRAIN) // as many as are asked for, or training it fails
        tokenizer_open_ids(&d.tokenizer, named.pieces);
    else if (named.kind == TOKENIZER_BYTE)
        tokenizer_open_byte(&d.tokenizer);
    code = d.tokenizer ? choose_vocab(&d, e) : open_ids_tokenizer(&d, e);
    tokenizer_close(d.tokenizer);
    free_names(&d);
    *vocab = d.vocab;
    *seq_len = d.spec.seq_len;
    return code;
}

static int open_sources(struct Data *d, const char *cache_dir, struct Error *e) {
    int code = open_kinds(d, cache_dir, e);
    if (code)
        return code;
    if (d->source.kind == SOURCE_TEXT)
        return open_text(d, cache_dir, e);
    return d->source.kind == SOURCE_SHARDS ? open_shards(d, e) : open_random(d, e);
}

// Of files that are here all headers are read, so that a damaged one is told now; of files to be
// fetched, only the first is needed.
static int check_files(struct ShardSet *set, struct Error *e) {
    int code = 0;
    for (size_t s = 0; !code && s < set->count; s++) {
        if (s == 0) {
            code = shards_need(set, s, e);
        } else if (!set->shard[s].file.url && !set->shard[s].counted) {
            code = source_count_tokens(&set->shard[s].file, &set->shard[s].end, e);
            set->shard[s].counted = !code;
        }
    }
    return code;
}

// Data too short for one sequence of the default length has shorter ones, and says so.
static void fit_seq_len(struct Data *d) {
    size_t usual = d->spec.seq_len, n = usual;
    while (!shards_windows(&d->train) || !shards_windows(&d->val)) {
        n = n / 2 < FIT_SEQ_LEN_MIN ? usual : n / 2;
        d->train.seq_len = d->val.seq_len = d->spec.seq_len = n;
        if (n == usual) // even the shortest are too long
            return;
    }
    if (n < usual)
        tell_seq_len(n, usual, shards_tokens(&d->val));
}

// "give more data", and the longest sequence that one of the shards has, with its last target.
static void tell_room(const struct ShardSet *set, char *text, size_t bytes) {
    size_t most = 0;
    for (size_t s = 0; s < set->count; s++)
        if (set->shard[s].counted)
            most = size_max(most, set->shard[s].end - set->shard[s].begin);
    int at = snprintf(text, bytes, "give more data");
    if (most > 1)
        snprintf(text + at, bytes - (size_t)at, ", or --seq-len %zu at most", most - 1);
}

// Is there a sample in the set?
static int check_room(struct Data *d, struct ShardSet *set, const char *part, struct Error *e) {
    if (shards_windows(set))
        return 0;
    bool given = set == &d->val && d->spec.val_data;
    char room[80];
    tell_room(set, room, sizeof room);
    return error_set(e, -EINVAL, "%s %s: its %s part has %llu tokens, too few for one sequence: %s",
                     given ? "--val-data" : "--data", given ? d->spec.val_data : d->spec.data, part,
                     (unsigned long long)shards_tokens(set), room);
}

static int make_fingerprint(struct Data *d, struct Error *e) {
    struct Sha256 h;
    uint8_t digest[SHA256_BYTES];
    uint64_t numbers[3] = {d->spec.seq_len, d->vocab, d->source.kind};
    sha256_init(&h);
    sha256_update(&h, numbers, sizeof numbers);
    int code = shards_hash(&d->train, &h, e);
    if (!code)
        code = shards_hash(&d->val, &h, e);
    const char *path = d->aside ? NULL : data_tokenizer_path(d);
    if (!code && path) {
        char *model;
        size_t bytes;
        code = file_read(path, MODEL_BYTES_MAX, &model, &bytes, e);
        if (!code) {
            sha256_update(&h, model, bytes);
            free(model);
        }
    }
    sha256_final(&h, digest);
    memcpy(&d->fingerprint, digest, sizeof d->fingerprint);
    return code;
}

void loader_blame(const struct Data *d, int code, struct Error *e) {
    static const char says[] = "--data ";
    struct Error cause = *e;
    if (strncmp(cause.text, "--", 2)) {
        error_set(e, code, "--data %s: %s", d->spec.data, cause.text);
        return;
    }
    const char *rest = cause.text + strlen(says);
    for (size_t i = 0; !strncmp(cause.text, says, strlen(says)) && i < d->val_source.train.count;
         i++) {
        const char *path = d->val_source.train.file[i].path;
        if (path && !strncmp(rest, path, strlen(path)) && rest[strlen(path)] == ':')
            error_set(e, code, "--val-data %s", rest);
    }
}

int data_open(struct Data **out, const struct DataSpec *spec, struct Error *e) {
    CHECK(spec->seq_len > 0, "seq_len 0");
    struct Data *d = base_alloc_zeroed(sizeof *d);
    d->spec = *spec;
    d->own = find_own(spec);
    pthread_mutex_init(&d->lock, NULL);
    char *cache_dir = spec->cache_dir ? base_format("%s", spec->cache_dir) : cache_default_folder();
    int code = open_sources(d, cache_dir, e);
    if (!code)
        code = check_files(&d->train, e);
    if (!code)
        code = check_files(&d->val, e);
    if (!code && d->spec.seq_len_fits)
        fit_seq_len(d);
    if (!code)
        code = check_room(d, &d->train, "training", e);
    if (!code)
        code = check_room(d, &d->val, "validation", e);
    if (!code)
        code = make_fingerprint(d, e);
    free(cache_dir);
    if (code) {
        loader_blame(d, code, e);
        data_close(d);
        d = NULL;
    }
    *out = d;
    return code;
}

void data_close(struct Data *d) {
    if (!d)
        return;
    shards_close(&d->train);
    shards_close(&d->val);
    free(d->made[0].file);
    free(d->made[1].file);
    prepare_free(&d->prepared);
    tokenizer_close(d->tokenizer);
    source_close(&d->source);
    source_close(&d->val_source);
    pthread_mutex_destroy(&d->lock);
    free_names(d);
    free(d);
}
