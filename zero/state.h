// The state of a rank as a whole, between steps: initial values, copies for checkpoints, the hash.
#ifndef ZERO_STATE_H
#define ZERO_STATE_H
#include "zero/backing.h"

// Fresh fp32 master weights and moments of 0; then the parameters.
void zero_init_weights(struct Zero *z, uint64_t seed);
// parameters := master weights, after either was loaded. late: that is left for the end of the next
// step, and the parameters, which were loaded, too, are in use until then.
void zero_store_params(struct Zero *z, bool late);

// Elements [i, i + n) of that part as fp32, to or from memory of device_alloc_host: n <=
// STATE_CHUNK. They wait. The values that go to bf16 moments are such as came from there.
// STATE_IN_USE: the parameters, as far as this rank updates them.
enum State { STATE_MASTER, STATE_M, STATE_V, NSTATE, STATE_IN_USE = NSTATE, NSTATE_LATE };
enum { STATE_CHUNK = 1 << 20 };
void zero_read_state(struct Zero *z, int g, enum State what, size_t i, size_t n, float *out);
void zero_write_state(struct Zero *z, int g, enum State what, size_t i, size_t n, float *in);
struct StatePlace {
    struct Block *block;
    size_t offset; // of this rank's first element, in bytes
    enum Dtype dtype;
};
struct StatePlace zero_state_place(struct Zero *z, int g, enum State what);

// One group of these, all of it on the device.
void zero_init_group(struct Zero *z, int g, uint64_t seed);
void zero_store_group(struct Zero *z, int g, bool late);
void zero_stored_group(struct Zero *z, int g, bool late);

static inline void zero_sync(struct Zero *z) {
    z->backing.ops->sync(z);
}
static inline void zero_finish(struct Zero *z) {
    z->backing.ops->finish(z);
}
static inline void zero_install(struct Zero *z) {
    z->backing.ops->install(z);
}
static inline bool zero_is_late(const struct Zero *z) {
    return z->backing.ops->is_late(z);
}
uint64_t zero_weights_hash(struct Zero *z); // of all weights; all ranks call it, and wait

#endif
