// Token shards as a sequence of samples: see shards.h.
#include "data/text/shards.h"
#include "data/text/order.h"
#include "kernels/dtype.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// shards_hash reads a shard of up to WHOLE bytes whole, of a larger one STRETCHES stretches.
enum { WHOLE_BYTES = 8 << 20, STRETCHES = 256, STRETCH_BYTES = 2048 };

// Descriptors that a set holds. An epoch goes through its shards in order, so more would be idle;
// and the limit of a process is often 1024.
enum { FILES_OPEN = 64 };

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
    set->shard[0] = (struct Shard){.counted = true, .open = true, .end = tokens};
}

void shards_close(struct ShardSet *set) {
    for (size_t s = 0; s < set->count; s++) {
        token_file_close(&set->shard[s].tokens);
        pack_free(&set->shard[s].pack);
    }
    free(set->shard);
    *set = (struct ShardSet){0};
}

// What the header of shard s says; of the first, whether the set has documents.
static int learn(struct ShardSet *set, size_t s, const struct TokenLayout *l, struct Error *e) {
    struct Shard *shard = &set->shard[s];
    set->documents = s ? set->documents : l->documents;
    if (l->documents != set->documents)
        return error_set(
            e, -EINVAL, E_DATA_KINDS,
            "--data %s: it says %s documents begin, but %s does%s: expected shards of one kind",
            shard->file.path, l->documents ? "where" : "not where", set->shard[0].file.path,
            l->documents ? " not" : "");
    shard->layout = *l;
    shard->end = shard->counted ? shard->end : l->count;
    shard->counted = true;
    return 0;
}

// Without fetching the whole of it.
int shards_count(struct ShardSet *set, size_t s, struct Error *e) {
    struct TokenLayout l;
    if (set->shard[s].counted)
        return 0;
    int code = source_layout(&set->shard[s].file, &l, e);
    return code ? code : learn(set, s, &l, e);
}

// How many tokens shard s has, or documents.
static int measure(struct ShardSet *set, size_t s, size_t *n, struct Error *e) {
    *n = set->shard[s].end;
    if (!set->documents)
        return 0;
    int code = shards_need(set, s, e);
    return code ? code : pack_seek(&set->shard[s].tokens, SIZE_MAX, n, e);
}

// From the first of the last tenth on, shard s is val's: number `from` of its tokens or documents.
static int move(struct ShardSet *train, size_t s, struct ShardSet *val, size_t from,
                struct Error *e) {
    struct Shard *shard = &train->shard[s], *held = &val->shard[val->count++];
    *held = (struct Shard){
        .file = shard->file, .counted = true, .end = shard->end, .layout = shard->layout};
    int code = train->documents ? pack_seek(&shard->tokens, from, &from, e) : 0;
    shard->end = held->begin = from;
    return code;
}

int shards_hold_out(struct ShardSet *train, struct ShardSet *val, struct Error *e) {
    size_t *has = base_alloc_zeroed(train->count * sizeof *has);
    uint64_t total = 0, before = 0;
    int code = 0;
    for (size_t s = 0; !code && s < train->count; s++) {
        code = shards_count(train, s, e);
        if (!code)
            code = measure(train, s, &has[s], e);
        total += has[s];
    }
    uint64_t held = train->documents && total > 1 ? size_max(total / 10, 1) : total / 10;
    uint64_t cut = total - held;
    *val = (struct ShardSet){
        .seq_len = train->seq_len, .vocab = train->vocab, .documents = train->documents};
    val->shard = base_alloc_zeroed(train->count * sizeof *val->shard);
    for (size_t s = 0; !code && s < train->count; s++) {
        if (before + has[s] > cut)
            code = move(train, s, val, cut > before ? cut - before : 0, e);
        before += has[s];
    }
    free(has);
    return code;
}

