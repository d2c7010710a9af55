// Offload: state that is kept in host memory or on NVMe instead of on the device.
//
// State comes to the device only while the walk needs it, through the same slots in which shards
// are gathered (Ren et al. 2021, ZeRO-Offload, arXiv 2101.06840; Rajbhandari et al. 2021,
// ZeRO-Infinity, arXiv 2104.07857). Offloaded optimizer state stays where it is: the host updates
// it, beside the device's next forward pass.
//
// The core (zero/zero.h) asks at most which tier a group's state is in, and calls struct
// BackingOps. When it opens a group, attach.c adds the hops of this folder to the group's chains:
//
//   FETCH, UPDATE, PUBLISH   weights come from where they are kept, and go back    weights.c
//   ACCUMULATE, REDUCE       a gradient leaves as soon as it is reduced            gradients.c
//   UPDATE                   by the host, and installed before their next use      update.c
//
// and around units, hops move what a unit keeps for its backward pass (activations.c). Below all of
// these: move.c, which moves bytes between tiers, and nvme_files.c, the disk.
//
// Read next: attach.c.
#ifndef ZERO_OFFLOAD_OFFLOAD_H
#define ZERO_OFFLOAD_OFFLOAD_H
#include "zero/offload/move.h"
#include "zero/state.h"

// The user's options. The device is the caller's.
struct OffloadOptions {
    struct Device *host;                // a CPU device
    enum TierKind param_tier, opt_tier; // where parameters and optimizer state are
    double ratio;                       // the share of optimizer state that is in opt_tier
    bool delayed;                       // updates come one step late,
    uint64_t delay_after;               // after so many steps
    bool no_staging; // weights come from disk into slots: the device is a CPU, and nothing else is
                     // on that disk
};

static inline bool lies_on(const struct Placement *p, enum TierKind kind) {
    return p->tier->kind == kind;
}

// Adapts what zero_plan made, and sets *first_offloaded to a group: those from it on have
// gradients and optimizer state where plan->grad and plan->optimizer say, those before it on the
// device. params: NULL: one group, of any size. Errors: -EINVAL.
int offload_plan(struct ZeroPlan *plan, const struct ZeroOptions *zero,
                 const struct OffloadOptions *options, const struct Params *params,
                 int *first_offloaded, struct Error *e);

// Says when new weights of the host become visible to the walk, which is called installing them:
enum Pending {
    PENDING_NOT,
    PENDING_NOW,  // before the next walk reads the group
    PENDING_LATE, // at the end of the next step
};

// The state that the host and its disk keep of a group, beside struct GroupState.
struct OffloadGroup {
    struct Block second_grad;     // for late updates: two gradients take turns
    struct Block new_weights;     // host memory: new weights of this rank's part, not installed yet
    struct Mark new_weights_made; // the host has made new weights: here, or in param
    struct Mark state_stored;     // the host's update is on disk
    enum Pending pending;
};

// The host's updates go piece by piece: a piece is long enough for a disk, and short enough to fill
// the pipe soon; so many buffers are on their way between disk and host.
enum { HOST_PIECE = 1 << 20, HOST_BUFFERS = 4 };
struct HostBuffer {
    struct Block block; // master weights, m, v, and parameters if those go to NVMe, too
    struct Mark arrived, updated, stored;
};

// The host's update in progress (update.c).
struct HostUpdate {
    int next;                      // first group that is due and not queued
    bool late;                     // its weights are not in use yet; alike on all ranks
    int turn;                      // index of the gradients (offload_grad)
    const struct HostCopy *copy;   // of the step whose update it is
    const struct HostCopy *newest; // newest step whose norm and settings are in its host copy
    struct Mark
        results_received[HOST_COPIES]; // out queue: a step's norm and settings are in its host copy
    struct HostBuffer buffer[HOST_BUFFERS];
    size_t piece; // elements
    uint64_t pieces;
    uint64_t label_step;
};

