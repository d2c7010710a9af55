// Replaces comm/nccl.c in a build without NCCL's header: nccl_find returns an error.
#include "zero/comm/nccl.h"

#include <errno.h>

int nccl_find(struct Error *e) {
    return error_set(e, -ENOTSUP, E_BUILD_LACKS,
                     "this program was built without NCCL: install libnccl-dev and build again, or "
                     "put all ranks on one GPU with CUDA_VISIBLE_DEVICES=0");
}

struct Comm *comm_open_nccl(struct Comm *carrier, const struct NcclSettings *settings,
                            const struct Block *staging) {
    CHECK(false, "no NCCL in this program (rank %d, %zu bytes, staging %p)", carrier->rank,
          settings->chunk_bytes, (const void *)staging);
    return NULL;
}
