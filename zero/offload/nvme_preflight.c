// Checks, before a run that offloads to the disk allocates anything, that the folder is fit for it;
// and measures how fast the disk is.
//
// A wrong folder would otherwise show hours later, or never: a tmpfs silently uses the memory that
// offload saves. What the system does not report is tried, on a small file that has no name and so
// vanishes. The speeds go into the time that is predicted for a step (the planner), and are cached,
// since they take a second each (data/log/machine.h). Called before ranks open. Next: nvme_files.c,
// which makes the files.
#include "zero/offload/nvme.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int check_folder(const char *folder, uint64_t bytes, struct Error *e) {
    struct stat st;
    if (!folder || !*folder)
        return error_set(e, -EINVAL, E_NVME_PATH_MISSING,
                         "--nvme-path is missing: give a folder on the disk to which to offload");
    if (stat(folder, &st))
        return error_io(e, -errno, E_NVME_PATH, "--nvme-path %s", folder);
    if (!S_ISDIR(st.st_mode))
        return error_set(e, -ENOTDIR, E_NOT_A_FOLDER,
                         "--nvme-path %s is not a folder; give a folder", folder);
    if (access(folder, W_OK | X_OK))
        return error_io(e, -errno, E_NVME_PATH, "--nvme-path %s: cannot write to the folder",
                        folder);
    int code = nvme_refuse_memory(folder, e);
    if (code)
        return code;
    struct statvfs vfs;
    if (statvfs(folder, &vfs))
        return error_io(e, -errno, E_NVME_PATH, "--nvme-path %s: its free space is unknown",
                        folder);
    uint64_t free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    if (bytes <= free_bytes)
        return 0;
    return error_set(e, -ENOSPC, E_DISK_FULL,
                     "--nvme-path %s: the ranks of this machine need %llu bytes on its disk, but "
                     "only %llu are free; free some, or give a folder on another disk",
                     folder, (unsigned long long)bytes, (unsigned long long)free_bytes);
}

// Writes a block and reads it back.
static int try_block(struct Nvme *n, size_t bytes, const char *folder, struct Error *e) {
    char *mem = aligned_alloc(4096, 2 * bytes);
    if (!mem)
        return error_set(e, -ENOMEM, E_MEMORY_REFUSED,
                         "--nvme-path %s: cannot allocate %zu bytes to test the disk; lower "
                         "--nvme-block, or end other programs",
                         folder, 2 * bytes);
    for (size_t i = 0; i < bytes; i++)
        mem[i] = (char)(i * 7 + (i >> 8));
    memset(mem + bytes, 0, bytes);
    int code = nvme_write(n, &(struct NvmePiece){TAG_OPTIMIZER, 0, mem, bytes}, 1, e);
    if (!code)
        code = nvme_read(n, &(struct NvmePiece){TAG_OPTIMIZER, 0, mem + bytes, bytes}, 1, e);
    if (!code && memcmp(mem, mem + bytes, bytes) != 0)
        code = error_set(
            e, -EIO, E_NVME_IO,
            "--nvme-path %s: a block that was written and read back differs; give a folder on "
            "another disk",
            folder);
    free(mem);
    return code;
}

int nvme_preflight(const struct NvmeSettings *settings, uint64_t bytes_needed_here,
                   struct Error *e) {
    struct NvmeSettings s = *settings;
    struct Nvme *n = NULL;
    int code = nvme_resolve(&s, e);
    if (!code)
        code = check_folder(s.folder, bytes_needed_here, e);
    if (!code)
        code = nvme_open(&n, &s, 0, (uint64_t[NTAG]){[TAG_OPTIMIZER] = s.block_bytes}, e);
    if (!code)
        code = try_block(n, s.block_bytes, s.folder, e);
    nvme_close(n);
    return code;
}

// ---- speeds ----

enum { MEASURE_PIECE_BYTES = 16 << 20 }; // of each piece of a call
static const uint64_t MEASURE_FILE_BYTES = 512 << 20;
static const double MEASURE_SECONDS = 0.5;

struct Measure {
    struct Nvme *n;
    char *mem; // of NVME_PIECES pieces
};

typedef int Transfer(struct Nvme *, const struct NvmePiece *, int, struct Error *);

// Moves piece after piece of the file's first `end` bytes, again and again, or up to the end once.
// Returns bytes/s, or 0 after an error. *reached: where the first round came to.
static double time_transfers(struct Measure *m, Transfer *move, uint64_t end, bool once,
                             uint64_t *reached) {
    double start = base_seconds(), seconds = 0;
    uint64_t moved = 0, at = 0;
    while (seconds < MEASURE_SECONDS && !(once && moved == end)) {
        struct NvmePiece piece[NVME_PIECES];
        int count = 0;
        for (; count < NVME_PIECES && at < end; count++) {
            uint64_t left = end - at;
            size_t bytes = left < MEASURE_PIECE_BYTES ? (size_t)left : MEASURE_PIECE_BYTES;
            piece[count] = (struct NvmePiece){TAG_OPTIMIZER, at,
                                              m->mem + (size_t)count * MEASURE_PIECE_BYTES, bytes};
            at += bytes;
            moved += bytes;
        }
        struct Error e;
        if (move(m->n, piece, count, &e)) {
            log_line(LOG_NORMAL, "cannot measure the speed of the disk: %s", e.text);
            return 0;
        }
        if (reached && moved <= end)
            *reached = at;
        at = at == end ? 0 : at;
        seconds = base_seconds() - start;
    }
    return (double)moved / seconds;
}

static double measure_disk(const struct NvmeSettings *settings, Transfer *move) {
    struct NvmeSettings s = *settings;
    s.check = false;
    struct Error e;
    struct statvfs vfs;
    if (nvme_resolve(&s, &e) || statvfs(s.folder, &vfs))
        return 0;
    uint64_t half_of_free = (uint64_t)vfs.f_bavail * vfs.f_frsize / 2, written = 0;
    uint64_t bytes = half_of_free < MEASURE_FILE_BYTES ? half_of_free : MEASURE_FILE_BYTES;
    bytes -= bytes % 4096;
    struct Measure m = {.mem = aligned_alloc(4096, NVME_PIECES * MEASURE_PIECE_BYTES)};
    if (!m.mem)
        base_out_of_memory(NVME_PIECES * MEASURE_PIECE_BYTES, "a measurement of the disk");
    uint64_t x = 1; // numbers that no disk can compress
    for (size_t i = 0; i < NVME_PIECES * MEASURE_PIECE_BYTES / sizeof x; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(m.mem + i * sizeof x, &x, sizeof x);
    }
    double rate = 0;
    if (!bytes || nvme_open(&m.n, &s, 0, (uint64_t[NTAG]){[TAG_OPTIMIZER] = bytes}, &e)) {
        log_line(LOG_NORMAL, "cannot measure the speed of the disk: %s",
                 bytes ? e.text : "it is full; free some space there");
    } else {
        // First the bytes are written: unwritten ones would not be read from the disk, and a first
        // write is slower than overwriting.
        nvme_register(m.n, m.mem, NVME_PIECES * MEASURE_PIECE_BYTES);
        if (time_transfers(&m, nvme_write, bytes, true, &written) > 0)
            rate = time_transfers(&m, move, written, false, NULL);
    }
    nvme_close(m.n);
    free(m.mem);
    return rate;
}

double nvme_measure_read(void *settings) {
    return measure_disk(settings, nvme_read);
}

double nvme_measure_write(void *settings) {
    return measure_disk(settings, nvme_write);
}
