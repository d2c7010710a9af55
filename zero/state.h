// The state of a rank as a whole, between steps: initial values, copies for checkpoints.
#ifndef ZERO_STATE_H
#define ZERO_STATE_H
#include "zero/engine.h"

// Initializes master weights from the run's seed and moments to 0; then the parameters.
void zero_init_weights(struct Zero *z, uint64_t seed);
// True if a group's weights are read from a file next, and need no initial values.
static inline bool zero_reads(const struct Zero *z, int g) {
    bool adapter = z->params->group[g].kind == GROUP_ADAPTER;
    if (!z->params->config.lora.rank)
        return z->plan.inference;
    return adapter ? z->reads_adapters : z->reads_base;
}
// parameters := master weights, after either was loaded. late: leaves that for the end of the next
// step; the parameters, which were loaded too, are in use until then.
void zero_store_params(struct Zero *z, bool late);

enum State { STATE_MASTER, STATE_M, STATE_V, NSTATE, PARAM_CURRENT = NSTATE, NSTATE_LATE };
static const enum State PARAM_NEWEST = NSTATE_LATE; // NSTATE_LATE: arrays if an update is late
enum { STATE_CHUNK = 1 << 20 };

// A format of master weights (kernels/master.h): initial values of this rank's part of a group; and
// the two functions below, for every array.
struct MasterOps {
    enum MasterFormat format;
    void (*init)(struct Zero *, int g);
    void (*read)(struct Zero *, int g, enum State what, size_t i, size_t n, float *out);
    void (*write)(struct Zero *, int g, enum State what, size_t i, size_t n, float *in);
};
extern const struct MasterOps zero_masters_fp32; // the core's own; others are in zero/master,
extern const struct MasterOps zero_masters_none; // also that of groups that are not trained

// Copies elements [i, i + n) of this rank's part as fp32 to or from memory of device_alloc_host,
// and waits: n <= STATE_CHUNK. Values written to bf16 moments must have been read from bf16
// moments; master weights are written before v. PARAM_CURRENT: the parameters, as far as this rank
// updates them. PARAM_NEWEST: those that the newest update made (update_dst of struct GroupState).
// array: one block's elements, whatever the format of master weights.
static inline void zero_read_state(struct Zero *z, int g, enum State what, size_t i, size_t n,
                                   float *out) {
    z->state[g].masters->read(z, g, what, i, n, out);
}
static inline void zero_write_state(struct Zero *z, int g, enum State what, size_t i, size_t n,
                                    float *in) {
    z->state[g].masters->write(z, g, what, i, n, in);
}
// Returns how many of a group's first `arrays` arrays a checkpoint has: of a group that is not
// trained only its weights; of the base of adapters none.
static inline enum State zero_narray(const struct Zero *z, int g, enum State arrays) {
    if (!params_saves(z->params, g))
        return 0;
    return zero_trains(z, g) || arrays < 1 ? arrays : STATE_MASTER + 1;
}
void zero_read_array(struct Zero *z, int g, enum State what, size_t i, size_t n, float *out);
void zero_write_array(struct Zero *z, int g, enum State what, size_t i, size_t n, float *in);
struct StateLocation {
    struct Block *block; // NULL: none
    size_t offset;       // of this rank's first element, in bytes
    enum Dtype dtype;
};
struct StateLocation zero_state_location(struct Zero *z, int g, enum State what);

// Returns a device whose kernels use the host's memory: the rank's own, that of an offload, or one
// that is opened; zero_host_close closes only the last. What is done there has the same bits on
// every device.
struct Device *zero_host_open(struct Zero *z);
void zero_host_close(struct Zero *z, struct Device *host);

// zero_init_weights and zero_store_params, for one group whose state is all on the device.
void zero_init_group(struct Zero *z, int g);
void zero_store_group(struct Zero *z, int g, bool late);
void zero_after_store_group(struct Zero *z, int g, bool late);

static inline void zero_sync(struct Zero *z) {
    z->backing.ops->sync(z);
}
static inline void zero_finish(struct Zero *z) {
    z->backing.ops->finish(z);
}
static inline void zero_install_new_weights(struct Zero *z) {
    z->backing.ops->install_new_weights(z);
}
static inline bool zero_is_late(const struct Zero *z) {
    return z->backing.ops->is_late(z);
}

#endif
