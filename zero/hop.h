// Hops: how one group's bytes travel in a step.
//
// A HOP moves or changes the bytes of one group once, in one queue: a collective, a copy, a kernel.
// A CHAIN is a group's hops in order. Each group has its own chains, made when it is opened: the
// stage adds its hops (stages.c), and other features of a run add theirs at named points, from
// their own files. No hop is taken out; one that is marked `instead` makes later ones be skipped.
//
// Hops of one queue follow each other. If the next hop is in another queue, that queue waits for
// the last one. The first hop that uses a buffer waits until it is free, or filled; after the last
// hop that uses a buffer, its queue records that the buffer is filled, or drained (chain.c). So a
// hop declares only its queue, its buffers and its work.
//
// Read next: stages.c, which lists the hops of each stage.
#ifndef ZERO_HOP_H
#define ZERO_HOP_H
#include "kernels/device.h"

struct Slot;
struct Zero;

// The chains of a group. FETCH brings its weights from where they are kept to where a unit reads
// them. ACCUMULATE brings the sum of earlier micro-batches to where this one's gradient is added.
// REDUCE takes the gradient of a backward pass to where its sum is kept. UPDATE makes new weights
// from that sum, of the part that this rank owns. PUBLISH sends them to the ranks that keep the
// whole.
enum ChainKind { FETCH, ACCUMULATE, REDUCE, UPDATE, PUBLISH, NCHAIN };

// The points of a chain: its hops run in this order.
enum HopPoint {
    POINT_READ,   // from disk
    POINT_LOAD,   // to the device
    POINT_BEFORE, // before the stage's own hop, or instead of it
    POINT_PACK,   // converts to the form in which it travels, or makes all the way in it
    POINT_STAGE,  // the stage's own hop
    POINT_UNPACK, // converts back
    POINT_AFTER,
    POINT_NORM,  // of a complete sum
    POINT_STORE, // to another tier
};

// The micro-batches of a step in which a hop runs: all; those whose gradient is reduced (each if
// only shards are kept, else the last); those whose gradient is not; the last.
enum HopWhen { WHEN_ANY, WHEN_REDUCED, WHEN_NOT_REDUCED, WHEN_LAST };

// The buffers of one group: its whole weights, or gradient, and the shard that this rank keeps,
// which may lie in the whole. USES_STORE: the hop reads the weights where they are kept; the first
// such hop of a chain waits for their update. MAKES_STORE: the hop is that update.
enum HopBuffer { BUFFER_WHOLE, BUFFER_SHARD, HOP_BUFFERS };
enum {
    USES_WHOLE = 1 << BUFFER_WHOLE,
    USES_SHARD = 1 << BUFFER_SHARD,
    USES_STORE = 1 << HOP_BUFFERS,
    MAKES_STORE = 2 << HOP_BUFFERS
};

// A hop's arguments. slot: the one that a buffer lies in; NULL: in the group's own memory, which
// nobody else uses.
struct HopArgs {
    int group;
    void *mem[HOP_BUFFERS];
    struct Slot *slot[HOP_BUFFERS];
    void *context; // the link's
};

struct Hop {
    const char *name; // as NCCL, CUDA or DeepSpeed name it
    enum HopPoint point;
    enum HopWhen when;
    enum Queue queue;
    unsigned uses; // USES_ and MAKES_ bits
    void (*run)(struct Zero *, const struct HopArgs *);
    bool on_host;   // in the host device's queue of that name; it orders itself with the next hop
    bool not_ahead; // of the walk: no GPU can wait for what precedes it, or its target is in use
    bool (*wanted)(const struct Zero *, int g, void *context); // NULL: it runs whenever it is due
    bool instead;      // where it runs, later hops up to POINT_STAGE do not
    const char *where; // HERE, for traces
};

// A hop of a group's chain, and the context of the feature that added it.
struct Link {
    const struct Hop *hop;
    void *context;
};

enum { HOPS_MAX = 12 };
struct Chain {
    int n;
    struct Link link[HOPS_MAX];
};

// Callbacks before and after each hop that runs (zero/plan/rehearse.h, zero/trace/trace.h).
struct HopWatch {
    void (*begins)(void *context);
    void (*ended)(void *context, const struct Zero *, enum ChainKind, const struct Hop *,
                  const struct HopArgs *);
    void *context;
};

// Adds a hop after those that are at its point already.
void chain_add(struct Chain *c, const struct Hop *hop, void *context);

// Queues the hops that are due in this micro-batch: those of REDUCE after the backward pass, which
// has filled the whole gradient. Begins with link `first`; ahead: stops before a hop marked
// `not_ahead`. Returns the index of the first link that is left.
int chain_run(struct Zero *z, enum ChainKind kind, int first, bool ahead, const struct HopArgs *a);

// Makes queue q wait until the slot is filled or, if nothing fills it, free.
void slot_wait(struct Zero *z, const struct Slot *slot, enum Queue q);

#endif
