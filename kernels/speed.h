// How fast this machine multiplies, copies and updates weights: the yardsticks that training is
// measured with.
//
// `./train` prints its matmul rate as a percentage of the first, and scripts/bench/bench_cpu.sh
// compares with it; the planner says how long what offload moves, and what is updated, takes at
// least (zero/plan/bound.h).
#ifndef KERNELS_SPEED_H
#define KERNELS_SPEED_H
#include "kernels/device.h"

// The best rate, in FLOP/s (two per multiply-add), at which the device's matmul kernel computes
// some large products of a GPT: forward, and both of the backward pass. For BF16 it is the larger
// of what bf16 and fp32 operands give. Takes about a second, and memory for the while: 57 MB on a
// CPU, 453 MB on a GPU. Nothing else may run.
double matmul_speed_of_light(struct Device *device, enum Dtype dtype);

// The best rate, in bytes/s, at which one of the device's queues copies to its memory (in) or from
// it (out), with the host's end in memory of alloc_host. Takes some 0.2 s, and 128 MiB of both
// memories for the while; 0 where they are not there.
double copy_speed(struct Device *device, enum Queue in_or_out);

// The best rate, in bytes/s as cost_adamw counts them, at which the device updates like->n elements
// in the formats of `like` (kernels/kernels.h); like->param: whether weights are written apart.
// Takes some 0.2 s, and the memory of those elements for the while; 0 where it is not there. An
// update of few elements is faster, since caches hold them.
struct AdamW;
double update_speed(struct Device *device, const struct AdamW *like);

#endif
