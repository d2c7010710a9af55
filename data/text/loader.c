// Opens --data, --val-data and --tokenizer: see data.h. Next: loader_source.c, which opens one
// source, and loader_ask.c, which reads batches.
#include "data/text/loader.h"

#include "data/cache.h"
#include "kernels/dtype.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static int open_sources(struct Data *d, const char *cache_dir, struct Error *e) {
    size_t weight[MIX_SOURCES_MAX];
    int code = cache_dir ? cache_check(cache_dir, e) : 0;
    if (!code)
        code = loader_open_names(d, cache_dir, e);
    if (!code && d->source[0].files.kind != SOURCE_TEXT)
        code = loader_open_tokenizer(d, e);
    for (size_t s = 0; !code && s < d->named.count; s++) {
        code = loader_open_source(d, s, cache_dir, e);
        weight[s] = d->named.source[s].weight;
    }
    if (!code)
        mix_open(&d->mix, weight, d->named.count);
    return code;
}

// Opens the shards of a set. Local shards are all opened; of shards behind URLs, the first, and
// more until their windows cover `samples`. The process that prepares the data downloads them first
// and checks every id of shard 0, which is read most.
static int open_shard_files(struct Data *d, struct ShardSet *set, uint64_t samples,
                            const char *cache_dir, struct Error *e) {
    bool prepares = !d->spec.found;
    int err = 0;
    for (size_t s = 0; !err && s < set->count; s++) {
        const struct SourceFile *file = &set->shard[s].file;
        if (file->url && s && shards_windows(set) >= samples)
            break;
        if (prepares)
            err = source_fetch(file, cache_dir, e);
        if (!err)
            err = shards_open_shard(set, s, e);
        struct TokenFile *tokens = &set->shard[s].tokens;
        tokens->checked = s == 0 && !prepares;
        if (!err && prepares && s == 0 && !set->random)
            err = token_file_check(tokens, e);
    }
    return err;
}

// Opens the shards of source s: for training, those that hold its share of the run's samples.
static int open_source_files(struct Data *d, size_t s, const char *cache_dir, struct Error *e) {
    struct DataSource *source = &d->source[s];
    uint64_t period = d->mix.period, weight = d->mix.weight[s], samples = d->spec.samples;
    uint64_t turns = samples / period + (samples % period != 0);
    uint64_t share = turns > UINT64_MAX / weight ? UINT64_MAX : turns * weight;
    int err = open_shard_files(d, &source->train, share, cache_dir, e);
    return err ? err : open_shard_files(d, &source->val, UINT64_MAX, cache_dir, e);
}

bool loader_has_documents(const struct Data *d) {
    bool any = false;
    for (size_t s = 0; s < d->named.count; s++)
        any = any || d->source[s].train.has_documents || d->source[s].val.has_documents;
    return any;
}

// Packs the examples into sequences, and logs how full these are. Refuses --pack on without any.
static int pack_documents(struct Data *d, struct Error *e) {
    struct PackLoss loss = {0};
    bool together = d->spec.pack != PACK_OFF;
    uint64_t windows = 0, filled = 0;
    int code = 0;
    for (size_t s = 0; !code && s < d->named.count; s++) {
        struct ShardSet *train = &d->source[s].train;
        code = shards_pack(train, together, &loss, e);
        if (!code)
            code = shards_pack(&d->source[s].val, together, &loss, e);
        for (size_t i = 0; !code && i < train->count; i++)
            for (size_t w = 0; w < train->shard[i].pack.windows; w++, windows++)
                filled += pack_filled(&train->shard[i].pack, w);
    }
    if (!code && d->spec.pack == PACK_ON && !loader_has_documents(d))
        code = error_set(e, -EINVAL, E_PACK_DOCUMENTS,
                         "--pack on: --data %s does not say where documents begin; give JSONL, "
                         "or leave out --pack",
                         d->source[0].name);
    if (!loss.documents || code)
        return code;
    log_line(LOG_NORMAL, "examples: sequences of --seq-len %zu to train on: %llu, %.1f%% full",
             d->spec.seq_len, (unsigned long long)windows,
             windows ? 100 * (double)filled / (double)(windows * d->spec.seq_len) : 0);
    if (loss.cut)
        log_line(LOG_NORMAL,
                 "examples: cut to --seq-len %zu: %llu of %llu; targets that count and are lost "
                 "with that: %llu",
                 d->spec.seq_len, (unsigned long long)loss.cut, (unsigned long long)loss.documents,
                 (unsigned long long)loss.targets);
    if (loss.empty)
        log_line(LOG_NORMAL, "examples: left out, as no target of theirs counts: %llu",
                 (unsigned long long)loss.empty);
    return 0;
}

