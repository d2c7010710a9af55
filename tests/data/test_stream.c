// Packed files: each way of packing gives its text, and a file that is cut short, damaged or has
// something behind it is refused where Python refuses it, with the byte. Files and verdicts are in
// tests/fixtures/packed, made by scripts/gen/packed_fixtures.py with Python's gzip and zstandard.
#include "data/stream.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

#include <errno.h>

#define PACKED "tests/fixtures/packed/"
enum { ROOM = 8192 }; // for the text, and for a packed file

struct Bytes {
    char data[ROOM];
    size_t bytes;
};

static struct Bytes read_fixture(const char *name) {
    struct Bytes b;
    char *path = base_format(PACKED "%s", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    b.bytes = fread(b.data, 1, ROOM, f);
    assert_true(b.bytes && b.bytes < ROOM);
    fclose(f);
    free(path);
    return b;
}

// Reads a file in pieces of so many bytes. Returns how many there were, or the error.
static ssize_t read_pieces(const char *path, size_t piece, char *text, struct Error *e) {
    struct DataStream s;
    ssize_t got = stream_open(&s, path, "--data", e);
    size_t bytes = 0;
    for (bool more = !got; more; bytes += got > 0 ? (size_t)got : 0) {
        assert_true(bytes + piece <= ROOM);
        got = stream_read(&s, text + bytes, piece, e);
        more = got == (ssize_t)piece;
    }
    stream_close(&s);
    return got < 0 ? got : (ssize_t)bytes;
}

// One packed file, and what Python says of its variants.
struct Case {
    char name[32], *cut, *flipped, *garbage;
    struct Bytes packed, text;
    const char *folder;
};

// What is made of these bytes under the file's name: '=', '-' or 'x'.
static char verdict(const struct Case *c, const char *bytes, size_t n, struct Error *e) {
    char text[ROOM], *path = scratch_write(c->folder, c->name, bytes, n);
    *e = (struct Error){0};
    ssize_t got = read_pieces(path, 4096, text, e);
    bool same = got == (ssize_t)c->text.bytes && !memcmp(text, c->text.data, c->text.bytes);
    free(path);
    assert_true(got >= 0 || got == -EBADMSG);
    return got < 0 ? 'x' : same ? '=' : '-';
}

static void expect(const struct Case *c, const char *what, size_t at, char said, char expected,
                   const struct Error *e, size_t byte) {
    char named[80];
    snprintf(named, sizeof named, "%s: byte %zu: ", c->name, byte);
    if (said != expected)
        fail_msg("%s %s %zu: %c, Python says %c: %s", c->name, what, at, said, expected, e->text);
    if (said == 'x' && byte != SIZE_MAX && !strstr(e->text, named))
        fail_msg("%s %s %zu: %s: expected ... %s", c->name, what, at, e->text, named);
}

static void check_case(struct Case *c) {
    struct Error e = {0};
    for (size_t i = 1; i < c->packed.bytes; i++) { // of no byte at all Python makes no text
        char said = verdict(c, c->packed.data, i, &e);
        bool begun =
            i >= 4 && !error_is(&e, "E_UNPACK_FORMAT") && !error_is(&e, "E_UNPACK_TRAILING");
        expect(c, "cut at", i, said, c->cut[i], &e, begun ? i : SIZE_MAX);
        assert_true(said != 'x' || !begun || error_is(&e, "E_UNPACK_CUT"));
    }
    for (size_t i = 0; i < c->packed.bytes; i++) {
        c->packed.data[i] ^= 1;
        char said = verdict(c, c->packed.data, c->packed.bytes, &e);
        c->packed.data[i] ^= 1;
        assert_true(said != 'x' || strstr(e.text, ": byte "));
        // zlib looks at a header's own checksum, Python does not. What zstd finds without a
        // checksum is each version's affair; with one nothing else is taken for the text.
        bool summed = strcmp(c->name, "checked.zst") == 0 || strcmp(c->name, "unsized.zst") == 0;
        if (strstr(c->name, ".zst"))
            assert_true(!summed || said != '-');
        else if (!strstr(e.text, "header crc mismatch"))
            expect(c, "flipped at", i, said, c->flipped[i], &e, SIZE_MAX);
    }
    for (int b = 0; b < 256; b++) {
        c->packed.data[c->packed.bytes] = (char)b;
        char said = verdict(c, c->packed.data, c->packed.bytes + 1, &e);
        expect(c, "with byte", (size_t)b, said, c->garbage[b], &e, c->packed.bytes);
        assert_true(said != 'x' || error_is(&e, "E_UNPACK_TRAILING"));
    }
}

static void for_each_file(const char *folder, void (*check)(struct Case *c)) {
    struct Case *c = base_alloc_zeroed(sizeof *c);
    char *line = NULL;
    size_t room = 0, files = 0;
    FILE *f = fopen(PACKED "verdicts.txt", "r");
    assert_non_null(f);
    c->text = read_fixture("text.txt");
    c->folder = folder;
    for (; getline(&line, &room, f) > 1; files++) {
        char *rest = line, *name = strsep(&rest, " ");
        snprintf(c->name, sizeof c->name, "%s", name);
        c->cut = strsep(&rest, " ");
        c->flipped = strsep(&rest, " ");
        c->garbage = strsep(&rest, "\n");
        c->packed = read_fixture(name);
        assert_true(strlen(c->cut) == c->packed.bytes && strlen(c->flipped) == c->packed.bytes &&
                    strlen(c->garbage) == 256);
        check(c);
    }
    assert_int_equal(files, 10);
    fclose(f);
    free(line);
    free(c);
}

static void check_whole(struct Case *c) {
    static const size_t pieces[] = {1, 7, 100, 4096};
    char *path = base_format(PACKED "%s", c->name);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        char text[ROOM];
        struct Error e;
        assert_int_equal(read_pieces(path, pieces[i], text, &e), c->text.bytes);
        assert_memory_equal(text, c->text.data, c->text.bytes);
    }
    free(path);
}

