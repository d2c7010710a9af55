// A disk whose power can be cut: keeps a log of every write and flush that a file system sends to
// it, from which the disk is made as it could be after any of them. scripts/faults/powercuts.sh
// puts real file systems on it.
//
//   blockdisk serve IMAGE LOG FOLDER        a file FOLDER/disk, as long as IMAGE, for losetup: by
//                                           FUSE, until FOLDER is unmounted
//   blockdisk count LOG                     how many writes and flushes there are
//   blockdisk cut LOG IMAGE CUT SEED        changes IMAGE, which is as it was at first, to what the
//                                           disk may hold after CUT of them
//
// What was written before the last flush is there. Of later writes none (seed 0), all (1), or some
// are, whole or in part: units of 512 bytes. libfault.so writes what the program said and logged
// into the same LOG (FAULT_RECORD): `cut` prints what was said by then, so that the caller knows
// what was promised.
//
// linux/fuse.h is the protocol: a request is read from /dev/fuse, the answer is written there.
#include "kernels/dtype.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ROOT = 1, DISK = 2, MAX_WRITE = 1 << 20, SECTOR = 512 };

_Noreturn static void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("blockdisk: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(2);
}

// ---- serve ----

static struct Disk {
    int fuse, image, log;
    uint64_t bytes;
} d;

static void answer(uint64_t unique, int error, const void *body, size_t n) {
    struct fuse_out_header head = {(uint32_t)(sizeof head + n), -error, unique};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)body, n}};
    if (writev(d.fuse, parts, 2) < 0 && errno != ENOENT)
        fail("answering: %s", strerror(errno));
}

// One entry, at once: others append to the same file.
static void note(const char *line, const void *bytes, size_t n) {
    struct iovec parts[] = {{(void *)line, strlen(line)}, {(void *)bytes, n}, {"\n", n ? 1 : 0}};
    if (writev(d.log, parts, 3) < 0)
        fail("the log: %s", strerror(errno));
}

static struct fuse_attr attributes(uint64_t node) {
    return (struct fuse_attr){.ino = node,
                              .size = node == DISK ? d.bytes : 0,
                              .blocks = node == DISK ? d.bytes / SECTOR : 0,
                              .mode = node == DISK ? S_IFREG | 0600 : S_IFDIR | 0700,
                              .nlink = 1,
                              .blksize = 4096};
}

static void begin_session(const struct fuse_in_header *in, const struct fuse_init_in *init) {
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
                                .minor = FUSE_KERNEL_MINOR_VERSION,
                                .max_readahead = init->max_readahead,
                                .flags = init->flags & (FUSE_BIG_WRITES | FUSE_MAX_PAGES),
                                .max_background = 16,
                                .congestion_threshold = 12,
                                .max_write = MAX_WRITE,
                                .time_gran = 1,
                                .max_pages = MAX_WRITE / 4096};
    answer(in->unique, 0, &out, sizeof out);
}

static void look_up(const struct fuse_in_header *in, const char *name) {
    struct fuse_entry_out out = {
        .nodeid = DISK, .entry_valid = 3600, .attr_valid = 3600, .attr = attributes(DISK)};
    bool known = in->nodeid == ROOT && strcmp(name, "disk") == 0;
    answer(in->unique, known ? 0 : ENOENT, &out, known ? sizeof out : 0);
}

static void read_disk(const struct fuse_in_header *in, const struct fuse_read_in *r) {
    static char bytes[MAX_WRITE];
    size_t wanted = r->size < sizeof bytes ? r->size : sizeof bytes;
    ssize_t n = pread(d.image, bytes, wanted, (off_t)r->offset);
    answer(in->unique, n < 0 ? errno : 0, bytes, n < 0 ? 0 : (size_t)n);
}

static void write_disk(const struct fuse_in_header *in, const struct fuse_write_in *w) {
    char line[64];
    snprintf(line, sizeof line, "block %llu %u\n", (unsigned long long)w->offset, w->size);
    note(line, w + 1, w->size);
    ssize_t n = pwrite(d.image, w + 1, w->size, (off_t)w->offset);
    struct fuse_write_out out = {.size = n < 0 ? 0 : (uint32_t)n};
    answer(in->unique, n < 0 ? errno : 0, &out, n < 0 ? 0 : sizeof out);
}

static void serve_one(const struct fuse_in_header *in, const void *body) {
    struct fuse_attr_out attr = {.attr_valid = 3600, .attr = attributes(in->nodeid)};
    struct fuse_open_out opened = {.open_flags = in->nodeid == DISK ? FOPEN_DIRECT_IO : 0};
    struct fuse_statfs_out statfs = {.st = {.bsize = 4096, .namelen = 255}};
    switch (in->opcode) {
    case FUSE_INIT:
        begin_session(in, body);
        break;
    case FUSE_LOOKUP:
        look_up(in, body);
        break;
    case FUSE_GETATTR:
    case FUSE_SETATTR:
        answer(in->unique, 0, &attr, sizeof attr);
        break;
    case FUSE_OPEN:
    case FUSE_OPENDIR:
        answer(in->unique, 0, &opened, sizeof opened);
        break;
    case FUSE_READ:
        read_disk(in, body);
        break;
    case FUSE_WRITE:
        write_disk(in, body);
        break;
    case FUSE_FSYNC:
        note("flush 0\n", NULL, 0);
        answer(in->unique, 0, NULL, 0);
        break;
    case FUSE_STATFS:
        answer(in->unique, 0, &statfs, sizeof statfs);
        break;
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
        answer(in->unique, 0, NULL, 0);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break; // want no answer
    default:
        answer(in->unique, in->opcode == FUSE_FALLOCATE ? EOPNOTSUPP : ENOSYS, NULL, 0);
    }
}

