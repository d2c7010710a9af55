// Tensor parallelism between ranks: their group, the exchanges that the model asks for
// (kernels/tp_comm.h), and what it adds to a gradient's chain.
#ifndef ZERO_TENSOR_TENSOR_H
#define ZERO_TENSOR_TENSOR_H
#include "kernels/tp_comm.h"
#include "zero/report.h"

struct TensorGroup {
    struct Comm *comm; // of the places, on the compute queue; NULL: there is one
    struct TpComm across;
    struct Block staging; // of collectives between processes, or GPUs
    struct Block partial; // scratch for gradients in parts
};

// This rank's end of the group along the grid's axis of places; nothing where that has one. rows:
// what lies between products is in parts too. dry: of a plan. tensor_close is due after all that
// uses it.
void tensor_join(struct TensorGroup *t, struct Comm *all, int rank, const struct Grid *grid,
                 bool rows, bool dry);
// Memory on the device, and z's part of it; staged: of collectives' staging, in bytes. Errors:
// -ENOMEM.
int tensor_open(struct TensorGroup *t, struct Zero *z, struct Tier *device, size_t staged,
                struct Error *e);
void tensor_close(struct TensorGroup *t);

// What the model is handed; NULL: there is one place.
static inline const struct TpComm *tensor_tp_comm(const struct TensorGroup *t) {
    return t->comm ? &t->across : NULL;
}

#endif
