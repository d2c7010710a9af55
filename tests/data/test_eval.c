// Items of an evaluation against what lm-eval's harness and llm.c make of them (the fixtures of
// scripts/gen/eval_fixtures.py): texts, tokens, where they are cut, and verdicts; and files that
// cannot be right.
#include "data/eval/clean.h"
#include "data/eval/evals.h"
#include "data/file.h"
#include "data/utf8.h"
#include "tests/lib/eval_fixture.h"
#include "tests/lib/refused.h"
#include "tests/lib/test.h"

#include <errno.h>

// ---- texts --------------------------------------------------------------------------------------

static void expect_text(const char *what, const cJSON *pair, const char *got) {
    const char *from = pair->child->valuestring, *want = pair->child->next->valuestring;
    if (strcmp(got, want) != 0)
        fail_msg("%s of \"%s\": \"%s\", not \"%s\"", what, from, got, want);
}

TEST(texts_are_cleaned_as_lm_eval_does) {
    const struct Fixture *f = *state;
    const cJSON *pair;
    cJSON_ArrayForEach(pair, fixture_get(f, "clean")) {
        char *got = clean_text(pair->child->valuestring);
        expect_text("cleaning", pair, got);
        free(got);
    }
}

// The buffer of clean_capitalize rests on this.
TEST(no_letter_grows_to_more_than_twice_its_bytes) {
    for (uint32_t c = 1; c < 0x20000; c++) {
        char text[9] = "";
        if ((c >= 0xd800 && c < 0xe000) || c == 0x3a3)
            continue;
        size_t n = unicode_put((uint8_t *)text, c);
        n += unicode_put((uint8_t *)text + n, c); // one in title case, one in lower case
        char *got = clean_capitalize(text);
        assert_true(strlen(got) <= 2 * n);
        free(got);
    }
}

TEST(capitals_are_pythons) {
    const struct Fixture *f = *state;
    const cJSON *pair;
    cJSON_ArrayForEach(pair, fixture_get(f, "capital")) {
        char *got = clean_capitalize(pair->child->valuestring);
        expect_text("capital", pair, got);
        free(got);
    }
    assert_null(clean_capitalize("aΣ"));
    char *first = clean_capitalize("ΣA"), *several = clean_capitalize("ßA");
    assert_string_equal(first, "Σa");
    assert_string_equal(several, "ßa");
    free(first);
    free(several);
}

// ---- tokens and verdicts ------------------------------------------------------------------------

static void expect_sequence(size_t item, const char *protocol, const struct Sequence *got,
                            const cJSON *want) {
    const cJSON *ids = json_get(want, "ids"), *id;
    size_t i = 0;
    if (got->count != (size_t)cJSON_GetArraySize(ids) ||
        got->from != (size_t)json_get(want, "from")->valueint)
        fail_msg("item %zu by %s: tokens %zu to %zu, not %d to %d", item, protocol, got->from,
                 got->count, json_get(want, "from")->valueint, cJSON_GetArraySize(ids));
    cJSON_ArrayForEach(id, ids) {
        if (got->ids[i] != id->valueint)
            fail_msg("item %zu by %s: token %zu is %d, not %d", item, protocol, i, got->ids[i],
                     id->valueint);
        i++;
    }
}

static void expect_protocol(const struct EvalItems *items, enum EvalProtocol p, const cJSON *want) {
    static const char *const names[] = {"lm_eval", "llmc"};
    const cJSON *item, *sequence;
    size_t i = 0;
    cJSON_ArrayForEach(item, want) {
        size_t at = items->item[i].first[p];
        cJSON_ArrayForEach(sequence, json_get(item, names[p]))
            expect_sequence(i, names[p], &items->list[p].sequence[at++], sequence);
        assert_int_equal(items->item[i].label, json_get(item, "label")->valueint);
        i++;
    }
    assert_int_equal(i, items->count);
}

