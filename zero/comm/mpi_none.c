// In place of comm/mpi.c where the program is built without MPI: a job of processes is refused.
#include "zero/comm/mpi.h"

#include <errno.h>

int mpi_start(struct MpiPlace *place, struct Error *e) {
    *place = (struct MpiPlace){0};
    return error_set(e, -ENOTSUP,
                     "started by mpirun or srun, but built without MPI: install libopenmpi-dev and "
                     "build again, or start one process with --ranks N");
}

void mpi_stop(void) {}

void mpi_share(uint64_t mine, uint64_t *all) {
    *all = mine;
}

struct Comm *comm_open_mpi(struct Device *device, const struct MpiSettings *settings,
                           const struct Block *staging) {
    CHECK(false, "no MPI in this program (%s, %zu bytes, staging %p)", device->name,
          settings->chunk_bytes, (const void *)staging);
    return NULL;
}
