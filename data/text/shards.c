// Token shards as a sequence of samples: see shards.h.
#include "data/text/shards.h"
#include "data/text/order.h"
#include "kernels/dtype.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// shards_hash reads a shard of up to WHOLE_BYTES whole, of a larger one STRETCHES stretches.
enum { WHOLE_BYTES = 8 << 20, STRETCHES = 256, STRETCH_BYTES = 2048 };

void shards_open(struct ShardSet *set, const struct SourceFiles *files, size_t seq_len,
                 size_t vocab) {
    *set = (struct ShardSet){.count = files->count, .seq_len = seq_len, .vocab = vocab};
    set->shard = base_alloc_zeroed(files->count * sizeof *set->shard);
    for (size_t s = 0; s < files->count; s++)
        set->shard[s].file = files->file[s];
}

void shards_open_random(struct ShardSet *set, size_t tokens, size_t seq_len, size_t vocab,
                        uint64_t seed) {
    *set = (struct ShardSet){.count = 1, .seq_len = seq_len, .vocab = vocab, .random = true};
    set->random_seed = seed;
    set->shard = base_alloc_zeroed(sizeof *set->shard);
    set->shard[0] = (struct Shard){.ready = true, .end = tokens};
}

void shards_close(struct ShardSet *set) {
    for (size_t s = 0; s < set->count; s++) {
        token_file_close(&set->shard[s].tokens);
        pack_free(&set->shard[s].pack);
    }
    free(set->shard);
    *set = (struct ShardSet){0};
}

int shards_open_shard(struct ShardSet *set, size_t s, struct Error *e) {
    struct Shard *shard = &set->shard[s];
    struct TokenFile *f = &shard->tokens;
    if (shard->ready)
        return 0;
    int code = token_file_attach(f, shard->file.path, set->vocab, e);
    if (code)
        return code;
    set->has_documents = s ? set->has_documents : f->layout.has_documents;
    if (f->layout.has_documents != set->has_documents)
        return error_set(e, -EINVAL, E_DATA_KINDS,
                         "--data %s: it %s where documents begin, unlike %s; give shards of one "
                         "kind: all with document beginnings, or all without",
                         shard->file.path, f->layout.has_documents ? "says" : "does not say",
                         set->shard[0].file.path);
    shard->end = f->count;
    shard->ready = true;
    return 0;
}

// Counts the tokens of shard s, or its documents.
static int count_items(struct ShardSet *set, size_t s, size_t *n, struct Error *e) {
    int code = shards_open_shard(set, s, e);
    *n = set->shard[s].end;
    return code || !set->has_documents ? code : pack_seek(&set->shard[s].tokens, SIZE_MAX, n, e);
}

// Moves the tokens or documents of shard s from number `from` on into `val`.
static int move_to_val(struct ShardSet *train, size_t s, struct ShardSet *val, size_t from,
                       struct Error *e) {
    struct Shard *shard = &train->shard[s], *val_shard = &val->shard[val->count];
    val_shard->file = shard->file;
    int code = shards_open_shard(val, val->count++, e);
    if (!code && val_shard->end != shard->end)
        code = error_set(e, -EIO, E_FILE_CHANGED,
                         "--data %s: the file has changed during this run; start again",
                         shard->file.path);
    if (!code && train->has_documents)
        code = pack_seek(&shard->tokens, from, &from, e);
    shard->end = val_shard->begin = from;
    return code;
}

int shards_hold_out(struct ShardSet *train, struct ShardSet *val, struct Error *e) {
    size_t *items = base_alloc_zeroed(train->count * sizeof *items);
    uint64_t total = 0, before = 0;
    int code = 0;
    for (size_t s = 0; !code && s < train->count; s++) {
        code = count_items(train, s, &items[s], e);
        total += items[s];
    }
    uint64_t val_items = train->has_documents && total > 1 ? size_max(total / 10, 1) : total / 10;
    uint64_t cut = total - val_items;
    *val = (struct ShardSet){
        .seq_len = train->seq_len, .vocab = train->vocab, .has_documents = train->has_documents};
    val->shard = base_alloc_zeroed(train->count * sizeof *val->shard);
    for (size_t s = 0; !code && s < train->count; s++) {
        if (before + items[s] > cut)
            code = move_to_val(train, s, val, cut > before ? cut - before : 0, e);
        before += items[s];
    }
    free(items);
    return code;
}