// Python counts characters, not bytes.
static void expect_characters(const struct EvalItems *items, const cJSON *want) {
    const cJSON *item, *choice;
    size_t i = 0, more = 0;
    cJSON_ArrayForEach(item, want) {
        const size_t *got = items->item[i++].characters;
        cJSON_ArrayForEach(choice, json_get(item, "choices")) {
            size_t n = 0;
            for (const char *p = choice->valuestring; *p; p++)
                n += (*p & 0xc0) != 0x80;
            if (*got != n)
                fail_msg("item %zu: %zu characters in \"%s\"", i - 1, *got, choice->valuestring);
            more += strlen(choice->valuestring) > n;
            got++;
        }
    }
    assert_true(more > 5); // endings have bytes that are no characters
}

TEST(items_have_the_references_tokens) {
    const struct Fixture *f = *state;
    struct EvalItems items;
    fixture_read(f, "items.jsonl", f->tokenizer, &items);
    assert_int_equal(items.count, 30);
    expect_characters(&items, fixture_get(f, "items"));
    expect_protocol(&items, EVAL_LM_EVAL, fixture_get(f, "items"));
    expect_protocol(&items, EVAL_LLMC, fixture_get(f, "items"));
    items_free(&items);
}

// lm-eval cuts their beginnings; llm.c stops.
TEST(long_items_have_one_protocol) {
    const struct Fixture *f = *state;
    struct EvalItems items;
    fixture_read(f, "long.jsonl", f->tokenizer, &items);
    expect_protocol(&items, EVAL_LM_EVAL, fixture_get(f, "long"));
    assert_int_equal(items.list[EVAL_LLMC].count, 0);
    assert_int_equal(items.cut, 16);
    double scores[16] = {0};
    assert_true(items_accuracy(&items, EVAL_LLMC_ACC, scores) < 0);
    assert_true(items_accuracy(&items, EVAL_ACC, scores) >= 0);
    items_free(&items);
}

TEST(a_bin_has_llm_cs_protocol) {
    const struct Fixture *f = *state;
    struct Tokenizer *ids;
    struct EvalItems items;
    tokenizer_open_ids(&ids, FIXTURE_VOCAB);
    fixture_read(f, "items.bin", ids, &items);
    assert_int_equal(items.list[EVAL_LM_EVAL].count, 0);
    expect_protocol(&items, EVAL_LLMC, fixture_get(f, "items"));
    items_free(&items);
    tokenizer_close(ids);
}

TEST(verdicts_are_the_references) {
    const struct Fixture *f = *state;
    const cJSON *item;
    struct EvalItems items;
    size_t i = 0, right[NEVALMEASURE] = {0};
    fixture_read(f, "items.jsonl", f->tokenizer, &items);
    double *scores[] = {fixture_sums(f, "items", "lm_eval"), fixture_sums(f, "items", "llmc")};
    cJSON_ArrayForEach(item, fixture_get(f, "items")) {
        for (enum EvalMeasure m = 0; m < NEVALMEASURE; m++) {
            bool got = items_choice(&items, i, m, scores[items_protocol(m)]) == items.item[i].label;
            bool want = json_get(item, eval_measure_names[m])->valuedouble > 0.5;
            if (got != want)
                fail_msg("item %zu, %s: %d, not %d", i, eval_measure_names[m], got, want);
            right[m] += want;
        }
        i++;
    }
    for (enum EvalMeasure m = 0; m < NEVALMEASURE; m++)
        assert_true(items_accuracy(&items, m, scores[items_protocol(m)]) ==
                    (double)right[m] / (double)items.count);
    assert_true(right[EVAL_ACC] != right[EVAL_ACC_NORM]); // so that a mistake of one shows
    free(scores[0]);
    free(scores[1]);
    items_free(&items);
}

