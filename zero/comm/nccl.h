// Ranks that have a GPU each: collectives by NCCL. comm/nccl.c is the only file that calls it;
// comm/nccl_none.c replaces it in a build without its header.
#ifndef ZERO_COMM_NCCL_H
#define ZERO_COMM_NCCL_H
#include "kernels/tier.h"
#include "zero/comm/comm.h"

struct NcclSettings {
    size_t chunk_bytes; // received in one exchange, from all ranks together
    bool native;        // NCCL computes sums, in an order of its own
    bool check;         // compare calls between ranks
};

// Returns 0 if NCCL can be opened. Errors: -ENOTSUP, with a line that says what to install.
int nccl_find(struct Error *e);

// Opens this rank's end of the group that `carrier` is in already (threads or processes): through
// the carrier the ranks find each other, compare their calls, and end the job. The new end owns it,
// and closes it. `staging`: as in comm_open_mpi. Errors end the job.
struct Comm *comm_open_nccl(struct Comm *carrier, const struct NcclSettings *settings,
                            const struct Block *staging);

#endif
