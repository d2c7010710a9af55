// Checks, in builds that look for mistakes, that kernels use only memory of their own device.
//
// Offloaded state is in host memory, and with --device cpu that is the same chips. A kernel that
// gets such memory still computes the right numbers, even on a GPU, which reads pinned memory over
// the bus and is only slow. So no result shows the mistake. Here what a kernel reads and writes
// (access.h) is looked up among the blocks of its device's tiers when the kernel is queued, and
// memory of another tier ends the run with a line that names the kernel and the block.
//
// The host's updates (zero/offload/update.c) are kernels of another device, which has no tiers, and
// may use any memory.
//
// The Makefile chooses: tier_check.c for asan, tsan, fuzz and cusim, tier_check_none.c for the
// rest. Called by tier.c, and by the launchers of both kernel tables. A device's blocks and kernels
// belong to one thread.
#ifndef KERNELS_TIER_CHECK_H
#define KERNELS_TIER_CHECK_H
#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

// Adds a block that is not in the device's memory, with the name of its tier, which is not copied,
// and its purpose.
void tier_check_add(struct Device *d, const void *mem, size_t bytes, const char *tier,
                    const char *purpose);
void tier_check_remove(struct Device *d, const void *mem);

// op: the kernel's name in KERNEL_LIST, args: its struct. Fatal if an operand is in another tier.
void tier_check_launch(const struct Device *d, const char *op, const void *args);

#ifdef __cplusplus
}
#endif
#endif