struct ActOffload;

// The part of a group's weights that a hop moves: all that is kept, or what this rank updates.
struct WeightsPart {
    struct Mover *mover;
    bool own;
};

struct Offload {
    struct OffloadOptions options;
    struct Tier *tier;   // (NTIER)
    int first_offloaded; // groups from here on are updated by the host
    struct Mover mover;
    struct WeightsPart kept, own;
    struct OffloadGroup *group;
    struct Slots shards[NRING];     // reduced shards on their way to the host
    struct Staging *staging[NRING]; // of each slot of weights, if those are on NVMe; else NULL
    struct HostUpdate update;
    struct ActOffload *acts; // NULL: activations stay on the device
};

// Returns the backing that does all of this, for z->backing before zero_open. plan: as offload_plan
// made it. zero_close frees it.
struct Backing offload_backing(struct Zero *z, const struct ZeroOptions *zero,
                               const struct OffloadOptions *options, int first_offloaded);
// NULL: nothing is offloaded.
struct Offload *offload_of(const struct Zero *z);
// True if updates come late at all.
bool offload_is_delayed(const struct Zero *z);
// True if the update of step `step` comes late.
bool offload_is_late_after(const struct Zero *z, uint64_t step);
// Returns the bytes that were moved so far.
struct Moved offload_moved(const struct Zero *z);

// The rest are entries of struct BackingOps, or parts of those. They queue work and return at once,
// unless a mark is of the other device (mark.h).

// ---- weights.c: parameters that are elsewhere, or that the host updates ----
// Adds hops from and to the store to a group that is opened, and whose weights are elsewhere.
void offload_attach_weights(struct Zero *z, int g);

// ---- gradients.c: of groups that the host updates ----
void offload_attach_gradient(struct Zero *z, int g); // adds hops to a group that is opened
// Called after any visit: brings the sum so far of the next one's gradient to a bucket.
void offload_sum_ahead(struct Zero *z, const struct Visit *v);
// Returns which of a group's two gradients this step makes; 0 without delayed updates.
int offload_turn(const struct Zero *z);
// Returns where group g's gradient `turn` is.
struct Block *offload_grad(struct Zero *z, int g, int turn);

// ---- update.c: the host's AdamW ----
bool host_updates(const struct Zero *z, int g); // instead of the device
bool host_needs_new_weights(const struct Zero *z,
                            int g);             // new weights wait before they are installed
int host_open(struct Zero *z, struct Error *e); // Errors: -ENOMEM
void host_close(struct Zero *z);
void host_attach(struct Zero *z, int g);      // adds an update's hops to a group
void host_install_due(struct Zero *z, int g); // makes new weights, if any, the walk's
void host_install_late(struct Zero *z);       // of all groups, also late ones
// Called when state was loaded. late: so were new weights, which are not in use yet.
void host_set_pending(struct Zero *z, int g, bool late);
void host_queue_due(struct Zero *z);     // queues all that is due
void host_step_reported(struct Zero *z); // entries of struct BackingOps
void host_step_queued(struct Zero *z);

// ---- update_pieces.c: updates of optimizer state that is on NVMe ----
bool host_state_is_on_disk(const struct Zero *z);
int pieces_open(struct Zero *z, struct Error *e); // Errors: -ENOMEM
void pieces_close(struct Zero *z);
void pieces_update(struct Zero *z, int g, const struct AdamW *whole); // queues AdamW of one group

// ---- state_io.c: struct BackingOps between steps, wherever the state is ----
void state_io_init(struct Zero *z, int g);
// late: the master weights belong to an update whose weights are not in use yet.
void state_io_store(struct Zero *z, int g, bool late);
void state_io_after_store(struct Zero *z, int g, bool late);
void state_io_copy(struct Zero *z, const struct Block *b, size_t offset, void *mem, size_t bytes,
                   bool to_block);
bool state_io_is_late(const struct Zero *z);

#endif
