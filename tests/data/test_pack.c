// Examples packed into sequences: nearly full, none split, each place's document and targets as the
// mask says, whoever reads them in whatever order; counts without reading; an epoch has every
// example once; and what is held out is never trained on.
#include "data/text/data.h"
#include "data/text/pack.h"
#include "kernels/dtype.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <math.h>
#include <sys/stat.h>

enum { T = 256, MADE = 500 };

// Lengths of answers and questions spread like those of chats: log-normal, most of them short.
static size_t chat_length(uint64_t seed, uint64_t i, double median) {
    double a = (double)(rng_bits(seed, 2 * i) >> 11) * 0x1p-53 + 0x1p-54;
    double b = (double)(rng_bits(seed, 2 * i + 1) >> 11) * 0x1p-53;
    return (size_t)(median * exp(0.8 * sqrt(-2 * log(a)) * cos(2 * M_PI * b))) + 1;
}

// FOLDER/NAME of n examples, each of whose bytes says which one it is: a question of letters, an
// answer of the same letter in capitals. free() it.
static char *write_jsonl(const char *folder, const char *name, uint64_t seed, size_t n,
                         double median) {
    char *path = base_format("%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++) {
        int letter = 'a' + (int)(i % 26);
        fputs("{\"prompt\": \"", f);
        for (size_t k = chat_length(seed, 2 * i, median / 2); k; k--)
            fputc(letter, f);
        fputs("\", \"completion\": \"", f);
        for (size_t k = chat_length(seed, 2 * i + 1, median); k; k--)
            fputc(letter - 'a' + 'A', f);
        fputs("\"}\n", f);
    }
    assert_int_equal(fclose(f), 0);
    return path;
}

struct Fixture {
    char *folder, *cache, *a, *b;
};

static int set_up(void **state) {
    struct Fixture *f = base_alloc(sizeof *f);
    f->folder = scratch_make();
    f->cache = base_format("%s/cache", f->folder);
    f->a = write_jsonl(f->folder, "a.jsonl", 1, MADE, 60);
    f->b = write_jsonl(f->folder, "b.jsonl", 2, 150, 30);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct Fixture *f = *state;
    scratch_remove(f->folder);
    free(f->cache);
    free(f->a);
    free(f->b);
    free(f);
    return 0;
}

static struct DataSpec spec_of(const struct Fixture *f, const char *data, size_t t) {
    return (struct DataSpec){
        .data = data, .tokenizer = "byte", .cache_dir = f->cache, .seq_len = t, .seed = 7};
}

static struct Data *open_spec(const struct DataSpec *spec) {
    struct Data *d;
    struct Error e;
    assert_ok(data_open(&d, spec, &e), &e);
    return d;
}

// A sequence as it was read, and what its documents must look like: letters, and behind them their
// capitals, of which alone count; padding counts for nothing. Returns how many count; *filled and
// *documents grow.
static uint64_t check_sequence(const int32_t *x, const int32_t *y, const int32_t *starts, size_t t,
                               size_t *filled, size_t *documents) {
    uint64_t counted = 0;
    for (size_t i = 0; i < t; i++) {
        assert_in_range(starts[i], 0, i);
        assert_true(!i || starts[i] >= starts[i - 1]);
        counted += y[i] != UNCOUNTED;
        if (!x[i]) {
            assert_int_equal(y[i], UNCOUNTED);
            assert_int_equal(starts[i], i);
            continue;
        }
        ++*filled;
        *documents += (size_t)starts[i] == i;
        assert_int_equal(x[i] | 32, x[starts[i]] | 32); // of one example
        bool inner = i + 1 < t && starts[i + 1] == starts[i] && x[i + 1];
        if (y[i] == UNCOUNTED) {
            assert_true(x[i] & 32); // behind a capital all count
            assert_true(!inner || (x[i + 1] & 32));
        } else {
            assert_int_equal(y[i] | 32, x[i] | 32);
            assert_false(y[i] & 32);
            assert_true(!inner || y[i] == x[i + 1]);
        }
    }
    return counted;
}

