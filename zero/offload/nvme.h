// The NVMe tier's files: they hold state that fits into no memory.
//
// Each rank has one file per kind of state in a folder of the user's. The files are read and
// written through io_uring with O_DIRECT: many requests are under way at once, which an NVMe disk
// needs to be fast, and no byte goes through the page cache, which would use the memory that
// offload saves and would copy everything once more. Rajbhandari et al., "ZeRO-Infinity: breaking
// the GPU memory wall for extreme scale deep learning", 2021 (arXiv 2104.07857), section 6.3;
// Axboe, "Efficient IO with io_uring", 2019.
//
// The files have no name: a run that crashes leaves nothing. Error lines still name them
// FOLDER/zero-rank-0003.optimizer, so that people can tell them apart.
//
// Called by the queues of offloaded state, from one thread that reads and one that writes. Read
// next: nvme_files.c (files), nvme_move.c (requests), nvme_ring.c (io_uring), nvme_preflight.c.
#ifndef ZERO_OFFLOAD_NVME_H
#define ZERO_OFFLOAD_NVME_H
#include "kernels/tier.h"

enum { NVME_PIECES = 4 }; // in one call

struct NvmeDisk;
struct Nvme;

struct NvmeSettings {
    const char *folder;          // --nvme-path
    size_t block_bytes;          // --nvme-block: most of one request. 0: NVME_BLOCK_BYTES
    size_t depth;                // --nvme-depth: requests under way, each way. 0: NVME_DEPTH
    bool check;                  // --check-io: sums of all that is written, compared on reading
    const struct NvmeDisk *disk; // NULL: the kernel's io_uring (nvme_disk.h)
};
enum { NVME_BLOCK_BYTES = 1 << 20, NVME_DEPTH = 16 };

// Some bytes of one file, and their address in memory.
struct NvmePiece {
    enum Tag file;
    uint64_t offset;
    void *mem;
    size_t bytes;
};

// Replaces 0 by defaults, and checks the two sizes. Errors: -EINVAL.
int nvme_resolve(struct NvmeSettings *s, struct Error *e);

// Returns -EINVAL, with a line, for a folder that is in memory and not on a disk.
int nvme_refuse_memory(const char *folder, struct Error *e);

// Opens this rank's files: reserves bytes[tag] on the disk, 0: no such file. Errors: -EINVAL for a
// folder in memory (tmpfs) or a wrong size, -ENOTSUP without io_uring, -errno.
int nvme_open(struct Nvme **out, const struct NvmeSettings *settings, int rank,
              const uint64_t bytes[NTAG], struct Error *e);
void nvme_close(struct Nvme *n); // NULL: does nothing

// Registers memory that transfers use often. The kernel pins it once instead of at every request,
// if it allows that; if not, it is an ordinary buffer. Huge pages are requested, which need memory
// in multiples of 2 MiB to be of use. Call it before the first transfer.
void nvme_register(struct Nvme *n, void *mem, size_t bytes);

// Moves up to NVME_PIECES pieces, all under way together as far as the depth goes, and returns when
// all bytes are in memory, or handed to the disk. One thread may read while one other writes; a
// transfer waits for another that touches the same 4 KiB. Any offset, size and address will do:
// what O_DIRECT cannot take goes through an aligned buffer, at the cost of a copy and, where a
// piece begins or ends within 4 KiB of the disk, of reading those. Fastest: all three multiples of
// 4096. Errors: -errno, and a line with the file, the offset and the cause.
int nvme_read(struct Nvme *n, const struct NvmePiece *pieces, int count, struct Error *e);
int nvme_write(struct Nvme *n, const struct NvmePiece *pieces, int count, struct Error *e);

// Returns the host memory that the files take, apart from what the caller registers: the aligned
// buffers, of which only used pages are in memory, and the sums of --check-io. Each direction uses
// one unit per request for units that are covered in part, and `unaligned` bytes: the most that are
// moved at once from or to memory that is not aligned.
uint64_t nvme_host_bytes(const struct NvmeSettings *settled, const uint64_t bytes[NTAG],
                         size_t unaligned);

// ---- nvme_preflight.c ----

// Checks before anything is allocated that the folder exists, is writable and on a disk, takes
// O_DIRECT, and has space for the files of all ranks of this machine. Errors: -EINVAL and -errno,
// with a line that begins with --nvme-path.
int nvme_preflight(const struct NvmeSettings *settings, uint64_t bytes_needed_here,
                   struct Error *e);

// Measures bytes/s with these settings over half a second, on a file of up to 512 MiB that
// vanishes; 0 if it could not be measured. `settings`: a const struct NvmeSettings. They fit
// data/log/machine.h's machine_measured, whose name must hold folder, block and depth.
double nvme_measure_read(void *settings);
double nvme_measure_write(void *settings);

#endif
