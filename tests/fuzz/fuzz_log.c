// Fuzzes what a resume reads of log.jsonl: of any bytes the lines up to a step are kept as they
// are, in their order, and all others are dropped. Built and run by scripts/dev/fuzz.sh.
#include "data/log/log.h"
#include "tests/fuzz/memory_folder.h"

enum { LAST_STEP = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room); // libFuzzer's own
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);

// Whether the lines of `kept` are lines of `all`, in their order.
static bool are_lines_of(const char *kept, size_t kept_bytes, const char *all, size_t bytes) {
    size_t at = 0;
    for (size_t i = 0; i < bytes && at < kept_bytes;) {
        const char *end = memchr(all + i, '\n', bytes - i);
        size_t n = end ? (size_t)(end - all) + 1 - i : bytes - i;
        if (n <= kept_bytes - at && !memcmp(kept + at, all + i, n))
            at += n;
        i += n;
    }
    return at == kept_bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct Appender log;
    struct Error e = {0};
    const char *folder = memory_folder_open();
    char *path = base_format("%s/log.jsonl", folder);
    memory_file_write(path, data, size);
    int code = runlog_open(&log, folder, LAST_STEP, &e);
    CHECK(!code, "%s", e.text);
    CHECK(!appender_close(&log, &e), "%s", e.text);
    size_t kept_bytes, again_bytes;
    char *kept = memory_file_read(path, &kept_bytes, size + 1);
    CHECK(are_lines_of(kept, kept_bytes, (const char *)data, size), "what is kept was not there");
    CHECK(!kept_bytes || kept[kept_bytes - 1] == '\n', "the last line is torn");
    CHECK(!runlog_open(&log, folder, LAST_STEP, &e), "%s", e.text);
    runlog_write_val(&log, LAST_STEP, 1, 0);
    CHECK(!appender_close(&log, &e), "%s", e.text);
    char *again = memory_file_read(path, &again_bytes, size + 100);
    CHECK(again_bytes > kept_bytes && !memcmp(again, kept, kept_bytes), "kept lines are not kept");
    free(kept);
    free(again);
    free(path);
    return 0;
}

// Bytes alone would hardly ever be a line: most inputs are lines, of which some are damaged.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    if (seed % 4 == 0)
        return LLVMFuzzerMutate(data, size, room);
    char text[1024];
    size_t n = 0;
    unsigned draw = seed / 4;
    for (unsigned i = 0; i <= seed / 16 % 8; i++) {
        draw = draw * 1664525u + 1013904223u;
        static const char *const steps[] = {"1", "5", "6", "-1", "5.5", "1e3", "null", "1e400"};
        n += (size_t)snprintf(text + n, sizeof text - n, "{\"step\":%s,\"loss\":%u}%s",
                              steps[draw >> 24 & 7], draw >> 16 & 255, draw >> 28 ? "\n" : "");
    }
    size = size_min(n, room);
    memcpy(data, text, size);
    return seed % 4 == 1 ? size : LLVMFuzzerMutate(data, size, room);
}
