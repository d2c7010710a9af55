// What MPI receives into pinned memory, as the simulator sees it: MPI's library writes there behind
// the compiler's back. Linked where there is MPI; its handles are pointers here (Open MPI's).
#include "tests/cusim/internal.h"

extern "C" {
int __real_MPI_Irecv(void *to, int count, void *type, int from, int tag, void *comm, void *request);

// comm/mpi.c receives bytes, and numbers into memory of its own. Its caller waits for the message
// before it goes on, so the write counts as the caller's.
int __wrap_MPI_Irecv(void *to, int count, void *type, int from, int tag, void *comm,
                     void *request) {
    if (cusim::is_pinned_memory(to))
        cusim::access(to, (size_t)count, cusim::Use::WRITE);
    return __real_MPI_Irecv(to, count, type, from, tag, comm, request);
}
}
