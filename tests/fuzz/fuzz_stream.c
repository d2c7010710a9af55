// Fuzzes the reader of packed files: whatever is in one, it is read in pieces of any length to the
// same text or the same refusal, and what the libraries packed comes back. Built and run by
// scripts/dev/fuzz.sh.
#include "data/stream.h"
#include "tests/fuzz/memory_folder.h"

#include <zlib.h>
#include <zstd.h>

enum { READ_MAX = 1 << 20 }; // a small file may unpack to gigabytes

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);

// Appends a stream of this text, packed, if there is room. Returns how long all is.
static size_t add_stream(uint8_t *out, size_t n, size_t max, const uint8_t *text, size_t bytes,
                         bool zstd, int level) {
    if (zstd) {
        size_t said = ZSTD_compress(out + n, max - n, text, bytes, level);
        return ZSTD_isError(said) ? n : n + said;
    }
    z_stream z = {.next_in = (Bytef *)(uintptr_t)text,
                  .avail_in = (uInt)bytes,
                  .next_out = out + n,
                  .avail_out = (uInt)(max - n)};
    CHECK(deflateInit2(&z, level, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY) == Z_OK, "deflateInit2");
    bool fits = deflate(&z, Z_FINISH) == Z_STREAM_END;
    deflateEnd(&z);
    return fits ? (size_t)(z.next_out - out) : n;
}

// Bytes alone are seldom a stream: half of all inputs get one more, of what they say.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    uint8_t text[64];
    if (seed % 2 || size < 2)
        return LLVMFuzzerMutate(data, size, max);
    size_t bytes = size_min(size, sizeof text), from = seed % 3 ? size : 1;
    memcpy(text, data + size - bytes, bytes);
    return add_stream(data, from, max, text, bytes, data[0] % 2, (int)(seed / 8 % 10));
}

// Reads the file in pieces of so many bytes. Returns how many there were, or the error.
static ssize_t read_file(const char *path, size_t piece, uint8_t *text, struct Error *e) {
    struct DataStream s;
    ssize_t got = stream_open(&s, path, "--data", e);
    size_t bytes = 0;
    for (bool more = !got; more; bytes += got > 0 ? (size_t)got : 0) {
        size_t wanted = size_min(piece, READ_MAX - bytes);
        got = stream_read(&s, text + bytes, wanted, e);
        CHECK(got <= (ssize_t)wanted, "%zd of %zu bytes", got, wanted);
        more = wanted && got == (ssize_t)wanted;
    }
    stream_close(&s);
    return got < 0 ? got : (ssize_t)bytes;
}

static void check_packed(const char *path, const uint8_t *data, size_t size, bool zstd, int level) {
    static uint8_t packed[1 << 16], text[READ_MAX];
    struct Error e;
    size_t half = size / 2, n = add_stream(packed, 0, sizeof packed, data, half, zstd, level);
    n = add_stream(packed, n, sizeof packed, data + half, size - half, zstd, level);
    memory_file_write(path, packed, n);
    ssize_t got = read_file(path, 1000, text, &e);
    CHECK(got == (ssize_t)size && !memcmp(text, data, size), "%zu bytes came back as %zd: %s", size,
          got, e.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t text[READ_MAX], again[READ_MAX];
    static char path[2][96];
    if (!path[0][0]) {
        snprintf(path[0], sizeof path[0], "%s/x.gz", memory_folder_open());
        snprintf(path[1], sizeof path[1], "%s/x.zst", memory_folder_open());
    }
    bool zstd = size && data[0] % 2;
    size_t piece = size ? 1 + (size_t)data[0] / 2 * 13 : 1;
    const char *file = path[zstd];
    struct Error e = {0}, e2 = {0};
    memory_file_write(file, size ? data + 1 : data, size - (size > 0));
    ssize_t got = read_file(file, READ_MAX, text, &e);
    ssize_t got2 = got < 0 || got < 20000 ? read_file(file, piece, again, &e2) : got;
    // zstd finds another byte where a whole frame and room for its text are there at once.
    bool same = got == got2 && (zstd || !strcmp(e.text, e2.text));
    CHECK(same, "%zd: %s, in pieces of %zu %zd: %s", got, e.text, piece, got2, e2.text);
    CHECK(got < 0 || got >= 20000 || !memcmp(text, again, (size_t)got), "another text");
    CHECK(got >= 0 || strstr(e.text, ": byte "), "no byte: %s", e.text);
    if (size)
        check_packed(file, data, size, zstd, data[0] / 2 % 10);
    return 0;
}
