// Ranks as processes of an MPI job. comm/mpi.c is the only file that calls MPI; comm/mpi_none.c
// replaces it in a build without MPI, and returns errors.
#ifndef ZERO_COMM_MPI_H
#define ZERO_COMM_MPI_H
#include "kernels/tier.h"
#include "zero/comm/comm.h"

// This process's rank in its job.
struct MpiRank {
    int rank, size;           // among all processes
    int node_rank, node_size; // among those of its machine
    int node_first;           // the first rank of its machine
};

// Starts MPI; `rank` is the launcher's. Here and below, a wait for a process that does not come
// ends the job after timeout_s (wait.h). Errors: -ENOTSUP.
int mpi_start(struct MpiRank *out, int rank, double timeout_s, struct Error *e);
void mpi_stop(int rank, double timeout_s); // every process calls it; it returns when all have

// Gives n words to all processes: rank r's become all[r * n] and on. Sleeps while it waits, and for
// as long as it takes if no process is stopped: the others may be preparing data. Only while no
// group of ranks is open.
void mpi_share(const uint64_t *mine, size_t n, uint64_t *all, double timeout_s);

struct MpiSettings {
    double timeout_s;   // how long a rank waits without a sign of another
    size_t chunk_bytes; // received in one exchange, from all ranks together
    bool check;         // compare calls between ranks
};

// Opens this process's end of the group of all processes. A device whose calls may not wait for
// others is a GPU, whose memory MPI cannot see: its messages go through pinned memory, a chunk for
// each direction. `staging`: a block of chunk_bytes of the device's memory, through which sums over
// ranks are made, whatever the model's size. It is the caller's, who allocates it before the first
// collective.
struct Comm *comm_open_mpi(struct Device *device, const struct MpiSettings *settings,
                           const struct Block *staging);

#endif
