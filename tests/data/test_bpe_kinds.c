// tokenizer.json of other kinds than test_bpe.c has: ids are those of the reference implementation
// (tests/fixtures/bpe/kinds, by scripts/gen/tokenizer_kinds.py), in parts too wherever one is
// taken.
//
// A vocabulary that lacks bytes encodes a text by what it has, and says how many bytes it lacked.
// Expressions that are not read, not compiled or never done are refused with one line.
#include "data/bpe/pattern.h"
#include "data/bpe/read.h"
#include "data/text/tokenizer.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

#include <cjson/cJSON.h>
#include <errno.h>

// ---- kinds ----

#define FIXTURES "tests/fixtures/bpe/"
// In parts: texts, and places of a long one, over all kinds.
enum { TEXTS = 1000, KINDS_MIN = 40, PARTS_MIN = 17000, LONG_CUTS = 8, LONG_MIN = 200 };

static cJSON *load_tree(const char *name) {
    size_t n;
    char *text = scratch_read(FIXTURES, name, &n);
    cJSON *tree = cJSON_Parse(text);
    assert_non_null(tree);
    free(text);
    return tree;
}

// The base with what the kind sets: "model.NAME" a member of "model".
static cJSON *make_kind(const cJSON *base, const cJSON *sets) {
    cJSON *tree = cJSON_Duplicate(base, true);
    const cJSON *item;
    cJSON_ArrayForEach(item, sets) {
        const char *name = item->string;
        bool inner = strncmp(name, "model.", 6) == 0;
        cJSON *parent = inner ? cJSON_GetObjectItemCaseSensitive(tree, "model") : tree;
        cJSON_DeleteItemFromObjectCaseSensitive(parent, name + (inner ? 6 : 0));
        cJSON_AddItemToObject(parent, name + (inner ? 6 : 0), cJSON_Duplicate(item, true));
    }
    return tree;
}

static uint32_t sum_of(const struct Ids *ids) {
    uint32_t h = 2166136261;
    for (size_t i = 0; i < ids->count; i++)
        for (int k = 0; k < 4; k++)
            h = (h ^ ((uint32_t)ids->data[i] >> 8 * k & 0xff)) * 16777619;
    return h;
}

// The ids in two parts are those of the whole, unless the first is not taken.
static bool check_parts(const struct Bpe *b, struct BpeWork *w, const char *text, size_t n,
                        size_t wanted, const struct Ids *whole) {
    struct Ids ids = {0};
    struct Error e;
    size_t cut = bpe_cut(b, text, n, wanted);
    struct BpeText first = {.text = text, .n = cut, .after = n - cut};
    struct BpeText second = {.text = text + cut, .n = n - cut, .at = cut, .inside = true};
    int err = cut < n ? bpe_encode(b, w, &first, &ids, &e) : -EAGAIN;
    if (err) {
        assert_int_equal(err, -EAGAIN);
        assert_int_equal(ids.count, 0);
    } else {
        assert_ok(bpe_encode(b, w, &second, &ids, &e), &e);
        assert_int_equal(ids.count, whole->count);
        assert_memory_equal(ids.data, whole->data, ids.count * sizeof *ids.data);
    }
    ids_free(&ids);
    return !err;
}

// A text so long that not all of what is behind a cut is looked at.
static size_t check_long(const struct Bpe *b, struct BpeWork *w, const char *texts) {
    struct Bytes all = {0};
    struct Ids ids = {0};
    struct Error e;
    size_t parts = 0;
    for (size_t i = 0; i < TEXTS; i++) {
        size_t n = (uint8_t)texts[0] | (size_t)(uint8_t)texts[1] << 8;
        bytes_append(&all, texts + 2, n);
        bytes_append(&all, " ", 1);
        texts += 2 + n;
    }
    const char *text = (const char *)all.data;
    assert_ok(bpe_encode(b, w, &(struct BpeText){.text = text, .n = all.count}, &ids, &e), &e);
    for (size_t i = 1; i < LONG_CUTS; i++)
        parts += check_parts(b, w, text, all.count, i * all.count / LONG_CUTS, &ids);
    ids_free(&ids);
    free(all.data);
    return parts;
}

