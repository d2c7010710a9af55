// The speed at which this machine multiplies, copies and updates weights: the reference for the
// speed of training.
//
// `./train` prints its matmul rate as a percentage of the first, and scripts/bench/bench_cpu.sh
// compares with it; the planner derives lower bounds of the times of offload copies and updates
// (zero/plan/bound.h).
#ifndef KERNELS_SPEED_H
#define KERNELS_SPEED_H
#include "kernels/device.h"

// Returns the best rate, in FLOP/s (two per multiply-add), at which the device's matmul kernel
// computes some large products of a GPT: forward, and both of the backward pass. For BF16 it is the
// larger of the rates of bf16 and fp32 operands. Takes about a second, and memory meanwhile: 57 MB
// on a CPU, 453 MB on a GPU. Nothing else may run.
double matmul_speed_of_light(struct Device *device, enum Dtype dtype);

// Returns the best rate, in bytes/s, at which one of the device's queues copies to its memory (in)
// or from it (out), with the host's end in memory of alloc_host. Takes some 0.2 s, and 128 MiB of
// both memories meanwhile; 0 if they are not available.
double copy_speed(struct Device *device, enum Queue in_or_out);

// Returns the best rate, in bytes/s as cost_adamw counts them, at which the device updates like->n
// elements in the formats of `like` (kernels/kernels.h); like->param is not NULL if weights are
// written separately. Takes some 0.2 s, and memory for those elements meanwhile; 0 if that is not
// available. An update of few elements is faster, since caches hold them.
struct AdamW;
double update_speed(struct Device *device, const struct AdamW *like);

#endif
