// Fuzzes the reader of token shards: any bytes are a good shard or get one line of complaint, and
// what is accepted keeps every promise that training relies on, its documents packed into sequences
// too. Built and run by scripts/dev/fuzz.sh.
#include "data/text/pack.h"
#include "tests/lib/token_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { VOCAB = 50257, SEQ_LEN = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room); // libFuzzer's own

// Each target that counts is in exactly one sequence, but for those that are said to be lost.
static void check_documents(struct TokenFile *f, bool together) {
    struct Pack p = {0};
    struct PackLoss loss = {0};
    struct Error e = {0};
    int32_t x[SEQ_LEN], y[SEQ_LEN], starts[SEQ_LEN];
    if (pack_find(&p, f, 0, f->count, SEQ_LEN, &loss, &e)) {
        CHECK(e.id == E_SHARD_DOCUMENT, "%s", e.text);
        pack_free(&p);
        return;
    }
    pack_make(&p, SEQ_LEN, together);
    uint64_t places = 0;
    for (size_t w = 0; w < p.windows; w++) {
        uint64_t counted = 0;
        CHECK(!pack_read(&p, f, w, SEQ_LEN, &(struct Batch){x, y, starts}, &e), "%s", e.text);
        for (int32_t t = 0; t < SEQ_LEN; t++) {
            CHECK(x[t] >= 0 && x[t] < VOCAB && y[t] >= UNCOUNTED && y[t] < VOCAB, "%d %d", x[t],
                  y[t]);
            CHECK(starts[t] >= (t ? starts[t - 1] : 0) && starts[t] <= t, "start %d", starts[t]);
            counted += y[t] != UNCOUNTED;
        }
        CHECK(counted == pack_counted(&p, w) && counted, "sequence %zu", w);
        places += pack_filled(&p, w);
    }
    CHECK(places < f->count && p.count + loss.empty == loss.documents, "%zu pieces", p.count);
    pack_free(&p);
}

static void check_bits(struct TokenFile *f) {
    struct Error e = {0};
    uint8_t *bits = base_alloc(f->count);
    for (int b = 0; b < 2; b++)
        if (b == TOKEN_COUNTS ? f->layout.masked : f->layout.has_documents)
            CHECK(!token_file_read_bits(f, b, 0, f->count, bits, &e), "%s", e.text);
    free(bits);
    if (f->layout.has_documents) {
        check_documents(f, false);
        check_documents(f, true);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int fd = memfd_create("shard", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size, "memfd");
    char *path = base_format("/proc/self/fd/%d", fd);
    struct TokenFile f;
    struct Error e = {0};
    int code = token_file_open(&f, path, VOCAB, &e);
    if (code) {
        CHECK(e.text[0] && !f.path, "a refusal without a word, or half open");
    } else {
        size_t count = f.count;
        CHECK(count > 0, "no tokens");
        CHECK(size == token_layout_bytes(&f.layout), "%zu bytes, %zu tokens", size, count);
        int32_t *ids = base_alloc(count * sizeof *ids);
        CHECK(!token_file_read(&f, 0, count, ids, &e), "%s", e.text);
        for (size_t i = 0; i < count; i++)
            CHECK(ids[i] >= 0 && ids[i] < VOCAB, "id %d", ids[i]);
        free(ids);
        check_bits(&f);
        token_file_close(&f);
    }
    close(fd);
    free(path);
    return 0;
}

// Blind mutation would hardly ever find the header: often start from, or repair, a good one, of any
// format.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    size = LLVMFuzzerMutate(data, size, room);
    unsigned format = seed / 3 % 5, fill = seed / 15 % 64;
    if (seed % 3 == 0 || room < TOKENS_HEADER_BYTES + 512)
        return size;
    if (size <= TOKENS_HEADER_BYTES || (format > 2 && seed % 2)) {
        memset(data + size, 0, size < TOKENS_HEADER_BYTES ? TOKENS_HEADER_BYTES - size : 0);
        size = TOKENS_HEADER_BYTES;
    }
    struct TokenLayout l = {
        .id_bytes = format ? 4 : 2, .masked = format > 2, .has_documents = format > 3};
    size_t bits = 2 * (size_t)(l.masked + l.has_documents), have = size - TOKENS_HEADER_BYTES;
    l.count = have ? have * 8 / (8 * l.id_bytes + bits / 2) : fill + 1;
    size_t want = size_min((size_t)token_layout_bytes(&l), room);
    if (want > size)
        memset(data + size, 0, want - size);
    int32_t narrow[3] = {format ? 20240801 : 20240520, format ? 7 : 1, (int32_t)l.count};
    int32_t fields[5] = {2, 4, (int32_t)l.count, VOCAB, l.masked};
    memcpy(data, format < 2 ? (const void *)narrow : "BIN.TOK\n", 8);
    if (format < 2 && seed % 3 == 1) // else the count is left to chance
        memcpy(data, narrow, sizeof narrow);
    if (format >= 2)
        memcpy(data + 8, fields, sizeof fields);
    if (l.has_documents)
        memcpy(data + 28, "DOCSTART", 8);
    if (l.has_documents && want > TOKENS_HEADER_BYTES + 4 * l.count + (l.count + 7) / 8)
        data[TOKENS_HEADER_BYTES + 4 * l.count + (l.count + 7) / 8] |= 1;
    return want;
}
