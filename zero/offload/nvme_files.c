// The files of the NVMe tier: opened without a name, reserved on the disk, and closed. See nvme.h.
//
// Space is reserved when a file is opened (fallocate), so that a disk that is too small is found
// before the first step and not in the middle of one.
#include "zero/offload/nvme_move.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

// The kernel takes at most 1 GiB in one registered buffer.
static const size_t RANGE_BYTES_MAX = (size_t)1 << 30;
static const size_t BLOCK_BYTES_MAX = (size_t)1 << 28;
static const size_t DEPTH_MAX = 4096; // entries of a ring, well within the kernel's limit

int nvme_resolve(struct NvmeSettings *s, struct Error *e) {
    if (!s->block_bytes)
        s->block_bytes = NVME_BLOCK_BYTES;
    if (!s->depth)
        s->depth = NVME_DEPTH;
    if (!s->disk)
        s->disk = &nvme_io_uring;
    if (s->block_bytes % NVME_UNIT_BYTES || s->block_bytes > BLOCK_BYTES_MAX)
        return error_set(e, -EINVAL, E_NVME_SETTINGS,
                         "--nvme-block %zu: expected a multiple of %d bytes, up to %zu",
                         s->block_bytes, NVME_UNIT_BYTES, BLOCK_BYTES_MAX);
    if (s->depth > DEPTH_MAX)
        return error_set(e, -EINVAL, E_NVME_SETTINGS, "--nvme-depth %zu: expected 1 to %zu",
                         s->depth, DEPTH_MAX);
    return 0;
}

// ---- files ----

int nvme_refuse_memory(const char *folder, struct Error *e) {
    struct statfs s;
    if (statfs(folder, &s))
        return error_io(e, -errno, E_NVME_PATH, "--nvme-path %s: its file system is unknown",
                        folder);
    unsigned long kind = (unsigned long)s.f_type;
    if (kind == TMPFS_MAGIC || kind == RAMFS_MAGIC || kind == HUGETLBFS_MAGIC)
        return error_set(e, -EINVAL, E_NVME_PATH,
                         "--nvme-path %s: the folder is in memory (%s), not on a disk; give a "
                         "folder on a disk, or offload to cpu",
                         folder,
                         kind == TMPFS_MAGIC   ? "tmpfs"
                         : kind == RAMFS_MAGIC ? "ramfs"
                                               : "hugetlbfs");
    return 0;
}

