// Token shards of 32 bits: llm.c's and llmq's are read, the latter written byte for byte as its
// loader reads them; masks and documents come back as they were given; and every header that lies
// is refused.
#include "data/text/pack.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "tests/lib/token_file.h"

#include <errno.h>

enum { VOCAB = 200000, COUNT = 70001 };

static int32_t id_at(size_t i) {
    return (int32_t)(i * 2654435761u % VOCAB);
}

static char *write_bytes(const char *folder, const void *header, size_t header_bytes,
                         const void *rest, size_t rest_bytes) {
    char *bytes = base_alloc_zeroed(TOKENS_HEADER_BYTES + rest_bytes);
    memcpy(bytes, header, header_bytes);
    memcpy(bytes + TOKENS_HEADER_BYTES, rest, rest_bytes);
    char *path = scratch_write(folder, "a.bin", bytes, TOKENS_HEADER_BYTES + rest_bytes);
    free(bytes);
    return path;
}

static void expect_ids(struct TokenFile *f, const int32_t *want, size_t n) {
    struct Error e;
    int32_t *got = base_alloc(n * sizeof *got);
    assert_ok(token_file_read(f, 0, n, got, &e), &e);
    assert_memory_equal(got, want, n * sizeof *got);
    free(got);
}

TEST(llm_c_s_wide_shards_are_read) {
    char *folder = *state;
    const int32_t header[3] = {20240801, 7, 4}, ids[4] = {0, 128255, 65536, 7};
    char *path = write_bytes(folder, header, sizeof header, ids, sizeof ids);
    struct TokenFile f;
    struct Error e;
    assert_true(token_file_detect(path));
    assert_ok(token_file_open(&f, path, 128256, &e), &e);
    assert_int_equal(f.count, 4);
    assert_false(f.layout.masked || f.layout.has_documents);
    expect_ids(&f, ids, 4);
    token_file_close(&f);
    assert_error(token_file_open(&f, path, 128255, &e), -EINVAL, &e, "E_SHARD_VOCAB id 128255");
    const int32_t negative = -1; // an id past every vocabulary
    free(path);
    path = write_bytes(folder, (int32_t[]){20240801, 7, 1}, 12, &negative, sizeof negative);
    assert_error(token_file_open(&f, path, TOKENS_VOCAB_MAX, &e), -EINVAL, &e,
                 "E_SHARD_VOCAB id 4294967295");
    free(path);
}

// As scripts/tokenize_data.py makes them: a header full of stars, and the mask's last byte padded.
TEST(llmq_s_shards_are_read) {
    char *folder = *state, header[TOKENS_HEADER_BYTES], rest[46] = {0};
    const int32_t fields[5] = {2, 4, 11, 151936, 1};
    memset(header, '*', sizeof header);
    header[sizeof header - 1] = '\n';
    memcpy(header, "BIN.TOK\n", 8);
    memcpy(header + 8, fields, sizeof fields);
    for (int32_t i = 0; i < 11; i++)
        memcpy(rest + 4 * i, &(int32_t){151000 + i}, 4);
    rest[44] = 0x0c; // places 2, 3 and 10
    rest[45] = 0x04;
    char *path = write_bytes(folder, header, sizeof header, rest, sizeof rest);
    struct TokenFile f;
    struct Error e;
    uint8_t bits[9];
    assert_true(token_file_detect(path));
    assert_ok(token_file_open(&f, path, 151936, &e), &e);
    assert_true(f.layout.masked);
    assert_false(f.layout.has_documents);
    assert_ok(token_file_read_bits(&f, TOKEN_COUNTS, 2, 9, bits, &e), &e);
    assert_memory_equal(bits, "\1\1\0\0\0\0\0\0\1", 9);
    token_file_close(&f);
    free(path);
}

TEST(the_bytes_are_llmq_s) {
    char *folder = *state, *path = base_format("%s/a.bin", folder);
    struct TokenWriter w;
    struct Error e;
    assert_ok(token_writer_open(&w, path, 151936, true, &e), &e);
    assert_ok(token_writer_document(&w, (int32_t[]){70000, 1, 2}, (uint8_t[]){1, 0, 1}, 3, &e), &e);
    assert_ok(token_writer_document(&w, (int32_t[]){151935, 3}, NULL, 2, &e), &e);
    assert_ok(token_writer_finish(&w, &e), &e);
    unsigned char want[1046] = "BIN.TOK\n\2\0\0\0\4\0\0\0\5\0\0\0\x80\x51\2\0\1\0\0\0DOCSTART";
    unsigned char got[2000];
    const int32_t ids[5] = {70000, 1, 2, 151935, 3};
    memcpy(want + 1024, ids, sizeof ids);
    want[1044] = 0x0a; // the targets at place 1, id 2, and at place 3, id 3
    want[1045] = 0x09;
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(got, 1, sizeof got, f), 1046);
    fclose(f);
    assert_memory_equal(got, want, 1046);
    free(path);
}

