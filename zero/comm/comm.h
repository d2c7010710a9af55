// Collectives between the ranks of one group.
//
// A collective is an operation on its group's queue of the device, which is the comm queue for the
// state of data-parallel ranks: the call returns at once, and the work runs after what was queued
// before, as NCCL's does on a stream. (Threads that share a GPU return when all have called.) All
// ranks of a group must make the same calls in the same order. Sums over ranks are made in fp32 in
// rank order and rounded once, so that every stage of ZeRO, which cuts the same sums differently,
// gets the same bits. all_reduce is reduce_scatter followed by all_gather, for the same reason and
// at the same cost.
//
// The bytes that a rank sends are counted by kind. Per call, with n elements of a shard on each of
// `size` ranks: reduce_scatter, all_gather and all_to_all (size - 1) * n elements, all_reduce twice
// that; a sendrecv ("swap" in reports) its bytes, counted where they are sent.
//
// A rank that fails, or does not come within the time-out, ends the job with one line that names
// it. The job cannot go on without a rank, since its shards are gone.
//
// Backends: comm/self.c (one rank), comm/thread.c (ranks are threads of one process), comm/mpi.c
// (ranks are processes; comm/mpi.h), comm/nccl.c (each rank has a GPU; comm/nccl.h).
#ifndef ZERO_COMM_COMM_H
#define ZERO_COMM_COMM_H
#include "kernels/device.h"
#include "zero/comm/grid.h"

enum Collective {
    COMM_ALL_GATHER,
    COMM_REDUCE_SCATTER,
    COMM_ALL_REDUCE,
    COMM_ALL_TO_ALL,
    COMM_SWAP,
    COMM_BARRIER,   // no call: the opening of a group, and what hosts do apart from all queues
    COMM_BROADCAST, // no call, always 0: a key that readers of log.jsonl and --plan --json know
    NCOLLECTIVE
};

struct Comm;
struct Block;

// A group of some ranks of a job. queue: where its collectives run. staging: its own memory on the
// device for what comes from other ranks, if `queue` is not that of the group of all ranks; else
// NULL, and the staging of that group is used.
struct CommSplit {
    struct GridLine line;
    enum Queue queue;
    const struct Block *staging;
};

// The collective that one rank is about to call. Ranks whose next calls differ would wait for ever,
// or add weights to gradients; so they compare their calls first.
struct CommCall {
    uint64_t sequence;
    uint32_t collective, dtype;
    uint64_t bytes; // of a shard, or of the message
};

struct CommOps {
    // Gathers every rank's shard of `bytes` bytes, in rank order. The own shard may already be at
    // its offset in `whole`.
    void (*all_gather)(struct Comm *, void *whole, const void *shard, size_t bytes);
    // shard = (old shard, if accumulate) + the sum over ranks of this rank's n elements of their
    // `whole`. The shard may be at its offset in `whole`.
    void (*reduce_scatter)(struct Comm *, void *shard, const void *whole, size_t n, enum Dtype,
                           bool accumulate);
    // whole = the sum over ranks of whole, n * size elements.
    void (*all_reduce)(struct Comm *, void *whole, size_t n, enum Dtype);
    // `from` has `bytes` bytes for each rank, in rank order; `to`, which is not `from`, receives
    // this rank's from all ranks, itself included, in rank order.
    void (*all_to_all)(struct Comm *, void *to, const void *from, size_t bytes);
    // In a group of two: `bytes` bytes each way, or one way; NULL: nothing is received, or sent.
    void (*sendrecv)(struct Comm *, void *to, const void *from, size_t bytes);
    // Between the ranks' hosts, apart from all queues; only groups of threads or processes have
    // these. compare: waits for all, and ends the job unless all are about to make this call.
    // share: all[r] becomes rank r's word. claim: this rank reports what goes wrong now; another
    // that finds the same stays silent.
    void (*compare)(struct Comm *, struct CommCall);
    void (*share)(struct Comm *, uint64_t mine, uint64_t *all);
    // broadcast_host: copies the root's bytes, at most INT_MAX, to all others' host memory. NULL:
    // the ranks are of one process.
    void (*broadcast_host)(struct Comm *, void *mem, size_t bytes, int root);
    struct Comm *(*split)(struct Comm *, const struct CommSplit *); // see comm_split
    void (*claim)(struct Comm *);
    // For collectives that run by themselves, on the ranks' GPUs. heartbeat, ten times a second and
    // beside all else: lets others know that this rank has begun `begun` collectives, marks the
    // ranks whose process is gone, and returns how many there are. collect_progress, when the job
    // is about to end: begun[r] becomes rank r's, or COMM_NO_SIGN where none comes within a second.
    int (*heartbeat)(struct Comm *, uint64_t begun, bool *gone);
    void (*collect_progress)(struct Comm *, uint64_t mine, uint64_t *begun);
    // Ends all ranks of the job, with exit status 2.
    void (*abort)(struct Comm *);
    void (*close)(struct Comm *);
};

