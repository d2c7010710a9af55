// Buffers that several owners use in turn: see slots.c.
#ifndef ZERO_SLOTS_H
#define ZERO_SLOTS_H
#include "kernels/mark.h"
#include "kernels/tier.h"
#include "model/params.h"

// A buffer that owners use in turn: a group, for its fetched weights, or for its gradient until
// that is reduced; or a layer, for what it keeps for its backward pass.
struct Slot {
    struct Block block;
    int owner;           // who uses it now; -1: nobody
    bool fill_queued;    // what fills it is queued: a copy, a gather, a forward pass
    int next;            // next link of the chain that fills it
    struct Mark arrived; // it has been filled
    struct Mark drained; // its bytes have been read for the last time
};

enum Ring { RING_UNITS, RING_ADAPTERS, NRING };
static inline enum Ring ring_of(const struct Params *p, int g) {
    return p->group[g].kind == GROUP_ADAPTER ? RING_ADAPTERS : RING_UNITS;
}

// A ring of slots: owner i has slot i % count. For groups, slot 0 is for the embedding and the
// head, which are larger; blocks use slots 1 .. in turn, and their adapters those of a second ring.
struct Slots {
    const struct Params *params; // whose groups are the owners; NULL: owners are layers
    int count;
    struct Slot *slot;
};

struct SlotsSpec {
    struct Device *device, *host; // whose queues wait for the slots
    const struct Params *params;  // whose groups are the owners; NULL: owners are layers
    int turns;                    // slots for blocks, or for layers
    size_t bytes[2];              // of slot 0 for the model's ends, and of each other slot
    struct Tier *tier;            // NULL: the slots are at mem, one after another
    char *mem;
    const char *purpose;
    const char *mark_names[2]; // names of arrived, drained; NULL: never recorded
};
int slots_open(struct Slots *s, const struct SlotsSpec *spec, struct Error *e);
void slots_close(struct Slots *s);
struct Slot *slots_find(const struct Slots *s, int owner);    // NULL: it has none
bool slots_is_taken(const struct Slots *s, int owner);        // by this owner, or another
struct Slot *slots_acquire(const struct Slots *s, int owner); // must be free

#endif
