// See nccl_library.h.
#include "zero/comm/nccl_library.h"

#include "kernels/library.h"

#include <errno.h>
#include <string.h>

enum { OLDEST_VERSION = 21400 }; // non-blocking communicators

int nccl_library_find(struct NcclLibrary *nccl, struct Error *e) {
    static const char *const files[] = {"libnccl.so.2", NULL};
    static const char *const symbols[] = {
#define X(name) "nccl" #name,
        NCCL_FUNCTIONS(X)
#undef X
    };
    enum { COUNT = sizeof symbols / sizeof symbols[0] };
    void *function[COUNT];
    int version = 0, err = library_open(files, symbols, function, COUNT, "NCCL (libnccl2)", e);
    if (err)
        return err;
    _Static_assert(sizeof *nccl == sizeof function, "one pointer for each name");
    memcpy(nccl, function, sizeof *nccl);
    if (nccl->GetVersion(&version) != ncclSuccess || version < OLDEST_VERSION)
        return error_set(e, -ENOTSUP, E_NCCL,
                         "NCCL has version %d, which is too old: install 2.14 or newer (libnccl2)",
                         version);
    return 0;
}
