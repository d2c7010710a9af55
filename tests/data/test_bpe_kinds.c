// tokenizer.json of other kinds than test_bpe.c has: ids are those of the reference implementation.
//
// A vocabulary that lacks bytes encodes a text by what it has, and says how many bytes it lacked.
#include "data/bpe/read.h"
#include "data/text/tokenizer.h"
#include "tests/lib/scratch.h"

#include <errno.h>

// ---- bytes without a piece ----

// Pieces: <unk> 0, a 1, b 2, c 3, space 4, newline 5, ab 6, c<unk> 7, <unk><unk> 8.
static const char gaps[] =
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
    "\"model\":{\"type\":\"BPE\",%s\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"c\":3,\"\xc4\xa0\":4,"
    "\"\xc4\x8a\":5,\"ab\":6,\"c<unk>\":7,\"<unk><unk>\":8},"
    "\"merges\":[\"a b\",\"c <unk>\",\"<unk> <unk>\"]}}";

static void bytes_without_a_piece(void **state) {
    (void)state;
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
            assert_int_equal(bpe_encode(&b, w, rows[row].text, n, false, &ids), rows[row].missing);
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

static void an_unknown_token_is_a_piece(void **state) {
    (void)state;
    char *json = base_format(gaps, "\"unk_token\":\"<none>\",");
    struct Bpe b;
    struct Error e;
    assert_error(bpe_parse(&b, json, strlen(json), "gaps.json", &e), -EINVAL, &e,
                 "the \"unk_token\" \"<none>\" is no piece");
    free(json);
}

static void what_is_missing_is_told(void **state) {
    (void)state;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_without_a_piece),
        cmocka_unit_test(an_unknown_token_is_a_piece),
        cmocka_unit_test(what_is_missing_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