static void serve(const char *image, const char *log, const char *folder) {
    static char request[MAX_WRITE + 8192];
    char options[128];
    struct stat st;
    d.fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    d.image = open(image, O_RDWR | O_CLOEXEC);
    d.log = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (d.fuse < 0 || d.image < 0 || d.log < 0 || fstat(d.image, &st) != 0)
        fail("/dev/fuse, %s or %s: %s", image, log, strerror(errno));
    d.bytes = (uint64_t)st.st_size;
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", d.fuse);
    if (mount("blockdisk", folder, "fuse", MS_NOSUID | MS_NODEV, options) != 0)
        fail("mounting %s: %s", folder, strerror(errno));
    for (;;) {
        ssize_t n = read(d.fuse, request, sizeof request);
        if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT))
            continue;
        if (n < 0 && errno == ENODEV) // unmounted
            return;
        if (n < (ssize_t)sizeof(struct fuse_in_header))
            fail("a request: %s", strerror(errno));
        serve_one((struct fuse_in_header *)request, request + sizeof(struct fuse_in_header));
    }
}

// ---- count, cut ----

static uint64_t stream, drawn;

static uint64_t next_random(void) {
    return rng_bits(stream, drawn++);
}

struct Entry {
    char what[32];
    long number[3];
    size_t bytes; // of what follows
};

// How many bytes follow a line is its last number, for those of powercut.c's list that have any.
static bool next_entry(FILE *f, struct Entry *e) {
    char line[256];
    do
        if (!fgets(line, sizeof line, f))
            return false;
    while (*line == '\n');
    memset(e, 0, sizeof *e);
    int n = sscanf(line, "%31s %ld %ld %ld", e->what, &e->number[0], &e->number[1], &e->number[2]);
    if (n < 2)
        fail("the log has a line \"%s\"", line);
    static const char *const bare = " flush sync close dup truncate ";
    char word[40];
    snprintf(word, sizeof word, " %s ", e->what);
    bool two = strcmp(e->what, "rename") == 0 || strcmp(e->what, "link") == 0;
    e->bytes = strstr(bare, word) ? 0 : (size_t)e->number[n - 2];
    e->bytes += two ? (size_t)e->number[n - 3] : 0;
    return true;
}

static bool is_block(const struct Entry *e) {
    return strcmp(e->what, "block") == 0 || strcmp(e->what, "flush") == 0;
}

// The number of writes and flushes; and which of them is the last flush before `cut`.
static size_t count_blocks(FILE *f, size_t cut, size_t *flushed) {
    struct Entry e;
    size_t count = 0;
    *flushed = 0;
    while (next_entry(f, &e)) {
        if (fseek(f, (long)e.bytes, SEEK_CUR) != 0)
            fail("the log: %s", strerror(errno));
        count += is_block(&e);
        if (strcmp(e.what, "flush") == 0 && count <= cut)
            *flushed = count;
    }
    rewind(f);
    return count;
}

static void put_block(int image, const struct Entry *e, const char *bytes, bool sure,
                      uint64_t seed) {
    size_t n = e->bytes;
    if (!sure && (seed == 0 || (seed > 1 && next_random() % 2)))
        return;
    if (!sure && seed > 1 && next_random() % 4 == 0)
        n = next_random() % (n / SECTOR + 1) * SECTOR;
    if (pwrite(image, bytes, n, e->number[0]) != (ssize_t)n)
        fail("the image: %s", strerror(errno));
}

static void tell_promise(const struct Entry *e, const char *bytes) {
    bool log = strcmp(e->what, "write") == 0 && e->bytes > 8 && !strncmp(bytes, "{\"step\":", 8);
    if (log || strcmp(e->what, "said") == 0)
        fwrite(bytes, 1, e->bytes, stdout);
}

static void make_cut(const char *log, const char *path, size_t cut, uint64_t seed) {
    FILE *f = fopen(log, "re");
    int image = open(path, O_WRONLY | O_CLOEXEC);
    if (!f || image < 0)
        fail("%s, %s: %s", log, path, strerror(errno));
    size_t flushed, at = 0;
    if (cut > count_blocks(f, cut, &flushed))
        fail("there is no write %zu", cut);
    stream = seed * 1000003 + cut;
    for (struct Entry e; next_entry(f, &e);) {
        if (is_block(&e) && at++ >= cut)
            break;
        char *bytes = malloc(e.bytes + 1);
        if (!bytes || fread(bytes, 1, e.bytes, f) != e.bytes)
            fail("the log ends too early");
        if (strcmp(e.what, "block") == 0)
            put_block(image, &e, bytes, at <= flushed, seed);
        tell_promise(&e, bytes);
        free(bytes);
    }
    fclose(f);
    if (fsync(image) != 0 || close(image) != 0)
        fail("the image: %s", strerror(errno));
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (argc == 5 && !strcmp(what, "serve")) {
        serve(argv[2], argv[3], argv[4]);
    } else if (argc == 3 && !strcmp(what, "count")) {
        size_t flushed;
        FILE *f = fopen(argv[2], "re");
        if (!f)
            fail("%s: %s", argv[2], strerror(errno));
        printf("%zu\n", count_blocks(f, 0, &flushed));
    } else if (argc == 6 && !strcmp(what, "cut")) {
        make_cut(argv[2], argv[3], strtoul(argv[4], NULL, 10), strtoull(argv[5], NULL, 10));
    } else {
        fail("expected serve, count or cut; see the head of its source");
    }
    return 0;
}
