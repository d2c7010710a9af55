// The formats of master weights other than fp32 arrays: how they are read and written between
// steps. kernels/master.h describes them; the update itself is a kernel.
//
// The core calls them through struct MasterOps (zero/state.h). A group whose weights are not beside
// its optimizer state gets a format that works there (zero/offload/attach.c).
#ifndef ZERO_MASTER_MASTER_H
#define ZERO_MASTER_MASTER_H
#include "zero/state.h"

const struct MasterOps *master_ops(enum MasterFormat f);

// Writes elements i, i + 1, ... of this rank's part of an array: initial values that the host
// makes, chunk by chunk, or zeros.
void master_fill(struct Zero *z, int g, enum State what, size_t i, bool zeros);

#endif
