// Moves state between the device and its backing store, a block of the tier that it is in.
//
// Offloaded state has a STORE, a block in host memory or in a file on NVMe. From host memory the
// device's own queues, `in` and `out`, copy it; also from the device's own memory, where parts of
// activations may stay, and then no bus is used. NVMe is one step further: the host's queues of the
// same names read and write the file, and the bytes pass through a STAGING buffer in host memory.
//
//   in    disk --host's in--> staging --device's in--> device memory
//   out   device memory --device's out--> staging --host's out--> disk
//
// A CPU's own queues read and write the disk without staging, where nothing else does
// (OffloadOptions.no_staging).
//
// Marks order the two steps (docs/events.md), for weights (staging ...) and activations (layer
// staging ...).
//
// All of it is queued, and the caller goes on, or waits as mark.h says. Bytes are counted, as the
// traffic of bus and disk in a step is predicted (zero/plan/rehearse.h).
#ifndef ZERO_OFFLOAD_MOVE_H
#define ZERO_OFFLOAD_MOVE_H
#include "kernels/mark.h"
#include "kernels/tier.h"
#include "zero/comm/comm.h"
#include "zero/offload/nvme.h"

// Bytes moved so far between device, host and disk.
struct Moved {
    uint64_t in, out;       // over the bus, to and from device memory
    uint64_t read, written; // from and to NVMe
};
void moved_add(struct Moved *to, struct Moved m);
struct Moved moved_since(struct Moved now, struct Moved before);

struct MovePieces;

// Is told of pieces that a queue will read from disk, or write, before that is queued.
struct MoveWatch {
    void (*queued)(void *context, const struct MovePieces *, bool write);
    void *context;
};

enum { MOVE_BUFFERS = 64 };

struct Mover {
    struct Device *device, *host;
    struct Nvme *nvme;
    struct Comm *all;         // ends the job if the disk fails
    struct Moved moved[NTAG]; // by the tag of the store
    // Host memory that the disk reads and writes again and again.
    const struct Block *buffer[MOVE_BUFFERS];
    int nbuffer;
    struct MoveWatch watch; // queued NULL: nobody
};

// Adds host memory that transfers will use, before the disk is opened; then opens the disk.
void move_add_buffer(struct Mover *m, const struct Block *b);
void move_open_disk(struct Mover *m, struct Nvme *nvme);

struct Staging {
    struct Block block;
    struct Mark arrived, drained; // host's in: filled from disk; device's in: it was used
    struct Mark copied, stored;   // device's out: filled; host's out: it is on disk
};

// Opens a staging buffer of `bytes` bytes in the cpu tier. Errors: -ENOMEM.
int staging_open(struct Staging *s, struct Mover *m, enum Tag tag, const char *purpose,
                 size_t bytes, struct Tier *cpu, struct Error *e);
void staging_close(struct Staging *s); // zeroed: does nothing

// One move. Bytes that go out and come back need no wait: they leave and come by the same slot,
// which is drained in between.
struct Move {
    struct Block *store;
    size_t offset, bytes;    // of the store
    void *mem;               // on the device
    struct Staging *staging; // if the store is on NVMe; NULL: from and to mem
};

// Moving in takes two calls, so that the disk can start long before the device has a free slot:
// move_begin starts reading into staging (nothing for a store in host memory), and move_in queues
// the copy on the device's in queue, after the waits that the caller queued there.
void move_begin(struct Mover *m, const struct Move *v);
void move_in(struct Mover *m, const struct Move *v);
void move_out(struct Mover *m, const struct Move *v); // on the device's out queue, likewise

// Pieces of blocks on NVMe, which the host's in queue reads or its out queue writes. unless:
// nothing is written if *unless is not 0 when the queue gets there; NULL: always written.
struct MovePieces {
    struct NvmePiece piece[NVME_PIECES];
    int n;
    const uint32_t *unless;
};
void move_pieces(struct Mover *m, const struct MovePieces *p, bool write);

// Reads a piece of a block of any tier into host memory, or writes it from there (to_block),
// at once. mem: of device_alloc_host. The queues that use the block must be idle.
void move_now(struct Mover *m, const struct Block *b, size_t offset, void *mem, size_t bytes,
              bool to_block);

#endif