// Makes room for another descriptor: the first of the files goes, as the order of an epoch comes
// back to it last.
static void limit_files(struct ShardSet *set, size_t but) {
    size_t held = 0, first = set->count;
    for (size_t s = set->count; s-- > 0;)
        if (s != but && set->shard[s].tokens.path && set->shard[s].tokens.fd >= 0)
            held++, first = s;
    if (held >= FILES_OPEN)
        token_file_put_aside(&set->shard[first].tokens);
}

int shards_need(struct ShardSet *set, size_t s, struct Error *e) {
    struct Shard *shard = &set->shard[s];
    if (shard->open && (set->random || shard->tokens.fd >= 0))
        return 0;
    limit_files(set, s);
    if (shard->open)
        return 0; // it was put aside, and the next read opens it again
    int code = source_fetch(&shard->file, e);
    if (!code)
        code = token_file_open(&shard->tokens, shard->file.path, set->vocab, e);
    if (code)
        return code;
    code = learn(set, s, &shard->tokens.layout, e);
    if (code) {
        token_file_close(&shard->tokens);
        return code;
    }
    if (shard->end > shard->tokens.count) {
        token_file_close(&shard->tokens);
        return error_set(e, -EIO, E_FILE_CHANGED, "--data %s: the file has changed during this run",
                         shard->file.path);
    }
    shard->open = true;
    return 0;
}

int shards_longest(struct ShardSet *set, size_t *longest, struct Error *e) {
    int code = 0;
    for (size_t s = 0; !code && set->documents && s < set->count; s++) {
        struct Shard *shard = &set->shard[s];
        code = shards_need(set, s, e);
        if (!code)
            code = pack_longest(&shard->tokens, shard->begin, shard->end, longest, e);
    }
    return code;
}

int shards_pack(struct ShardSet *set, bool together, struct PackLoss *loss, struct Error *e) {
    int code = 0;
    for (size_t s = 0; !code && set->documents && s < set->count; s++) {
        struct Shard *shard = &set->shard[s];
        if (shard->begin == shard->end && shard->counted)
            continue;
        code = shards_need(set, s, e);
        if (!code)
            code = pack_find(&shard->pack, &shard->tokens, shard->begin, shard->end, set->seq_len,
                             loss, e);
        if (!code)
            pack_make(&shard->pack, set->seq_len, together);
    }
    return code;
}

static uint64_t windows_of(const struct ShardSet *set, size_t s) {
    const struct Shard *shard = &set->shard[s];
    size_t tokens = shard->end - shard->begin;
    if (set->documents)
        return shard->pack.windows;
    return shard->counted && tokens ? (tokens - 1) / set->seq_len : 0;
}

uint64_t shards_tokens(const struct ShardSet *set) {
    uint64_t total = 0;
    for (size_t s = 0; s < set->count; s++)
        if (set->shard[s].counted)
            total += set->shard[s].end - set->shard[s].begin;
    return total;
}

uint64_t shards_windows(const struct ShardSet *set) {
    uint64_t total = 0;
    for (size_t s = 0; s < set->count; s++)
        total += windows_of(set, s);
    return total;
}

// Which shard holds sample *i of one epoch; *i becomes its place there. Counts only as many shards
// as it has to. *s is the number of shards if the epoch is shorter, and *i what is left.
static int find_shard(struct ShardSet *set, uint64_t *i, size_t *s, struct Error *e) {
    for (*s = 0; *s < set->count; ++*s) {
        int code = shards_count(set, *s, e);
        if (code)
            return code;
        uint64_t windows = windows_of(set, *s);
        if (*i < windows)
            return 0;
        *i -= windows;
    }
    return 0;
}

static int32_t random_id(const struct ShardSet *set, uint64_t place) {
    uint64_t bits = rng_bits(set->random_seed, place) >> 32;
    return (int32_t)(bits * set->vocab >> 32);
}