TEST(sequences_are_full) {
    struct Fixture *f = *state;
    static const size_t lengths[] = {256, 512, 1024, 2048};
    for (size_t k = 0; k < 4; k++) {
        size_t t = lengths[k], filled = 0, documents = 0;
        struct DataSpec spec = spec_of(f, f->a, t);
        struct Data *d = open_spec(&spec);
        uint64_t n = data_epoch_samples(d), counted, all = 0;
        int32_t *x = base_alloc(3 * t * sizeof *x), *y = x + t, *starts = y + t;
        struct Error e;
        assert_true(data_packed(d));
        for (uint64_t i = 0; i < n; i++) {
            assert_ok(data_train_batch(d, i, 1, &(struct Batch){x, y, starts}, &e), &e);
            uint64_t here = check_sequence(x, y, starts, t, &filled, &documents);
            assert_ok(data_train_counted(d, i, 1, &counted, &e), &e);
            assert_int_equal(counted, here);
            all += here;
        }
        double share = (double)filled / (double)(n * t);
        print_message("%zu documents in %d sequences of %zu: %.1f %% full\n", documents, (int)n, t,
                      100 * share);
        assert_true(share >= 0.9);
        assert_in_range(documents, MADE * 9 / 10 - 20,
                        MADE * 9 / 10); // but those that were cut away
        assert_ok(data_train_counted(d, 0, n, &counted, &e), &e);
        assert_int_equal(counted, all);
        assert_ok(data_train_counted(d, n, n, &counted, &e), &e); // the next epoch
        assert_int_equal(counted, all);
        free(x);
        data_close(d);
    }
}

// Ranks that read their samples alone, in no special order, have what one rank has; and an epoch is
// another order of the same sequences.
TEST(ranks_read_the_same) {
    struct Fixture *f = *state;
    struct DataSpec spec = spec_of(f, f->a, T);
    struct Data *one = open_spec(&spec), *ranks[3];
    struct Error e;
    enum { EACH = 4, ROWS = 3 * EACH };
    int32_t want[3 * ROWS * T], got[3 * EACH * T];
    for (int r = 0; r < 3; r++)
        ranks[r] = open_spec(&spec);
    for (uint64_t step = 0; step < 20; step++) {
        struct Batch all = {want, want + ROWS * T, want + 2 * ROWS * T};
        assert_ok(data_train_batch(one, step * ROWS, ROWS, &all, &e), &e);
        for (size_t r = 3; r-- > 0;) {
            struct Batch part = {got, got + EACH * T, got + 2 * EACH * T};
            assert_ok(data_train_batch(ranks[r], step * ROWS + r * EACH, EACH, &part, &e), &e);
            for (int k = 0; k < 3; k++)
                assert_memory_equal(got + k * EACH * T, want + (k * ROWS + r * EACH) * T,
                                    EACH * T * sizeof *got);
        }
    }
    uint64_t n = data_epoch_samples(one), equal = 0;
    for (uint64_t i = 0; i < n; i++) {
        assert_ok(data_train_batch(one, i, 1, &(struct Batch){want, want + T, NULL}, &e), &e);
        assert_ok(data_train_batch(one, n + i, 1, &(struct Batch){got, got + T, NULL}, &e), &e);
        equal += !memcmp(want, got, T * sizeof *got);
    }
    assert_in_range(equal, 0, n / 5);
    for (int r = 0; r < 3; r++)
        data_close(ranks[r]);
    data_close(one);
}

