// Between comm/mpi.c, which speaks MPI, and comm/exchange.c, which makes collectives of exchanges.
#ifndef ZERO_COMM_EXCHANGE_H
#define ZERO_COMM_EXCHANGE_H
#include "kernels/tier.h"
#include "zero/comm/comm.h"

// What collectives need to know of a group of processes.
struct ExchangeComm {
    struct Comm comm;
    const struct Block *staging; // (size, piece): what comes from each rank
    size_t piece;                // bytes of one message
    void **operand;              // (size): of the sum at hand
    char *out, *in;              // (size, piece), the host's: see comm/exchange.c. NULL: not needed
};

enum { FROM_ALL = -1 };

// To rank r goes what is at send + r * send_step, and what comes from it goes to recv + r *
// recv_step, `bytes` each way. NULL: nothing is sent, or received. `own`: this rank's operand of
// the sum that follows.
struct Exchange {
    struct ExchangeComm *comm;
    const char *send;
    char *recv;
    void *own;
    size_t send_step, recv_step, bytes;
    int from; // the one rank to receive from, or FROM_ALL
};

// Makes x->own and what was received the operands of the sum that follows.
void exchange_operands(const struct Exchange *x);

struct Begin {
    struct ExchangeComm *comm;
    struct CommCall call;
};

// What runs in the group's queue (comm/mpi.c). A collective begins: it is the one that messages
// speak of from now on, and ranks compare their calls, if they are to. Then its exchanges.
void mpi_begin(const void *begin);
void mpi_exchange(const void *exchange);
// The rest of the group's operations.
void mpi_compare(struct Comm *c, struct CommCall call);
void mpi_broadcast_round(struct Comm *c, uint64_t mine, uint64_t *all);
void mpi_broadcast_host(struct Comm *c, void *mem, size_t bytes, int root);
void mpi_claim(struct Comm *c);
int mpi_heartbeat(struct Comm *c, uint64_t begun, bool *gone);
void mpi_collect_progress(struct Comm *c, uint64_t mine, uint64_t *begun);
void mpi_abort(struct Comm *c);
struct Comm *mpi_split(struct Comm *c, const struct CommSplit *split);
void mpi_close(struct Comm *c);

extern const struct CommOps exchange_ops;

#endif
