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
    for (size_t s = 0; s < set->count; s++)
        token_file_close(&set->shard[s].tokens);
    free(set->shard);
    *set = (struct ShardSet){0};
}

// Learns the number of tokens of shard s, without fetching the whole of it.
static int count_shard(struct ShardSet *set, size_t s, struct Error *e) {
    struct Shard *shard = &set->shard[s];
    if (shard->counted)
        return 0;
    int code = source_count_tokens(&shard->file, &shard->end, e);
    shard->counted = !code;
    return code;
}

int shards_hold_out(struct ShardSet *train, struct ShardSet *val, struct Error *e) {
    uint64_t total = 0, before = 0;
    for (size_t s = 0; s < train->count; s++) {
        int code = count_shard(train, s, e);
        if (code)
            return code;
        total += train->shard[s].end;
    }
    uint64_t cut = total - total / 10;
    *val = (struct ShardSet){.seq_len = train->seq_len, .vocab = train->vocab};
    val->shard = base_alloc_zeroed(train->count * sizeof *val->shard);
    for (size_t s = 0; s < train->count; s++) {
        struct Shard *shard = &train->shard[s];
        uint64_t end = shard->end;
        if (before + end > cut) {
            struct Shard *held = &val->shard[val->count++];
            *held = (struct Shard){.file = shard->file, .counted = true, .end = end};
            held->begin = cut > before ? cut - before : 0;
            shard->end = held->begin;
        }
        before += end;
    }
    return 0;
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
    if (!shard->counted)
        shard->end = shard->tokens.count;
    if (shard->end > shard->tokens.count) {
        token_file_close(&shard->tokens);
        return error_set(e, -EIO, "--data %s: the file has changed during this run",
                         shard->file.path);
    }
    shard->counted = shard->open = true;
    return 0;
}

static uint64_t windows_of(const struct ShardSet *set, size_t s) {
    const struct Shard *shard = &set->shard[s];
    size_t tokens = shard->end - shard->begin;
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
        int code = count_shard(set, *s, e);
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
                       int32_t *inputs, int32_t *targets, struct Error *e) {
    size_t at = shard->begin + window * set->seq_len, n = set->seq_len;
    CHECK(at + n + 1 <= shard->end, "window %zu..%zu of a shard that ends at %zu", at, at + n + 1,
          shard->end);
    int32_t *ids = base_alloc((n + 1) * sizeof *ids);
    int code = set->random ? 0 : token_file_read(&shard->tokens, at, n + 1, ids, e);
    for (size_t t = 0; set->random && t <= n; t++)
        ids[t] = random_id(set, at + t);
    if (!code) {
        memcpy(inputs, ids, n * sizeof *ids);
        memcpy(targets, ids + 1, n * sizeof *ids);
    }
    free(ids);
    return code;
}

int shards_read(struct ShardSet *set, const uint64_t *seed, uint64_t i, int32_t *inputs,
                int32_t *targets, struct Error *e) {
    size_t s;
    uint64_t window = i, epoch = 0;
    int code = find_shard(set, &window, &s, e);
    if (!code && s == set->count) { // past the first epoch: now every shard is counted
        uint64_t windows = shards_windows(set);
        CHECK(windows && seed, "sample %llu of %llu", (unsigned long long)i,
              (unsigned long long)windows);
        epoch = i / windows;
        window = i % windows;
        code = find_shard(set, &window, &s, e);
    }
    if (!code)
        code = shards_need(set, s, e);
    if (code)
        return code;
    if (seed)
        window = order_permute(windows_of(set, s), rng_bits(rng_bits(*seed, epoch), (uint64_t)s),
                               window);
    return read_window(set, &set->shard[s], window, inputs, targets, e);
}

static int hash_file(const char *path, size_t bytes, struct Sha256 *h, struct Error *e) {
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
            code = error_set(e, (int)got, "--data %s: %s", path, strerror((int)-got));
        else if ((size_t)got < n)
            code = error_set(e, -EIO, "--data %s: the file has changed during this run", path);
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
        code = count_shard(set, s, e);
        uint64_t range[2] = {shard->begin, shard->end};
        sha256_update(h, range, sizeof range);
        if (!code && !set->random)
            code = hash_file(shard->file.path, TOKENS_HEADER_BYTES + 2 * shard->end, h, e);
    }
    return code;
}
