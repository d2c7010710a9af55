// Fuzzes tokenizer.json and the texts that it encodes: a damaged one is refused with one line, and
// what is accepted gives ids that exist, which stand for the text again where nothing of it is
// normalized, stripped or without a piece, and which no cut changes. Built and run by
// scripts/dev/fuzz.sh.
//
// The input: a tokenizer.json; behind a line "text", what it encodes, else the input itself.
#include "data/bpe/read.h"
#include "data/text/text.h"
#include "tests/fuzz/memory_folder.h"

#include <errno.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room); // libFuzzer's own

enum { PATTERN = NSPLIT, MARKS, KINDS, GOOD_MAX = 8192 };
static char good[KINDS][GOOD_MAX];

// A small tokenizer.json of a pattern, with the letters of all bytes and some merges.
static void make_good(char *out, const char *normalizer, const char *pre, const char *more) {
    size_t n = (size_t)sprintf(out, "{\"normalizer\":%s,\"pre_tokenizer\":%s,%s", normalizer, pre,
                               "\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int byte = 0, next = 256, id = 0; byte < 256; byte++, id++) {
        bool printed = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        int c = printed ? byte : next++;
        const char *slash = c == '"' || c == '\\' ? "\\" : "";
        char letter[3] = {(char)c, 0, 0};
        if (c >= 0x80)
            letter[0] = (char)(0xc0 | c >> 6), letter[1] = (char)(0x80 | (c & 0x3f));
        n += (size_t)sprintf(out + n, "\"%s%s\":%d,", slash, letter, id);
    }
    sprintf(out + n,
            "\"ab\":256,\"abc\":257,\"bc\":258,\"\xc4\xa0"
            "a\":259,\"aa\":260},\"merges\":[\"a b\",[\"ab\","
            "\"c\"],\"b c\",\"a bc\",\"\xc4\xa0 a\",\"a a\"]%s}",
            more);
}

// One whose pre-tokenizers are of every kind, and one whose words are characters.
static void make_patterns(const char *without) {
    static const char steps[] =
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
        "\"[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}&&[^\\\\p{Han}\\\\x{e0}]]*(?i:'s|'ll)?\\\\p{L}++"
        "|"
        "\\\\p{N}{1,3}| "
        "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s+(?!\\\\S)|(?<!x)\\\\b\\\\w\"},"
        "\"behavior\":\"MergedWithNext\",\"invert\":true},{\"type\":\"Split\",\"pattern\":"
        "{\"String\":\"b\"},\"behavior\":\"MergedWithPrevious\"},{\"type\":\"Punctuation\","
        "\"behavior\":\"Contiguous\"},{\"type\":\"Digits\",\"individual_digits\":false},"
        "{\"type\":\"WhitespaceSplit\"},{\"type\":\"Whitespace\"},%s]}";
    static const char marks[] =
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"
        "\"_\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]},"
        "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":"
        "\"first\",\"split\":true},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
        "\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
        "{\"type\":\"Fuse\"}]},\"added_tokens\":[{\"id\":8,\"content\":\"<s>\",\"special\":true,"
        "\"normalized\":true}],\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":true,"
        "\"byte_fallback\":true,\"vocab\":{\"?\":0,\"<0x0A>\":1,\"<0xC3>\":2,\"<0xA9>\":3,\"_\":4,"
        "\"a\":5,\"_a\":6,\"__\":7},\"merges\":[\"_ a\",\"_ _\"]}}";
    char *pre = base_format(steps, without);
    make_good(good[PATTERN], "null", pre, "}");
    snprintf(good[MARKS], GOOD_MAX, "%s", marks);
    free(pre);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    static const char level[] =
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":%s}";
    static const char split[] = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
                                "\"pattern\":{\"Regex\":\"%s\"},"
                                "\"behavior\":\"Isolated\",\"invert\":false},%s]}";
    static const char tokens[] =
        "},\"added_tokens\":[{\"id\":261,\"content\":\"<s>\",\"special\":true},{\"id\":262,"
        "\"content\":\"<m>\",\"lstrip\":true,\"rstrip\":true,\"normalized\":true}]";
    char *with = base_format(level, "true"), *without = base_format(level, "false");
    make_good(good[0], "null", with, tokens);
    for (int k = SPLIT_LLAMA3; k <= SPLIT_QWEN2; k++) {
        char escaped[512], *to = escaped;
        for (const char *p = split_patterns[k]; *p; p++) {
            if (*p == '\\')
                *to++ = '\\';
            *to++ = *p;
        }
        *to = 0;
        char *pre = base_format(split, escaped, without);
        make_good(good[k], k == SPLIT_QWEN2 ? "{\"type\":\"NFC\"}" : "null", pre,
                  k == SPLIT_QWEN2 ? tokens : ",\"ignore_merges\":true}");
        free(pre);
    }
    char *digits = base_format("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\","
                               "\"individual_digits\":true},%s]}",
                               with);
    make_good(
        good[SPLIT_SMOLLM], "null", digits,
        "},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
        "\"id\":\"a\"}},{\"Sequence\":{}}],\"special_tokens\":{\"a\":{\"ids\":[7]}}}");
    make_patterns(without);
    for (int k = 0; k < KINDS; k++) {
        struct Bpe b;
        struct Error e;
        CHECK(!bpe_parse(&b, good[k], strlen(good[k]), "good.json", &e), "%d: %s", k, e.text);
        bpe_close(&b);
    }
    free(digits);
    free(with);
    free(without);
    return 0;
}

