// Measurements of this machine that are made once and kept in the cache folder.
//
// They are speeds, and what disturbs a measurement only makes it slower. So one that was made while
// others used the machine is good for its run, but in doubt: the next run measures again, and the
// larger is kept. So is one that training has exceeded (machine_doubt).
#ifndef DATA_LOG_MACHINE_H
#define DATA_LOG_MACHINE_H
#include "kernels/base.h"

// The value kept under `name` for this CPU model; without one, or where it is in doubt, the larger
// of it and measure(context), which is then kept. A cache that cannot be written costs the next run
// a new measurement and nothing else.
double machine_measured(const char *cache_dir, const char *name, double (*measure)(void *context),
                        void *context);

// What is kept under `name` was exceeded, so it cannot be all that this machine can do.
void machine_doubt(const char *cache_dir, const char *name);

// Seconds of all CPUs since the system began (steal, of a virtual machine, counts as busy), and of
// this process since it began.
struct CpuTimes {
    double busy, idle, own;
};
bool machine_read_times(struct CpuTimes *t); // false: the system does not say
// The share of the CPUs' time that other processes took between the two.
double machine_share_of_others(const struct CpuTimes *from, const struct CpuTimes *to);

// Bytes of this process that lie in memory now (resident set size).
size_t machine_resident_bytes(void);
// The most that ever did, or did since the last reset (where the system allows one).
size_t machine_peak_bytes(void);
void machine_peak_reset(void);
// Bytes that are not in use now, on the machine or within the limit of the process's control group.
size_t machine_free_bytes(void);
size_t machine_cores(void); // that this process may run on

#endif
