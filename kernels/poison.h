// What fresh memory of the host's holds: poison in builds that look for mistakes, and in others
// whatever it held before, since to fill gigabytes of pinned memory takes seconds. The Makefile
// chooses: poison.c for asan, tsan, fuzz and cusim, poison_none.c for the rest. Called by the CPU's
// device (kernels/cpu/device.c). Pinned memory is the simulator's there, which fills it itself and
// also knows of each byte whether it was written.
#ifndef KERNELS_POISON_H
#define KERNELS_POISON_H
#include <stddef.h>

// Returns mem.
void *poison_fill(void *mem, size_t bytes);

#endif
