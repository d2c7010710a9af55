// The file format of a checkpoint: see checkpoint.h.
//
//   offset 0   magic, 16 bytes: "zero.c state 5\n" and a zero byte; or 6 to 20 for 5
//         16   struct Fixed, native (little) endian
//              formats 7, 8, 11, 12, 15, 16, 19, 20: struct Best (kernels/judged.h)
//              from format 13 on: the hash of the base of adapters
//              identity text, identity_bytes
//              algorithms of matrix products, choices_bytes
//              ngroup struct CheckpointGroup; in formats 5 to 8 and 13 to 16 without narray
//              for each group master, m, v: count fp32 values each; in even formats a fourth such
//              array, the weights that are in use while a delayed update waits. A group that is not
//              trained has the first one alone
//   last 8     XXH64 of everything before
//
// A reader uses nothing before the hash of the whole file is right, and even then checks every size
// against the file's length: the hash guards against accidents, the checks against files made by
// hand. The format is 5, + 1 if an update is late, + 2 if validations are judged, + 4 if the file
// has a group that is not trained, + 8 if it has adapters alone, all of which are trained. Older
// formats, which lack the grid of ranks, are not read.
#include "zero/state.h"
#include "zero/checkpoint/files.h"

#include "kernels/atomic_file.h"
#include "kernels/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK_BYTES = 1 << 20, MAX_GROUPS = 1 << 16, MAX_IDENTITY = 1 << 20, MAX_CHOICES = 1 << 24 };

enum { MAGIC_BYTES = 16, USUAL = 5, LATE = 1, JUDGED = 2, FROZEN = 4, ADAPTERS = 8 };
enum { NFORMAT = USUAL + 16 };

// The first bytes of a file of that format: a line of 16 bytes, or one without its end.
struct Magic {
    char text[MAGIC_BYTES + 4];
};
static struct Magic magic_of(int format) {
    struct Magic m = {{0}};
    snprintf(m.text, sizeof m.text, "zero.c state %d%s", format, format < 10 ? "\n" : "");
    return m;
}

struct Fixed {
    uint64_t step;
    uint32_t rank, size, ngroup, identity_bytes;
    uint64_t updates, hysteresis, good; // the last two, and scale: struct LossScale
    float scale;
    uint32_t choices_bytes;
    uint32_t grid[NAXIS];
};

struct CheckpointWriter {
    int fd;
    char *path;
    struct Hash64 hash;
};

void checkpoint_head_free(struct CheckpointHead *h) {
    free(h->group);
    free(h->identity);
    free(h->choices);
    *h = (struct CheckpointHead){0};
}

// ---- writing ----

// True if the format has that part: LATE, JUDGED, FROZEN or ADAPTERS.
static bool format_has(int format, int what) {
    return (format - USUAL) & what;
}

static int choose_format(const struct CheckpointHead *h) {
    bool frozen = false;
    for (uint32_t g = 0; g < h->ngroup; g++)
        frozen = frozen || (h->group[g].count && h->group[g].narray != h->narray);
    return USUAL + (h->narray == NSTATE_LATE ? LATE : 0) + (h->best.samples ? JUDGED : 0) +
           (frozen ? FROZEN : 0) + (h->base_hash ? ADAPTERS : 0);
}

static size_t fixed_bytes(int format) {
    return MAGIC_BYTES + sizeof(struct Fixed) +
           (format_has(format, JUDGED) ? sizeof(struct Best) : 0) +
           (format_has(format, ADAPTERS) ? sizeof(uint64_t) : 0);
}

// Returns the bytes of a row of the table of groups: without `narray` in formats in which all
// groups have the same number of arrays.
static size_t group_row_bytes(int format) {
    return format_has(format, FROZEN) ? sizeof(struct CheckpointGroup)
                                      : offsetof(struct CheckpointGroup, narray);
}

// Reports a failed write. err: 0, or -errno.
static int report_unwritten(const struct CheckpointWriter *w, int err, struct Error *e) {
    return err ? error_io(e, err, E_CHECKPOINT_WRITE, "cannot write checkpoint %s", w->path) : 0;
}

int checkpoint_file_append(struct CheckpointWriter *w, const void *bytes, size_t n,
                           struct Error *e) {
    hash64_update(&w->hash, bytes, n);
    return report_unwritten(w, base_write(w->fd, bytes, n, -1), e);
}

