// Buffers that one owner has after another: see slots.c.
#ifndef ZERO_SLOTS_H
#define ZERO_SLOTS_H
#include "kernels/mark.h"
#include "kernels/tier.h"
#include "model/params.h"

// A buffer that one owner has after another: a group, for weights that were gathered or fetched, or
// a gradient until it is reduced; or a layer, for what it keeps for its backward pass.
struct Slot {
    struct Block block;
    int owner;           // whose it is now; -1: nobody's
    bool fill_queued;    // the copy that fills it has been, or there is none
    int next;            // link of the chain that fills it
    struct Mark arrived; // all of it is here
    struct Mark drained; // what was here has been read for the last time
};

// A ring of slots: owner i has slot i % count. For groups there is one more, slot 0 for those of
// the model's ends, which are larger; the blocks' have slots 1 .. by turns.
struct Slots {
    const struct Params *params; // of these groups; NULL: owners are layers
    int count;
    struct Slot *slot;
};

struct SlotsSpec {
    struct Device *device, *host; // whose queues wait for them
    const struct Params *params;  // whose groups are the owners; NULL: layers are
    int turns;                    // slots of blocks, or layers
    size_t bytes[2];              // of a slot for the ends, and of one of these
    struct Tier *tier;            // NULL: they are at mem, one after another
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
