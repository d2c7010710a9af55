// Measurements of this machine that are made once and kept in the cache folder.
#ifndef DATA_LOG_MACHINE_H
#define DATA_LOG_MACHINE_H
#include "kernels/base.h"

// The value kept under `name` for this CPU model, or measure(context), which is then kept. A cache
// that cannot be written costs the next run a new measurement and nothing else.
double machine_measured(const char *cache_dir, const char *name, double (*measure)(void *context),
                        void *context);

// Bytes of this process that lie in memory now (resident set size).
size_t machine_resident_bytes(void);
// The most that ever did, or did since the last reset (where the system allows one).
size_t machine_peak_bytes(void);
void machine_peak_reset(void);
// Bytes that are not in use now, on the machine or within the limit of the process's control group.
size_t machine_free_bytes(void);
size_t machine_cores(void); // that this process may run on

#endif
