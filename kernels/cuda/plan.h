// A GPU that is not present, for plans: a device without memory and queues, which only answers how
// much scratch kernels need. Every build has it.
//
// Called by device_open_cuda. Read next: work.h.
#ifndef KERNELS_CUDA_PLAN_H
#define KERNELS_CUDA_PLAN_H
#include "kernels/device.h"

struct Device *plan_device_open(void);

#endif
