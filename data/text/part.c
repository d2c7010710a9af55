// Partial downloads: see part.h.
#include "data/text/part.h"
#include "data/file.h"
#include "data/text/sha256.h"
#include "data/text/sums.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- the whole file -----------------------------------------------------------------------------

static bool has_sha256(const char *path, const char *sha256, struct Error *damage) {
    char hex[SHA256_HEX_BYTES];
    struct stat st;
    int fd, code = file_open(path, "cannot read", &fd, &st, damage);
    if (code)
        return false;
    code = sha256_file(fd, hex);
    close(fd);
    if (code)
        error_io(damage, code, E_FILE_READ, "cannot read %s", path);
    else if (strcmp(hex, sha256))
        code = error_set(damage, -EBADMSG, E_URL_CHECKSUM,
                         "%s is damaged: its sha256 is %s and should be %s", path, hex, sha256);
    return !code;
}

bool part_is_whole(const char *path, const char *sha256, struct Error *damage) {
    struct stat st;
    struct Error ignored; // a cache that cannot be written is used without checksums
    *damage = (struct Error){0};
    if (stat(path, &st))
        return false;
    if (sha256)
        return has_sha256(path, sha256, damage);
    char *list = base_format("%s.sum", path);
    enum SumsState state = sums_check(list, &path, 1, damage);
    if (state == SUMS_NONE) {
        *damage = (struct Error){0};
        sums_write(list, &path, 1, &ignored);
    }
    free(list);
    return state != SUMS_DIFFER;
}

// ---- the part -----------------------------------------------------------------------------------

static int cannot_write(const char *path, int code, struct Error *e) {
    return error_set(e, code, E_FILE_WRITE, "cannot write %s: %s; choose another --cache", path,
                     strerror(-code));
}

// Reads the tag of the part that an earlier run left.
static void read_tag(struct Part *p) {
    char *tag;
    size_t tag_bytes;
    struct Error ignored; // without a tag, the version is unknown
    if (file_read(p->path_tag, PART_TAG_BYTES - 1, &tag, &tag_bytes, &ignored))
        return;
    if (!strpbrk(tag, "\r\n"))
        memcpy(p->tag, tag, tag_bytes + 1);
    free(tag);
}

int part_open(struct Part *p, const char *path, const char *sha256, uint64_t bytes, bool locked,
              struct Error *e) {
    *p = (struct Part){.path = base_format("%s", path), .sha256 = sha256, .bytes = bytes};
    p->own = !locked;
    p->path_part = base_format(locked ? "%s.part" : "%s.part.XXXXXX", path);
    int code = 0;
    struct stat st;
    if (locked)
        p->fd = open(p->path_part,
                     O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    else
        p->fd = mkostemp(p->path_part, O_CLOEXEC);
    p->path_tag = base_format("%s.tag", p->path_part);
    if (p->fd < 0 || fstat(p->fd, &st))
        code = cannot_write(p->path_part, -errno, e);
    else if (!S_ISREG(st.st_mode))
        code = error_set(e, -EINVAL, E_FILE_KIND,
                         "cannot write %s: it is %s; remove it, or choose another --cache",
                         p->path_part, file_kind(st.st_mode));
    else if (lseek(p->fd, 0, SEEK_END) < 0)
        code = cannot_write(p->path_part, -errno, e);
    if (code) {
        part_close(p);
        return code;
    }
    p->have = (uint64_t)st.st_size;
    read_tag(p);
    return 0;
}

void part_close(struct Part *p) {
    if (p->own)
        part_discard(p);
    if (p->fd >= 0)
        close(p->fd);
    free(p->path);
    free(p->path_part);
    free(p->path_tag);
    *p = (struct Part){.fd = -1};
}

bool part_may_continue(const struct Part *p) {
    return p->tag[0] || p->sha256;
}

int part_start_over(struct Part *p, const char *tag, struct Error *e) {
    struct Error ignored; // without the tag, a later run correctly starts over
    p->have = 0;
    snprintf(p->tag, sizeof p->tag, "%s", tag);
    if (p->tag[0])
        file_replace(p->path_tag, p->tag, strlen(p->tag), &ignored);
    else
        unlink(p->path_tag);
    if (ftruncate(p->fd, 0) || lseek(p->fd, 0, SEEK_SET) < 0)
        return cannot_write(p->path_part, -errno, e);
    return 0;
}

int part_append(struct Part *p, const void *bytes, size_t n, struct Error *e) {
    int code = file_write(p->fd, p->path_part, bytes, n, e);
    if (code)
        // Truncates the file to the bytes before this call, so that its size is that of good bytes.
        (void)(ftruncate(p->fd, (off_t)p->have) + lseek(p->fd, 0, SEEK_END));
    else
        p->have += n;
    return code;
}

int part_check(struct Part *p, const char *source, struct Error *e) {
    char hex[SHA256_HEX_BYTES];
    if (p->bytes && p->have != p->bytes)
        return error_set(e, -EBADMSG, E_URL_SIZE,
                         "%s: the server sent %llu bytes, but the file should have %llu", source,
                         (unsigned long long)p->have, (unsigned long long)p->bytes);
    if (!p->sha256)
        return 0;
    int code = sha256_file(p->fd, hex);
    if (code)
        return error_set(e, code, E_FILE_READ, "cannot read %s: %s; choose another --cache",
                         p->path_part, strerror(-code));
    if (strcmp(hex, p->sha256))
        return error_set(e, -EBADMSG, E_URL_CHECKSUM,
                         "%s: wrong checksum: its sha256 is %s and should be %s", source, hex,
                         p->sha256);
    return 0;
}

int part_finish(struct Part *p, struct Error *e) {
    struct Error ignored; // without checksums, the next run accepts the file as it is
    char *list = base_format("%s.sum", p->path);
    const char *path = p->path;
    unlink(list); // the checksum of the damaged file that this one replaces
    int code = file_rename_synced(&p->fd, p->path_part, p->path);
    if (code)
        cannot_write(p->path, code, e);
    else
        sums_write(list, &path, 1, &ignored);
    if (!code)
        unlink(p->path_tag);
    free(list);
    return code;
}

void part_discard(struct Part *p) {
    unlink(p->path_part);
    unlink(p->path_tag);
}
