// The NVMe tier's files: state that fits into no memory is kept on the disk, by what is here.
//
// Each rank has one file per kind of state in a folder of the user's. The files are read and
// written through io_uring with O_DIRECT: many requests are under way at once, which an NVMe disk
// needs to be fast, and no byte goes through the page cache, which would take the memory that
// offload is there to save and would copy everything once more. Rajbhandari et al., "ZeRO-Infinity:
// breaking the GPU memory wall for extreme scale deep learning", 2021 (arXiv 2104.07857), section
// 6.3; Axboe, "Efficient IO with io_uring", 2019.
//
// The files have no name: a run that crashes leaves nothing behind. Error lines name them
// FOLDER/zero-rank-0003.optimizer all the same, so that people can tell them apart.
//
// Callers: the queues of offloaded state, from one thread that reads and one that writes. Read
// next: nvme_files.c (files), nvme_move.c (requests), nvme_ring.c (io_uring), nvme_preflight.c.
#ifndef ZERO_OFFLOAD_NVME_H
#define ZERO_OFFLOAD_NVME_H
#include "kernels/tier.h"

enum { NVME_PIECES = 4 }; // in one call

struct NvmeDisk;
struct Nvme;

struct NvmeSettings {
    const char *folder;          // --nvme-path
    size_t block_bytes;          // --nvme-block: of one request, at most. 0: NVME_BLOCK_BYTES
    size_t depth;                // --nvme-depth: requests under way, each way. 0: NVME_DEPTH
    bool check;                  // --check-io: sums of all that is written, compared on reading
    const struct NvmeDisk *disk; // NULL: the kernel's io_uring (nvme_disk.h)
};
enum { NVME_BLOCK_BYTES = 1 << 20, NVME_DEPTH = 16 };

// Some bytes of one file, and where they are in memory.
struct NvmePiece {
    enum Tag file;
    uint64_t offset;
    void *mem;
    size_t bytes;
};

// Defaults in place of 0, and what the two sizes may be. Errors: -EINVAL.
int nvme_resolve(struct NvmeSettings *s, struct Error *e);

// -EINVAL, with a line, for a folder that is in memory and on no disk.
int nvme_refuse_memory(const char *folder, struct Error *e);

// Opens this rank's files: bytes[tag] are reserved on the disk, 0: no such file. Errors: -EINVAL
// for a folder in memory (tmpfs) or a wrong size, -ENOTSUP without io_uring, -errno.
int nvme_open(struct Nvme **out, const struct NvmeSettings *settings, int rank,
              const uint64_t bytes[NTAG], struct Error *e);
void nvme_close(struct Nvme *n); // NULL: nothing

// Memory that transfers use often. The kernel pins it once instead of at every request, if it
// allows that; if not, it is an ordinary buffer. Huge pages are asked for, which need memory in
// multiples of 2 MiB to be of use. Before the first transfer.
void nvme_register(struct Nvme *n, void *mem, size_t bytes);

// Moves up to NVME_PIECES pieces, all under way together as far as the depth goes, and returns when
// all bytes are in memory, or in the device's hands. One thread may read while one other writes; a
// transfer waits for another that touches the same 4 KiB. Any offset, size and address will do:
// what O_DIRECT cannot take goes through an aligned buffer, which costs a copy, and where a piece
// begins or ends within 4 KiB of the disk a read of those. Fast is: all three multiples of 4096.
// Errors: -errno, and a line with the file, the offset and the cause.
int nvme_read(struct Nvme *n, const struct NvmePiece *pieces, int count, struct Error *e);
int nvme_write(struct Nvme *n, const struct NvmePiece *pieces, int count, struct Error *e);

// Host memory that the files take, apart from what the caller registers: the aligned buffers, of
// which only what is used ends up in memory, and the sums of --check-io. Of each direction's
// buffers those units are used that transfers cover in part, one a request, and what `unaligned`
// bytes take, the most whose own memory is not aligned and that are moved at once.
uint64_t nvme_host_bytes(const struct NvmeSettings *settled, const uint64_t bytes[NTAG],
                         size_t unaligned);

// ---- nvme_preflight.c ----

// Before anything is allocated: is there such a folder, may we write to it, is it on a disk, does
// it take O_DIRECT, has it room for the files of all ranks of this machine? Errors: -EINVAL and
// -errno, with a line that opens with --nvme-path.
int nvme_preflight(const struct NvmeSettings *settings, uint64_t bytes_needed_here,
                   struct Error *e);

// Bytes/s with these settings over half a second, on a file of up to 512 MiB that vanishes; 0 if it
// could not be measured. `settings`: a const struct NvmeSettings. They fit data/log/machine.h's
// machine_measured, whose name must hold folder, block and depth.
double nvme_measure_read(void *settings);
double nvme_measure_write(void *settings);

#endif
