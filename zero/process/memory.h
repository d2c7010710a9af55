// The memory of this process, and what the machine has free. Sources are /proc and control groups.
//
// Called by zero/plan/predict.c.
#ifndef ZERO_PROCESS_MEMORY_H
#define ZERO_PROCESS_MEMORY_H
#include "kernels/base.h"

// Returns the present resident set size of this process, in bytes.
size_t memory_resident_bytes(void);
// Returns its peak, since the last reset if the system allows one.
size_t memory_peak_bytes(void);
void memory_peak_reset(void);
// Returns the free bytes on the machine, or within the limit of the process's control group.
size_t memory_free_bytes(void);

#endif
