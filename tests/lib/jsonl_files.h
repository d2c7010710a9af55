// JSONL for the tests of data: made examples of chat-like lengths, and what is expected of them.
#ifndef TESTS_LIB_JSONL_FILES_H
#define TESTS_LIB_JSONL_FILES_H
#include "data/text/data.h"
#include "kernels/dtype.h"
#include "tests/lib/scratch.h"

#include <math.h>

// Lengths of answers and questions spread like those of chats: log-normal, most of them short.
static inline size_t chat_length(uint64_t seed, uint64_t i, double median) {
    double a = (double)(rng_bits(seed, 2 * i) >> 11) * 0x1p-53 + 0x1p-54;
    double b = (double)(rng_bits(seed, 2 * i + 1) >> 11) * 0x1p-53;
    return (size_t)(median * exp(0.8 * sqrt(-2 * log(a)) * cos(2 * M_PI * b))) + 1;
}

// FOLDER/NAME of n examples, each of whose bytes says which one it is: a question of letters, an
// answer of the same letter in capitals. free() it.
static inline char *write_jsonl(const char *folder, const char *name, uint64_t seed, size_t n,
                                double median) {
    char *path = base_format("%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++) {
        int letter = 'a' + (int)(i % 26);
        fputs("{\"prompt\": \"", f);
        for (size_t k = chat_length(seed, 2 * i, median / 2); k; k--)
            fputc(letter, f);
        fputs("\", \"completion\": \"", f);
        for (size_t k = chat_length(seed, 2 * i + 1, median); k; k--)
            fputc(letter - 'a' + 'A', f);
        fputs("\"}\n", f);
    }
    assert_int_equal(fclose(f), 0);
    return path;
}

#endif