static int read_window(const struct ShardSet *set, struct Shard *shard, uint64_t window,
                       const struct Batch *b, struct Error *e) {
    size_t at = shard->begin + window * set->seq_len, n = set->seq_len;
    CHECK(at + n + 1 <= shard->end, "window %zu..%zu of a shard that ends at %zu", at, at + n + 1,
          shard->end);
    int32_t *ids = base_alloc((n + 1) * (sizeof *ids + 1));
    uint8_t *counts = (uint8_t *)(ids + n + 1);
    bool masked = shard->layout.masked;
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

// Which window of which shard sample i is. Fetches no shard.
static int locate(struct ShardSet *set, const uint64_t *seed, uint64_t i, size_t *shard,
                  uint64_t *window, struct Error *e) {
    size_t s;
    uint64_t epoch = 0;
    *window = i;
    int code = find_shard(set, window, &s, e);
    if (!code && s == set->count) { // past the first epoch: now every shard is counted
        uint64_t windows = shards_windows(set);
        CHECK(windows && seed, "sample %llu of %llu", (unsigned long long)i,
              (unsigned long long)windows);
        epoch = i / windows;
        *window = i % windows;
        code = find_shard(set, window, &s, e);
    }
    if (code)
        return code;
    if (seed)
        *window = order_permute(windows_of(set, s), rng_bits(rng_bits(*seed, epoch), (uint64_t)s),
                                *window);
    *shard = s;
    return 0;
}

int shards_read(struct ShardSet *set, const uint64_t *seed, uint64_t i, const struct Batch *b,
                struct Error *e) {
    size_t s;
    uint64_t window;
    int code = locate(set, seed, i, &s, &window, e);
    if (!code)
        code = shards_need(set, s, e);
    if (code)
        return code;
    struct Shard *shard = &set->shard[s];
    return set->documents ? pack_read(&shard->pack, &shard->tokens, window, set->seq_len, b, e)
                          : read_window(set, shard, window, b, e);
}

int shards_counted(struct ShardSet *set, const uint64_t *seed, uint64_t i, uint64_t *counted,
                   struct Error *e) {
    size_t s, n = set->seq_len;
    uint64_t window;
    int code = locate(set, seed, i, &s, &window, e);
    if (code)
        return code;
    struct Shard *shard = &set->shard[s];
    *counted = set->documents ? pack_counted(&shard->pack, window) : n;
    if (set->documents || !shard->layout.masked)
        return 0;
    uint8_t *counts = base_alloc(n);
    code = shards_need(set, s, e);
    if (!code)
        code = token_file_read_bits(&shard->tokens, TOKEN_COUNTS, shard->begin + window * n, n,
                                    counts, e);
    *counted = 0;
    for (size_t t = 0; !code && t < n; t++)
        *counted += counts[t];
    free(counts);
    return code;
}

static int hash_file(const char *path, uint64_t bytes, struct Sha256 *h, struct Error *e) {
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
            code = error_set(e, (int)got, E_FILE_READ, "--data %s: %s", path, strerror((int)-got));
        else if ((size_t)got < n)
            code = error_set(e, -EIO, E_FILE_CHANGED,
                             "--data %s: the file has changed during this run", path);
        else
            sha256_update(h, buffer, n);
    }
    close(fd);
    return code;
}

int shards_hash(struct ShardSet *set, struct Sha256 *h, struct Error *e) {
    int code = 0;
    sha256_update(h, &set->random_seed, sizeof set->random_seed);
    for (size_t s = 0; !code && s < set->count; s++) {
        struct Shard *shard = &set->shard[s];
        if (shard->file.url) {
            const char *slash = strrchr(shard->file.path, '/');
            sha256_update(h, slash, strlen(slash) + 1);
            continue;
        }
        code = shards_count(set, s, e);
        uint64_t range[2] = {shard->begin, shard->end};
        sha256_update(h, range, sizeof range);
        struct TokenLayout used = shard->layout;
        bool bits = used.masked || used.documents; // which lie behind all ids
        used.count = bits ? used.count : shard->end;
        if (!code && !set->random)
            code = hash_file(shard->file.path, token_layout_bytes(&used), h, e);
    }
    return code;
}
