// Fuzzes the readers of HellaSwag's files: any bytes are refused with one line that names the line
// or the item, or are items of which every sequence fits the model, and the vocabulary, and has
// something before what is judged. Built and run by scripts/dev/fuzz.sh.
#include "data/eval/hellaswag.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room); // libFuzzer's own

enum { VOCAB = 256, SEQ_LEN = 40 };

static void look_at(const struct EvalItems *items) {
    CHECK(items->count > 0, "no items and no word of it");
    CHECK(items->list[EVAL_LM_EVAL].count + items->list[EVAL_LLMC].count, "no protocol");
    for (int p = 0; p < NEVALPROTOCOL; p++) {
        const struct EvalList *l = &items->list[p];
        double *scores = base_alloc_zeroed((l->count + 1) * sizeof *scores);
        for (size_t i = 0; i < l->count; i++) {
            const struct Sequence *q = &l->sequence[i];
            CHECK(q->from >= 1 && q->from < q->count && q->count <= SEQ_LEN + 1,
                  "tokens %zu to %zu", q->from, q->count);
            for (size_t k = 0; k < q->count; k++)
                CHECK(q->ids[k] >= 0 && q->ids[k] < VOCAB, "id %d", q->ids[k]);
            scores[i] = -(double)q->ids[0];
        }
        for (enum EvalMeasure m = 0; m < NEVALMEASURE; m++) {
            double share = (int)items_protocol(m) == p ? items_accuracy(items, m, scores) : 0;
            CHECK(share <= 1 && (share >= 0) == (share == 0 || l->count > 0), "share %g", share);
        }
        free(scores);
    }
}

static void parse(const struct Tokenizer *t, const char *bytes, size_t size) {
    struct EvalSpec spec = {t, VOCAB, SEQ_LEN, 0};
    struct EvalItems items = {0};
    struct Error e = {0};
    if (hellaswag_parse(&items, &spec, "x", bytes, size, &e))
        CHECK(strncmp(e.text, "x: ", 3) == 0 && !strchr(e.text, '\n'), "a refusal: %s", e.text);
    else
        look_at(&items);
    items_free(&items);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct Tokenizer *byte, *ids;
    char *bytes = base_alloc(size + 1);
    log_level = LOG_QUIET;
    if (size)
        memcpy(bytes, data, size);
    bytes[size] = 0;
    tokenizer_open_byte(&byte);
    tokenizer_open_ids(&ids, VOCAB);
    parse(byte, bytes, size);
    parse(ids, bytes, size);
    tokenizer_close(byte);
    tokenizer_close(ids);
    free(bytes);
    return 0;
}

// ---- inputs that are nearly right ----

static unsigned draw(unsigned *seed, unsigned n) {
    *seed = *seed * 1664525 + 1013904223;
    return (*seed >> 8) % n;
}

static size_t good_bin(uint8_t *data, size_t room, unsigned seed) {
    uint16_t words[400];
    int32_t header[256] = {20240522, 1, (int32_t)(1 + draw(&seed, 3)), 100};
    size_t n = 0;
    for (int32_t i = 0; i < header[2]; i++) {
        size_t begin = n;
        uint16_t choices = (uint16_t)(2 + draw(&seed, 3));
        const uint16_t head[] = {65535, 0, (uint16_t)i, (uint16_t)draw(&seed, choices), choices};
        memcpy(words + n, head, sizeof head);
        n += sizeof head / sizeof head[0];
        for (int c = 0; c <= choices; c++) {
            uint16_t count = (uint16_t)(1 + draw(&seed, 8));
            words[n++] = count;
            for (int k = 0; k < count; k++)
                words[n++] = (uint16_t)draw(&seed, VOCAB);
        }
        words[begin + 1] = (uint16_t)(2 * (n - begin));
    }
    if (draw(&seed, 2))
        words[draw(&seed, (unsigned)n)] = (uint16_t)draw(&seed, 70000);
    if (draw(&seed, 8) == 0)
        header[1 + draw(&seed, 3)] = (int32_t)seed;
    if (sizeof header + 2 * n > room)
        return 0;
    memcpy(data, header, sizeof header);
    memcpy(data + sizeof header, words, 2 * n);
    return sizeof header + 2 * n - (draw(&seed, 8) == 0);
}

// A JSON string of pieces that the clean-up looks for.
static void put_text(char *out, unsigned *seed) {
    static const char *const piece[] = {
        "a",       "Be",       "[",  "]",    " [title]",       "  ", "\\n", "\\u00c9",
        "\\u0000", "\xc3\x9f", "\\", "\xce", "\\ud83d\\ude00", " "};
    unsigned n = draw(seed, 5);
    strcat(out, "\"");
    for (unsigned i = 0; i < n; i++)
        strcat(out, piece[draw(seed, draw(seed, 4) ? 8 : 14)]);
    strcat(out, "\"");
}

static size_t good_line(uint8_t *data, size_t room, unsigned seed) {
    static const char *const key[] = {"activity_label", "ctx", "ctx_a", "ctx_b"};
    char line[2048] = "{", number[32];
    unsigned endings = 1 + draw(&seed, 4);
    for (int i = 0; i < 4; i++) {
        strcat(line, "\"");
        strcat(line, key[draw(&seed, 20) ? i : 0]);
        strcat(line, "\":");
        put_text(line, &seed);
        strcat(line, ",");
    }
    strcat(line, "\"endings\":[");
    for (unsigned i = 0; i < endings; i++) {
        strcat(line, i ? "," : "");
        put_text(line, &seed);
    }
    snprintf(number, sizeof number, draw(&seed, 2) ? "],\"label\":%u}\n" : "],\"label\":\"%u\"}\n",
             draw(&seed, 3));
    strcat(line, number);
    size_t n = strlen(line);
    if (n > room)
        return 0;
    memcpy(data, line, n);
    return n;
}

// Blind mutation would seldom make a whole item.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    unsigned kind = seed % 4;
    size_t made = kind == 0  ? good_bin(data, room, seed)
                  : kind < 3 ? good_line(data, room, seed)
                             : 0;
    return made && kind < 2 ? made : LLVMFuzzerMutate(data, made ? made : size, room);
}
