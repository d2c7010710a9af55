// Text that is printed while it grows: the pieces joined are the text of all ids, and none ends
// inside of a character, whatever the tokenizer cuts; and mended text is UTF-8.
#include "data/text/printed.h"
#include "data/text/spm.h"
#include "data/text/text.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

static const char *const texts[] = {
    "Is water wet? Yes.\n\tIndented, and a last line\n",
    "Zażółć gęślą jaźń; Größe; naïve; déjà vu",
    "Съешь ещё этих мягких французских булок",
    "שלום עולם, مرحبا بالعالم",
    "नमस्ते दुनिया, สวัสดีชาวโลก",
    "你好，世界。こんにちは世界、안녕하세요 세계",
    "😀👩🏽‍🚀🇵🇱 a🏴󠁧󠁢󠁳󠁣󠁴󠁿b ☃︎ é ﷽ 𝔘𝔫𝔦 𐍈",
    "a \x01 control \x7f and \r\n another",
};
enum { TEXTS = sizeof texts / sizeof *texts };

// Prints ids one after another, as an answer is drawn. Returns how many pieces were empty.
static size_t check_growing(const struct Tokenizer *t, const struct Ids *ids, bool characters) {
    struct PrintedStream s = {0};
    size_t bytes, whole_bytes, n = 0, empty = 0;
    char *whole = printed_text(t, ids->data, ids->count, &whole_bytes);
    char *joined = base_alloc(whole_bytes + 1);
    for (size_t i = 0; i <= ids->count; i++) { // the last call adds no id, and ends
        bool ends = i == ids->count;
        char *more = printed_more(&s, t, ids->data, ends ? i : i + 1, ends, &bytes);
        if (characters && text_find_invalid(more, bytes) < bytes)
            fail_msg("half a character: '%s' of '%s'", more, whole);
        assert_true(n + bytes <= whole_bytes);
        memcpy(joined + n, more, bytes);
        n += bytes;
        empty += !bytes;
        free(more);
    }
    assert_int_equal(n, whole_bytes);
    assert_memory_equal(joined, whole, n);
    free(joined);
    free(whole);
    return empty;
}

static void check_tokenizer(struct Tokenizer *t) {
    size_t empty = 0;
    for (size_t i = 0; i < TEXTS; i++) {
        struct Ids ids = {0};
        struct Error e;
        assert_ok(tokenizer_encode(t, texts[i], strlen(texts[i]), &ids, &e), &e);
        empty += check_growing(t, &ids, true);
        ids_free(&ids);
    }
    assert_true(empty > TEXTS); // tokens that end inside of a character were held back
    uint64_t bits = 7;
    for (int turn = 0; turn < 50; turn++) { // what an untrained model draws
        struct Ids ids = {0};
        for (int i = 0; i < 40; i++) {
            bits = bits * 6364136223846793005u + 1442695040888963407u;
            ids_append(&ids, (int32_t)((bits >> 33) % tokenizer_vocab(t)));
        }
        check_growing(t, &ids, false);
        ids_free(&ids);
    }
    tokenizer_close(t);
}

TEST(pieces_joined_are_the_text) {
    static const char *const folders[] = {"gpt2", "llama3", "qwen2", "smollm"};
    struct Tokenizer *t;
    struct Error e;
    for (size_t i = 0; i < 4; i++) {
        char *path = base_format("tests/fixtures/bpe/%s/tokenizer.json", folders[i]);
        assert_ok(tokenizer_open_json(&t, path, &e), &e);
        check_tokenizer(t);
        free(path);
    }
    char *folder = scratch_make(), *text, *model;
    size_t bytes, model_bytes;
    assert_ok(file_read("data/text/prepare.c", 1 << 20, &text, &bytes, &e), &e);
    assert_ok(spm_train(text, bytes, 400, &model, &model_bytes, &e), &e);
    char *path = scratch_write(folder, "t.model", model, model_bytes);
    assert_ok(tokenizer_open_model(&t, path, &e), &e);
    check_tokenizer(t);
    scratch_remove(folder);
    free(path);
    free(text);
    free(model);
    tokenizer_open_byte(&t);
    check_tokenizer(t);
}

// Bytes that can become no character are not waited for; those that could come at the end.
TEST(only_the_beginning_of_a_character_is_held) {
    static const struct {
        const char *bytes;
        size_t held;
    } rows[] = {{"a", 0},
                {"a\xc3", 1},
                {"\xc3\xa9", 0},
                {"\xe2\x82", 2},
                {"\xe2\x82\xac", 0},
                {"\xf0\x9f\x98", 3},
                {"\x80\x80", 0},
                {"\xf0\x9f\x98\x80", 0},
                {"\xc3\x41", 0}};
    struct Tokenizer *t;
    tokenizer_open_byte(&t);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct PrintedStream s = {0};
        struct Ids ids = {0};
        struct Error e;
        size_t n = strlen(rows[i].bytes), bytes;
        assert_ok(tokenizer_encode(t, rows[i].bytes, n, &ids, &e), &e);
        free(printed_more(&s, t, ids.data, ids.count, false, &bytes));
        if (bytes != n - rows[i].held)
            fail_msg("row %zu: %zu of %zu bytes", i, bytes, n);
        free(printed_more(&s, t, ids.data, ids.count, true, &bytes));
        assert_int_equal(bytes, rows[i].held);
        ids_free(&ids);
    }
    tokenizer_close(t);
}

TEST(mended_text_is_utf8) {
    static const struct {
        const char *text;
        size_t bytes;
        const char *mended;
    } rows[] = {{"", 0, ""},
                {"é\n", 3, "é\n"},
                {"a\xff"
                 "b",
                 3,
                 "a\xef\xbf\xbd"
                 "b"},
                {"a\0b", 3,
                 "a\xef\xbf\xbd"
                 "b"},
                {"\0\xc3", 2, "\xef\xbf\xbd\xef\xbf\xbd"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *mended = printed_mend(rows[i].text, rows[i].bytes);
        assert_string_equal(mended, rows[i].mended);
        free(mended);
    }
}
