// Tokenizers: text comes back exactly, whatever is in it; ids are the same from run to run; a
// prompt for data without a tokenizer is a list of numbers; a damaged .model file is refused.
#include "data/text/tokenizer.h"
#include "data/file.h"
#include "data/text/spm.h"
#include "kernels/dtype.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <pthread.h>

// Text to learn from that every checkout has: this program's own sources.
static char *load_text(size_t *bytes) {
    static const char *const names[] = {"data/text/prepare.c", "data/text/download.c",
                                        "data/text/tokens.c",  "data/text/sources.c",
                                        "data/text/loader.c",  "data/text/shards.c"};
    char *text = NULL;
    *bytes = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *part;
        size_t n;
        struct Error e;
        assert_ok(file_read(names[i], 1 << 20, &part, &n, &e), &e);
        text = realloc(text, *bytes + n);
        assert_non_null(text);
        memcpy(text + *bytes, part, n);
        *bytes += n;
        free(part);
    }
    return text;
}

struct Fixture {
    char *folder, *path, *text, *model;
    size_t text_bytes, model_bytes;
    struct Tokenizer *t;
};

static int set_up(void **state) {
    struct Fixture *f = base_alloc_zeroed(sizeof *f);
    struct Error e;
    f->folder = scratch_make();
    f->text = load_text(&f->text_bytes);
    assert_ok(spm_train(f->text, f->text_bytes, 700, &f->model, &f->model_bytes, &e), &e);
    f->path = scratch_write(f->folder, "t.model", f->model, f->model_bytes);
    assert_ok(tokenizer_open_model(&f->t, f->path, &e), &e);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct Fixture *f = *state;
    tokenizer_close(f->t);
    scratch_remove(f->folder);
    free(f->path);
    free(f->text);
    free(f->model);
    free(f);
    return 0;
}

// Encodes, decodes, compares; returns the number of ids.
static size_t check_round_trip(const struct Tokenizer *t, const char *text, size_t bytes) {
    struct Ids ids = {0};
    struct Error e;
    size_t got_bytes;
    assert_ok(tokenizer_encode(t, text, bytes, &ids, &e), &e);
    for (size_t i = 0; i < ids.count; i++)
        assert_in_range(ids.data[i], 0, tokenizer_vocab(t) - 1);
    char *got = tokenizer_decode(t, ids.data, ids.count, &got_bytes);
    if (got_bytes != bytes || memcmp(got, text, bytes))
        fail_msg("'%.*s' came back as '%.*s'", (int)bytes, text, (int)got_bytes, got);
    size_t count = ids.count;
    free(got);
    ids_free(&ids);
    return count;
}