static void check_kind(const cJSON *kind, const cJSON *base, const char *texts,
                       const uint32_t *sums, size_t parts[2]) {
    const char *name = cJSON_GetObjectItem(kind, "kind")->valuestring;
    cJSON *tree = make_kind(base, cJSON_GetObjectItem(kind, "sets"));
    char *json = cJSON_PrintUnformatted(tree);
    struct Bpe b;
    struct Error e;
    assert_ok(bpe_parse(&b, json, strlen(json), name, &e), &e);
    struct BpeWork *w = bpe_work_open();
    struct Ids ids = {0};
    parts[1] += check_long(&b, w, texts);
    for (size_t i = 0; i < TEXTS; i++) {
        size_t n = (uint8_t)texts[0] | (size_t)(uint8_t)texts[1] << 8;
        ids.count = 0;
        assert_ok(bpe_encode(&b, w, &(struct BpeText){.text = texts + 2, .n = n}, &ids, &e), &e);
        if (sum_of(&ids) != sums[i])
            fail_msg("%s, text %zu: '%.*s' has other ids", name, i, (int)n, texts + 2);
        parts[0] += check_parts(&b, w, texts + 2, n, n / 2 + 1, &ids);
        texts += 2 + n;
    }
    ids_free(&ids);
    bpe_work_close(w);
    bpe_close(&b);
    cJSON_free(json);
    cJSON_Delete(tree);
}

static bool has_regex(void) {
    struct Regex *x;
    struct Error e;
    struct Bytes any = {(uint8_t[]){'a'}, 1, 1};
    int err = regex_open(&x, &any, &e);
    regex_close(x);
    return !err;
}

// Do the kind's pre-tokenizers need PCRE2, and is it missing?
static bool is_left_out(const cJSON *kind) {
    char *text = cJSON_PrintUnformatted(kind);
    bool needs = strstr(text, "\"Regex\"");
    cJSON_free(text);
    return needs && !has_regex();
}

TEST(ids_of_every_kind) {
    cJSON *rows = load_tree("kinds/kinds.json"), *letters = load_tree("kinds/letters.json");
    cJSON *marks = load_tree("kinds/marks.json");
    size_t bytes, sums_bytes, kinds = 0, parts[2] = {0, 0};
    bool all = true;
    char *texts = scratch_read(FIXTURES, "strings.bin", &bytes),
         *sums = scratch_read(FIXTURES, "kinds/kinds.bin", &sums_bytes);
    const cJSON *kind;
    cJSON_ArrayForEach(kind, cJSON_GetObjectItem(rows, "kinds")) {
        bool is_letters = !strcmp(cJSON_GetObjectItem(kind, "base")->valuestring, "letters");
        uint32_t want[TEXTS];
        assert_true(sums_bytes >= (kinds + 1) * sizeof want);
        memcpy(want, sums + kinds++ * sizeof want, sizeof want);
        if (is_left_out(kind)) {
            all = false;
            continue;
        }
        check_kind(kind, is_letters ? letters : marks, texts, want, parts);
    }
    assert_int_equal(sums_bytes, kinds * TEXTS * sizeof(uint32_t));
    assert_true(kinds >= KINDS_MIN);
    assert_true(!all || (parts[0] >= PARTS_MIN && parts[1] >= LONG_MIN));
    free(texts);
    free(sums);
    cJSON_Delete(rows);
    cJSON_Delete(letters);
    cJSON_Delete(marks);
}

// ---- bytes without a piece ----

// Pieces: <unk> 0, a 1, b 2, c 3, space 4, newline 5, ab 6, c<unk> 7, <unk><unk> 8.
static const char gaps[] =
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
    "\"model\":{\"type\":\"BPE\",%s\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"c\":3,\"\xc4\xa0\":4,"
    "\"\xc4\x8a\":5,\"ab\":6,\"c<unk>\":7,\"<unk><unk>\":8},"
    "\"merges\":[\"a b\",\"c <unk>\",\"<unk> <unk>\"]}}";

