// Measurements of this machine that are made once and stored in the cache folder.
//
// They are speeds, which a disturbance can only reduce. So a measurement made while other processes
// used the machine serves its run, but is in doubt: the next run measures again, and the larger
// value is stored. So is a value that training has exceeded (machine_doubt).
#ifndef DATA_LOG_MACHINE_H
#define DATA_LOG_MACHINE_H
#include "kernels/base.h"

// Returns the value stored under `name` for this CPU model. If there is none, or it is in doubt,
// stores and returns the larger of it and measure(context). If the cache cannot be written, the
// next run measures again.
double machine_measured(const char *cache_dir, const char *name, double (*measure)(void *context),
                        void *context);

// Marks the value under `name` as in doubt, because training was faster.
void machine_doubt(const char *cache_dir, const char *name);

// Seconds of all CPUs since the system began (steal, of a virtual machine, counts as busy), and of
// this process since it began.
struct CpuTimes {
    double busy, idle, own;
};
bool machine_read_times(struct CpuTimes *t); // false: the system does not report them
// Returns the share of the CPUs' time that other processes took between the two.
double machine_share_of_others(const struct CpuTimes *from, const struct CpuTimes *to);

size_t machine_cores(void); // that this process may run on

#endif