// The last tenth of the examples, whose numbers the letters tell: a run of them in order.
TEST(a_tenth_is_held_out) {
    struct Fixture *f = *state;
    char *path = base_format("%s/numbers.jsonl", f->folder);
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < 40; i++)
        fprintf(file, "{\"text\": \"%c%c\"}\n", '0' + i / 10, '0' + i % 10);
    fclose(file);
    struct DataSpec spec = spec_of(f, path, 4);
    spec.pack = PACK_OFF;
    struct Data *d = open_spec(&spec);
    struct Error e;
    bool seen[40] = {false};
    assert_false(data_packed(d));
    assert_int_equal(data_epoch_samples(d), 36);
    assert_int_equal(data_val_samples(d), 4);
    for (uint64_t i = 0; i < 40; i++) {
        int32_t x[4], y[4], starts[4];
        struct Batch b = {x, y, starts};
        assert_ok(i < 36 ? data_train_batch(d, i, 1, &b, &e) : data_val_batch(d, i - 36, 1, &b, &e),
                  &e);
        int32_t number = 10 * (x[0] - '0') + y[0] - '0';
        assert_in_range(number, i < 36 ? 0 : i, i < 36 ? 35 : i);
        assert_false(seen[number]);
        seen[number] = true;
        assert_memory_equal(y + 1, ((int32_t[]){UNCOUNTED, UNCOUNTED, UNCOUNTED}), 12);
        assert_memory_equal(x + 1, ((int32_t[]){0, 0, 0}), 12);
        assert_memory_equal(starts, ((int32_t[]){0, 1, 2, 3}), 16);
    }
    uint64_t counted;
    assert_ok(data_val_counted(d, 0, 4, &counted, &e), &e);
    assert_int_equal(counted, 4);
    data_close(d);
    free(path);
}

// Packing and seeds are part of what a checkpoint compares; what was prepared is a token file that
// is itself data, with the same sequences.
TEST(prepared_examples_are_data) {
    struct Fixture *f = *state;
    struct DataSpec spec = spec_of(f, f->b, T);
    struct Data *jsonl = open_spec(&spec);
    spec.pack = PACK_OFF;
    struct Data *apart = open_spec(&spec);
    assert_true(data_fingerprint(jsonl) != data_fingerprint(apart));
    assert_true(data_epoch_samples(apart) > data_epoch_samples(jsonl));
    struct DataSpec own = spec_of(f, f->b, T);
    own.cache_dir = f->folder;
    struct Data *again = open_spec(&own);
    char *mine = base_format("%s/examples-*/tokens.bin", f->folder);
    struct DataSpec tokens = spec_of(f, mine, T);
    struct Data *shards = open_spec(&tokens);
    assert_int_equal(data_fingerprint(again), data_fingerprint(jsonl));
    assert_true(data_packed(shards));
    assert_int_equal(data_epoch_samples(shards), data_epoch_samples(jsonl));
    struct Error e;
    for (uint64_t i = 0; i < data_epoch_samples(jsonl); i++) {
        int32_t x[2][3 * T];
        assert_ok(data_train_batch(jsonl, i, 1, &(struct Batch){x[0], x[0] + T, x[0] + 2 * T}, &e),
                  &e);
        assert_ok(data_train_batch(shards, i, 1, &(struct Batch){x[1], x[1] + T, x[1] + 2 * T}, &e),
                  &e);
        assert_memory_equal(x[0], x[1], sizeof x[0]);
    }
    data_close(jsonl);
    data_close(apart);
    data_close(again);
    data_close(shards);
    free(mine);
}