static void check_hard_cases(const struct Tokenizer *t) {
    static const char *const texts[] = {
        "",
        "\n",
        "\n\n\n",
        " ",
        "     ",
        "  a   b    c  ",
        "\t\tif (x)\t{\r\n",
        " \n \n",
        "\xe2\x96\x81", // U+2581, the library's own space
        "a\xe2\x96\x81\xe2\x96\x81 b\xe2\x96\x81",
        "\xe2\x96\x85 \xe2\x81\x87", // its unknown signs
        "<unk><s></s><pad><0x41>",
        "\xef\xbb\xbf a byte order mark",
        "\xf0\x9f\x98\x80\xf0\x9f\x8f\xbd",
        "e\xcc\x81 \xc3\xa9 \xef\xac\x81 \xe3\x8e\xa1 \xef\xbc\xa1",
        "\x01\x02\x7f\xc2\x80\xc2\xa0\xe2\x80\x8b\xe3\x80\x80",
        "1234567890 3.14159",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        check_round_trip(t, texts[i], strlen(texts[i]));
    check_round_trip(t, "zero\0byte", 9);
}

// A random character in UTF-8; half of them ASCII.
static size_t put_character(char *out, uint64_t bits) {
    uint32_t c = bits & 1 ? (uint32_t)(bits >> 8) % 0x80 : (uint32_t)(bits >> 8) % 0x110000;
    if (c >= 0xd800 && c < 0xe000)
        c = '\n';
    if (c < 0x80)
        return out[0] = (char)c, 1;
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(lead[more] | c >> 6 * more);
    for (int i = 1; i <= more; i++)
        out[i] = (char)(0x80 | (c >> 6 * (more - i) & 0x3f));
    return (size_t)more + 1;
}

static void check_random_text(const struct Tokenizer *t) {
    char text[4 * 200];
    for (uint64_t round = 0; round < 300; round++) {
        size_t bytes = 0;
        for (uint64_t i = 0; i < round % 200; i++)
            bytes += put_character(text + bytes, rng_bits(round, i));
        check_round_trip(t, text, bytes);
    }
}

TEST(bytes_come_back) {
    struct Tokenizer *t;
    tokenizer_open_byte(&t);
    assert_int_equal(tokenizer_vocab(t), 256);
    check_hard_cases(t);
    check_random_text(t);
    assert_int_equal(check_round_trip(t, "\xff\x00\x80", 3), 3);
    tokenizer_close(t);
}

TEST(a_trained_model_gives_text_back) {
    struct Fixture *f = *state;
    assert_int_equal(tokenizer_vocab(f->t), 700);
    check_hard_cases(f->t);
    check_random_text(f->t);
    size_t ids = check_round_trip(f->t, f->text, f->text_bytes);
    assert_true(ids * 2 < f->text_bytes); // and it is worth having
}

// More than one stretch of 16 KiB without a newline or space: cut between characters.
TEST(a_long_line_comes_back) {
    struct Fixture *f = *state;
    size_t n = 100000;
    char *text = base_alloc(n);
    for (size_t i = 0; i + 2 < n; i += 3)
        memcpy(text + i, "\xe2\x82\xac", 3);
    check_round_trip(f->t, text, n / 3 * 3);
    memset(text, 'a', n);
    check_round_trip(f->t, text, n);
    memset(text, ' ', n);
    check_round_trip(f->t, text, n);
    free(text);
}

TEST(training_is_repeatable) {
    struct Fixture *f = *state;
    char *model;
    size_t bytes;
    struct Error e;
    assert_ok(spm_train(f->text, f->text_bytes, 700, &model, &bytes, &e), &e);
    assert_int_equal(bytes, f->model_bytes);
    assert_memory_equal(model, f->model, bytes);
    free(model);
}

TEST(too_many_pieces_are_told) {
    struct Fixture *f = *state;
    char *model = NULL;
    size_t bytes;
    struct Error e;
    int code = spm_train(f->text, 300, 8192, &model, &bytes, &e);
    assert_error(code, -EINVAL, &e, "E_SENTENCEPIECE_TRAIN 8192");
    assert_true(error_is(&e, "E_SENTENCEPIECE_TRAIN 300"));
    assert_null(model);
}

TEST(decoding_is_concatenation) {
    struct Fixture *f = *state;
    const char *text = "  static int\n\nopen_text(struct Data *d) \xe2\x82\xac";
    struct Ids ids = {0};
    struct Error e;
    size_t n, total = 0;
    char joined[200];
    assert_ok(tokenizer_encode(f->t, text, strlen(text), &ids, &e), &e);
    for (size_t i = 0; i < ids.count; i++) {
        char *piece = tokenizer_decode(f->t, ids.data + i, 1, &n);
        memcpy(joined + total, piece, n);
        total += n;
        free(piece);
    }
    assert_int_equal(total, strlen(text));
    assert_memory_equal(joined, text, total);
    // Ids of a padded vocabulary stand for nothing.
    char *none = tokenizer_decode(f->t, (int32_t[]){700, 50000, -1}, 3, &n);
    assert_int_equal(n, 0);
    assert_string_equal(none, "");
    free(none);
    ids_free(&ids);
}

TEST(ids_are_numbers) {
    struct Tokenizer *t;
    struct Ids ids = {0};
    struct Error e;
    size_t n;
    tokenizer_open_ids(&t, 50257);
    assert_ok(tokenizer_encode(t, " 464 0\n50256 ", 13, &ids, &e), &e);
    assert_int_equal(ids.count, 3);
    assert_int_equal(ids.data[2], 50256);
    char *text = tokenizer_decode(t, ids.data, 3, &n);
    assert_string_equal(text, "464 0 50256 ");
    free(text);
    static const char *const bad[] = {"50257", "hello", "12a", "-1", "99999999999999999999999"};
    for (size_t i = 0; i < 5; i++) {
        int code = tokenizer_encode(t, bad[i], strlen(bad[i]), &ids, &e);
        assert_error(code, -EINVAL, &e, "E_PROMPT_IDS");
    }
    ids_free(&ids);
    tokenizer_close(t);
}

TEST(the_flag_is_parsed) {
    struct TokenizerSpec s;
    struct Error e;
    assert_ok(tokenizer_parse(&s, "train:8192", &e), &e);
    assert_true(s.kind == TOKENIZER_TRAIN && s.pieces == 8192);
    assert_ok(tokenizer_parse(&s, "byte", &e), &e);
    assert_true(s.kind == TOKENIZER_BYTE);
    assert_ok(tokenizer_parse(&s, "ids", &e), &e);
    assert_true(s.kind == TOKENIZER_IDS);
    assert_ok(tokenizer_parse(&s, "a/b.model", &e), &e);
    assert_string_equal(s.path, "a/b.model");
    // clang-format off
    static const char *const bad[] = {"", "bytes", "train", ".model", "x.txt", "train:",
        "train:256", "train:65537", "train:8192x", "train:-5", "train: 900", "train:1e4",
        "train:99999999999999999999"};
    // clang-format on
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bool pieces = strncmp(bad[i], "train:", 6) == 0;
        assert_error(tokenizer_parse(&s, bad[i], &e), -EINVAL, &e,
                     pieces ? "E_TOKENIZER_PIECES" : "E_TOKENIZER_NAME");
    }
}

