// Hops: how one group's bytes travel in a step.
//
// A HOP moves or changes the bytes of one group once, in one queue: a collective, a copy, a
// kernel. A CHAIN is the hops of a group in their order. Each group has its own, made when it is
// opened: a stage puts its hops in (stages.c), and what else a run is asked to do adds hops of its
// own at named points, in files of its own. Nothing that is in a chain is ever replaced.
//
// Hops of one queue follow each other. Where the next hop is in another queue, that queue waits
// for the last one; where a hop is the first to use a buffer, its queue waits until the buffer is
// free, or filled; and behind the last hop that uses a buffer the queue records that it is drained
// (chain.c). So what a hop has to say is its queue, its buffers, and its work.
//
// Read next: stages.c, where the chains of a stage are.
#ifndef ZERO_HOP_H
#define ZERO_HOP_H
#include "kernels/device.h"

struct Slot;
struct Zero;

// The chains of a group. FETCH: its weights come from where they are kept to where a unit uses
// them. ACCUMULATE: the sum of the micro-batches before comes to where this one's gradient is
// added. REDUCE: the gradient that a backward pass made goes to where its sum is kept. UPDATE: of
// that this rank makes new weights, where it keeps its part. PUBLISH: they go to the ranks that
// keep them whole.
enum ChainKind { FETCH, ACCUMULATE, REDUCE, UPDATE, PUBLISH, NCHAIN };

// Where in its chain a hop runs, in this order.
enum HopPoint {
    POINT_READ,   // from disk
    POINT_LOAD,   // to the device
    POINT_BEFORE, // ahead of what follows, or instead of it
    POINT_PACK,   // into the form in which it travels, or all of its way in that form
    POINT_STAGE,  // the stage's own
    POINT_UNPACK, // from that form
    POINT_AFTER,
    POINT_NORM,  // of a sum that is complete
    POINT_STORE, // to another tier
};

// In which micro-batches of a step it runs: all; those whose gradient is reduced, which is each
// where only shards are kept, else the last; those whose gradient is not; the last.
enum HopWhen { WHEN_ANY, WHEN_REDUCED, WHEN_NOT_REDUCED, WHEN_LAST };

// The buffers of one group: all of its weights, or of a gradient; and the shard of them that this
// rank keeps. It may lie in the whole. USES_STORE: the hop reads the weights where they are kept;
// the first hop of a chain that has it waits for their update. MAKES_STORE: it is that update.
enum HopBuffer { BUFFER_WHOLE, BUFFER_SHARD, HOP_BUFFERS };
enum {
    USES_WHOLE = 1 << BUFFER_WHOLE,
    USES_SHARD = 1 << BUFFER_SHARD,
    USES_STORE = 1 << HOP_BUFFERS,
    MAKES_STORE = 2 << HOP_BUFFERS
};

// What a hop works on. slot: which a buffer lies in; NULL: in the group's own memory, which nobody
// else uses. held: the slot that the queue before the chain has filled: no hop waits for it.
struct HopArgs {
    int group;
    void *mem[HOP_BUFFERS];
    struct Slot *slot[HOP_BUFFERS], *held;
    bool backward; // FETCH: for a unit's backward pass
    void *context; // the link's
};

struct Hop {
    const char *name; // as NCCL, CUDA or DeepSpeed name it
    enum HopPoint point;
    enum HopWhen when;
    enum Queue queue;
    unsigned uses; // buffers
    void (*run)(struct Zero *, const struct HopArgs *);
    bool on_host; // in the host's queue of that name; what orders it with others is its own
    bool later;   // it is queued when the walk is there: a GPU cannot wait for what is before it,
                  // or what it overwrites is in use until then
    bool (*wanted)(const struct Zero *, int g, void *context); // NULL: it runs whenever it is due
    bool instead; // where it runs, what follows does not, the stage's own included
};

// A hop of a group's chain, and what its feature wants to be told.
struct Link {
    const struct Hop *hop;
    void *context;
};

enum { HOPS_MAX = 12 };
struct Chain {
    int n;
    struct Link link[HOPS_MAX];
};

// Who is told of each hop that runs, before and after (zero/plan/rehearse.h).
struct HopWatch {
    void (*begins)(void *context);
    void (*ended)(void *context, const struct Zero *, enum ChainKind, const struct Hop *,
                  const struct HopArgs *);
    void *context;
};

// Adds a hop at its point, behind those that are there.
void chain_add(struct Chain *c, const struct Hop *hop, void *context);

// Queues the hops that are due in this micro-batch, behind what `from` has queued; NQUEUE: nothing.
// Begins with link `first`; ahead: ends before a hop that is for later. Returns the link that is
// next.
int chain_run(struct Zero *z, enum ChainKind kind, int first, bool ahead, enum Queue from,
              const struct HopArgs *a);

// Queue q waits until the slot is filled, or, where nothing fills it, free.
void slot_wait(struct Zero *z, const struct Slot *slot, enum Queue q);

#endif
