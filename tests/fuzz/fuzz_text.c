// Fuzzes what text goes through: the check for UTF-8 against a decoder written the other way round,
// the split, and a SentencePiece model, which must give every text back. Built and run by
// scripts/dev/fuzz.sh.
#include "data/text/spm.h"
#include "data/text/text.h"
#include "kernels/base.h"

#include <stdlib.h>
#include <string.h>

static struct Spm *model; // opened once: training it takes longer than a thousand inputs

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    const char *word =
        "to be or not to be, that is the question:  \xc3\xa9t\xc3\xa9 \xe2\x82\xac\n";
    size_t n = strlen(word), bytes;
    char *text = base_alloc(20 * n), *trained;
    struct Error e;
    for (size_t i = 0; i < 20; i++)
        memcpy(text + i * n, word, n);
    int code = spm_train(text, 20 * n, 310, &trained, &bytes, &e);
    CHECK(!code, "%s", e.text);
    code = spm_open(&model, trained, bytes, "trained", &e);
    CHECK(!code, "%s", e.text);
    free(text);
    free(trained);
    return 0;
}

// Writes character c as UTF-8 in its shortest form.
static size_t encode_character(uint32_t c, uint8_t *out) {
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)(n == 1 ? c : (0xf00u >> n & 0xf0u) | c);
    return n;
}

// Is there a character whose encoding these bytes begin with? Takes the bytes apart without a
// doubt, and asks whether putting them together gives the same again.
static size_t character_at(const uint8_t *p, size_t left) {
    uint32_t c = p[0];
    size_t n = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    uint8_t again[4];
    if (n > left)
        return 0;
    if (n > 1)
        c &= 0x7fu >> n;
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (p[i] & 0x3f);
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000) || encode_character(c, again) != n)
        return 0;
    return memcmp(again, p, n) ? 0 : n;
}

static void check_model(const char *text, size_t bytes) {
    struct Ids ids = {0};
    struct Error e;
    int code = spm_encode(model, text, bytes, true, &ids, &e);
    CHECK(!code, "%s", e.text);
    size_t at = 0, n;
    for (size_t i = 0; i < ids.count; i++) {
        const char *piece = spm_piece(model, (size_t)ids.data[i], &n);
        CHECK(at + n <= bytes && !memcmp(text + at, piece, n), "id %zu is not the text's", i);
        at += n;
    }
    CHECK(at == bytes, "%zu of %zu bytes came back", at, bytes);
    ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t valid = 0, n, at = text_find_invalid((const char *)data, size);
    while (valid < size && (n = character_at(data + valid, size - valid)))
        valid += n;
    CHECK(at == valid, "text_find_invalid says %zu, the decoder %zu of %zu", at, valid, size);
    size_t split = text_split((const char *)data, valid);
    CHECK(split <= valid && text_find_invalid((const char *)data, split) == split,
          "a split inside a character: %zu of %zu", split, valid);
    check_model((const char *)data, valid);
    return 0;
}
