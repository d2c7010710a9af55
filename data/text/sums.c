// Writes and checks lists of checksums: see sums.h. A check computes the list again, in memory, and
// compares, so a damaged list is noticed, too.
#include "data/text/sums.h"
#include "data/file.h"
#include "kernels/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char TITLE[] = "zero.c checksums 1\n";

enum { PIECE_BYTES = 1 << 20, LIST_BYTES_MAX = 1 << 16 };

// Makes the line of a file; free() it. Errors: -errno.
static int make_line(const char *path, char **line, struct Error *e) {
    struct stat st;
    struct Hash64 h;
    int fd, code = file_open(path, "cannot read", &fd, &st, e);
    if (code)
        return code;
    char *piece = base_alloc(PIECE_BYTES);
    ssize_t got;
    uint64_t bytes = 0;
    hash64_init(&h, 0);
    while ((got = file_pread(fd, piece, PIECE_BYTES, bytes)) > 0) {
        hash64_update(&h, piece, (size_t)got);
        bytes += (uint64_t)got;
    }
    close(fd);
    free(piece);
    if (got < 0)
        return error_io(e, (int)got, E_FILE_READ, "cannot read %s", path);
    const char *slash = strrchr(path, '/');
    *line = base_format("%016llx %llu %s\n", (unsigned long long)hash64_final(&h),
                        (unsigned long long)bytes, slash ? slash + 1 : path);
    return 0;
}

int sums_write(const char *list, const char *const paths[], size_t count, struct Error *e) {
    char *text = base_format("%s", TITLE), *line;
    int code = 0;
    for (size_t i = 0; !code && i < count; i++) {
        code = make_line(paths[i], &line, e);
        if (code)
            break;
        base_append(&text, "%s", line);
        free(line);
    }
    if (!code)
        code = file_replace(list, text, strlen(text), e);
    free(text);
    return code;
}

// True if text, the content of `list`, has the line of this file at *at, which moves after it.
static bool has_line(const char *list, const char *text, size_t bytes, size_t *at, const char *path,
                     struct Error *e) {
    char *line;
    if (make_line(path, &line, e))
        return false;
    size_t n = strlen(line);
    bool agrees = bytes - *at >= n && !memcmp(text + *at, line, n);
    *at += n;
    free(line);
    if (!agrees)
        error_set(e, -EBADMSG, E_CACHE_DAMAGED, "%s is damaged: its checksum is not the one in %s",
                  path, list);
    return agrees;
}

enum SumsState sums_check(const char *list, const char *const paths[], size_t count,
                          struct Error *e) {
    char *text;
    size_t bytes, at = strlen(TITLE);
    int code = file_read(list, LIST_BYTES_MAX, &text, &bytes, e);
    if (code)
        return code == -ENOENT ? SUMS_NONE : SUMS_DIFFER;
    bool has_title = bytes >= at && !memcmp(text, TITLE, at), agree = has_title;
    for (size_t i = 0; agree && i < count; i++)
        agree = has_line(list, text, bytes, &at, paths[i], e);
    if (!has_title || (agree && at != bytes)) {
        error_set(e, -EBADMSG, E_CACHE_DAMAGED, "%s is damaged", list);
        agree = false;
    }
    free(text);
    return agree ? SUMS_AGREE : SUMS_DIFFER;
}

int sums_check_beside(const char *path, struct Error *e) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *list = base_format("%.*s%s", (int)(name - path), path, SUMS_NAME), *text, *line;
    char *end_of_line = base_format(" %s\n", name);
    size_t bytes;
    struct Error ignored; // no list: another program made the file
    int code = 0;
    if (!file_read(list, LIST_BYTES_MAX, &text, &bytes, &ignored)) {
        if (strstr(text, end_of_line) && !(code = make_line(path, &line, e))) {
            if (!strstr(text, line))
                code = error_set(e, -EBADMSG, E_CACHE_DAMAGED,
                                 "%s is damaged: its checksum is not the one in %s; remove its "
                                 "folder and train it again",
                                 path, list);
            free(line);
        }
        free(text);
    }
    free(end_of_line);
    free(list);
    return code;
}
