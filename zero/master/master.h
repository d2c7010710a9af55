// The formats of master weights that are not simply fp32 arrays: what differs between steps. What
// they are is in kernels/master.h; the update itself is a kernel.
//
// The core calls them through struct MasterOps (zero/state.h). A group whose weights are not at
// hand beside its optimizer's state keeps what suits it there (zero/offload/attach.c).
#ifndef ZERO_MASTER_MASTER_H
#define ZERO_MASTER_MASTER_H
#include "zero/state.h"

const struct MasterOps *master_ops(enum MasterFormat f);

#endif
