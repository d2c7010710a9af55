// Ranks as processes of an MPI job. comm/mpi.c is the one file that speaks MPI; comm/mpi_none.c
// takes its place where there is none, and says so to whoever needs it.
#ifndef ZERO_COMM_MPI_H
#define ZERO_COMM_MPI_H
#include "kernels/tier.h"
#include "zero/comm/comm.h"

// This process in its job.
struct MpiPlace {
    int rank, size;           // among all processes
    int node_rank, node_size; // among those of its machine,
    int node_first;           // of which this rank is the first
};

// Starts MPI; `rank` as the launcher says it. Whoever waits for a process that does not come, here
// and below, ends the job after timeout_s (wait.h). Errors: -ENOTSUP.
int mpi_start(struct MpiPlace *place, int rank, double timeout_s, struct Error *e);
void mpi_stop(int rank, double timeout_s); // every process calls it; it returns when all have

// Hands n words to all processes: rank r's become all[r * n] and on. Waits without work for the
// CPU, and for as long as it takes where none is stopped: the others may be preparing data. Only
// while no group of ranks is open.
void mpi_share(const uint64_t *mine, size_t n, uint64_t *all, double timeout_s);

struct MpiSettings {
    double timeout_s;   // how long a rank waits without a sign of another
    size_t chunk_bytes; // what arrives in one exchange, from all ranks together
    bool check;         // compare calls between ranks
};

// This process's end of the group of all processes. A device whose calls may not wait for others
// is a GPU, whose memory MPI cannot see: its messages go through pinned memory, a chunk for each
// direction. `staging`: a block of chunk_bytes of the device's memory, through which sums over
// ranks are made, whatever the model's size. It is the caller's, and is filled before the first
// collective.
struct Comm *comm_open_mpi(struct Device *device, const struct MpiSettings *settings,
                           const struct Block *staging);

#endif
