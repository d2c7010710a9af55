// Replaces comm/mpi.c in a build without MPI: a job of processes is refused.
#include "zero/comm/mpi.h"

#include <errno.h>

int mpi_start(struct MpiRank *out, int rank, double timeout_s, struct Error *e) {
    (void)timeout_s;
    *out = (struct MpiRank){.rank = rank};
    return error_set(e, -ENOTSUP, E_BUILD_LACKS,
                     "mpirun or srun started this program, but it was built without MPI: install "
                     "libopenmpi-dev and build again, or start one process with --ranks N");
}

void mpi_stop(int rank, double timeout_s) {
    (void)rank;
    (void)timeout_s;
}

void mpi_share(const uint64_t *mine, size_t n, uint64_t *all, double timeout_s) {
    (void)timeout_s;
    for (size_t i = 0; i < n; i++)
        all[i] = mine[i];
}

struct Comm *comm_open_mpi(struct Device *device, const struct MpiSettings *settings,
                           const struct Block *staging) {
    CHECK(false, "no MPI in this program (%s, %zu bytes, staging %p)", device->name,
          settings->chunk_bytes, (const void *)staging);
    return NULL;
}