int shards_longest(struct ShardSet *set, size_t *longest, struct Error *e) {
    int code = 0;
    for (size_t s = 0; !code && set->has_documents && s < set->count; s++) {
        struct Shard *shard = &set->shard[s];
        code = pack_longest(&shard->tokens, shard->begin, shard->end, longest, e);
    }
    return code;
}

int shards_pack(struct ShardSet *set, bool together, struct PackLoss *loss, struct Error *e) {
    int code = 0;
    for (size_t s = 0; !code && set->has_documents && s < set->count; s++) {
        struct Shard *shard = &set->shard[s];
        if (shard->begin == shard->end)
            continue;
        code = pack_find(&shard->pack, &shard->tokens, shard->begin, shard->end, set->seq_len, loss,
                         e);
        if (!code)
            pack_make(&shard->pack, set->seq_len, together);
    }
    return code;
}

static uint64_t windows_in_shard(const struct ShardSet *set, size_t s) {
    const struct Shard *shard = &set->shard[s];
    size_t tokens = shard->end - shard->begin;
    if (set->has_documents)
        return shard->pack.windows;
    return tokens ? (tokens - 1) / set->seq_len : 0;
}

uint64_t shards_tokens(const struct ShardSet *set) {
    uint64_t total = 0;
    for (size_t s = 0; s < set->count; s++)
        total += set->shard[s].end - set->shard[s].begin;
    return total;
}

uint64_t shards_windows(const struct ShardSet *set) {
    uint64_t total = 0;
    for (size_t s = 0; s < set->count; s++)
        total += windows_in_shard(set, s);
    return total;
}

// Returns the shard with sample *i of one epoch; *i becomes its index there. If the epoch is
// shorter, returns the number of shards, and *i is reduced by the epoch's samples.
static size_t find_shard(const struct ShardSet *set, uint64_t *i) {
    size_t s = 0;
    for (uint64_t windows; s < set->count && *i >= (windows = windows_in_shard(set, s)); s++)
        *i -= windows;
    return s;
}

static int32_t random_id(const struct ShardSet *set, uint64_t place) {
    uint64_t bits = rng_bits(set->random_seed, place) >> 32;
    return (int32_t)(bits * set->vocab >> 32);
}

static int read_window(const struct ShardSet *set, const struct Shard *shard, uint64_t window,
                       const struct Batch *b, struct Error *e) {
    size_t at = shard->begin + window * set->seq_len, n = set->seq_len;
    CHECK(at + n + 1 <= shard->end, "window %zu..%zu of a shard that ends at %zu", at, at + n + 1,
          shard->end);
    int32_t *ids = base_alloc((n + 1) * (sizeof *ids + 1));
    uint8_t *counts = (uint8_t *)(ids + n + 1);
    bool masked = shard->tokens.layout.masked;
    int code = set->random ? 0 : token_file_read(&shard->tokens, at, n + 1, ids, e);
    if (!code && masked)
        code = token_file_read_bits(&shard->tokens, TOKEN_COUNTS, at, n, counts, e);
    for (size_t t = 0; set->random && t <= n; t++)
        ids[t] = random_id(set, at + t);
    if (!code) {
        memcpy(b->inputs, ids, n * sizeof *ids);
        memcpy(b->targets, ids + 1, n * sizeof *ids);
        for (size_t t = 0; masked && t < n; t++)
            b->targets[t] = counts[t] ? b->targets[t] : UNCOUNTED;
        if (b->starts)
            memset(b->starts, 0, n * sizeof *b->starts);
    }
    free(ids);
    return code;
}

