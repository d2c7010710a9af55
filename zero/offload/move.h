// Moving state between the device and its backing store, a block of the tier that it is in.
//
// What is offloaded has a STORE, a block in host memory or in a file on NVMe. From host memory it
// is copied by the device's own queues, `in` and `out`; so it is from the device's own, where parts
// of activations may stay, and then no bus is taken. NVMe is one step further: the host's queues
// of the same names read and write the file, and the bytes pass through a STAGING buffer in host
// memory.
//
//   in    disk --host's in--> staging --device's in--> device memory
//   out   device memory --device's out--> staging --host's out--> disk
//
// Marks keep the two steps apart (docs/events.md), for weights (staging ...) and activations (layer
// staging ...).
//
// All of it is queued, and the caller goes on, or waits as mark.h says. Bytes are counted, as what
// the bus and the disk carry in a step is predicted (zero/plan/rehearse.h).
#ifndef ZERO_OFFLOAD_MOVE_H
#define ZERO_OFFLOAD_MOVE_H
#include "kernels/mark.h"
#include "kernels/tier.h"
#include "zero/comm/comm.h"
#include "zero/offload/nvme.h"

// Between the parties, in bytes so far.
struct Moved {
    uint64_t in, out;       // over the bus, to and from device memory
    uint64_t read, written; // from and to NVMe
};
void moved_add(struct Moved *to, struct Moved m);
struct Moved moved_since(struct Moved now, struct Moved before);

enum { MOVE_BUFFERS = 64 };

struct Mover {
    struct Device *device, *host;
    struct Nvme *nvme;
    struct Comm *all;         // told when the disk fails
    struct Moved moved[NTAG]; // of stores with that tag
    // Host memory that the disk reads and writes again and again.
    const struct Block *buffer[MOVE_BUFFERS];
    int nbuffer;
};

// Blocks of host memory that transfers will use, before the disk's files are opened; then those.
void move_add_buffer(struct Mover *m, const struct Block *b);
void move_open_disk(struct Mover *m, struct Nvme *nvme);

struct Staging {
    struct Block block;
    struct Mark arrived, drained; // host's in: it is filled from disk; device's in: it was used
    struct Mark copied, stored;   // device's out: it is filled; host's out: it is on disk
};

// A staging buffer of `bytes` bytes in the cpu tier. Errors: -ENOMEM.
int staging_open(struct Staging *s, struct Mover *m, enum Tag tag, const char *purpose,
                 size_t bytes, struct Tier *cpu, struct Error *e);
void staging_close(struct Staging *s); // of a zeroed one: nothing

// What goes out and comes back needs no wait: an owner's bytes leave and come by the same slot,
// which is drained between.
struct Move {
    struct Block *store;
    size_t offset, bytes;    // of the store
    void *mem;               // on the device
    struct Staging *staging; // where the store is on NVMe
};

// in is two calls, so that the disk can be at work long before the device has room: move_begin
// starts reading into staging (nothing, where the store is in host memory), and move_in queues
// the copy on the device's in queue, behind the waits that the caller queued there.
void move_begin(struct Mover *m, const struct Move *v);
void move_in(struct Mover *m, const struct Move *v);
void move_out(struct Mover *m, const struct Move *v); // on the device's out queue, likewise

// Pieces of blocks on NVMe, in the host's in queue, or to write them in its out queue. unless:
// nothing is written where *unless is not 0 when the queue gets there; NULL: it is.
struct MovePieces {
    struct NvmePiece piece[NVME_PIECES];
    int n;
    const uint32_t *unless;
};
void move_pieces(struct Mover *m, const struct MovePieces *p, bool write);

// Reads a piece of a block of any tier into host memory (out: writes it from there), now. mem: of
// device_alloc_host. The queues that use the block are idle.
void move_now(struct Mover *m, const struct Block *b, size_t offset, void *mem, size_t bytes,
              bool out);

#endif
