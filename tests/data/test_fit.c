// What the data chooses where nobody says it: the tokenizer, by the size and letters of the
// training text; the length of a short text's sequences; that a plan predicts both. And bits per
// byte, by which such choices are compared.
#include "data/text/data.h"
#include "data/text/prepare.h"
#include "kernels/dtype.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

#include <sys/stat.h>
#include <errno.h>
#include <math.h>

enum { USUAL = 64 }; // tokens of a sequence

struct Fixture {
    char *folder, *cache, *path;
};

static int setup(void **state) {
    struct Fixture *f = base_alloc_zeroed(sizeof *f);
    f->folder = scratch_make();
    f->cache = base_format("%s/cache", f->folder);
    f->path = base_format("%s/text.txt", f->folder);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct Fixture *f = *state;
    scratch_remove(f->folder);
    free(f->cache);
    free(f->path);
    free(f);
    return 0;
}

static struct DataSpec spec_of(const struct Fixture *f) {
    return (struct DataSpec){
        .data = f->path, .cache_dir = f->cache, .seq_len = USUAL, .seq_len_fits = true};
}

// A text whose training part has so many bytes: words of two letters from some at random, and in
// front `letters` different ones of three bytes.
static void write_text(const struct Fixture *f, size_t train_bytes, size_t letters) {
    size_t bytes = (train_bytes * 10 + 8) / 9;
    char *text = base_alloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        text[i] = i % 3 == 2 ? (i % 60 == 59 ? '\n' : ' ') : (char)('a' + rng_bits(7, i) % 26);
    for (size_t i = 0; i < letters; i++) {
        uint32_t letter = (uint32_t)(0x4e00 + i);
        char *at = text + 3 * i;
        at[0] = (char)(0xe0 | letter >> 12);
        at[1] = (char)(0x80 | (letter >> 6 & 0x3f));
        at[2] = (char)(0x80 | (letter & 0x3f));
    }
    free(scratch_write(f->folder, "text.txt", text, bytes));
    free(text);
}

// ---- the tokenizer ------------------------------------------------------------------------------

static void expect_fit(const struct Fixture *f, size_t train_bytes, size_t letters, size_t pieces) {
    write_text(f, train_bytes, letters);
    struct SourceFile file = {.path = f->path};
    struct PrepareSpec spec = {.files = &file, .file_count = 1, .cache_dir = f->cache};
    struct TokenizerSpec fit;
    struct Error e;
    size_t val_bytes;
    assert_ok(prepare_predict(&spec, &fit, &val_bytes, &e), &e);
    assert_int_equal(fit.kind, pieces ? TOKENIZER_TRAIN : TOKENIZER_BYTE);
    assert_int_equal(fit.pieces, pieces);
    assert_in_range(val_bytes, train_bytes / 9, train_bytes / 9 + 1);
}

TEST(pieces_grow_with_the_text) {
    const struct Fixture *f = *state;
    expect_fit(f, 20000, 0, 0);
    expect_fit(f, (256 << 10) - 1, 0, 0);
    expect_fit(f, 256 << 10, 0, 512);
    expect_fit(f, (512 << 10) - 1, 0, 512);
    expect_fit(f, 512 << 10, 0, 1024);
    expect_fit(f, 3 << 20, 0, 4096);
    expect_fit(f, 4 << 20, 0, 8192);
    expect_fit(f, 20 << 20, 0, 8192);
    assert_int_equal(scratch_count_files(f->folder), 1); // nothing was made
}

TEST(pieces_are_more_than_letters) {
    const struct Fixture *f = *state;
    expect_fit(f, 300000, 200, 512);
    expect_fit(f, 300000, 228, 512); // and 26, space and newline: 256
    expect_fit(f, 300000, 229, 1024);
    expect_fit(f, 300000, 1500, 4096);
    expect_fit(f, 300000, 9000, 8192);
    expect_fit(f, 20000, 1500, 0);
}

static void expect_data(const struct DataSpec *spec, const char *tokenizer, size_t vocab,
                        size_t seq_len) {
    struct Data *d;
    struct Error e;
    size_t predicted_vocab, predicted_len;
    bool packed = true;
    assert_ok(data_open(&d, spec, &e), &e);
    if (tokenizer)
        assert_string_equal(data_chosen_tokenizer(d), tokenizer);
    else
        assert_null(data_chosen_tokenizer(d));
    assert_int_equal(data_vocab(d), vocab);
    assert_int_equal(data_seq_len(d), seq_len);
    assert_true(data_val_samples(d) > 0);
    data_close(d);
    assert_ok(data_predict(spec, &predicted_vocab, &predicted_len, &packed, &e), &e);
    if (!tokenizer || seq_len == USUAL)
        assert_int_equal(predicted_len, seq_len);
    assert_int_equal(predicted_vocab, vocab);
    assert_false(packed);
}