// Three of a to one of b, each in its own order and epochs; both validation parts, in turn.
TEST(sources_take_turns) {
    struct Fixture *f = *state;
    char *data = base_format("%s:3\n%s", f->a, f->b);
    struct DataSpec spec = spec_of(f, data, T), spec_a = spec_of(f, f->a, T);
    struct DataSpec spec_b = spec_of(f, f->b, T);
    struct Data *both = open_spec(&spec), *a = open_spec(&spec_a), *b = open_spec(&spec_b);
    uint64_t na = data_val_samples(a), nb = data_val_samples(b), of_a = 0;
    int32_t x[T], y[T], want_x[T], want_y[T];
    struct Error e;
    assert_int_equal(data_epoch_samples(both), data_epoch_samples(a) + data_epoch_samples(b));
    for (uint64_t i = 0; i < 1000; i++) {
        assert_ok(data_train_batch(both, i, 1, &(struct Batch){x, y, NULL}, &e), &e);
        assert_ok(data_train_batch(a, of_a, 1, &(struct Batch){want_x, want_y, NULL}, &e), &e);
        of_a += !memcmp(x, want_x, sizeof x);
    }
    assert_in_range(of_a, 749, 751);
    assert_int_equal(data_val_samples(both), na + nb);
    for (uint64_t i = 0; i < na + nb; i++) {
        struct Data *own = i < na ? a : b;
        assert_ok(data_val_batch(both, i, 1, &(struct Batch){x, y, NULL}, &e), &e);
        assert_ok(
            data_val_batch(own, i < na ? i : i - na, 1, &(struct Batch){want_x, want_y, NULL}, &e),
            &e);
        assert_memory_equal(x, want_x, sizeof x);
        assert_memory_equal(y, want_y, sizeof y);
    }
    char *other = base_format("%s:3\n%s:2", f->a, f->b);
    spec.data = other;
    struct Data *weighed = open_spec(&spec);
    assert_true(data_fingerprint(weighed) != data_fingerprint(both));
    data_close(weighed);
    data_close(both);
    data_close(a);
    data_close(b);
    free(other);
    free(data);
}

// llmq's masks without documents: windows as ever, and what does not count is told and counted.
TEST(masks_alone_count) {
    struct Fixture *f = *state;
    char *path = base_format("%s/masked.bin", f->folder), header[1024 + 401 * 4 + 51] = {0};
    memcpy(header, "BIN.TOK\n", 8);
    memcpy(header + 8, (int32_t[]){2, 4, 401, 500, 1}, 20);
    for (int32_t i = 0; i < 401; i++)
        memcpy(header + 1024 + 4 * i, &i, 4);
    for (size_t i = 0; i < 401; i += 3)
        header[1024 + 401 * 4 + i / 8] |= (char)(1 << i % 8);
    free(scratch_write(f->folder, "masked.bin", header, sizeof header));
    struct DataSpec spec = spec_of(f, path, 16);
    spec.tokenizer = NULL;
    spec.vocab = 50257;
    spec.val_data = path;
    struct Data *d = open_spec(&spec);
    struct Error e;
    assert_false(data_packed(d));
    assert_int_equal(data_epoch_samples(d), 25);
    for (uint64_t i = 0; i < 25; i++) {
        int32_t x[16], y[16], starts[16];
        uint64_t counted, want = 0;
        assert_ok(data_train_batch(d, i, 1, &(struct Batch){x, y, starts}, &e), &e);
        for (int t = 0; t < 16; t++) {
            assert_int_equal(y[t], x[t] % 3 ? UNCOUNTED : x[t] + 1);
            assert_int_equal(starts[t], 0);
            want += x[t] % 3 == 0;
        }
        assert_ok(data_train_counted(d, i, 1, &counted, &e), &e);
        assert_int_equal(counted, want);
    }
    data_close(d);
    free(path);
}

static void expect_error(const struct DataSpec *spec, const char *part) {
    struct Data *d;
    struct Error e;
    assert_error(data_open(&d, spec, &e), -EINVAL, &e, part);
    assert_null(d);
}

