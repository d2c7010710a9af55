// NCCL's functions, found when the program runs: it works without NCCL, too. Used by comm/nccl.c.
#ifndef ZERO_COMM_NCCL_LIBRARY_H
#define ZERO_COMM_NCCL_LIBRARY_H
#include "kernels/base.h"

#include <nccl.h>

#define NCCL_FUNCTIONS(X)                                                                          \
    X(GetVersion)                                                                                  \
    X(GetUniqueId)                                                                                 \
    X(GetErrorString)                                                                              \
    X(CommInitRankConfig)                                                                          \
    X(CommGetAsyncError)                                                                           \
    X(CommAbort)                                                                                   \
    X(CommFinalize)                                                                                \
    X(CommDestroy)                                                                                 \
    X(GroupStart)                                                                                  \
    X(GroupEnd)                                                                                    \
    X(Send)                                                                                        \
    X(Recv)                                                                                        \
    X(AllGather)                                                                                   \
    X(Reduce)                                                                                      \
    X(ReduceScatter)                                                                               \
    X(Broadcast)

struct NcclLibrary {
#define X(name) __typeof__(&nccl##name) name;
    NCCL_FUNCTIONS(X)
#undef X
};

// Errors: -ENOTSUP, with a line that says what to install.
int nccl_library_find(struct NcclLibrary *nccl, struct Error *e);

#endif
