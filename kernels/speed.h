// How fast this machine multiplies: the yardstick that training's speed is told in.
//
// `./train` prints its matmul rate as a percentage of it, and scripts/bench_cpu.sh compares with
// it.
#ifndef KERNELS_SPEED_H
#define KERNELS_SPEED_H
#include "kernels/device.h"

// The best rate, in FLOP/s (two per multiply-add), at which the device's matmul kernel computes
// some large products of a GPT: forward, and both of the backward pass. For BF16 it is the larger
// of what bf16 and fp32 operands give. Takes about a second, and memory for the while: 57 MB on a
// CPU, 453 MB on a GPU. Nothing else may run.
double matmul_speed_of_light(struct Device *device, enum Dtype dtype);

#endif
