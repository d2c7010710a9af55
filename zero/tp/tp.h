// Tensor parallelism between ranks: the TP group, the exchanges that the model asks for
// (kernels/tp_comm.h), and the hop that it adds to a gradient's chain.
#ifndef ZERO_TP_TP_H
#define ZERO_TP_TP_H
#include "kernels/tp_comm.h"
#include "zero/report.h"

struct TpGroup {
    struct Comm *comm; // of the TP ranks, on the compute queue; NULL: there is one
    struct TpComm across;
    struct Block staging; // of collectives between processes, or GPUs
    struct Block partial; // scratch for partial gradients
};

// Opens this rank's end of its TP group along the grid's axis; does nothing if that has one rank.
// sequence_parallel: activations between products are split, too. dry: only planned. Call tp_close
// after all that uses it.
void tp_join(struct TpGroup *t, struct Comm *all, const struct Grid *grid, bool sequence_parallel,
             bool dry);
// Allocates on the device, and adds the hop to z's chains; staged: bytes of the collectives'
// staging. Errors: -ENOMEM.
int tp_open(struct TpGroup *t, struct Zero *z, struct Tier *device, size_t staged, struct Error *e);
void tp_close(struct TpGroup *t);

// Returns the communicator for the model; NULL: there is one TP rank.
static inline const struct TpComm *tp_group_comm(const struct TpGroup *t) {
    return t->comm ? &t->across : NULL;
}

#endif
