// Fresh memory stays what it was: see poison.h.
#include "kernels/poison.h"

void *poison_fill(void *mem, size_t bytes) {
    (void)bytes;
    return mem;
}
