// Text to shards: what counts as text, the split, the cache, runs at the same time; and the SHA-256
// that names cache entries, by the vectors of its standard.
#include "data/text/prepare.h"
#include "data/text/sha256.h"
#include "data/cache.h"
#include "data/text/text.h"
#include "data/text/tokens.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "tests/lib/token_file.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>

// ---- SHA-256 ------------------------------------------------------------------------------------

static void expect_sha256(const char *text, size_t bytes, size_t step, const char *want) {
    struct Sha256 h;
    char hex[SHA256_HEX_BYTES];
    sha256_init(&h);
    for (size_t at = 0; at < bytes; at += step)
        sha256_update(&h, text + at, size_min(step, bytes - at));
    sha256_hex(&h, hex);
    assert_string_equal(hex, want);
}

TEST(sha256_meets_its_vectors) {
    expect_sha256("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect_sha256("abc", 3, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const char *two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    expect_sha256(two_blocks, 56, 5,
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char *million = base_alloc(1000000);
    memset(million, 'a', 1000000);
    static const size_t steps[] = {1000000, 64, 63, 65, 1};
    for (int i = 0; i < 5; i++)
        expect_sha256(million, 1000000, steps[i],
                      "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

// ---- UTF-8 and the split ------------------------------------------------------------------------

static void expect_invalid(const char *text, size_t at) {
    size_t n = strlen(text);
    assert_int_equal(text_find_invalid(text, n), at);
    // The same behind text that takes the fast path, at every alignment.
    char buffer[64];
    for (size_t front = 0; front < 20; front++) {
        memset(buffer, 'x', front);
        memcpy(buffer + front, text, n);
        assert_int_equal(text_find_invalid(buffer, front + n), front + at);
    }
}

TEST(utf8_is_told_from_other_bytes) {
    expect_invalid("plain ASCII, long enough", 24);
    expect_invalid("\xc2\x80 \xdf\xbf", 5);
    expect_invalid("\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf", 12);
    expect_invalid("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", 8);
    expect_invalid("a\x80", 1);     // a continuation alone
    expect_invalid("a\xc0\x80", 1); // too long a form
    expect_invalid("a\xc1\xbf", 1);
    expect_invalid("a\xe0\x9f\xbf", 1);
    expect_invalid("a\xf0\x8f\xbf\xbf", 1);
    expect_invalid("a\xed\xa0\x80", 1);     // a surrogate
    expect_invalid("a\xf4\x90\x80\x80", 1); // past U+10FFFF
    expect_invalid("a\xf5\x80\x80\x80", 1);
    expect_invalid("a\xff", 1);
    expect_invalid("ab\xe2\x82", 2); // cut
    expect_invalid("ab\xf0\x9f\x98", 2);
    expect_invalid("ab\xc3(", 2);
    expect_invalid("caf\xe9 in Latin-1", 3);
}

TEST(the_split_is_at_nine_tenths) {
    char text[3000];
    memset(text, 'x', sizeof text);
    assert_int_equal(text_split(text, 10), 9);
    assert_int_equal(text_split(text, 1000), 900);
    assert_int_equal(text_split(text, 1009), 908);
    assert_int_equal(text_split(text, 0), 0);
    for (size_t i = 0; i + 2 < sizeof text; i += 3)
        memcpy(text + i, "\xe2\x82\xac", 3);
    for (size_t n = 3; n <= sizeof text; n += 3) {
        size_t at = text_split(text, n);
        assert_int_equal(at % 3, 0); // between two characters
        assert_true(at <= n * 9 / 10 && at + 3 > n * 9 / 10);
    }
}

// ---- files and folders --------------------------------------------------------------------------

static void load(struct Text *t, char *path) {
    struct Error e;
    struct SourceFile file = {.path = path};
    assert_ok(text_load(t, &file, 1, &e), &e);
}

TEST(folders_are_read_in_order) {
    char *folder = scratch_make(), *inner = base_format("%s/m", folder);
    char *hidden = base_format("%s/.git", folder), *link = base_format("%s/a-link", folder);
    assert_int_equal(mkdir(inner, 0777), 0);
    assert_int_equal(mkdir(hidden, 0777), 0);
    free(scratch_write(folder, "z.txt", "\xef\xbb\xbflast", 7));
    free(scratch_write(folder, "b", "first\n", 6));
    free(scratch_write(inner, "c.md", "second", 6));
    free(scratch_write(folder, "picture", "\x89PNG\0\0\xff", 7));
    char *pipe = base_format("%s/pipe", folder); // without a writer: nobody waits for it
    assert_int_equal(mkfifo(pipe, 0600), 0);
    free(pipe);
    free(scratch_write(folder, ".hidden", "no", 2));
    free(scratch_write(hidden, "config", "no", 2));
    assert_int_equal(symlink("b", link), 0);
    struct Text t;
    load(&t, folder);
    assert_int_equal(t.bytes, 23); // what the link leads to, and the file itself
    assert_memory_equal(t.data, "first\nfirst\nsecond\nlast", 23);
    text_free(&t);
    free(inner);
    free(hidden);
    free(link);
    scratch_remove(folder);
}

static void expect_text_error(char *path, int want, const char *part) {
    struct Text t;
    struct Error e;
    struct SourceFile file = {.path = path};
    assert_error(text_load(&t, &file, 1, &e), want, &e, part);
    assert_non_null(strstr(e.text, path));
    assert_null(t.data);
}

TEST(what_is_no_text_is_refused) {
    char *folder = scratch_make();
    expect_text_error(folder, -EINVAL, "E_FILE_EMPTY");
    expect_text_error("/no/such/file", -ENOENT, "E_FILE_READ");
    char *latin = scratch_write(folder, "latin.txt", "caf\xe9 au lait", 12);
    expect_text_error(latin, -EINVAL, "E_UTF8 byte 3");
    expect_text_error(folder, -EINVAL, "E_UTF8 latin.txt: byte 3");
    char *rows = scratch_write(folder, "a.parquet", "PAR1\0\0", 6); // before latin.txt
    expect_text_error(rows, -EINVAL, "E_DATA_FORMAT Parquet");
    struct Text none;
    struct Error why;
    struct SourceFile source = {.path = folder};
    assert_error(text_load(&none, &source, 1, &why), -EINVAL, &why, "E_DATA_FORMAT a.parquet");
    assert_int_equal(unlink(rows), 0);
    free(rows);
    char *table = scratch_write(folder, "a.csv.b.csv", "prompt,completion\n", 18);
    expect_text_error(table, -EINVAL, "E_DATA_FORMAT");
    expect_text_error(folder, -EINVAL, "E_DATA_FORMAT read_csv");
    assert_int_equal(unlink(table), 0);
    free(table);
    char *zip = scratch_write(folder, "a.zip", "PK\3\4abc", 7);
    expect_text_error(zip, -EINVAL, "E_DATA_FORMAT");
    free(zip);
    char *binary = scratch_write(folder, "binary", "abc\0def", 7);
    expect_text_error(binary, -EINVAL, "E_ZERO_BYTE byte 3");
    char *empty = scratch_write(folder, "empty", "", 0);
    expect_text_error(empty, -EINVAL, "E_FILE_EMPTY");
    free(latin);
    free(binary);
    free(empty);
    scratch_remove(folder);
}

// ---- preparing ----------------------------------------------------------------------------------

struct Place {
    char *folder, *cache, *text_path;
    struct SourceFile file;
    struct PrepareSpec spec;
};

static const char *const words[] = {"the ", "rank ", "shard ",   "tier ",
                                    "of ",  "a ",    "bucket\n", "is "};

static void place_make(struct Place *p, size_t n_words) {
    p->folder = scratch_make();
    p->cache = base_format("%s/deep/cache", p->folder);
    size_t bytes = 0;
    char *text = base_alloc(n_words * 8);
    for (uint32_t i = 0; i < n_words; i++) {
        const char *word = words[i * 2654435761u >> 29];
        memcpy(text + bytes, word, strlen(word));
        bytes += strlen(word);
    }
    p->text_path = scratch_write(p->folder, "text.txt", text, bytes);
    free(text);
    p->file = (struct SourceFile){.path = p->text_path};
    p->spec = (struct PrepareSpec){.files = &p->file, .file_count = 1, .cache_dir = p->cache};
    p->spec.tokenizer = (struct TokenizerSpec){.kind = TOKENIZER_BYTE};
}

static void place_remove(struct Place *p) {
    free(p->cache);
    free(p->text_path);
    scratch_remove(p->folder);
}

// The text of a prepared shard.
static char *text_of(const struct Prepared *p, const char *path, size_t *bytes) {
    struct TokenFile f;
    struct Error e;
    assert_ok(token_file_open(&f, path, tokenizer_vocab(p->tokenizer), &e), &e);
    int32_t *ids = base_alloc(f.count * sizeof *ids);
    assert_ok(token_file_read(&f, 0, f.count, ids, &e), &e);
    char *text = tokenizer_decode(p->tokenizer, ids, f.count, bytes);
    free(ids);
    token_file_close(&f);
    return text;
}

// Training shard + validation shard = the text, and the second is its last tenth.
static void check_shards(const struct Prepared *p, const char *text_path) {
    struct Text t;
    size_t train_bytes, val_bytes;
    char *path = base_format("%s", text_path);
    load(&t, path);
    char *train = text_of(p, p->train_path, &train_bytes),
         *val = text_of(p, p->val_path, &val_bytes);
    assert_int_equal(train_bytes, text_split(t.data, t.bytes));
    assert_int_equal(train_bytes + val_bytes, t.bytes);
    assert_memory_equal(t.data, train, train_bytes);
    assert_memory_equal(t.data + train_bytes, val, val_bytes);
    free(train);
    free(val);
    free(path);
    text_free(&t);
}

TEST(shards_hold_the_text) {
    struct Place place;
    struct Prepared p;
    struct Error e;
    place_make(&place, 300000); // more than one stretch of 1 MiB
    assert_ok(prepare_text(&p, &place.spec, &e), &e);
    assert_null(p.model_path);
    check_shards(&p, place.text_path);
    prepare_free(&p);
    place.spec.tokenizer = (struct TokenizerSpec){.kind = TOKENIZER_TRAIN, .pieces = 290};
    assert_ok(prepare_text(&p, &place.spec, &e), &e);
    assert_int_equal(tokenizer_vocab(p.tokenizer), 290);
    check_shards(&p, place.text_path);
    // The trained tokenizer, given as a file, makes the same shards.
    struct Prepared again;
    place.spec.tokenizer = (struct TokenizerSpec){.kind = TOKENIZER_MODEL, .path = p.model_path};
    assert_ok(prepare_text(&again, &place.spec, &e), &e);
    assert_string_not_equal(again.train_path, p.train_path);
    check_shards(&again, place.text_path);
    prepare_free(&again);
    prepare_free(&p);
    place_remove(&place);
}

TEST(validation_text_can_be_given) {
    struct Place place;
    struct Prepared p;
    struct Error e;
    size_t n;
    place_make(&place, 1000);
    char *val_path = scratch_write(place.folder, "val.txt", "another text", 12);
    struct SourceFile val_file = {.path = val_path};
    place.spec.val_files = &val_file;
    place.spec.val_file_count = 1;
    assert_ok(prepare_text(&p, &place.spec, &e), &e);
    char *val = text_of(&p, p.val_path, &n);
    assert_string_equal(val, "another text");
    free(val);
    struct stat st;
    assert_int_equal(stat(place.text_path, &st), 0);
    free(text_of(&p, p.train_path, &n));
    assert_int_equal(n, st.st_size); // nothing held out
    prepare_free(&p);
    free(val_path);
    place_remove(&place);
}

// Prepares and returns the number of folders that the cache holds then.
static size_t prepare_and_count(const struct Place *place) {
    struct Prepared p;
    struct Error e;
    assert_ok(prepare_text(&p, &place->spec, &e), &e);
    prepare_free(&p);
    return scratch_count_files(place->cache) / 3; // two shards each, and their checksums
}

TEST(the_cache_tells_inputs_apart) {
    struct Place place;
    place_make(&place, 1000);
    assert_int_equal(prepare_and_count(&place), 1);
    assert_int_equal(prepare_and_count(&place), 1);
    FILE *f = fopen(place.text_path, "r+"); // one letter of the training part
    assert_non_null(f);
    assert_int_equal(fputc('X', f), 'X');
    fclose(f);
    assert_int_equal(prepare_and_count(&place), 2);
    f = fopen(place.text_path, "r+"); // and one of the validation part
    assert_non_null(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    assert_int_equal(fputc('Y', f), 'Y');
    fclose(f);
    assert_int_equal(prepare_and_count(&place), 3);
    place_remove(&place);
}

TEST(the_cache_is_used) {
    struct Place place;
    struct Prepared a, b;
    struct Error e;
    struct stat before, after;
    place_make(&place, 1000);
    place.spec.tokenizer = (struct TokenizerSpec){.kind = TOKENIZER_TRAIN, .pieces = 290};
    assert_ok(prepare_text(&a, &place.spec, &e), &e);
    assert_int_equal(stat(a.train_path, &before), 0);
    assert_ok(prepare_text(&b, &place.spec, &e), &e);
    assert_string_equal(a.train_path, b.train_path);
    assert_int_equal(stat(b.train_path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino); // not made again
    prepare_free(&b);
    place.spec.tokenizer.pieces = 285;
    assert_ok(prepare_text(&b, &place.spec, &e), &e);
    assert_string_not_equal(a.train_path, b.train_path);
    prepare_free(&a);
    prepare_free(&b);
    place_remove(&place);
}

static void prepare_at_once(const struct Place *place) {
    log_level = LOG_QUIET;
    for (int i = 0; i < 8; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct Prepared p;
            struct TokenFile f;
            struct Error e;
            int code = prepare_text(&p, &place->spec, &e);
            if (!code)
                code = token_file_open(&f, p.train_path, 290, &e);
            _exit(code != 0);
        }
    }
    for (int i = 0, status; i < 8; i++) {
        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    log_level = LOG_NORMAL;
    assert_int_equal(scratch_count_files(place->cache), 4);
}

// Eight processes want the same text at once: each gets it whole, and one folder remains. So it is
// where the folder that they find is damaged.
TEST(runs_at_the_same_time_share) {
    struct Place place;
    struct Prepared p;
    struct Error e;
    place_make(&place, 100000);
    place.spec.tokenizer = (struct TokenizerSpec){.kind = TOKENIZER_TRAIN, .pieces = 290};
    for (int round = 0; round < 2; round++) {
        prepare_at_once(&place);
        assert_ok(prepare_text(&p, &place.spec, &e), &e);
        check_shards(&p, place.text_path);
        assert_int_equal(truncate(p.val_path, 2000), 0);
        prepare_free(&p);
    }
    place_remove(&place);
}

TEST(failures_leave_nothing_behind) {
    struct Place place;
    struct Prepared p;
    struct Error e;
    place_make(&place, 100);
    place.spec.tokenizer = (struct TokenizerSpec){.kind = TOKENIZER_TRAIN, .pieces = 8192};
    assert_error(prepare_text(&p, &place.spec, &e), -EINVAL, &e, "E_SENTENCEPIECE_TRAIN 8192");
    assert_int_equal(scratch_count_files(place.cache), 0);
    place.spec.tokenizer = (struct TokenizerSpec){.kind = TOKENIZER_BYTE};
    place.spec.cache_dir = place.text_path; // a file where a folder should be
    int code = prepare_text(&p, &place.spec, &e);
    assert_true(code == -ENOTDIR || code == -EEXIST);
    assert_true(error_is(&e, "E_CACHE_FOLDER --cache"));
    place.spec.cache_dir = "/proc/none";
    assert_error(prepare_text(&p, &place.spec, &e), -ENOENT, &e, "E_FILE_WRITE --cache");
    free(scratch_write(place.folder, "text.txt", "x", 1));
    place.spec.cache_dir = place.cache;
    assert_error(prepare_text(&p, &place.spec, &e), -EINVAL, &e, "E_DATA_TOO_SMALL");
    place_remove(&place);
}

TEST(the_default_cache_needs_no_home) {
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "/home/x", 1);
    char *a = cache_default_folder();
    unsetenv("HOME");
    char *b = cache_default_folder();
    setenv("XDG_CACHE_HOME", "/c", 1);
    char *c = cache_default_folder();
    assert_string_equal(a, "/home/x/.cache/zero.c");
    assert_int_equal(strncmp(b, "/tmp/zero.c-", 12), 0);
    assert_string_equal(c, "/c/zero.c");
    free(a);
    free(b);
    free(c);
}
