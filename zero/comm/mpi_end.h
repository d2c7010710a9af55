// Between comm/mpi.c, which exchanges, and comm/mpi_watch.c, which looks after the other ranks: one
// process's end of a group.
#ifndef ZERO_COMM_MPI_END_H
#define ZERO_COMM_MPI_END_H
#include "kernels/tier.h"
#include "zero/comm/comm.h"

#include <mpi.h>
#include <pthread.h>
#include <sys/types.h>

// Of messages. The first four are between ranks of a group, the others between those of the job.
enum { TAG_DATA, TAG_CALL, TAG_ROLL, TAG_HERE, TAG_FAILED, TAG_ASKED, TAG_WAITS };

struct MpiComm {
    struct Comm comm;
    size_t chunk_bytes; // struct MpiSettings
    bool check;
    const struct Block *staging; // (size, piece): what comes from each rank
    size_t piece;                // bytes of one message
    void **operand;              // (size): of the sum at hand
    char *out, *in;              // (size, piece), the host's: see mpi.c. NULL: not needed
    MPI_Comm ranks;              // of the group
    struct CommCall now;         // the collective at hand
    struct CommCall *all;        // (size): every rank's
    MPI_Request *request;        // (2, size): receives from, then sends to each rank
    pid_t *process;              // (size): 0 where it cannot be seen from here
    pthread_mutex_t *telling;    // of the thread of this rank that ends the process
    bool split_off;              // `telling` is another group's
    bool own_pieces;             // the host's are its own
};

enum { FROM_ALL = -1 };

// One exchange, which mpi.c makes of a collective, and a test stops in its middle. To rank r goes
// what is at send + r * send_step, and what comes from it goes to recv + r * recv_step, `bytes`
// each way. NULL: nothing is sent, or received. `own`: this rank's operand of the sum that follows.
struct Exchange {
    struct MpiComm *comm;
    const char *send;
    char *recv;
    void *own;
    size_t send_step, recv_step, bytes;
    int from; // the one rank to receive from, or FROM_ALL
};

void mpi_exchange(const void *exchange); // makes one: a call of the group's queue
void mpi_sleep_us(unsigned us);

// What struct CommOps has of mpi_watch.c.
void mpi_claim(struct Comm *c);
int mpi_heartbeat(struct Comm *c, uint64_t begun, bool *gone);
void mpi_collect_progress(struct Comm *c, uint64_t mine, uint64_t *begun);
void mpi_abort(struct Comm *c);

// How long ranks that wait themselves are given, after the time-out, to name whom they wait for.
#define MPI_EXCUSED_S 3.0

// Is the process gone? False where it cannot be seen from here.
bool mpi_is_gone(const struct MpiComm *c, int rank);

// While a rank waits in an exchange, ten times a second: ends the job with those that end it, or
// where a process is gone; answers who asks whether this rank waits.
void mpi_watch(struct MpiComm *c);

// After the time-out: names the ranks that the exchange at hand misses, and ends the job. Those
// that wait in another exchange themselves are not named; where there are no others it returns,
// unless this is `last`.
void mpi_give_up(struct MpiComm *c, bool last);

// Of all ranks that see a failure at about the same time one tells: returns where it is this one.
void mpi_give_way(struct MpiComm *c, int missing);

#endif