static bool has_needed_samples(struct Data *d) {
    bool all = data_val_samples(d) != 0;
    for (size_t s = 0; s < d->named.count; s++)
        all = all && shards_windows(&d->source[s].train);
    return all;
}

static void set_seq_len(struct Data *d, size_t n) {
    for (size_t s = 0; s < d->named.count; s++)
        d->source[s].train.seq_len = d->source[s].val.seq_len = n;
    d->spec.seq_len = n;
}

// Makes sequences no longer than the longest document, which saves memory.
static int shorten_to_longest_document(struct Data *d, struct Error *e) {
    size_t longest = 0, most = size_min(d->spec.longest, d->spec.seq_len);
    int code = 0;
    for (size_t s = 0; !code && s < d->named.count; s++) {
        code = shards_longest(&d->source[s].train, &longest, e);
        if (!code)
            code = shards_longest(&d->source[s].val, &longest, e);
    }
    if (code || !longest)
        return code;
    set_seq_len(d, size_min(longest, most));
    log_line(LOG_NORMAL, "--seq-len %zu: %sthe longest example has %zu tokens", d->spec.seq_len,
             longest > most ? "no more, though " : "", longest + 1);
    return 0;
}

// Shortens the sequences of data too short for one of the default length, and logs it.
static void shorten_to_available_tokens(struct Data *d) {
    size_t usual = d->spec.seq_len, n = usual;
    while (!has_needed_samples(d)) {
        n = n / 2 < FIT_SEQ_LEN_MIN ? usual : n / 2;
        set_seq_len(d, n);
        if (n == usual) // even the shortest are too long
            return;
    }
    if (n < usual)
        loader_log_seq_len(n, usual, data_val_tokens(d));
}

// Writes "give more data", and the longest --seq-len that one of the shards allows.
static void describe_remedy(const struct ShardSet *set, char *text, size_t bytes) {
    size_t most = 0;
    for (size_t s = 0; s < set->count; s++)
        most = size_max(most, set->shard[s].end - set->shard[s].begin);
    int at = snprintf(text, bytes, "give more data");
    if (most > 1)
        snprintf(text + at, bytes - (size_t)at, ", or --seq-len %zu at most", most - 1);
}

static int check_samples(struct Data *d, size_t s, struct ShardSet *set, const char *part,
                         struct Error *e) {
    if (shards_windows(set))
        return 0;
    bool of_val_data = set == &d->source[s].val && d->spec.val_data;
    const char *flag = of_val_data ? "--val-data" : "--data";
    const char *name = of_val_data ? d->spec.val_data : d->source[s].name;
    char remedy[80];
    describe_remedy(set, remedy, sizeof remedy);
    if (set->has_documents)
        return error_set(e, -EINVAL, E_DATA_TOO_SMALL,
                         "%s %s: its %s part has no example with a token to learn within --seq-len "
                         "%zu; raise --seq-len, or give more examples",
                         flag, name, part, d->spec.seq_len);
    return error_set(
        e, -EINVAL, E_DATA_TOO_SMALL,
        "%s %s: its %s part has %llu tokens, too few for one sequence of --seq-len %zu: %s", flag,
        name, part, (unsigned long long)shards_tokens(set), d->spec.seq_len, remedy);
}

static int check_all_samples(struct Data *d, struct Error *e) {
    int code = 0;
    for (size_t s = 0; !code && s < d->named.count; s++)
        code = check_samples(d, s, &d->source[s].train, "training", e);
    return code || data_val_samples(d) ? code
                                       : check_samples(d, 0, &d->source[0].val, "validation", e);
}

// Hashes a source. A single source without documents has the hash that older versions gave it.
static int hash_source(struct Data *d, size_t s, struct Sha256 *h, struct Error *e) {
    struct DataSource *source = &d->source[s];
    uint64_t weight = d->named.source[s].weight, packed = d->spec.pack != PACK_OFF;
    int code = shards_hash(&source->train, h, e);
    if (!code)
        code = shards_hash(&source->val, h, e);
    if (d->named.count > 1)
        sha256_update(h, &weight, sizeof weight);
    if (source->train.has_documents || source->val.has_documents)
        sha256_update(h, &packed, sizeof packed);
    if (source->files.kind == SOURCE_JSONL)
        sha256_update(h, source->key, sizeof source->key);
    return code;
}