TEST(what_does_not_go_together_is_refused) {
    struct Fixture *f = *state;
    char *text = scratch_write(f->folder, "text.txt", "some text to train on\n", 22);
    char *empty = scratch_write(f->folder, "none.jsonl", "\n", 0);
    char *question = scratch_write(f->folder, "q.jsonl",
                                   "{\"prompt\": \"aaaaaaaa\", \"completion\": \"B\"}\n", 42);
    char *mixed = base_format("%s\n%s", f->a, text), *twice = base_format("%s\n%s", text, text);
    char *one = base_format("%s\nrandom", f->a);
    struct DataSpec spec = spec_of(f, mixed, T);
    expect_error(&spec, "E_DATA_KINDS a.jsonl");
    spec.data = one;
    expect_error(&spec, "E_DATA_KINDS");
    spec.data = empty;
    expect_error(&spec, "E_FILE_EMPTY none.jsonl");
    spec.data = question;
    expect_error(&spec, "E_DATA_TOO_SMALL validation");
    spec.val_data = text;
    expect_error(&spec, "E_DATA_KINDS --val-data");
    spec = spec_of(f, text, 4);
    spec.pack = PACK_ON;
    expect_error(&spec, "E_PACK_DOCUMENTS --pack on");
    spec.pack = PACK_AUTO;
    spec.data = twice;
    spec.tokenizer = NULL;
    expect_error(&spec, "E_TOKENIZER_SHARED 2");
    spec.data = f->a;
    spec.tokenizer = "ids";
    expect_error(&spec, "E_TOKENIZER_DATA");
    spec.tokenizer = "train:512";
    expect_error(&spec, "E_TOKENIZER_DATA examples");
    spec.tokenizer = NULL;
    spec.model = "hf:there";
    expect_error(&spec, "E_TOKENIZER_MISSING --init hf:there");
    char *folder = base_format("%s/mixed", f->folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    free(scratch_write(folder, "a.jsonl", "{}\n", 3));
    free(scratch_write(folder, "README.md", "x\n", 2));
    spec = spec_of(f, folder, T);
    expect_error(&spec, "E_DATA_KINDS");
    free(folder);
    free(one);
    free(mixed);
    free(twice);
    free(text);
    free(empty);
    free(question);
}

TEST(a_plan_knows) {
    struct Fixture *f = *state;
    char *list = base_format("%s:2\n%s", f->a, f->b), *glob = base_format("%s/*.jsonl", f->folder);
    const struct {
        const char *data, *tokenizer;
        enum Packing pack;
        bool packed;
    } cases[] = {{f->a, "byte", PACK_AUTO, true},  {f->a, NULL, PACK_AUTO, true},
                 {f->a, "byte", PACK_OFF, false},  {list, "byte", PACK_ON, true},
                 {glob, "byte", PACK_AUTO, true},  {"random", NULL, PACK_AUTO, false},
                 {NULL, "byte", PACK_AUTO, false}, {"tinyshakespeare", "byte", PACK_AUTO, false},
                 {"none.jsonl", "byte", 0, true},  {"http://a/b.jsonl?c", "byte", 0, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct DataSpec spec = spec_of(f, cases[i].data, T);
        spec.tokenizer = cases[i].tokenizer;
        spec.pack = cases[i].pack;
        size_t vocab, seq_len;
        bool packed = !cases[i].packed;
        struct Error e;
        assert_ok(data_predict(&spec, &vocab, &seq_len, &packed, &e), &e);
        assert_int_equal(packed, cases[i].packed);
    }
    assert_int_equal(access(f->cache, F_OK), -1); // nothing was prepared
    free(glob);
    free(list);
}

// A file that is sorted by topic, all of whose documents are of one length: neighbours are no more
// likely to be in one sequence than by chance.
TEST(what_is_sorted_is_mixed) {
    enum { DOCUMENTS = 600, PLACES = 40, SEQ = 256, TOGETHER = SEQ / PLACES };
    struct Pack p = {.count = DOCUMENTS, .room = DOCUMENTS};
    p.piece = base_alloc(DOCUMENTS * sizeof *p.piece);
    for (size_t i = 0; i < DOCUMENTS; i++)
        p.piece[i] = (struct PackPiece){.at = i, .places = PLACES, .counted = PLACES};
    pack_make(&p, SEQ, true);
    assert_int_equal(p.windows, DOCUMENTS / TOGETHER);
    size_t near = 0;
    for (size_t w = 0; w < p.windows; w++)
        for (size_t i = p.first[w]; i + 1 < p.first[w + 1]; i++) {
            uint64_t a = p.piece[i].at, b = p.piece[i + 1].at;
            near += (a > b ? a - b : b - a) < DOCUMENTS / 10;
        }
    // By chance it is a fifth of all pairs.
    assert_in_range(near, 1, p.windows * (TOGETHER - 1) * 3 / 10);
    pack_free(&p);
}

AROUND_EACH(set_up, tear_down);
