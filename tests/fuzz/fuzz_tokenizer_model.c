// Fuzzes the opening of .model files: damaged ones are refused with one line, and what is accepted
// encodes and decodes without harm. Built and run by scripts/dev/fuzz.sh.
#include "data/text/spm.h"
#include "kernels/base.h"

#include <stdlib.h>
#include <string.h>

// A good model to damage, trained once.
static char *good;
static size_t good_bytes;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room); // libFuzzer's own

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    const char *text = "to be or not to be\nto be or not to be\nthat is the question\n";
    char *model;
    size_t bytes;
    struct Error e;
    int code = spm_train(text, strlen(text), 285, &model, &bytes, &e);
    CHECK(!code, "%s", e.text);
    // With a table of replacements behind it, as models from elsewhere have: a normalizer (field 3)
    // that holds a table (field 2) of 1024 bytes of trie and the replacements "" and "x".
    enum { TABLE = 4 + 1024 + 3 };
    const uint8_t head[10] = {0x1a,
                              0x80 | ((TABLE + 3) & 0x7f),
                              (TABLE + 3) >> 7,
                              0x12,
                              0x80 | (TABLE & 0x7f),
                              TABLE >> 7,
                              0x00,
                              0x04}; // and the trie's 1024 in little-endian order
    good_bytes = bytes + 6 + TABLE;
    good = base_alloc_zeroed(good_bytes);
    memcpy(good, model, bytes);
    memcpy(good + bytes, head, sizeof head);
    good[good_bytes - 2] = 'x';
    free(model);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char text[] = "to be, \xe2\x96\x81 or\n\n  not <s> \xf0\x9f\x98\x80 question";
    struct Spm *s;
    struct Error e = {0};
    struct Ids ids = {0};
    int code = spm_open(&s, (const char *)data, size, "fuzz.model", &e);
    CHECK((code == 0) == (s != NULL) && (code == 0) == (e.text[0] == 0), "code %d: %s", code,
          e.text);
    if (code)
        return 0;
    if (!spm_encode(s, text, sizeof text - 1, true, &ids, &e))
        for (size_t i = 0, n; i < ids.count; i++) {
            CHECK((size_t)ids.data[i] < spm_vocab(s), "id %d", ids.data[i]);
            spm_piece(s, (size_t)ids.data[i], &n);
        }
    ids_free(&ids);
    spm_close(s);
    return 0;
}

// Now and then back to the good model: most damage lies a few steps from it.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    if ((size < 100 || seed % 8 == 0) && room >= good_bytes) {
        memcpy(data, good, good_bytes);
        size = good_bytes;
    }
    for (unsigned i = 0; i <= seed / 8 % 4; i++)
        size = LLVMFuzzerMutate(data, size, room);
    return size;
}