TEST(the_tokenizer_that_fits_is_made) {
    const struct Fixture *f = *state;
    struct DataSpec spec = spec_of(f);
    write_text(f, 300000, 0);
    expect_data(&spec, "train:512", 512, USUAL);
    spec.tokenizer = "train:512"; // the same as if it had been said
    size_t files = scratch_count_files(f->cache);
    expect_data(&spec, NULL, 512, USUAL);
    assert_int_equal(scratch_count_files(f->cache), files);
    spec.tokenizer = "byte";
    expect_data(&spec, NULL, 256, USUAL);
    spec.tokenizer = NULL;
    write_text(f, 20000, 0);
    expect_data(&spec, "byte", 256, USUAL);
}

// Only trying tells that a text has no 512 pieces.
TEST(a_text_that_repeats_itself_becomes_bytes) {
    const struct Fixture *f = *state;
    size_t bytes = 400 << 10;
    char *text = base_alloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        text[i] = "ab \n"[i % 4];
    free(scratch_write(f->folder, "text.txt", text, bytes));
    free(text);
    struct DataSpec spec = spec_of(f);
    struct Data *d;
    struct Error e;
    assert_ok(data_open(&d, &spec, &e), &e);
    assert_string_equal(data_chosen_tokenizer(d), "byte");
    assert_int_equal(data_vocab(d), 256);
    data_close(d);
    spec.tokenizer = "train:512"; // what is asked for is made, or refused
    assert_error(data_open(&d, &spec, &e), -EINVAL, &e, "E_SENTENCEPIECE_TRAIN 512");
}

// ---- the length of a sequence -------------------------------------------------------------------

TEST(short_texts_have_short_sequences) {
    const struct Fixture *f = *state;
    struct DataSpec spec = spec_of(f);
    static const struct {
        size_t val_bytes, seq_len;
    } cases[] = {{66, 64}, {65, 64}, {64, 32}, {33, 32}, {32, 16}, {10, 8}, {9, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool packed;
        size_t bytes = 10 * cases[i].val_bytes, vocab, seq_len;
        char *text = base_alloc(bytes);
        memset(text, 'x', bytes);
        free(scratch_write(f->folder, "text.txt", text, bytes));
        free(text);
        expect_data(&spec, "byte", 256, cases[i].seq_len);
        struct Error e;
        assert_ok(data_predict(&spec, &vocab, &seq_len, &packed, &e), &e);
        assert_int_equal(seq_len, cases[i].seq_len);
    }
    struct Data *d;
    struct Error e;
    spec.seq_len_fits = false; // --seq-len was given
    assert_error(data_open(&d, &spec, &e), -EINVAL, &e, "E_DATA_TOO_SMALL 9");
    spec.seq_len_fits = true;
    char eighty[80]; // 8 to validate on, and 8 targets need 9
    memset(eighty, 'x', sizeof eighty);
    free(scratch_write(f->folder, "text.txt", eighty, sizeof eighty));
    assert_error(data_open(&d, &spec, &e), -EINVAL, &e, "E_DATA_TOO_SMALL --seq-len 7");
}

// ---- bits per byte ------------------------------------------------------------------------------

TEST(bits_are_counted_by_bytes) {
    const struct Fixture *f = *state;
    struct DataSpec spec = spec_of(f);
    struct Data *d;
    struct Error e;
    write_text(f, 27000, 0);
    spec.tokenizer = "byte";
    assert_ok(data_open(&d, &spec, &e), &e);
    assert_true(fabs(data_bits_per_byte(d, log(4)) - 2) < 1e-12);
    data_close(d);
    spec.tokenizer = "train:400"; // fewer tokens, each worth more bits
    assert_ok(data_open(&d, &spec, &e), &e);
    double tokens = (double)data_val_tokens(d);
    assert_true(tokens > 500 && tokens < 2900);
    assert_true(fabs(data_bits_per_byte(d, log(2)) - tokens / 3000) < 1e-12);
    assert_true(isnan(data_bits_per_byte(d, NAN)));
    data_close(d);
    // Files given to validate on, joined by a newline where the first has none: 11 + 6 bytes.
    char *folder = base_format("%s/val", f->folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    free(scratch_write(folder, "a", "abcd efghi", 10));
    free(scratch_write(folder, "b", "klmno\n", 6));
    spec.val_data = folder;
    spec.seq_len = 4;
    assert_ok(data_open(&d, &spec, &e), &e);
    tokens = (double)data_val_tokens(d);
    assert_true(fabs(data_bits_per_byte(d, log(2)) - tokens / 17) < 1e-12);
    data_close(d);
    spec.val_data = NULL;
    spec.data = "random";
    spec.tokenizer = NULL;
    free(folder);
    assert_ok(data_open(&d, &spec, &e), &e);
    assert_true(data_bits_per_byte(d, 1) == 0); // there is no text
    data_close(d);
}

AROUND_EACH(setup, teardown);