// Every cut and many single wrong bytes: refused with a line, or harmless; never a crash.
TEST(damaged_models_are_refused) {
    struct Fixture *f = *state;
    struct Error e;
    struct Spm *s;
    size_t refused = 0, tried = 0;
    for (size_t n = 0; n < f->model_bytes; n += 1 + f->model_bytes / 200) {
        int code = spm_open(&s, f->model, n, "cut.model", &e);
        tried++;
        if (code) {
            assert_error(code, -EINVAL, &e, "E_SENTENCEPIECE cut.model");
            refused++;
        }
        spm_close(s);
    }
    // A cut between two pieces is a valid message, but the trainer's part behind them is gone then.
    assert_true(refused * 10 > tried * 9);
    char *copy = base_alloc(f->model_bytes);
    for (uint64_t k = 0; k < 300; k++) {
        memcpy(copy, f->model, f->model_bytes);
        copy[rng_bits(1, k) % f->model_bytes] = (char)rng_bits(2, k);
        if (!spm_open(&s, copy, f->model_bytes, "flip.model", &e)) {
            struct Ids ids = {0};
            spm_encode(s, f->text, 500, true, &ids, &e);
            ids_free(&ids);
        }
        spm_close(s);
    }
    free(copy);
    assert_error(spm_open(&s, "this is text", 12, "text.model", &e), -EINVAL, &e,
                 "E_SENTENCEPIECE text.model");
    assert_error(spm_open(&s, "", 0, "empty.model", &e), -EINVAL, &e, "E_SENTENCEPIECE 0");
    struct Tokenizer *t;
    assert_error(tokenizer_open_model(&t, "/no/such.model", &e), -ENOENT, &e,
                 "E_FILE_READ /no/such.model");
}

// A model with a table of replacements, as models from elsewhere have: behind our own model comes a
// normalizer (field 3) with a table (field 2) of one trie block whose unit `at` is `unit`.
static int check_table_with(const struct Fixture *f, uint32_t at, uint32_t unit,
                            uint32_t trie_bytes, struct Error *e) {
    enum { TABLE = 4 + 1024 + 3 };
    unsigned char table[TABLE] = {0};
    memcpy(table, &trie_bytes, 4);
    memcpy(table + 4 + 4 * at, &unit, 4);
    table[TABLE - 2] = 'x'; // the replacements: "", "x"
    size_t n = f->model_bytes;
    char *model = base_alloc(n + TABLE + 6);
    memcpy(model, f->model, n);
    const unsigned char head[6] = {0x1a, 0x80 | ((TABLE + 3) & 0x7f), (TABLE + 3) >> 7,
                                   0x12, 0x80 | (TABLE & 0x7f),       TABLE >> 7};
    memcpy(model + n, head, 6);
    memcpy(model + n + 6, table, TABLE);
    int code = spm_check_model(model, n + TABLE + 6, "table.model", e);
    free(model);
    return code;
}

TEST(tables_that_lead_outside_are_refused) {
    struct Fixture *f = *state;
    struct Error e;
    assert_ok(check_table_with(f, 0, 0, 1024, &e), &e);
    assert_ok(check_table_with(f, 0, 5 << 10, 1024, &e), &e);         // to unit 5 xor byte
    assert_ok(check_table_with(f, 0, 5 << 10 | 0x100, 1024, &e), &e); // with a leaf there
    int code = check_table_with(f, 0, 256 << 10, 1024, &e);
    assert_error(code, -EINVAL, &e, "E_SENTENCEPIECE");
    code = check_table_with(f, 0, 1 << 10 | 0x200, 1024, &e); // offset 256, by the other form
    assert_error(code, -EINVAL, &e, "E_SENTENCEPIECE");
    code = check_table_with(f, 0, 0x80000000u | 256 << 10, 1024, &e); // the root, marked as a leaf
    assert_error(code, -EINVAL, &e, "E_SENTENCEPIECE");
    code = check_table_with(f, 7, 256 << 10, 1024, &e);
    assert_error(code, -EINVAL, &e, "E_SENTENCEPIECE");
    assert_ok(check_table_with(f, 7, 0x80000000u | 256 << 10, 1024, &e),
              &e); // a leaf leads nowhere
    assert_error(check_table_with(f, 0, 0, 2048, &e), -EINVAL, &e, "E_SENTENCEPIECE");
    assert_error(check_table_with(f, 0, 0, 1020, &e), -EINVAL, &e, "E_SENTENCEPIECE");
    assert_error(check_table_with(f, 0, 0, 0, &e), -EINVAL, &e, "E_SENTENCEPIECE");
}

