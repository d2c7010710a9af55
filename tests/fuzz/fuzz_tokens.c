// Fuzzes the reader of token shards: any bytes are a good shard or get one line of complaint, and
// what is accepted keeps every promise that training relies on. Built and run by scripts/fuzz.sh.
#include "data/text/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { VOCAB = 50257 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room); // libFuzzer's own

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int fd = memfd_create("shard", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size, "memfd");
    char *path = base_format("/proc/self/fd/%d", fd);
    struct TokenFile f;
    struct Error e = {0};
    size_t count = 0;
    int counted = token_file_count(path, &count, &e);
    int code = token_file_open(&f, path, VOCAB, &e);
    if (code) {
        CHECK(e.text[0] && !f.path, "a refusal without a word, or half open");
    } else {
        CHECK(!counted && count == f.count && count > 0, "%zu and %zu tokens", count, f.count);
        CHECK(size == TOKENS_HEADER_BYTES + 2 * count, "%zu bytes, %zu tokens", size, count);
        int32_t *ids = base_alloc(count * sizeof *ids);
        CHECK(!token_file_read(&f, 0, count, ids, &e), "%s", e.text);
        for (size_t i = 0; i < count; i++)
            CHECK(ids[i] >= 0 && ids[i] < VOCAB, "id %d", ids[i]);
        free(ids);
        token_file_close(&f);
    }
    close(fd);
    free(path);
    return 0;
}

// Blind mutation would hardly ever find the header: often start from, or repair, a good one.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    size = LLVMFuzzerMutate(data, size, room);
    if (seed % 3 == 0 || room < TOKENS_HEADER_BYTES + 64)
        return size;
    if (size <= TOKENS_HEADER_BYTES) {
        size = TOKENS_HEADER_BYTES + 2 + seed / 3 % 31 * 2;
        memset(data, 0, size);
    }
    int32_t header[3] = {20240520, 1, (int32_t)((size - TOKENS_HEADER_BYTES) / 2)};
    memcpy(data, header, seed % 3 == 1 ? 12 : 8); // of the second kind, the count is left to chance
    return size;
}
