// Which GPU a rank computes on, and how its collectives travel.
#ifndef ZERO_COMM_CHOOSE_H
#define ZERO_COMM_CHOOSE_H
#include "kernels/base.h"

enum CommKind {
    COMM_KIND_SELF,   // one rank
    COMM_KIND_THREAD, // threads that see each other's memory
    COMM_KIND_MPI,    // processes, over MPI
    COMM_KIND_NCCL,   // a GPU for each rank
};

// What the choice depends on.
struct GpuAssignment {
    bool cuda;      // the ranks compute on GPUs
    bool processes; // they are processes of a job; else threads of this process
    int ranks;      // of the job
    int node_rank;  // this rank among those of its machine
    int node_ranks;
    int gpus;  // that this process sees. 0: a plan, for machines with one for each rank
    bool nccl; // NCCL is installed
};

struct CommChoice {
    enum CommKind kind;
    int gpu; // that this rank computes on
};

// A GPU for each rank of a machine: rank r of it has GPU r, and NCCL moves the data. One GPU for
// all: threads read each other's buffers, processes go through the host's memory and MPI. Anything
// in between is refused: -EINVAL. Threads that have GPUs enough but no NCCL: -ENOTSUP.
int comm_choose(const struct GpuAssignment *seats, struct CommChoice *out, struct Error *e);

// Processes must choose alike, and a launcher may show each of them one GPU, the same or another.
// So they tell each other what they have: gpu[r] is the identity of rank r's GPU, or 0 where that
// rank cannot use NCCL. True: they all can.
bool comm_gpus_apart(const uint64_t gpu[], int ranks);

#endif
