// Does a run fit, and if not, what would make it?
//
// Three things are limited: the device's memory, by what there is or by --device-mem; the host's,
// likewise or by --host-mem and --host-mem-per-rank; and the disk. A forecast costs some
// milliseconds, so the question of what would fit is answered by trying: the same run at a higher
// stage, with more recomputation, with both; with more and more of it offloaded to the host; with
// split master weights, where nobody chose; with less offloaded, where the host's memory is short;
// with the disk, which comes before that where the user named one; then with a smaller batch, which
// changes the training too; and at last all of this at a lower stage than was said.
#ifndef ZERO_PLAN_FIT_H
#define ZERO_PLAN_FIT_H
#include "zero/plan/footprint.h"

#include <stdio.h>

struct FitRequest {
    const struct RankSettings *settings;
    struct RankDeviceMemory host; // what the machine has for all its processes, and this one takes
    int processes_here;           // on this machine
    int ranks_here;               // of this process
    struct Speeds speeds;         // for the time that a step takes
    bool plan;                    // it may be for another machine: only flags bound it
    FILE *out;                    // where the forecast is printed; NULL: nowhere
    bool json;                    // print it for a program
};

// Predicts what the run takes and prints it. Errors: those of footprint_predict, rank_device_memory
// and nvme_preflight; -ENOMEM for a run that does not fit, with a line that says what is too much
// and the smallest change that would make it fit, or that none does.
int fit_or_refuse(const struct FitRequest *r, struct Forecast *out, struct Error *e);

#endif