static struct Fixed fixed_of(const struct CheckpointHead *h) {
    struct Fixed f = {.step = h->step,
                      .rank = h->rank,
                      .size = h->size,
                      .ngroup = h->ngroup,
                      .identity_bytes = (uint32_t)strlen(h->identity),
                      .updates = h->updates,
                      .hysteresis = h->loss_scale.hysteresis,
                      .good = h->loss_scale.good,
                      .scale = h->loss_scale.scale,
                      .choices_bytes = h->choices_bytes};
    for (int a = 0; a < NAXIS; a++)
        f.grid[a] = (uint32_t)h->grid.size[a];
    return f;
}

int checkpoint_file_create(struct CheckpointWriter **out, const char *path,
                           const struct CheckpointHead *head, struct Error *e) {
    struct CheckpointWriter *w = base_alloc_zeroed(sizeof *w);
    w->path = base_format("%s", path);
    hash64_init(&w->hash, 0);
    w->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int err = 0;
    if (w->fd < 0)
        err = error_io(e, -errno, E_CHECKPOINT_WRITE, "cannot create checkpoint %s", path);
    struct Fixed fixed = fixed_of(head);
    int format = choose_format(head);
    struct Magic magic = magic_of(format);
    const struct {
        const void *bytes;
        size_t n;
    } part[] = {{magic.text, MAGIC_BYTES},
                {&fixed, sizeof fixed},
                {&head->best, head->best.samples ? sizeof head->best : 0},
                {&head->base_hash, head->base_hash ? sizeof head->base_hash : 0},
                {head->identity, fixed.identity_bytes},
                {head->choices, head->choices_bytes}};
    for (size_t i = 0; i < sizeof part / sizeof part[0] && !err; i++)
        if (part[i].n)
            err = checkpoint_file_append(w, part[i].bytes, part[i].n, e);
    for (uint32_t g = 0; g < head->ngroup && !err; g++)
        err = checkpoint_file_append(w, &head->group[g], group_row_bytes(format), e);
    if (err) {
        checkpoint_file_abandon(w);
        w = NULL;
    }
    *out = w;
    return err;
}

void checkpoint_file_abandon(struct CheckpointWriter *w) {
    if (w->fd >= 0) {
        close(w->fd);
        unlink(w->path);
    }
    free(w->path);
    free(w);
}

int checkpoint_file_finish(struct CheckpointWriter *w, struct Error *e) {
    uint64_t hash = hash64_final(&w->hash);
    int err = base_write(w->fd, &hash, sizeof hash, -1);
    if (!err) {
        err = file_close_synced(w->fd);
        w->fd = -1;
        if (err)
            unlink(w->path);
    }
    report_unwritten(w, err, e);
    checkpoint_file_abandon(w); // it removes a file that is still open
    return err;
}

// ---- reading ----

int checkpoint_unreadable(const char *path, struct Error *e) {
    return error_io(e, -errno, E_CHECKPOINT_READ, "cannot read checkpoint %s", path);
}

int checkpoint_damaged(struct Error *e, const char *path, const char *format, ...) {
    char why[256];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return error_set(e, -EBADMSG, E_CHECKPOINT_DAMAGED,
                     "checkpoint %s is damaged: %s; use the checkpoint of another step", path, why);
}