static int make_fingerprint(struct Data *d, struct Error *e) {
    if (d->spec.found) {
        d->fingerprint = d->spec.found->fingerprint;
        return 0;
    }
    struct Sha256 h;
    uint8_t digest[SHA256_BYTES];
    uint64_t numbers[3] = {d->spec.seq_len, d->vocab, d->source[0].files.kind};
    sha256_init(&h);
    sha256_update(&h, numbers, sizeof numbers);
    int code = 0;
    for (size_t s = 0; !code && s < d->named.count; s++)
        code = hash_source(d, s, &h, e);
    const char *path = d->display_only ? NULL : data_tokenizer_path(d);
    if (!code && path) {
        char *file;
        size_t bytes;
        code = file_read(path, MODEL_BYTES_MAX, &file, &bytes, e);
        if (!code) {
            sha256_update(&h, file, bytes);
            free(file);
        }
    }
    sha256_final(&h, digest);
    memcpy(&d->fingerprint, digest, sizeof d->fingerprint);
    return code;
}

// True if a text begins with the path of a file in that folder. NULL: no folder.
static bool begins_with_folder(const char *text, const char *folder) {
    size_t n = folder ? strlen(folder) : 0;
    return n && !strncmp(text, folder, n) && (text[n] == '/' || text[n - 1] == '/');
}

void loader_correct_flag(const struct Data *d, int code, struct Error *e) {
    static const char data_flag[] = "--data ";
    struct Error cause = *e;
    if (strncmp(cause.text, "--", 2)) {
        error_set(e, code, cause.id, "--data%s%s: %s", d->named.count == 1 ? " " : "",
                  d->named.count == 1 ? d->source[0].name : "", cause.text);
        return;
    }
    const char *rest = cause.text + strlen(data_flag);
    if (strncmp(cause.text, data_flag, strlen(data_flag)))
        return;
    bool val = begins_with_folder(rest, d->spec.val_data);
    for (size_t s = 0; val && s < d->named.count; s++)
        val = !begins_with_folder(rest, d->source[s].name);
    for (size_t i = 0; i < d->val_source.train.count && !val; i++) {
        const char *path = d->val_source.train.file[i].path;
        val = path && !strncmp(rest, path, strlen(path)) && rest[strlen(path)] == ':';
    }
    if (val)
        error_set(e, code, cause.id, "--val-data %s", rest);
}

// Raises the limit of open files, usually 1,024: each shard stays open, and there may be more.
static void raise_open_files_limit(void) {
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static int refuse_open_files(const struct Data *d, struct Error *e) {
    struct rlimit files = {0};
    size_t shards = d->val_source.train.count;
    for (size_t s = 0; s < d->named.count; s++)
        shards += d->source[s].files.train.count + d->source[s].files.val.count;
    getrlimit(RLIMIT_NOFILE, &files);
    return error_set(e, -EMFILE, E_DATA_OPEN_FILES,
                     "of %zu shards each stays open, and this process may have %llu files open "
                     "(ulimit -Hn); allow more (nofile in /etc/security/limits.conf), or write "
                     "fewer, larger shards",
                     shards, (unsigned long long)files.rlim_cur);
}

int data_open(struct Data **out, const struct DataSpec *spec, struct Error *e) {
    CHECK(spec->seq_len > 0, "seq_len 0");
    struct Data *d = base_alloc_zeroed(sizeof *d);
    d->spec = *spec;
    d->model_tokenizer = loader_find_model_tokenizer(spec);
    raise_open_files_limit();
    char *cache_dir = spec->cache_dir ? base_format("%s", spec->cache_dir) : cache_default_folder();
    int code = open_sources(d, cache_dir, e);
    for (size_t s = 0; !code && s < d->named.count; s++)
        code = open_source_files(d, s, cache_dir, e);
    if (!code && d->spec.longest)
        code = shorten_to_longest_document(d, e);
    if (!code)
        code = pack_documents(d, e);
    if (!code && d->spec.seq_len_fits && !loader_has_documents(d))
        shorten_to_available_tokens(d);
    if (!code)
        code = check_all_samples(d, e);
    if (!code)
        code = make_fingerprint(d, e);
    free(cache_dir);
    if (code == -EMFILE && d->source && d->source[0].files.kind == SOURCE_SHARDS)
        code = refuse_open_files(d, e);
    if (code) {
        loader_correct_flag(d, code, e);
        data_close(d);
        d = NULL;
    }
    *out = d;
    return code;
}

void data_found(const struct Data *d, struct DataFound *found) {
    *found = (struct DataFound){.kind = d->source[0].files.kind,
                                .fingerprint = d->fingerprint,
                                .pieces = d->source[0].prepared.spec.pieces};
    for (size_t s = 0; s < d->named.count; s++) {
        const struct DataSource *from = &d->source[s];
        memcpy(found->source[s].made, from->number, sizeof from->number);
        found->source[s].val_bytes = from->prepared.val_bytes;
    }
}

void data_close(struct Data *d) {
    if (!d)
        return;
    for (size_t s = 0; d->source && s < d->named.count; s++)
        loader_close_source(&d->source[s]);
    mix_close(&d->mix);
    tokenizer_close(d->tokenizer);
    loader_close_names(d);
    free(d);
}