TEST(documents_come_back) {
    char *folder = *state, *path = base_format("%s/a.bin", folder);
    struct TokenWriter w;
    struct TokenFile f;
    struct Error e;
    int32_t *ids = base_alloc(COUNT * sizeof *ids);
    uint8_t *counts = base_alloc(3 * COUNT), *starts = counts + COUNT, *got = starts + COUNT;
    for (size_t i = 0; i < COUNT; i++)
        ids[i] = id_at(i), counts[i] = i * 7 % 3 == 0, starts[i] = 0;
    assert_ok(token_writer_open(&w, path, VOCAB, true, &e), &e);
    size_t documents = 0;
    for (size_t at = 0, n = 1; at < COUNT; at += n, n = n % 613 + 1, documents++) {
        n = size_min(n, COUNT - at);
        starts[at] = 1;
        assert_ok(token_writer_document(&w, ids + at, counts + at, n, &e), &e);
    }
    assert_ok(token_writer_finish(&w, &e), &e);
    assert_ok(token_file_open(&f, path, VOCAB, &e), &e);
    expect_ids(&f, ids, COUNT);
    assert_ok(token_file_read_bits(&f, TOKEN_STARTS, 0, COUNT, got, &e), &e);
    assert_memory_equal(got, starts, COUNT);
    assert_ok(token_file_read_bits(&f, TOKEN_COUNTS, 0, COUNT, got, &e), &e);
    for (size_t i = 0; i + 1 < COUNT; i++)
        assert_int_equal(got[i], counts[i + 1] && !starts[i + 1]);
    static const size_t places[][2] = {{1, 9}, {7, 1}, {32767, 40}, {COUNT - 3, 3}};
    for (size_t k = 0; k < 4; k++) {
        assert_ok(token_file_read_bits(&f, TOKEN_STARTS, places[k][0], places[k][1], got, &e), &e);
        assert_memory_equal(got, starts + places[k][0], places[k][1]);
    }
    size_t at;
    assert_ok(pack_seek(&f, SIZE_MAX, &at, &e), &e);
    assert_int_equal(at, documents);
    token_file_close(&f);
    free(counts);
    free(ids);
    free(path);
}

static void expect_refusal(const int32_t fields[5], const char *documents, size_t bytes,
                           const char *part) {
    char *folder = scratch_make(), header[36] = "BIN.TOK\n", rest[100] = {0};
    memcpy(header + 8, fields, 5 * sizeof *fields);
    memcpy(header + 28, documents, 8);
    char *path = write_bytes(folder, header, sizeof header, rest, bytes);
    struct TokenFile f;
    struct Error e;
    assert_error(token_file_open(&f, path, 100, &e), -EINVAL, &e, part);
    assert_non_null(strstr(e.text, path));
    assert_null(f.path);
    free(path);
    scratch_remove(folder);
}

TEST(headers_that_lie_are_refused) {
    static const char none[8], some[] = "DOCSTART";
    expect_refusal((int32_t[]){1, 4, 10, 100, 0}, none, 40, "E_SHARD_HEADER version 1");
    expect_refusal((int32_t[]){2, 2, 10, 100, 0}, none, 20, "E_SHARD_HEADER id: 2");
    expect_refusal((int32_t[]){2, 4, 10, 100, 7}, none, 40, "E_SHARD_HEADER mask: 7");
    expect_refusal((int32_t[]){2, 4, 0, 100, 0}, none, 0, "E_SHARD_HEADER says 0");
    expect_refusal((int32_t[]){2, 4, -1, 100, 1}, none, 0, "E_SHARD_HEADER -1");
    expect_refusal((int32_t[]){2, 4, 10, 100, 0}, none, 41, "E_SHARD_SIZE");
    expect_refusal((int32_t[]){2, 4, 10, 100, 1}, none, 40, "E_SHARD_SIZE");
    expect_refusal((int32_t[]){2, 4, 10, 100, 1}, some, 42, "E_SHARD_SIZE");
    expect_refusal((int32_t[]){2, 4, 10, 100, 0}, some, 44, "E_SHARD_SIZE");
    expect_refusal((int32_t[]){2, 4, INT32_MAX, 100, 1}, some, 44, "E_SHARD_SIZE");
}

// What is accepted, but begins no document.
TEST(the_first_id_begins_a_document) {
    char *folder = *state, rest[44] = {0};
    const int32_t fields[5] = {2, 4, 10, 100, 1};
    char header[36] = "BIN.TOK\n";
    memcpy(header + 8, fields, sizeof fields);
    memcpy(header + 28, "DOCSTART", 8);
    rest[42] = 2; // place 1
    char *path = write_bytes(folder, header, sizeof header, rest, sizeof rest);
    struct TokenFile f;
    struct Pack p = {0};
    struct PackLoss loss = {0};
    struct Error e;
    assert_ok(token_file_open(&f, path, 100, &e), &e);
    assert_error(pack_find(&p, &f, 0, 10, 4, &loss, &e), -EINVAL, &e, "E_SHARD_DOCUMENT token 0");
    token_file_close(&f);
    pack_free(&p);
    free(path);
}

AROUND_EACH(scratch_set_up, scratch_tear_down);
