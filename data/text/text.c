// Reads text: see text.h for what counts as text.
#include "data/text/text.h"
#include "data/stream.h"
#include "data/text/walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SNIFF_BYTES = 8192 };

// Returns the length of the UTF-8 character at p, where `left` bytes are left; 0: it is invalid.
static size_t character_bytes(const unsigned char *p, size_t left) {
    unsigned char lead = p[0];
    if (lead < 0x80)
        return 1;
    size_t n = lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : 4;
    if (lead < 0xc2 || lead > 0xf4 || left < n)
        return 0;
    // The second byte has a narrower range where a longer form, a surrogate or too large a number
    // begins.
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

size_t text_find_invalid(const char *text, size_t bytes) {
    const unsigned char *p = (const unsigned char *)text;
    size_t i = 0;
    while (i < bytes) {
        uint64_t eight;
        if (bytes - i >= 8 && (memcpy(&eight, p + i, 8), !(eight & 0x8080808080808080u))) {
            i += 8; // the usual case: eight ASCII characters
            continue;
        }
        size_t n = character_bytes(p + i, bytes - i);
        if (!n)
            return i;
        i += n;
    }
    return bytes;
}

size_t text_split(const char *text, size_t bytes) {
    size_t at = bytes / 10 * 9 + bytes % 10 * 9 / 10;
    while (at > 0 && at < bytes && ((unsigned char)text[at] & 0xc0) == 0x80)
        at--;
    return at;
}

static int check_text(const char *path, const char *data, size_t bytes, struct Error *e) {
    size_t at = text_find_invalid(data, bytes);
    if (at < bytes)
        return error_set(e, -EINVAL, E_UTF8,
                         "--data %s: byte %zu (0x%02x) is not UTF-8; convert the file, for example "
                         "with iconv, or give token shards",
                         path, at, (unsigned char)data[at]);
    const char *zero = memchr(data, 0, bytes);
    if (zero)
        return error_set(
            e, -EINVAL, E_ZERO_BYTE,
            "--data %s: byte %zu is zero: this is not text; expected UTF-8 text or token shards",
            path, (size_t)(zero - data));
    return 0;
}

// Returns the unsupported format of a file's first bytes, such as "Parquet"; NULL: none is known.
// *rows: it has a data set's rows, unlike files that may accompany texts in a folder.
static const char *unread_format(const char *head, size_t bytes, bool *rows) {
    static const struct {
        const char *begin, *name;
        bool rows;
    } formats[] = {{"PAR1", "Parquet", true},
                   {"ARROW1", "Arrow", true},
                   {"PK\3\4", "a zip file", false},
                   {"\3757zXZ", "packed by xz", false},
                   {"BZh91AY", "packed by bzip2", false},
                   {"SQLite format 3", "SQLite", false}};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        size_t n = strlen(formats[i].begin);
        *rows = formats[i].rows;
        if (bytes >= n && !memcmp(head, formats[i].begin, n))
            return formats[i].name;
    }
    return NULL;
}

// Refuses a file named by the user, or a pipe, that looks like JSONL.
static int check_not_json(const char *path, const char *data, size_t bytes, struct Error *e) {
    size_t at = file_mark_bytes(data, bytes);
    if (bytes - at < 2 || data[at] != '{' || data[at + 1] != '"')
        return 0;
    return error_set(
        e, -EINVAL, E_DATA_LOOKS_JSON,
        "--data %s: it begins with a JSON object; name it NAME.jsonl, with an object on each line, "
        "to learn its texts, or begin it with an empty line to learn the JSON itself",
        path);
}

static int append_file_text(struct Text *t, const char *path, const char *data, size_t bytes,
                            struct Error *e) {
    bool rows;
    const char *format = unread_format(data, bytes, &rows);
    if (format)
        return error_set(e, -EINVAL, E_DATA_FORMAT,
                         "--data %s: it is %s, which is not read: expected text, or examples as "
                         "NAME.jsonl with an object on each line",
                         path, format);
    const char *reader = stream_ends_in(path, ".csv")   ? "read_csv"
                         : stream_ends_in(path, ".tsv") ? "read_table"
                                                        : NULL;
    if (reader)
        return error_set(e, -EINVAL, E_DATA_FORMAT,
                         "--data %s: it is a table, and its rows would be learned as plain text: "
                         "write them as examples, as pandas does by %s(\"NAME\").to_json("
                         "\"NAME.jsonl\", orient=\"records\", lines=True), or name it .txt",
                         path, reader);
    int code = check_text(path, data, bytes, e);
    if (code)
        return code;
    size_t mark = file_mark_bytes(data, bytes);
    data += mark;
    bytes -= mark;
    bool newline = t->bytes && bytes && t->data[t->bytes - 1] != '\n';
    char *longer = realloc(t->data, t->bytes + bytes + 1);
    if (!longer)
        return error_set(e, -ENOMEM, E_MEMORY_REFUSED,
                         "--data %s: no memory for %zu bytes of text; give less text", path,
                         t->bytes + bytes);
    t->data = longer;
    if (newline)
        t->data[t->bytes++] = '\n';
    memcpy(t->data + t->bytes, data, bytes);
    t->bytes += bytes;
    return 0;
}