TEST(a_leaf_without_replacement_is_refused) {
    struct Fixture *f = *state;
    struct Error e;
    // Unit 0 names a leaf at its own place 0 xor 0: as a leaf, its value is itself, far too large.
    int code = check_table_with(f, 0, 0x100 | 'a', 1024, &e);
    assert_error(code, -EINVAL, &e, "E_SENTENCEPIECE");
}

// Opens the fixture's model with more fields behind it, as models from elsewhere have them.
static struct Spm *open_with(const struct Fixture *f, const char *fields, size_t more) {
    size_t n = f->model_bytes;
    char *model = base_alloc(n + more);
    memcpy(model, f->model, n);
    memcpy(model + n, fields, more);
    struct Spm *s;
    struct Error e;
    assert_ok(spm_open(&s, model, n + more, "more.model", &e), &e);
    free(model);
    return s;
}

// A model's own samples are for sentences with a space in front; they must not bar it from reading
// streams.
TEST(a_self_test_is_left_out) {
    static const char sample[] = "\x22\x0b\x0a\x09\x0a\x01x\x12\x04none"; // "x" should give "none"
    struct Spm *s = open_with(*state, sample, sizeof sample - 1);
    assert_int_equal(spm_vocab(s), 700);
    spm_close(s);
}

// A model that asks for a space in front gets it where a text begins, and there alone; runs of
// spaces are not folded, whatever it asks for.
TEST(a_text_begins_with_the_space_that_the_model_wants) {
    struct Fixture *f = *state;
    static const char text[] = " int   main (void)";
    struct Spm *s = open_with(f, "\x1a\x04\x18\x01\x20\x01", 6);
    for (int begins = 0; begins < 2; begins++) {
        struct Ids ids = {0}, want = {0};
        struct Error e;
        assert_ok(spm_encode(s, text + 1, sizeof text - 2, begins, &ids, &e), &e);
        assert_ok(tokenizer_encode(f->t, text + !begins, sizeof text - 1 - !begins, &want, &e), &e);
        assert_int_equal(ids.count, want.count);
        assert_memory_equal(ids.data, want.data, ids.count * sizeof *ids.data);
        ids_free(&ids);
        ids_free(&want);
    }
    assert_int_equal(spm_begin(s), -1);
    assert_int_equal(spm_end(s), -1);
    assert_int_equal(spm_control(s, "int"), -1);
    assert_false(spm_adds_space(f->model, f->model_bytes));
    spm_close(s);
}

// Each of some threads encodes a text piece by piece; all share what the tokenizer keeps.
enum { CALLERS = 4, PIECE = 200 };

struct Caller {
    const struct Tokenizer *t;
    const char *text;
    size_t bytes;
    int err;
    struct Ids ids;
};

static void *encode_pieces(void *caller) {
    struct Caller *c = caller;
    struct Error e;
    for (size_t at = 0; at + PIECE < c->bytes && !c->err; at += PIECE)
        c->err = tokenizer_encode_plain(c->t, c->text + at, PIECE, &c->ids, &e);
    return NULL;
}

TEST(callers_share_a_tokenizer) {
    const struct Fixture *f = *state;
    struct Tokenizer *t;
    struct Error e;
    struct Caller alone = {.text = f->text, .bytes = f->text_bytes}, many[CALLERS];
    pthread_t thread[CALLERS];
    assert_ok(tokenizer_open_json(&t, "tests/fixtures/bpe/qwen2/tokenizer.json", &e), &e);
    alone.t = t;
    many[0] = many[1] = many[2] = many[3] = alone;
    encode_pieces(&alone);
    assert_true(alone.err == 0 && alone.ids.count > 1000);
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, encode_pieces, &many[i]), 0);
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(thread[i], NULL);
        assert_true(many[i].err == 0 && many[i].ids.count == alone.ids.count);
        assert_memory_equal(many[i].ids.data, alone.ids.data, alone.ids.count * sizeof(int32_t));
        ids_free(&many[i].ids);
    }
    ids_free(&alone.ids);
    tokenizer_close(t);
}

AROUND_ALL(set_up, tear_down);
