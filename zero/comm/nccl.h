// Ranks that have a GPU each: collectives by NCCL. comm/nccl.c is the one file that speaks to it;
// comm/nccl_none.c takes its place in a build without its header.
#ifndef ZERO_COMM_NCCL_H
#define ZERO_COMM_NCCL_H
#include "kernels/tier.h"
#include "zero/comm/comm.h"

struct NcclSettings {
    size_t chunk_bytes; // what arrives in one exchange, from all ranks together
    bool native;        // NCCL sums, in an order of its own
    bool check;         // compare calls between ranks
};

// 0 if NCCL can be opened. Errors: -ENOTSUP, with a line that says what to install.
int nccl_find(struct Error *e);

// This rank's end of the group that `carrier` joins already (threads or processes): the ranks find
// each other through it, compare their calls through it, and it ends the job. It belongs to the new
// end, which closes it. `staging`: as in comm_open_mpi. What goes wrong here ends the job.
struct Comm *comm_open_nccl(struct Comm *carrier, const struct NcclSettings *settings,
                            const struct Block *staging);

#endif