#define COMM_NO_SIGN UINT64_MAX

// Bytes that one rank sends, by collective; and how many of all these go to other nodes.
struct Traffic {
    uint64_t bytes[NCOLLECTIVE];
    uint64_t inter_node;
};

struct Comm {
    const struct CommOps *ops;
    struct Comm *hosts; // the group through which the ranks' hosts speak; NULL: this one
    struct Comm *outer; // the group built on this one, aborted instead of it; NULL: none
    struct Device *device;
    enum Queue queue; // where collectives run
    enum Axis axis;   // the axis of the grid along which these ranks lie
    int rank, size;
    int origin, stride;   // rank r of the group is rank origin + r * stride of the job
    double timeout_s;     // how long a rank waits for the others in one collective
    uint64_t calls;       // collectives so far: the sequence number that ranks compare
    int inter_node_ranks; // of the group, on other nodes (comm_set_nodes)
    struct Traffic sent;  // by this rank
};

extern const char *const collective_names[NCOLLECTIVE];
static inline const char *collective_name(enum Collective c) {
    return collective_names[c];
}

// Returns the rank in the job of a rank of the group: errors name that.
static inline int comm_job_rank(const struct Comm *c, int rank) {
    return c->origin + rank * c->stride;
}

// Opens this rank's end of its group along an axis of the grid; `all` is the group of the whole
// job, whose ranks all call this, and stay in it too. Collectives of the two run in one queue, so
// ranks queue them in one order. dry: only planned: `all` is comm_open_dry's, nothing moves and no
// other rank is asked.
struct Comm *comm_split(struct Comm *all, const struct Grid *grid, enum Axis axis, bool dry);
// The same for a line of ranks, equally long on all of them: if each is alone, no rank is asked.
// Its collectives run in split->queue, in an order of their own; its staging is allocated before
// the first of them.
struct Comm *comm_split_even(struct Comm *all, const struct CommSplit *split, bool dry);
// The same for any line of ranks; each rank of `all` is on one, if only alone.
struct Comm *comm_split_line(struct Comm *all, const struct CommSplit *split, bool dry);

// Sets nodes to `ranks` ranks each: 0 .. ranks - 1 of the job are on the first. From here on, bytes
// to ranks of other nodes are also counted, as if each were sent to them directly.
void comm_set_nodes(struct Comm *c, int ranks);

// What to do when the process of a rank has ended.
extern const char comm_lost_advice[];

// For ranks of one process: ends it.
void comm_exit(struct Comm *c);
// Ends the job without a message.
_Noreturn void comm_abort(struct Comm *c);
// Prints "rank R: ...", where R is a rank of the job, and ends the job.
_Noreturn void comm_fail(struct Comm *c, enum ErrorId id, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Counts what this rank will send, and returns the call's description. Work queued until
// comm_queued is labelled as this collective.
struct CommCall comm_call(struct Comm *c, enum Collective kind, enum Dtype dtype, size_t bytes);
// Does the same for a sendrecv, in which not all ranks send.
struct CommCall comm_call_swap(struct Comm *c, size_t bytes, bool sends);
void comm_queued(struct Comm *c);

// Compares every rank's call with that of the first. False: `text` names the first rank that
// differs.
bool comm_calls_agree(const struct Comm *c, const struct CommCall calls[], char *text,
                      size_t text_bytes);

// The texts of these three are for the job's last line, and nobody frees them.
// Names the marked ranks of the group, as far as a line has space: " 1 3".
char *comm_name_ranks(const struct Comm *c, const bool *marked);
// Calls heartbeat (struct CommOps). Names the ranks whose processes are gone; NULL: none.
char *comm_heartbeat(struct Comm *c, uint64_t begun);
// Collects the progress of all ranks, and names those that give no sign, or have begun less than
// `needed` collectives.
char *comm_collect_progress(struct Comm *c, uint64_t mine, uint64_t needed);

// Copies between the ranks' hosts: see broadcast_host. False: all ranks are in this process.
bool comm_broadcast_host(struct Comm *c, void *mem, size_t bytes, int root);
// Gathers the ranks' shards of `bytes` bytes, at most INT_MAX, in host memory, apart from all
// queues: whole has them in the order of ranks.
void comm_gather_host(struct Comm *c, void *whole, const void *own, size_t bytes);
bool comm_can_broadcast_host(const struct Comm *c);

struct Comm *comm_open_self(struct Device *device);
// Opens rank `rank` of a group of that size, which moves nothing: for planning what one rank of
// many allocates and sends.
struct Comm *comm_open_dry(struct Device *device, int rank, int size);

// Threads of one process: the group is made once, then every rank opens its end of it. Ranks read
// each other's buffers directly.
struct ThreadGroup;
struct ThreadGroup *thread_group_open(int size);
void thread_group_close(struct ThreadGroup *g); // after every rank has closed its end
struct Comm *comm_open_thread(struct ThreadGroup *g, int rank, struct Device *device,
                              double timeout_s);

#endif