TEST(a_limit_reads_no_further) {
    static const char good[] = "{\"activity_label\":\"\",\"ctx\":\"a\",\"ctx_a\":\"a\",\"ctx_b\":"
                               "\"\",\"endings\":[\"b\",\"c\"],\"label\":1}\n\nnonsense";
    struct Tokenizer *byte;
    struct EvalItems items = {0};
    struct Error e;
    tokenizer_open_byte(&byte);
    struct EvalSpec spec = {byte, 256, 24, 1};
    assert_ok(hellaswag_parse(&items, &spec, "x", good, strlen(good), &e), &e);
    assert_int_equal(items.count, 1);
    assert_int_equal(items.item[0].label, 1);
    items_free(&items);
    spec.limit = 2;
    assert_error(hellaswag_parse(&items, &spec, "x", good, strlen(good), &e), -EINVAL, &e,
                 "E_JSON_SYNTAX x: line 3");
    items_free(&items);
    tokenizer_close(byte);
}

// ---- what is refused ----------------------------------------------------------------------------

#define ITEM(label, ctx, a, b, endings, right)                                                     \
    "{\"activity_label\":" label ",\"ctx\":" ctx ",\"ctx_a\":" a ",\"ctx_b\":" b                   \
    ",\"endings\":" endings ",\"label\":" right "}"
#define GOOD ITEM("\"l\"", "\"c\"", "\"a\"", "\"b\"", "[\"x\",\"y\"]", "0")

static const struct {
    const char *line, *error;
} bad_lines[] = {
    {"{", "E_JSON_SYNTAX line 2"},
    {"[1]", "E_JSON_SYNTAX line 2"},
    {GOOD " x", "E_JSON_SYNTAX byte 87"},
    {"{\"label\":1}", "E_HELLASWAG_FIELD \"activity_label\""},
    {ITEM("\"l\"", "\"c\",\"ctx\":\"d\"", "\"a\"", "\"b\"", "[\"x\",\"y\"]", "0"),
     "E_HELLASWAG_FIELD line 2"},
    {ITEM("1", "\"c\"", "\"a\"", "\"b\"", "[\"x\",\"y\"]", "0"),
     "E_HELLASWAG_FIELD \"activity_label\""},
    {ITEM("\"l\"", "\"c\"", "null", "\"b\"", "[\"x\",\"y\"]", "0"), "E_HELLASWAG_FIELD \"ctx_a\""},
    {ITEM("\"l\"", "\"c\"", "\"a\"", "\"b\"", "[\"x\",2]", "0"), "E_HELLASWAG_FIELD"},
    {ITEM("\"l\"", "\"c\"", "\"a\"", "\"b\"", "[\"x\"]", "0"), "E_HELLASWAG_FIELD 16"},
    {ITEM("\"l\"", "\"c\"", "\"a\"", "\"b\"", "{\"p\":\"x\",\"q\":\"y\"}", "0"),
     "E_HELLASWAG_FIELD 16"},
    {ITEM("\"l\"", "\"c\"", "\"a\"", "\"b\"", "[\"x\",\"y\"]", "2"), "E_HELLASWAG_FIELD is 2"},
    {ITEM("\"l\"", "\"c\"", "\"a\"", "\"b\"", "[\"x\",\"y\"]", "-1"), "E_HELLASWAG_FIELD 1"},
    {ITEM("\"l\"", "\"c\"", "\"a\"", "\"b\"", "[\"x\",\"y\"]", "0.5"), "E_HELLASWAG_FIELD"},
    {ITEM("\"l\"", "\"c\"", "\"a\"", "\"b\"", "[\"x\",\"y\"]", "\"\""), "E_HELLASWAG_FIELD"},
    {ITEM("\"l\"", "\"c\"", "\"a\"", "\"b\"", "[\"x\",\"y\"]", "\"a\""), "E_HELLASWAG_FIELD \"a\""},
    {ITEM("\"l\"", "\"c\"", "\"a\"", "\"b\"", "[\"x\",\"y\"]", "\"1a\""), "E_HELLASWAG_FIELD"},
    {ITEM("\"l\"", "\"\"", "\"a\"", "\"b\"", "[\"x\",\"y\"]", "0"), "E_HELLASWAG_FIELD \"ctx\""},
    {ITEM("\"[\"", "\"c\"", "\"a]\"", "\"\"", "[\"x\",\"y\"]", "0"), "E_HELLASWAG_FIELD"},
    {ITEM("\"l\"", "\"c\"", "\"a\"", "\"b\\u0000\"", "[\"x\",\"y\"]", "0"), "E_HELLASWAG_FIELD"},
    {ITEM("\"l\"", "\"c\"", "\"a\"", "\"b\"", "[\"x\",\"12345678901234567890123456\"]", "0"),
     "E_HELLASWAG_TOO_LONG 24"},
    {ITEM("\"l\"", "\"c\"", "\"a\"", "\"bΣ\"", "[\"x\",\"y\"]", "0"), "E_HELLASWAG_FIELD"},
    {"\xff", "E_UTF8 line 2: byte 0"},
};