TEST(bytes_without_a_piece) {
    static const char *const settings[] = {"\"unk_token\":null,", "\"unk_token\":\"<unk>\",",
                                           "\"unk_token\":\"<unk>\",\"fuse_unk\":true,"};
    static const struct {
        const char *text, *ids[3]; // as digits: what tokenizers 0.23.3 gives
        size_t missing;
    } rows[] = {
        {"ab cab", {"6436", "6436", "6436"}, 0},
        {"a\x04"
         "b cab",
         {"12436", "102436", "102436"},
         1},
        {"a\xc3\xa9"
         "b",
         {"6", "182", "102"},
         2},
        {"c\xc3\xa9\xc3\xa9", {"3", "780", "7"}, 4},
        {"\xf0\x9f\x98\x80", {"", "88", "0"}, 4},
        {"cab\x04\x04 \x04", {"364", "36840", "36040"}, 3},
        {"x", {"", "0", "0"}, 1},
    };
    for (size_t k = 0; k < 3; k++) {
        char *json = base_format(gaps, settings[k]);
        struct Bpe b;
        struct Error e;
        assert_ok(bpe_parse(&b, json, strlen(json), "gaps.json", &e), &e);
        struct BpeWork *w = bpe_work_open();
        for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) { // the second time from memory
            size_t row = i % (sizeof rows / sizeof *rows);
            struct Ids ids = {0};
            char digits[16] = "";
            size_t n = strlen(rows[row].text);
            assert_ok(
                bpe_encode(&b, w, &(struct BpeText){.text = rows[row].text, .n = n}, &ids, &e), &e);
            assert_int_equal(bpe_take_missing(w), rows[row].missing);
            for (size_t j = 0; j < ids.count; j++)
                digits[j] = (char)('0' + ids.data[j]);
            assert_string_equal(digits, rows[row].ids[k]);
            ids_free(&ids);
        }
        bpe_work_close(w);
        bpe_close(&b);
        free(json);
    }
}

static int append(void *ids, const struct Ids *more, size_t done, struct Error *e) {
    (void)done, (void)e;
    for (size_t i = 0; i < more->count; i++)
        ids_append(ids, more->data[i]);
    return 0;
}