// If the file system cannot make a file without a name, it has one for a moment.
static int open_nameless(const char *folder, int flags) {
    int fd = open(folder, O_TMPFILE | O_EXCL | flags, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd < 0 ? -errno : fd;
    char *path = base_format("%s/zero-XXXXXX", folder);
    fd = mkostemp(path, flags & ~O_RDWR);
    if (fd < 0)
        fd = -errno;
    else
        unlink(path);
    free(path);
    return fd;
}

static int reserve_disk_space(struct NvmeFile *f, const char *folder, struct Error *e) {
    struct statvfs s;
    if (fstatvfs(f->fd, &s))
        return error_io(e, -errno, E_NVME_PATH, "--nvme-path %s: its free space is unknown",
                        folder);
    uint64_t free_bytes = (uint64_t)s.f_bavail * s.f_frsize;
    int code = -ENOSPC; // not tried if it must fail: it would fill the disk for a moment
    while (f->bytes <= free_bytes) {
        code = fallocate(f->fd, 0, 0, (off_t)round_up(f->bytes, NVME_UNIT_BYTES)) ? -errno : 0;
        if (code != -EINTR)
            break;
    }
    if (!code)
        return 0;
    return error_set(e, code, E_DISK_FULL,
                     "--nvme-path %s: cannot reserve %llu bytes for %s: %s (%llu are free); free "
                     "some, or give a folder on another disk",
                     folder, (unsigned long long)f->bytes, f->name, strerror(-code),
                     (unsigned long long)free_bytes);
}

// The fields of statx for O_DIRECT, since Linux 6.1. The system's headers may be older than its
// kernel, so mask and offsets are defined here: they are part of the kernel's fixed interface.
enum { STATX_MASK_DIO = 0x2000, STATX_AT_MASK = 0, STATX_AT_MEM = 0x98, STATX_AT_OFFSET = 0x9c };

static int find_alignment(struct Nvme *n, const struct NvmeFile *f, struct Error *e) {
    struct statx s = {0};
    uint32_t mask = 0, memory = 0, offset = 0;
    if (statx(f->fd, "", AT_EMPTY_PATH, STATX_MASK_DIO, &s) == 0) {
        memcpy(&mask, (char *)&s + STATX_AT_MASK, sizeof mask);
        memcpy(&memory, (char *)&s + STATX_AT_MEM, sizeof memory);
        memcpy(&offset, (char *)&s + STATX_AT_OFFSET, sizeof offset);
    }
    if (!(mask & STATX_MASK_DIO)) // an older kernel: a page suits all known disks
        memory = offset = NVME_UNIT_BYTES;
    if (!memory || !offset || NVME_UNIT_BYTES % offset || NVME_UNIT_BYTES % memory)
        return error_set(
            e, -EINVAL, E_NVME_PATH,
            "--nvme-path %s: direct I/O in units of %d bytes is impossible there (it needs "
            "memory aligned to %u and offsets to %u); give a folder on another file system",
            n->settings.folder, NVME_UNIT_BYTES, memory, offset);
    n->memory_align = size_max(n->memory_align, memory);
    return 0;
}

static int open_file(struct Nvme *n, enum Tag tag, int rank, uint64_t bytes, struct Error *e) {
    struct NvmeFile *f = &n->file[tag];
    const char *folder = n->settings.folder;
    f->name = base_format("%s/zero-rank-%04d.%s", folder, rank, tag_name(tag));
    f->bytes = bytes;
    int fd = open_nameless(folder, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (fd == -EINVAL)
        return error_set(e, fd, E_NVME_PATH,
                         "--nvme-path %s: its file system does not support O_DIRECT; give a folder "
                         "on another file system, such as ext4 or XFS",
                         folder);
    if (fd < 0)
        return error_io(e, fd, E_NVME_PATH, "--nvme-path %s: cannot make a file there", folder);
    f->fd = fd;
    if (n->settings.check)
        f->sums = base_alloc_zeroed(ceil_div(bytes, NVME_UNIT_BYTES) * sizeof *f->sums);
    int code = reserve_disk_space(f, folder, e);
    return code ? code : find_alignment(n, f, e);
}

// ---- open, close ----

static int open_lane(struct Nvme *n, struct Lane *l, struct Error *e) {
    const struct NvmeSettings *s = &n->settings;
    int code = s->disk->open(s->disk, s->depth, &l->queue, e);
    if (code)
        return code;
    l->job = base_alloc_zeroed(s->depth * sizeof *l->job);
    l->idle = base_alloc(s->depth * sizeof *l->idle);
    for (l->nidle = 0; l->nidle < s->depth; l->nidle++)
        l->idle[l->nidle] = (int)l->nidle;
    // Untouched until a transfer needs it, and therefore not in memory.
    l->bounce = aligned_alloc(NVME_UNIT_BYTES, s->depth * s->block_bytes);
    if (!l->bounce)
        return error_set(e, -ENOMEM, E_MEMORY_REFUSED,
                         "cannot allocate %.1f GB: --nvme-depth %zu buffers of --nvme-block %zu "
                         "bytes; lower one of the two",
                         (double)s->depth * (double)s->block_bytes * 1e-9, s->depth,
                         s->block_bytes);
    return 0;
}

static void close_lane(struct Lane *l) {
    if (l->queue)
        l->queue->disk->close(l->queue);
    free(l->job);
    free(l->idle);
    free(l->bounce);
}

int nvme_open(struct Nvme **out, const struct NvmeSettings *settings, int rank,
              const uint64_t bytes[NTAG], struct Error *e) {
    struct Nvme *n = base_alloc_zeroed(sizeof *n);
    n->settings = *settings;
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->released, NULL);
    for (int tag = 0; tag < NTAG; tag++)
        n->file[tag].fd = -1;
    int code = nvme_resolve(&n->settings, e);
    if (!code)
        code = nvme_refuse_memory(n->settings.folder, e);
    if (!code)
        code = open_lane(n, &n->reader, e);
    if (!code)
        code = open_lane(n, &n->writer, e);
    for (int tag = 0; tag < NTAG && !code; tag++)
        if (bytes[tag])
            code = open_file(n, (enum Tag)tag, rank, bytes[tag], e);
    if (code) {
        nvme_close(n);
        return code;
    }
    *out = n;
    return 0;
}

void nvme_close(struct Nvme *n) {
    if (!n)
        return;
    close_lane(&n->reader);
    close_lane(&n->writer);
    for (int tag = 0; tag < NTAG; tag++) {
        if (n->file[tag].fd >= 0)
            close(n->file[tag].fd);
        free(n->file[tag].sums);
        free(n->file[tag].name);
    }
    pthread_mutex_destroy(&n->lock);
    pthread_cond_destroy(&n->released);
    free(n->ranges);
    free(n);
}

// A request of 1 MiB is 256 pieces of memory to the disk in ordinary pages, and one in a huge page:
// reading was measured to be up to 1.7 times as fast. This only advises; a machine without huge
// pages loses nothing. MADV_COLLAPSE, for memory that was used before, is Linux 6.1's.
static void use_huge_pages(void *mem, size_t bytes) {
    enum { HUGE_PAGE = 2 << 20, COLLAPSE = 25 };
    uintptr_t begin = round_up((uintptr_t)mem, HUGE_PAGE);
    uintptr_t end = (uintptr_t)mem + bytes;
    end -= end % HUGE_PAGE;
    if (begin < end && madvise((void *)begin, end - begin, MADV_HUGEPAGE) == 0)
        madvise((void *)begin, end - begin, COLLAPSE);
}

void nvme_register(struct Nvme *n, void *mem, size_t bytes) {
    use_huge_pages(mem, bytes);
    CHECK(!n->reader.pin_tried && !n->writer.pin_tried,
          "memory is registered before the first transfer");
    for (char *at = mem; bytes;) {
        size_t part = size_min(bytes, RANGE_BYTES_MAX);
        n->ranges = base_realloc(n->ranges, (n->nrange + 1) * sizeof *n->ranges,
                                 "the list of buffers of --nvme-path");
        n->ranges[n->nrange++] = (struct iovec){at, part};
        at += part;
        bytes -= part;
    }
}

uint64_t nvme_host_bytes(const struct NvmeSettings *settled, const uint64_t bytes[NTAG],
                         size_t unaligned) {
    size_t used = settled->depth * NVME_UNIT_BYTES + unaligned;
    uint64_t most = 2 * size_min(settled->depth * settled->block_bytes, used);
    for (int tag = 0; tag < NTAG && settled->check; tag++)
        most += ceil_div(bytes[tag], NVME_UNIT_BYTES) * sizeof(uint64_t);
    return most;
}
