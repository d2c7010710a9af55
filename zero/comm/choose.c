// How ranks are seated on GPUs. See comm/choose.h; called by zero/rank/rank_device.c and
// zero/rank/rank.c.
#include "zero/comm/choose.h"

#include <errno.h>

// NCCL wants a GPU for each rank. Some ranks with a GPU of their own and some without would all go
// at the pace of the latter, so that is taken for a mistake.
static int refuse(const struct GpuAssignment *s, struct Error *e) {
    return error_set(e, -EINVAL, E_GPU_RANKS,
                     "%d ranks on this machine's %d GPUs: expected at most %d, one on each GPU, or "
                     "CUDA_VISIBLE_DEVICES=0 to put all ranks on one GPU",
                     s->node_ranks, s->gpus, s->gpus);
}

int comm_choose(const struct GpuAssignment *s, struct CommChoice *out, struct Error *e) {
    enum CommKind shared = s->processes ? COMM_KIND_MPI : COMM_KIND_THREAD;
    *out = (struct CommChoice){s->ranks > 1 ? shared : COMM_KIND_SELF, 0};
    if (!s->cuda)
        return 0;
    bool apart = s->gpus == 0 || s->gpus >= s->node_ranks;
    bool one = s->gpus == 1; // a process may see its own alone: comm_gpus_apart finds out
    if (!apart && !one)
        return refuse(s, e);
    out->gpu = apart ? s->node_rank : 0;
    if (s->ranks == 1)
        return 0;
    bool may = apart || s->processes;
    if (may && s->nccl)
        out->kind = COMM_KIND_NCCL;
    if (may && !s->nccl && !s->processes && s->gpus)
        return error_set(e, -ENOTSUP, E_NCCL,
                         "%d ranks on %d GPUs need NCCL: install libnccl2, or set "
                         "CUDA_VISIBLE_DEVICES=0 to put all ranks on one GPU",
                         s->ranks, s->gpus);
    return 0;
}

bool comm_gpus_apart(const uint64_t gpu[], int ranks) {
    for (int r = 0; r < ranks; r++) {
        if (!gpu[r])
            return false;
        for (int other = 0; other < r; other++)
            if (gpu[other] == gpu[r])
                return false;
    }
    return true;
}