TEST(a_bad_line_is_named) {
    struct Tokenizer *byte;
    tokenizer_open_byte(&byte);
    struct EvalSpec spec = {byte, 256, 24, 0};
    for (size_t i = 0; i < sizeof bad_lines / sizeof bad_lines[0]; i++) {
        struct EvalItems items = {0};
        struct Error e = {0};
        char *text = base_format("%s\n%s\n", GOOD, bad_lines[i].line);
        assert_error(hellaswag_parse(&items, &spec, "x", text, strlen(text), &e), -EINVAL, &e,
                     bad_lines[i].error);
        assert_non_null(strstr(e.text, "x: line 2: "));
        items_free(&items);
        free(text);
    }
    struct EvalItems items = {0};
    struct Error e = {0};
    assert_ok(hellaswag_parse(&items, &spec, "x", GOOD "\n", strlen(GOOD), &e), &e);
    items_free(&items);
    assert_error(hellaswag_parse(&items, &spec, "x", " \n", 2, &e), -EINVAL, &e,
                 "E_HELLASWAG_EMPTY");
    items_free(&items);
    tokenizer_close(byte);
}

// Word `at` of the file's int32 header, or of the uint16 behind it, becomes `to`; the file ends
// `less` bytes earlier.
static void refused_bin(const struct Fixture *f, bool head, size_t at, int32_t to, size_t less,
                        const char *part) {
    struct Tokenizer *ids;
    struct EvalItems items = {0};
    struct Error e = {0};
    size_t n;
    char *bytes = fixture_bytes("items.bin", &n);
    uint16_t small = (uint16_t)to;
    memcpy(bytes + (head ? 4 * at : 1024 + 2 * at), head ? (void *)&to : &small, head ? 4 : 2);
    tokenizer_open_ids(&ids, FIXTURE_VOCAB);
    struct EvalSpec spec = {ids, FIXTURE_VOCAB, FIXTURE_T, 0};
    assert_error(hellaswag_parse(&items, &spec, "x", bytes, n - less, &e), -EINVAL, &e, part);
    items_free(&items);
    tokenizer_close(ids);
    free(bytes);
    (void)f;
}