// Does every byte of a text that is not missing come back from the ids?
static bool is_exact(const struct Bpe *b) {
    bool exact = b->byte_level && !b->normal.count;
    for (size_t i = 0; i < b->nadded; i++)
        exact = exact && !b->added[i].lstrip && !b->added[i].rstrip;
    for (size_t i = 0; i < b->steps.count; i++) {
        const struct Step *s = &b->steps.step[i];
        exact = exact && s->behavior != REMOVED && s->kind != STEP_WORDS && s->kind != STEP_PREFIX;
    }
    return exact;
}

// A refusal has appended nothing, and is one line.
static int encode(const struct Bpe *b, struct BpeWork *w, const struct BpeText *t,
                  struct Ids *ids) {
    struct Error e = {0};
    size_t count = ids->count;
    int err = bpe_encode(b, w, t, ids, &e);
    CHECK(!err || ids->count == count, "%d: %zu ids more", err, ids->count - count);
    CHECK(err != -EINVAL || (e.text[0] && !strchr(e.text, '\n')), "a refusal of no line");
    CHECK(!err || err == -EINVAL || (err == -EAGAIN && t->after), "error %d", err);
    return err;
}

static void check_parts(const struct Bpe *b, struct BpeWork *w, const char *text, size_t n,
                        const struct Ids *whole, size_t missing) {
    struct Ids ids = {0};
    size_t cut = bpe_cut(b, text, n, n / 2 + 1);
    struct BpeText first = {.text = text, .n = cut, .after = n - cut};
    struct BpeText second = {.text = text + cut, .n = n - cut, .at = cut, .inside = true};
    bpe_take_missing(w);
    if (cut < n && !encode(b, w, &first, &ids) && !encode(b, w, &second, &ids)) {
        size_t in_parts = bpe_take_missing(w);
        CHECK(in_parts == missing, "%zu bytes lack a piece, %zu in parts", missing, in_parts);
        CHECK(ids.count == whole->count, "%zu ids, %zu in parts", whole->count, ids.count);
        CHECK(!ids.count || !memcmp(ids.data, whole->data, ids.count * sizeof *ids.data),
              "cut at %zu", cut);
    }
    ids_free(&ids);
}

static void check_text(const struct Bpe *b, const char *text, size_t n) {
    struct BpeWork *w = bpe_work_open();
    struct Ids ids = {0};
    size_t at = 0;
    if (!encode(b, w, &(struct BpeText){.text = text, .n = n}, &ids)) {
        size_t missing = bpe_take_missing(w);
        bool exact = is_exact(b) && !missing;
        check_parts(b, w, text, n, &ids, missing);
        for (size_t i = 0; i < ids.count; i++) {
            CHECK(ids.data[i] >= 0 && (size_t)ids.data[i] < b->npiece, "id %d", ids.data[i]);
            const struct BpePiece *p = &b->shown[ids.data[i]];
            CHECK(!exact ||
                      (p->count <= n - at && !memcmp(b->bytes.data + p->at, text + at, p->count)),
                  "the text does not come back");
            at += p->count;
        }
        CHECK(!exact || at == n, "%zu of %zu bytes come back", at, n);
    }
    ids.count = 0;
    encode(b, w, &(struct BpeText){.text = text, .n = n, .plain = true}, &ids);
    for (size_t i = 0; i < ids.count; i++)
        for (size_t k = 0; k < b->nadded; k++)
            CHECK(!b->added[k].special || b->added[k].id != ids.data[i] ||
                      bpe_control(b, b->added[k].name) < 256,
                  "a control token of plain text");
    ids_free(&ids);
    bpe_work_close(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char mark[] = "\ntext\n";
    const uint8_t *split = memmem(data, size, mark, sizeof mark - 1);
    size_t n = split ? (size_t)(split - data) : size;
    char *json = base_format("%.*s", (int)n, (const char *)data);
    const char *text = split ? (const char *)split + sizeof mark - 1 : (const char *)data;
    size_t text_n = split ? size - n - (sizeof mark - 1) : size;
    struct Bpe b;
    struct Error e = {0};
    text_n = text_find_invalid(text, text_n);
    if (bpe_parse(&b, json, strlen(json), "fuzz.json", &e)) {
        CHECK(e.text[0] && !strchr(e.text, '\n'), "a refusal without a word, or of many lines");
        CHECK(!b.piece && !b.merge && !b.added, "half open");
    } else {
        check_text(&b, text, text_n);
        bpe_close(&b);
    }
    free(json);
    return 0;
}

// A good file with a text behind it, the one or the other damaged.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    static const char *const texts[] = {
        "it's   1234 ab\xc3\xa9\n\n  x<s> <m> aaaaabc",
        "\xe1\x84\x80\xe1\x85\xa1 e\xcc\x81\xcc\xa7 \xf0\x9f\x98\x80'S",
        "\xc2\xa0\xc2\xa0 12\xe0\xb9\x97 \r\n\t'\xc5\xbf", "abcabcabc  abc\nabc"};
    const char *file = good[seed % KINDS], *text = texts[seed / 8 % 4];
    size_t n = strlen(file), m = strlen(text) + 6;
    if (n + m + 64 > room || seed / 16 % 8 == 0)
        return LLVMFuzzerMutate(data, size, room);
    memcpy(data, file, n);
    memcpy(data + n, "\ntext\n", 6);
    memcpy(data + n + 6, text, m - 6);
    if (seed / 16 % 2)
        return n + 6 + LLVMFuzzerMutate(data + n + 6, m - 6, room - n - 6);
    for (unsigned i = 0; i <= seed / 128 % 3; i++)
        n = LLVMFuzzerMutate(data, n + (i ? 0 : m), room) - (i ? 0 : 0);
    return n;
}
