// The contents of fresh host memory: poison in builds that look for mistakes; in others whatever it
// held before, since filling gigabytes of pinned memory takes seconds. The Makefile chooses:
// poison.c for asan, tsan, fuzz and cusim, poison_none.c for the rest. Called by the CPU's device
// (kernels/cpu/device.c). In cusim the simulator has the pinned memory, fills it itself and also
// tracks for each byte whether it was written.
#ifndef KERNELS_POISON_H
#define KERNELS_POISON_H
#include <stddef.h>

// Fills the memory and returns mem.
void *poison_fill(void *mem, size_t bytes);

#endif