// No place is one where this text may be cut, so it is one stretch from the first on.
TEST(a_text_that_is_never_cut) {
    static const char pre[] =
        "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
        "\"pattern\":"
        "{\"String\":\" \"},\"behavior\":\"MergedWithPrevious\"},{\"type\":\"ByteLevel\","
        "\"add_prefix_space\":false,\"use_regex\":false}]}}";
    enum { BYTES = 2500000 };
    cJSON *base = load_tree("kinds/letters.json"), *sets = cJSON_Parse(pre);
    cJSON *tree = make_kind(base, sets);
    char *folder = scratch_make(), *json = cJSON_PrintUnformatted(tree);
    char *path = scratch_write(folder, "tokenizer.json", json, strlen(json));
    char *text = base_alloc(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        text[i] = "the of and i"[i % 12];
    struct Tokenizer *t;
    struct Error e;
    struct Ids whole = {0}, ids = {0};
    assert_ok(tokenizer_open_json(&t, path, &e), &e);
    assert_ok(tokenizer_encode(t, text, BYTES, &whole, &e), &e);
    assert_ok(tokenizer_encode_text(t, text, BYTES, 2, append, &ids, &e), &e);
    assert_int_equal(ids.count, whole.count);
    assert_memory_equal(ids.data, whole.data, ids.count * sizeof *ids.data);
    ids_free(&ids);
    ids_free(&whole);
    tokenizer_close(t);
    free(text);
    free(path);
    cJSON_free(json);
    scratch_remove(folder);
    cJSON_Delete(tree);
    cJSON_Delete(sets);
    cJSON_Delete(base);
}

// A mark in front of the first part alone: not behind a token, whether the text has it or not.
TEST(what_follows_a_token_is_not_first) {
    cJSON *base = load_tree("kinds/marks.json");
    cJSON *sets =
        cJSON_Parse("{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81"
                    "\",\"prepend_scheme\":\"first\",\"split\":false}}");
    cJSON *tree = make_kind(base, sets);
    char *json = cJSON_PrintUnformatted(tree);
    struct Bpe b;
    struct Error e;
    struct Ids ids[3] = {{0}};
    assert_ok(bpe_parse(&b, json, strlen(json), "first", &e), &e);
    assert_true(bpe_marks_only_front(&b));
    struct BpeWork *w = bpe_work_open();
    static const struct BpeText texts[] = {{.text = "</s>the of", .n = 10},
                                           {.text = "the of", .n = 6, .follows = true},
                                           {.text = "the of", .n = 6}};
    for (size_t i = 0; i < 3; i++)
        assert_ok(bpe_encode(&b, w, &texts[i], &ids[i], &e), &e);
    assert_int_equal(ids[0].count, ids[1].count + 1);
    assert_memory_equal(ids[0].data + 1, ids[1].data, ids[1].count * sizeof *ids[1].data);
    assert_true(ids[2].data[0] != ids[1].data[0]);
    for (size_t i = 0; i < 3; i++)
        ids_free(&ids[i]);
    bpe_work_close(w);
    bpe_close(&b);
    cJSON_free(json);
    cJSON_Delete(tree);
    cJSON_Delete(sets);
    cJSON_Delete(base);
}

TEST(an_unknown_token_is_a_piece) {
    char *json = base_format(gaps, "\"unk_token\":\"<none>\",");
    struct Bpe b;
    struct Error e;
    assert_error(bpe_parse(&b, json, strlen(json), "gaps.json", &e), -EINVAL, &e,
                 "E_BPE_VOCAB \"<none>\"");
    free(json);
}

TEST(what_is_missing_is_told) {
    char *folder = scratch_make();
    for (int k = 0; k < 2; k++) {
        char *json = base_format(gaps, k ? "\"unk_token\":\"<unk>\"," : "");
        char *path = scratch_write(folder, "tokenizer.json", json, strlen(json));
        struct Tokenizer *t;
        struct Error e;
        struct Ids ids = {0};
        assert_ok(tokenizer_open_json(&t, path, &e), &e);
        assert_ok(tokenizer_encode(t, "ab ab", 5, &ids, &e), &e);
        assert_null(tokenizer_missing(t));
        assert_ok(tokenizer_encode(t, "abx", 3, &ids, &e), &e);
        assert_ok(tokenizer_encode_plain(t, "y ab", 4, &ids, &e), &e);
        char *said = tokenizer_missing(t);
        assert_string_equal(said, k ? "2 bytes have no piece in the vocabulary and become <unk>"
                                    : "2 bytes have no piece in the vocabulary and are left out");
        assert_null(tokenizer_missing(t)); // it is told once
        free(said);
        ids_free(&ids);
        tokenizer_close(t);
        free(path);
        free(json);
    }
    scratch_remove(folder);
}

// ---- patterns ----

static const char split[] =
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
    "{\"Regex\":\"%s\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":"
    "false,\"use_regex\":false}]},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";

// ByteLevel puts a space in front of each part that a split leaves: behind a cut none would be.
TEST(no_cut_where_parts_begin_with_a_space) {
    static const char text[] = "ab cd ab", before[] = "add_prefix_space\":false";
    for (int with = 0; with < 2; with++) {
        char *json = base_format(split, "b");
        char *flag = strstr(json, before);
        if (with)
            memcpy(flag, "add_prefix_space\":true ", sizeof before - 1);
        struct Bpe b;
        struct Error e;
        assert_ok(bpe_parse(&b, json, strlen(json), "x.json", &e), &e);
        size_t cut = bpe_cut(&b, text, sizeof text - 1, 4);
        assert_true(with ? cut == sizeof text - 1 : cut < 4);
        bpe_close(&b);
        free(json);
    }
}

static void open_pattern(const char *pattern, const char *wanted) {
    char *json = base_format(split, pattern);
    struct Bpe b;
    struct Error e;
    int err = bpe_parse(&b, json, strlen(json), "x.json", &e);
    assert_error(err, -EINVAL, &e, wanted);
    assert_null(strchr(e.text, '\n'));
    assert_null(b.steps.step[0].text);
    free(json);
}

TEST(patterns_that_are_not_read) {
    open_pattern("(?<n>a)", "E_BPE_PATTERN byte 0");
    open_pattern("a(?m:.)", "E_BPE_PATTERN byte 1");
    open_pattern("(*UCP)a", "E_BPE_PATTERN byte 0");
    open_pattern("(a)\\\\1", "E_BPE_PATTERN byte 3");
    open_pattern("a\\\\R", "E_BPE_PATTERN byte 1");
    open_pattern("\\\\p{Greek}", "E_BPE_PATTERN byte 0");
    open_pattern("\\\\pL", "E_BPE_PATTERN byte 0");
    open_pattern("\\\\x{110000}", "E_BPE_PATTERN byte 0");
    open_pattern("[[:alpha:]]", "E_BPE_PATTERN byte 1");
    open_pattern("x[z-a]", "E_BPE_PATTERN byte 2");
    open_pattern("[a", "E_BPE_PATTERN byte 2");
    open_pattern("(a", "E_BPE_PATTERN byte 2");
    open_pattern("a)", "E_BPE_PATTERN byte 1");
    open_pattern("*a", "E_BPE_PATTERN byte 0");
    open_pattern("a{3,2}", "E_BPE_PATTERN byte 1");
    open_pattern("a+*", "E_BPE_PATTERN byte 2");
    open_pattern("(?i:\xc3\xa9)", "E_BPE_PATTERN byte 4");
    open_pattern("(?i:\\\\p{L})", "E_BPE_PATTERN byte 4");
    open_pattern("(?i:st)", "E_BPE_PATTERN byte 5");
    open_pattern("a\\\\", "E_BPE_PATTERN byte 1");
}

TEST(patterns_that_are_not_compiled) {
    open_pattern("(?<=a+)b", has_regex() ? "E_BPE_PATTERN (?<=a+)b"
                                         : "the pattern (?<=a+)b: this program was built without "
                                           "PCRE2: install libpcre2-dev");
}

// The place is that of the text, whatever part of it is encoded.
TEST(a_pattern_that_is_never_done) {
    if (!has_regex())
        skip();
    char *json = base_format(split, "(?:a+)+[bc](?:x|y)"), text[200];
    struct Bpe b;
    struct Error e;
    struct Ids ids = {0};
    assert_ok(bpe_parse(&b, json, strlen(json), "x.json", &e), &e);
    memset(text, 'a', sizeof text);
    memcpy(text, "axbxay  ", 8);
    struct BpeWork *w = bpe_work_open();
    struct BpeText t = {.text = text, .n = sizeof text, .at = 1000, .inside = true};
    assert_error(bpe_encode(&b, w, &t, &ids, &e), -EINVAL, &e, "E_BPE_PATTERN_STEPS byte 1000");
    assert_int_equal(ids.count, 0);
    bpe_work_close(w);
    bpe_close(&b);
    free(json);
}

TEST(a_half_is_in_a_word_but_not_in_brackets) {
    for (int in = 0; in < 2; in++, (void)state) {
        struct PatternReader r = {.text = "\\w", .n = 2};
        struct PointSet s = {0};
        assert_true(!pattern_read_escape(&r, &s, in, &(bool){0}) && set_has(&s, 0xbd) == !in);
        set_free(&s);
    }
}
