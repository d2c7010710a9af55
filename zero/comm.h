// Collectives between the ranks of one group, as operations on a queue.
//
// A collective is queued on the stream it is given and runs in that stream's order, as NCCL's do.
// Bytes that a rank sends are counted by kind. zero/comm_self.c is the group of one rank.
#ifndef ZERO_COMM_H
#define ZERO_COMM_H
#include "kernels/device.h"

enum Collective {
    COMM_ALL_GATHER,
    COMM_REDUCE_SCATTER,
    COMM_ALL_REDUCE,
    COMM_BROADCAST,
    NCOLLECTIVE
};

struct Comm;

// n counts the elements of one rank's shard; a whole buffer has n * size. Sums are made in fp32 in
// rank order and rounded once, so every stage of ZeRO gets the same bits.
struct CommOps {
    void (*all_gather)(struct Comm *, void *whole, const void *shard, size_t n, enum Dtype,
                       struct Stream *);
    void (*reduce_scatter)(struct Comm *, void *shard, const void *whole, size_t n, enum Dtype,
                           struct Stream *);
    void (*all_reduce)(struct Comm *, void *whole, size_t n, enum Dtype, struct Stream *);
    void (*broadcast)(struct Comm *, void *mem, size_t bytes, int root, struct Stream *);
    void (*barrier)(struct Comm *);
    void (*close)(struct Comm *);
};

struct Comm {
    const struct CommOps *ops;
    struct Device *device;
    int rank, size;
    uint64_t bytes[NCOLLECTIVE]; // sent by this rank
};

struct Comm *comm_open_self(struct Device *device);

#endif
