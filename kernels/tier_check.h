// Does a kernel get memory of its own device's alone? Looked at in builds that look for mistakes.
//
// What is offloaded lies in the host's memory, and with --device cpu that is the same chips. A
// kernel that is handed such memory computes the right numbers all the same: on a GPU too, which
// reads pinned memory over the bus, and is only slow. So no result shows the slip. Here each
// operand of a kernel is looked up among the blocks of its device's tiers as it is queued, and one
// in another tier ends the run with a line that names the kernel, the operand and the block.
//
// The host's updates (zero/offload/update.c) are kernels of another device, which has no tiers, and
// may use what they like.
//
// The Makefile chooses: tier_check.c for asan, tsan, fuzz and cusim, tier_check_none.c for the
// rest. Called by tier.c, and by the launchers of both kernel tables. A device's blocks and kernels
// are one thread's.
#ifndef KERNELS_TIER_CHECK_H
#define KERNELS_TIER_CHECK_H
#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

// A block that is not in the device's memory, with its tier's name, which is not copied, and what
// it is for.
void tier_check_add(struct Device *d, const void *mem, size_t bytes, const char *tier,
                    const char *purpose);
void tier_check_remove(struct Device *d, const void *mem);

// op: the kernel's name in KERNEL_LIST, args: its struct. Fatal where an operand lies elsewhere.
// What the array `src` of collectives' kernels points to is other devices', and not looked at.
void tier_check_launch(const struct Device *d, const char *op, const void *args);

#ifdef __cplusplus
}
#endif
#endif