static const struct Shard *find_window(const struct ShardSet *set, const uint64_t *seed, uint64_t i,
                                       uint64_t *window) {
    uint64_t epoch = 0, windows = shards_windows(set);
    *window = i;
    size_t s = find_shard(set, window);
    if (s == set->count) { // past the first epoch, so that all shards are here
        CHECK(windows && seed && set->shard[s - 1].ready, "sample %llu of %llu",
              (unsigned long long)i, (unsigned long long)windows);
        epoch = i / windows;
        *window = i % windows;
        s = find_shard(set, window);
    }
    if (seed)
        *window = order_permute(windows_in_shard(set, s),
                                rng_bits(rng_bits(*seed, epoch), (uint64_t)s), *window);
    return &set->shard[s];
}

int shards_read(const struct ShardSet *set, const uint64_t *seed, uint64_t i, const struct Batch *b,
                struct Error *e) {
    uint64_t window;
    const struct Shard *shard = find_window(set, seed, i, &window);
    return set->has_documents ? pack_read(&shard->pack, &shard->tokens, window, set->seq_len, b, e)
                              : read_window(set, shard, window, b, e);
}

int shards_counted(const struct ShardSet *set, const uint64_t *seed, uint64_t i, uint64_t *counted,
                   struct Error *e) {
    size_t n = set->seq_len;
    uint64_t window;
    const struct Shard *shard = find_window(set, seed, i, &window);
    *counted = set->has_documents ? pack_counted(&shard->pack, window) : n;
    if (set->has_documents || !shard->tokens.layout.masked)
        return 0;
    uint8_t *counts = base_alloc(n);
    int code =
        token_file_read_bits(&shard->tokens, TOKEN_COUNTS, shard->begin + window * n, n, counts, e);
    *counted = 0;
    for (size_t t = 0; !code && t < n; t++)
        *counted += counts[t];
    free(counts);
    return code;
}

// Hashes the first `bytes` bytes of a shard; of more than WHOLE_BYTES only evenly spread stretches.
static int hash_shard_file(const char *path, uint64_t bytes, struct Sha256 *h, struct Error *e) {
    char buffer[STRETCH_BYTES];
    struct stat st;
    int fd, code = file_open(path, "--data", &fd, &st, e);
    if (code)
        return code;
    size_t step = bytes > WHOLE_BYTES ? bytes / STRETCHES : STRETCH_BYTES;
    for (size_t at = 0; !code && at < bytes; at += step) {
        size_t n = size_min(sizeof buffer, bytes - at);
        ssize_t got = file_pread(fd, buffer, n, at);
        if (got < 0)
            code =
                error_io(e, (int)got, E_FILE_READ, "--data %s: cannot read the token shard", path);
        else if ((size_t)got < n)
            code = error_set(e, -EIO, E_FILE_CHANGED,
                             "--data %s: the file has become shorter during this run; start again",
                             path);
        else
            sha256_update(h, buffer, n);
    }
    close(fd);
    return code;
}

int shards_hash(const struct ShardSet *set, struct Sha256 *h, struct Error *e) {
    int code = 0;
    sha256_update(h, &set->random_seed, sizeof set->random_seed);
    for (size_t s = 0; !code && s < set->count; s++) {
        const struct Shard *shard = &set->shard[s];
        if (shard->file.url) {
            const char *slash = strrchr(shard->file.path, '/');
            sha256_update(h, slash, strlen(slash) + 1);
            continue;
        }
        uint64_t range[2] = {shard->begin, shard->end};
        sha256_update(h, range, sizeof range);
        struct TokenLayout used = shard->tokens.layout;
        bool bits = used.masked || used.has_documents; // which lie behind all ids
        used.count = bits ? used.count : shard->end;
        if (!set->random)
            code = hash_shard_file(shard->file.path, token_layout_bytes(&used), h, e);
    }
    return code;
}
