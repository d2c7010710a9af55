// Leaves fresh memory as it is: see poison.h.
#include "kernels/poison.h"

void *poison_fill(void *mem, size_t bytes) {
    (void)bytes;
    return mem;
}