TEST(a_bad_bin_is_refused) {
    const struct Fixture *f = *state;
    refused_bin(f, true, 1, 2, 0, "E_HELLASWAG_BIN version 2 with 30");
    refused_bin(f, true, 2, 0, 0, "E_HELLASWAG_BIN version 1 with 0");
    refused_bin(f, true, 2, -1, 0, "E_HELLASWAG_BIN version 1");
    refused_bin(f, true, 2, 29, 0, "E_HELLASWAG_BIN 29");
    refused_bin(f, true, 2, 31, 0, "E_HELLASWAG_BIN item 30");
    refused_bin(f, true, 1, 1, 2, "E_HELLASWAG_BIN item 29");
    refused_bin(f, true, 1, 1, 3022, "E_HELLASWAG_BIN 1024");
    refused_bin(f, false, 0, 7, 0, "E_HELLASWAG_BIN byte 1024 has 7 and 0");
    refused_bin(f, false, 2, 1, 0, "E_HELLASWAG_BIN byte 1024 has 65535 and 1");
    refused_bin(f, false, 1, 9, 0, "E_HELLASWAG_BIN item 0");
    refused_bin(f, false, 3, 4, 0, "E_HELLASWAG_BIN item 0: ending 4 of 4");
    refused_bin(f, false, 4, 1, 0, "E_HELLASWAG_BIN 16");
    refused_bin(f, false, 4, 5, 0, "E_HELLASWAG_BIN");
    size_t last = 5, n; // the word that counts the last ending's tokens
    char *bytes = fixture_bytes("items.bin", &n);
    uint16_t words[512];
    memcpy(words, bytes + 1024, sizeof words);
    free(bytes);
    for (int i = 0; i < 4; i++)
        last += 1 + words[last];
    refused_bin(f, false, last, words[last] - 1, 0, "E_HELLASWAG_BIN item 0");
    refused_bin(f, false, 5, 0, 0, "E_HELLASWAG_BIN item 0: the 0");
    refused_bin(f, false, 5, 900, 0, "E_HELLASWAG_BIN item 0: the 900");
    refused_bin(f, false, 6, FIXTURE_VOCAB, 0, "E_HELLASWAG_BIN item 0: id 211");
}

TEST(a_bin_of_other_ids_is_refused) {
    const struct Fixture *f = *state;
    struct EvalItems items = {0};
    struct Error e = {0};
    size_t n;
    char *bin = fixture_bytes("items.bin", &n);
    struct EvalSpec spec = {f->tokenizer, FIXTURE_VOCAB, FIXTURE_T, 0};
    assert_error(hellaswag_parse(&items, &spec, "x", bin, n, &e), -EINVAL, &e,
                 "E_HELLASWAG_TOKENIZER");
    spec.seq_len = 12;
    struct Tokenizer *ids;
    tokenizer_open_ids(&ids, FIXTURE_VOCAB);
    spec.tokenizer = ids;
    assert_error(hellaswag_parse(&items, &spec, "x", bin, n, &e), -EINVAL, &e,
                 "E_HELLASWAG_TOO_LONG 12");
    items_free(&items);
    assert_error(hellaswag_parse(&items, &spec, "x", GOOD, strlen(GOOD), &e), -EINVAL, &e,
                 "E_HELLASWAG_TOKENIZER");
    tokenizer_close(ids);
    free(bin);
}

TEST(what_is_asked_for_is_checked) {
    static const char *const bad[] = {"", "x", "ppl,", ",ppl", "hellaswag", "hellaswag:", "ppl:x"};
    bool ppl;
    struct Error e = {0};
    assert_ok(evals_check(NULL, &ppl, &e), &e);
    assert_false(ppl);
    assert_ok(evals_check("ppl", &ppl, &e), &e);
    assert_true(ppl);
    assert_ok(evals_check("hellaswag:README.md,ppl,hellaswag:Makefile", &ppl, &e), &e);
    assert_true(ppl);
    assert_ok(evals_check("hellaswag:README.md", &ppl, &e), &e);
    assert_false(ppl);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_error(evals_check(bad[i], &ppl, &e), -EINVAL, &e, "E_EVAL_NAME");
    assert_error(evals_check("hellaswag:no/such", &ppl, &e), -ENOENT, &e, "E_FILE_READ no/such");
    assert_error(evals_check("hellaswag:tests", &ppl, &e), -EISDIR, &e, "E_FILE_KIND tests");
    assert_string_equal(evals_short_name("hellaswag:a/b.jsonl"), "b.jsonl");
    assert_string_equal(evals_short_name("hellaswag:b.jsonl"), "b.jsonl");
}

AROUND_ALL(fixture_setup, fixture_teardown);