int checkpoint_file_read(int fd, const char *path, void *bytes, size_t n, struct Error *e) {
    for (char *p = bytes; n;) {
        ssize_t done = read(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return checkpoint_unreadable(path, e);
        if (done == 0)
            return checkpoint_damaged(e, path, "the file ends too early");
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

// Checks that the hash of the next `bytes` bytes, from the file's beginning, follows them.
static int check_hash(int fd, const char *path, uint64_t bytes, struct Error *e) {
    struct Hash64 hash;
    hash64_init(&hash, 0);
    char *chunk = base_alloc(CHUNK_BYTES);
    int err = 0;
    while (bytes && !err) {
        size_t n = bytes < CHUNK_BYTES ? (size_t)bytes : CHUNK_BYTES;
        err = checkpoint_file_read(fd, path, chunk, n, e);
        if (!err)
            hash64_update(&hash, chunk, n);
        bytes -= n;
    }
    free(chunk);
    uint64_t stored = 0;
    if (!err)
        err = checkpoint_file_read(fd, path, &stored, sizeof stored, e);
    if (!err && stored != hash64_final(&hash))
        err = checkpoint_damaged(e, path, "its checksum is wrong");
    return err;
}

// Returns the bytes of a file with that head, or UINT64_MAX if no file can have it.
static uint64_t promised_bytes(const struct CheckpointHead *h) {
    const uint64_t most = UINT64_C(1) << 48;
    uint64_t all = h->fixed_bytes + strlen(h->identity) + h->choices_bytes +
                   h->ngroup * h->group_row_bytes + sizeof(uint64_t);
    for (uint32_t i = 0; i < h->ngroup; i++) {
        const struct CheckpointGroup *g = &h->group[i];
        if (g->numel > most || g->begin > g->numel || g->count > g->numel - g->begin ||
            (g->count && g->narray != h->narray && g->narray != 1))
            return UINT64_MAX;
        all += g->count * g->narray * sizeof(float);
        if (all > most)
            return UINT64_MAX;
    }
    return all;
}

uint64_t checkpoint_file_bytes(const struct CheckpointHead *h) {
    struct CheckpointHead written = *h;
    written.fixed_bytes = fixed_bytes(choose_format(h));
    written.group_row_bytes = group_row_bytes(choose_format(h));
    return promised_bytes(&written);
}

// True for a grid of as many ranks as there are files.
static bool is_grid(const struct Grid *g, uint32_t size) {
    uint64_t ranks = 1;
    for (int a = 0; a < NAXIS; a++)
        ranks = g->size[a] > 0 && ranks <= size ? ranks * (uint64_t)g->size[a] : 0;
    return ranks == size;
}

static bool is_sound(const struct CheckpointHead *h) {
    const struct LossScale *s = &h->loss_scale;
    return h->updates <= h->step && isfinite(s->scale) && s->scale > 0 && s->hysteresis > 0 &&
           h->choices_bytes <= MAX_CHOICES && h->best.step <= h->step && isfinite(h->best.loss);
}

static int check_head(const char *path, const struct CheckpointHead *h, struct Error *e) {
    const int *n = h->grid.size;
    if (!is_sound(h))
        return checkpoint_damaged(
            e, path,
            "its header has impossible values: %llu updates in %llu steps, a loss scale of %g, %u "
            "bytes of algorithms",
            (unsigned long long)h->updates, (unsigned long long)h->step,
            (double)h->loss_scale.scale, h->choices_bytes);
    if (!is_grid(&h->grid, h->size))
        return checkpoint_damaged(e, path, "its %u ranks do not form a grid of %d x %d x %d x %d",
                                  h->size, n[0], n[1], n[2], n[3]);
    return 0;
}

// Returns the format; 0: not a known one.
static int recognize_format(const char seen[MAGIC_BYTES]) {
    for (int format = USUAL; format < NFORMAT; format++)
        if (memcmp(seen, magic_of(format).text, MAGIC_BYTES) == 0)
            return format;
    return 0;
}

static struct CheckpointHead head_of(const struct Fixed *f) {
    struct CheckpointHead h = {.step = f->step,
                               .updates = f->updates,
                               .loss_scale = {f->scale, f->hysteresis, f->good},
                               .rank = f->rank,
                               .size = f->size,
                               .ngroup = f->ngroup,
                               .choices_bytes = f->choices_bytes};
    for (int a = 0; a < NAXIS; a++)
        h.grid.size[a] = f->grid[a] <= INT_MAX ? (int)f->grid[a] : 0;
    return h;
}

static int read_head(int fd, const char *path, uint64_t file_bytes, struct CheckpointHead *h,
                     struct Error *e) {
    struct Fixed fixed;
    char seen[MAGIC_BYTES];
    int err = checkpoint_file_read(fd, path, seen, sizeof seen, e);
    if (!err)
        err = checkpoint_file_read(fd, path, &fixed, sizeof fixed, e);
    if (err)
        return err;
    int format = recognize_format(seen);
    if (!format || fixed.ngroup > MAX_GROUPS || fixed.identity_bytes > MAX_IDENTITY)
        return error_set(e, -EBADMSG, E_CHECKPOINT_FORMAT,
                         "%s is no checkpoint that this program can read: it is damaged, or of "
                         "another program or version; use the checkpoint of another step",
                         path);
    *h = head_of(&fixed);
    h->narray = format_has(format, LATE) ? NSTATE_LATE : NSTATE;
    h->fixed_bytes = fixed_bytes(format);
    h->group_row_bytes = group_row_bytes(format);
    if (format_has(format, JUDGED))
        err = checkpoint_file_read(fd, path, &h->best, sizeof h->best, e);
    if (!err && format_has(format, ADAPTERS))
        err = checkpoint_file_read(fd, path, &h->base_hash, sizeof h->base_hash, e);
    err = err ? err : check_head(path, h, e);
    if (err)
        return err;
    h->identity = base_alloc_zeroed(fixed.identity_bytes + 1);
    h->group = base_alloc_zeroed(fixed.ngroup * sizeof *h->group);
    h->choices = h->choices_bytes ? base_alloc_zeroed(h->choices_bytes) : NULL;
    err = checkpoint_file_read(fd, path, h->identity, fixed.identity_bytes, e);
    if (!err)
        err = checkpoint_file_read(fd, path, h->choices, h->choices_bytes, e);
    for (uint32_t g = 0; g < fixed.ngroup && !err; g++) {
        h->group[g].narray = h->narray;
        err = checkpoint_file_read(fd, path, &h->group[g], h->group_row_bytes, e);
    }
    if (!err && strlen(h->identity) != fixed.identity_bytes)
        err = checkpoint_damaged(e, path, "its text has a zero byte");
    if (!err && promised_bytes(h) != file_bytes)
        err = checkpoint_damaged(e, path, "its sizes do not add up");
    if (err)
        checkpoint_head_free(h);
    return err;
}

uint64_t checkpoint_values_at(const struct CheckpointHead *h) {
    return h->fixed_bytes + strlen(h->identity) + h->choices_bytes + h->ngroup * h->group_row_bytes;
}

int checkpoint_file_head(int fd, const char *path, uint64_t base, uint64_t bytes,
                         struct CheckpointHead *head, struct Error *e) {
    *head = (struct CheckpointHead){0};
    if (lseek(fd, (off_t)base, SEEK_SET) != (off_t)base)
        return checkpoint_unreadable(path, e);
    int err = read_head(fd, path, bytes, head, e);
    head->base = base;
    return err;
}

int checkpoint_file_seek(int fd, const char *path, const struct CheckpointHead *head, uint32_t g,
                         int array, uint64_t i, struct Error *e) {
    uint64_t at = head->base + checkpoint_values_at(head);
    for (uint32_t before = 0; before < g; before++)
        at += head->group[before].count * head->group[before].narray * sizeof(float);
    at += (head->group[g].count * (uint64_t)array + i) * sizeof(float);
    return lseek(fd, (off_t)at, SEEK_SET) == (off_t)at ? 0 : checkpoint_unreadable(path, e);
}

// Opens a regular file, and nothing else: opening a FIFO would wait.
static int open_regular(int folder, const char *path, uint64_t *bytes, struct Error *e) {
    const char *slash = folder == AT_FDCWD ? NULL : strrchr(path, '/');
    int fd = openat(folder, slash ? slash + 1 : path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return error_set(e, -ENOENT, E_CHECKPOINT_READ,
                         "checkpoint %s is missing; put the file back, or use the checkpoint of "
                         "another step",
                         path);
    if (fd < 0)
        return error_io(e, -errno, E_CHECKPOINT_READ, "cannot open checkpoint %s", path);
    struct stat st;
    int err = 0;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        err = error_set(e, -EBADMSG, E_CHECKPOINT_DAMAGED,
                        "checkpoint %s is not a regular file; move it away, and put the file back",
                        path);
    *bytes = err ? 0 : (uint64_t)st.st_size;
    if (!err && *bytes < MAGIC_BYTES + sizeof(struct Fixed) + sizeof(uint64_t))
        err =
            checkpoint_damaged(e, path, "the file has only %llu bytes", (unsigned long long)*bytes);
    if (err)
        close(fd);
    return err ? err : fd;
}

int checkpoint_file_check(int folder, const char *path, struct Error *e) {
    uint64_t bytes = 0;
    int fd = open_regular(folder, path, &bytes, e);
    if (fd < 0)
        return fd;
    int err = check_hash(fd, path, bytes - sizeof(uint64_t), e);
    close(fd);
    return err;
}

int checkpoint_file_open(int folder, const char *path, int *fd, struct CheckpointHead *head,
                         struct Error *e) {
    uint64_t bytes = 0;
    *head = (struct CheckpointHead){0};
    *fd = open_regular(folder, path, &bytes, e);
    if (*fd < 0)
        return *fd;
    int err = read_head(*fd, path, bytes, head, e);
    if (err) {
        close(*fd);
        *fd = -1;
    }
    return err;
}
