// One process's end of a group, shared by comm/mpi.c, which exchanges, and comm/mpi_watch.c, which
// watches the other ranks.
#ifndef ZERO_COMM_MPI_END_H
#define ZERO_COMM_MPI_END_H
#include "kernels/tier.h"
#include "zero/comm/comm.h"

#include <mpi.h>
#include <pthread.h>
#include <sys/types.h>

// Tags of messages: the first four between ranks of a group, the others between those of the job.
enum { TAG_DATA, TAG_CALL, TAG_ROLL, TAG_HERE, TAG_FAILED, TAG_ASKED, TAG_WAITS };

struct MpiComm {
    struct Comm comm;
    size_t chunk_bytes; // struct MpiSettings
    bool check;
    const struct Block *staging;  // (size, piece): what comes from each rank
    size_t piece;                 // bytes of one message
    void **operand;               // (size): of the current sum
    char *out, *in;               // (size, piece), in host memory: see mpi.c. NULL: not needed
    MPI_Comm ranks;               // of the group
    struct CommCall now;          // the current collective
    struct CommCall *all;         // (size): every rank's
    MPI_Request *request;         // (2, size): receives from, then sends to each rank
    pid_t *process;               // (size): 0 if it cannot be seen from here
    pthread_mutex_t *report_lock; // held by the thread of this rank that ends the process
    bool split_off;               // `report_lock` is another group's
    bool own_pieces;              // `out` and `in` belong to this group
};

enum { FROM_ALL = -1 };

// One exchange: mpi.c makes collectives of them, and a test stops one in its middle. Rank r gets
// the bytes at send + r * send_step, and its bytes go to recv + r * recv_step, `bytes` each way.
// NULL: nothing is sent, or received. `own`: this rank's operand of the sum that follows.
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

// The functions of struct CommOps that are in mpi_watch.c.
void mpi_claim(struct Comm *c);
int mpi_heartbeat(struct Comm *c, uint64_t begun, bool *gone);
void mpi_collect_progress(struct Comm *c, uint64_t mine, uint64_t *begun);
void mpi_abort(struct Comm *c);

// Time after the time-out in which ranks that wait themselves may name whom they wait for.
#define MPI_EXCUSED_S 3.0

// True if the process is gone; false if it cannot be seen from here.
bool mpi_is_gone(const struct MpiComm *c, int rank);

// Called ten times a second while a rank waits in an exchange: ends the job if another rank does,
// or if a process is gone; answers ranks that ask whether this one waits.
void mpi_watch(struct MpiComm *c);

// Called after the time-out: names the ranks that the current exchange misses, and ends the job.
// Those that wait in another exchange themselves are not named; if there are no others it returns,
// unless this is `last`.
void mpi_give_up(struct MpiComm *c, bool last);

// Picks one of all ranks that see a failure at about the same time: returns on that one alone.
void mpi_elect_reporter(struct MpiComm *c, int missing_ranks);

#endif