// Unpacks a file into *data, free() it. `sniff`: stops after SNIFF_BYTES if they hold a zero byte,
// as then it is no text.
static int read_packed(const char *path, bool sniff, char **data, size_t *bytes, struct Error *e) {
    size_t most = stream_memory_max(), room = SNIFF_BYTES;
    struct DataStream s;
    ssize_t got = stream_open(&s, path, "--data", e);
    *data = NULL;
    *bytes = 0;
    for (bool more = !got; more && got >= 0; room *= 2) {
        *data = base_realloc(*data, room, "a text");
        got = stream_read(&s, *data + *bytes, room - *bytes, e);
        *bytes += got > 0 ? (size_t)got : 0;
        more = *bytes == room && !(sniff && memchr(*data, 0, SNIFF_BYTES));
        if (more && room > most)
            got = error_set(e, -EFBIG, E_FILE_TOO_LARGE,
                            "--data %s: it has more than %.0f MB, a quarter of the memory, when it "
                            "is unpacked; give a part of it",
                            path, (double)most * 1e-6);
    }
    stream_close(&s);
    if (got < 0)
        free(*data);
    return got < 0 ? (int)got : 0;
}

// Appends the text of a file in a folder, or adds 1 to *skipped if it is no text. `skipped` NULL:
// the user named the file, and it must be text.
static int load_file(struct Text *t, const char *path, size_t *skipped, struct Error *e) {
    char *data;
    size_t bytes;
    struct Error cause;
    bool packed = stream_packing(path) != NULL;
    int code = packed ? read_packed(path, skipped != NULL, &data, &bytes, e)
                      : file_read(path, SIZE_MAX - 1, &data, &bytes, &cause);
    if (code)
        return packed ? code : error_set(e, code, cause.id, "--data: %s", cause.text);
    bool rows, known = unread_format(data, bytes, &rows);
    bool left_out = skipped && memchr(data, 0, size_min(bytes, SNIFF_BYTES)) && !(known && rows);
    if (left_out)
        ++*skipped;
    else if (!skipped)
        code = check_not_json(path, data, bytes, e);
    if (!code && !left_out)
        code = append_file_text(t, path, data, bytes, e);
    free(data);
    return code;
}

static int load_folder(struct Text *t, const char *path, struct Error *e) {
    struct Walk walk;
    size_t skipped = 0, first = 0;
    int code = walk_folder(&walk, "--data", path, e);
    if (!code)
        walk_log(&walk, "--data", path);
    for (size_t i = 0; !code && i < walk.count; i++) {
        code = load_file(t, walk.path[i], &skipped, e);
        first += !skipped;
    }
    if (!code && skipped)
        log_line(LOG_NORMAL, "%s: left out %zu file%s that %s no text: %s%s", path, skipped,
                 skipped == 1 ? "" : "s", skipped == 1 ? "is" : "are", walk.path[first],
                 skipped == 1 ? "" : " and others");
    walk_free(&walk);
    return code;
}

static int load_source(struct Text *t, const struct SourceFile *f, struct Error *e) {
    struct stat st;
    if (f->carried) {
        int err = check_not_json(f->path, f->carried, f->carried_bytes, e);
        return err ? err : append_file_text(t, f->path, f->carried, f->carried_bytes, e);
    }
    if (stat(f->path, &st))
        return error_io(e, -errno, E_FILE_READ, "--data %s", f->path);
    return S_ISDIR(st.st_mode) ? load_folder(t, f->path, e) : load_file(t, f->path, NULL, e);
}

int text_load(struct Text *t, const struct SourceFile *files, size_t count, struct Error *e) {
    *t = (struct Text){0};
    int code = 0;
    for (size_t i = 0; !code && i < count; i++)
        code = load_source(t, &files[i], e);
    if (!code && !t->bytes)
        code = error_set(e, -EINVAL, E_FILE_EMPTY,
                         "--data %s: it has no text; give a file or folder of UTF-8 text",
                         files[0].path);
    if (code)
        text_free(t);
    return code;
}

void text_free(struct Text *t) {
    free(t->data);
    *t = (struct Text){0};
}
