// Our ids of texts against those of the reference implementation, and how fast they are made; for
// scripts/dev/tokenizer_compare.sh.
//
//   tokenizer_check TOKENIZER.json <RECORDS     records: bytes, text, count, ids; numbers in uint32
//   tokenizer_check TOKENIZER.json TEXT         a text file: MB/s by one thread, and by all
//
// The first prints "N texts, N differ, N come back" with the first few that differ; status 1 where
// any does, or does not come back. (NFC changes a text, so with it some do not.) Status 2: a line.
#include "data/bpe/bpe.h"
#include "data/file.h"
#include "data/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 5, TEXT_MAX = 1 << 30, RECORD_MAX = 1 << 20 };

struct Record {
    uint32_t bytes, count;
    char text[RECORD_MAX];
    int32_t ids[RECORD_MAX];
};

static bool read_record(struct Record *r) {
    return fread(&r->bytes, 4, 1, stdin) == 1 && r->bytes <= RECORD_MAX &&
           fread(r->text, 1, r->bytes, stdin) == r->bytes && fread(&r->count, 4, 1, stdin) == 1 &&
           r->count <= RECORD_MAX && fread(r->ids, 4, r->count, stdin) == r->count;
}

static void show(const struct Record *r, const struct Ids *ids) {
    printf("%.*s\n  theirs:", (int)r->bytes, r->text);
    for (size_t i = 0; i < r->count; i++)
        printf(" %d", r->ids[i]);
    printf("\n  ours:  ");
    for (size_t i = 0; i < ids->count; i++)
        printf(" %d", ids->data[i]);
    printf("\n");
}

static int compare(const struct Tokenizer *t, struct Error *e) {
    struct Record *r = base_alloc(sizeof *r);
    struct BpeWork *work = tokenizer_work_open(t);
    struct Ids ids = {0};
    size_t texts = 0, differ = 0, back = 0;
    int err = 0;
    for (; !err && read_record(r); texts++) {
        ids.count = 0;
        err = tokenizer_encode_part(t, work, &(struct TextPart){r->text, r->bytes, 0, 0}, &ids, e);
        bool same = ids.count == r->count && !memcmp(ids.data, r->ids, 4 * ids.count);
        if (!same && differ++ < SHOWN)
            show(r, &ids);
        size_t n;
        char *text = tokenizer_decode(t, ids.data, ids.count, &n);
        back += n == r->bytes && !memcmp(text, r->text, n);
        free(text);
    }
    printf("%zu texts, %zu differ, %zu come back\n", texts, differ, back);
    ids_free(&ids);
    bpe_work_close(work);
    free(r);
    return err ? 2 : differ || !texts;
}

static int add_hash(void *hash, const struct Ids *ids, size_t done, struct Error *e) {
    (void)done, (void)e;
    uint64_t *h = hash;
    for (size_t i = 0; i < ids->count; i++)
        *h = (*h ^ (uint64_t)ids->data[i]) * 0x100000001b3u;
    return 0;
}

static int measure(const struct Tokenizer *t, const char *path, struct Error *e) {
    char *text;
    size_t bytes;
    int err = file_read(path, TEXT_MAX, &text, &bytes, e);
    if (err)
        return 2;
    uint64_t hash[2] = {0, 0};
    for (size_t all = 0; !err && all < 2; all++) {
        double begin = base_seconds();
        err = tokenizer_encode_text(t, text, bytes, all ? 0 : 1, add_hash, &hash[all], e);
        double s = base_seconds() - begin;
        printf("%s: %.1f MB in %.2f s, %.1f MB/s, hash %016llx\n",
               all ? "all threads" : "one thread", (double)bytes * 1e-6, s,
               (double)bytes * 1e-6 / s, (unsigned long long)hash[all]);
    }
    free(text);
    return err ? 2 : hash[0] != hash[1];
}

int main(int argc, char **argv) {
    struct TokenizerSpec spec;
    struct Tokenizer *t = NULL;
    struct Error e = {0};
    int status = 2;
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: tokenizer_check TOKENIZER.json [TEXT]\n");
        return 2;
    }
    if (!tokenizer_parse(&spec, argv[1], &e) && !tokenizer_open_spec(&t, &spec, &e))
        status = argc == 3 ? measure(t, argv[2], &e) : compare(t, &e);
    if (*e.text)
        fprintf(stderr, "tokenizer_check: %s\n", e.text);
    tokenizer_close(t);
    return status;
}
