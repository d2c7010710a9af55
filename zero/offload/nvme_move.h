// The inside of struct Nvme, shared by nvme_files.c, which opens and closes, and nvme_move.c, which
// moves.
#ifndef ZERO_OFFLOAD_NVME_MOVE_H
#define ZERO_OFFLOAD_NVME_MOVE_H
#include "zero/offload/nvme_disk.h"

#include <pthread.h>

// Files are cut into UNITS: the least that the disk takes as a whole, and the range of one sum.
enum { NVME_UNIT_BYTES = 4096 };

struct NvmeFile {
    int fd;         // -1: none
    uint64_t bytes; // as requested
    uint64_t *sums; // of each unit, 0: never written; NULL without --check-io
    char *name;     // for error lines
};

// The kinds of a job, which is one request and the further requests for its bytes.
enum JobKind {
    JOB_READ,
    JOB_WRITE,
    JOB_READ_OLD, // a unit of which a part will be replaced; becomes JOB_WRITE
};
struct NvmeJob {
    enum JobKind kind;
    enum Tag file;
    uint64_t offset; // a multiple of the unit, as is bytes
    size_t bytes, done;
    char *mem;        // address that the disk reads or writes
    char *user;       // the caller's part of it, if mem is not the caller's
    size_t user_from; // where that begins within mem
    size_t user_bytes;
    int attempts; // since `done` last grew
};

// The units that a transfer touches, in bytes of the file.
struct Claim {
    enum Tag file;
    uint64_t begin, end;
};

// One direction: reading, or writing.
struct Lane {
    struct NvmeQueue *queue;
    struct NvmeJob *job; // (depth)
    char *bounce;        // (depth, block_bytes): aligned buffers, one a job
    int *idle;           // (nidle): unused jobs
    size_t nidle;
    int queue_error; // -errno: the queue has failed, and requests under way never end
    bool pin_tried;  // the kernel was asked to pin the registered memory
    bool pinned;     // and did so
    struct Claim claim[NVME_PIECES];
    int nclaim;
};

struct Nvme {
    struct NvmeSettings settings; // settled
    struct NvmeFile file[NTAG];
    size_t memory_align;  // what O_DIRECT asks for
    struct iovec *ranges; // registered
    unsigned nrange;
    struct Lane reader, writer;
    pthread_mutex_t lock; // of the claims
    pthread_cond_t released;
};

#endif