TEST(each_packing_gives_its_text) {
    for_each_file(*state, check_whole);
}

TEST(what_python_refuses_is_refused_with_its_byte) {
    for_each_file(*state, check_case);
}

TEST(a_file_that_is_not_packed_is_read_as_it_is) {
    struct Bytes packed = read_fixture("plain.gz");
    static const char *const names[] = {"plain", "plain.gz.txt", ".gz", "plain.GZ"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[ROOM], *path = scratch_write(*state, names[i], packed.data, packed.bytes);
        struct Error e;
        assert_int_equal(read_pieces(path, 100, text, &e), packed.bytes);
        assert_memory_equal(text, packed.data, packed.bytes);
        free(path);
    }
    assert_int_equal(stream_bare_bytes("a/b.jsonl.gz"), 9);
    assert_int_equal(stream_bare_bytes("b.zst"), 1);
    assert_int_equal(stream_bare_bytes("a/.zst"), 6);
}

// A frame that says 35 bytes in its head, and ends with none.
TEST(a_frame_of_another_length_is_refused) {
    static const char frame[] = "\x28\xb5\x2f\xfd\x20\x23\x01\0";
    char text[ROOM], *path = scratch_write(*state, "short.zst", frame, sizeof frame);
    struct Error e;
    assert_error((int)read_pieces(path, 1, text, &e), -EBADMSG, &e, "E_UNPACK_DAMAGED");
    assert_error((int)read_pieces(path, 100, text, &e), -EBADMSG, &e, "E_UNPACK_DAMAGED");
    free(path);
}

// 1.5 MB that nothing can pack: more than a piece on its way in.
TEST(long_files_are_unpacked_whole) {
    static const char *const commands[] = {"gzip", "zstd"};
    static const char *const endings[] = {".gz", ".zst"};
    enum { LONG = 1500000 };
    char *text = base_alloc(LONG), *back = base_alloc(LONG + 1);
    uint32_t r = 1;
    for (size_t i = 0; i < LONG; i++)
        text[i] = (char)((r = r * 1664525u + 1013904223u) >> 24);
    char *path = scratch_write(*state, "long", text, LONG);
    for (size_t k = 0; k < 2; k++) {
        char *command = base_format("%s -qkf %s 2>/dev/null", commands[k], path);
        char *packed = base_format("%s%s", path, endings[k]);
        struct DataStream s;
        struct Error e;
        bool made = !system(command); // zstd is no part of a small Debian
        assert_true(made || k);
        if (made) {
            assert_ok(stream_open(&s, packed, "--data", &e), &e);
            assert_int_equal(stream_read(&s, back, LONG + 1, &e), LONG);
            assert_memory_equal(text, back, LONG);
            stream_close(&s);
        }
        free(command);
        free(packed);
    }
    free(path);
    free(text);
    free(back);
}

static int set_up(void **state) {
    // 16,000 files are written.
    *state = access("/dev/shm", W_OK) ? scratch_make() : scratch_make_in("/dev/shm");
    return 0;
}

AROUND_ALL(set_up, scratch_tear_down);
