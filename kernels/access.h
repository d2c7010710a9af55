// The memory that an operation of a queue reads and writes, computed from its arguments alone: the
// same for every backend. With the events between queues (kernels/trace.h) it says whether what is
// read was written before, and may be written again (zero/trace/).
#ifndef KERNELS_ACCESS_H
#define KERNELS_ACCESS_H
#include "kernels/kernels.h"

enum { ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_BOTH = 3 }; // both: in place, or added to

// Bytes from `mem` on. A matrix of a larger one counts with the gaps between its rows.
struct Access {
    const void *mem;
    size_t bytes;
    unsigned how;
};

enum { ACCESSES_MAX = 16 };
struct Accesses {
    int n;
    struct Access list[ACCESSES_MAX];
};
void access_add(struct Accesses *a, const void *mem, size_t bytes, unsigned how); // NULL: nothing

// Returns the accesses of a kernel of this name, or of "copy" or "zero" (kernels/trace.h), with its
// struct of operands; none if it is another operation. Scratch is written. It follows no pointers:
// what rank_sum and rank_gather read of other ranks is left out.
struct Accesses access_of(const char *name, const void *args);

#endif
