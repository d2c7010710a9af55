// The least time of a step: for each link, the bytes or FLOP it has to carry over its speed.
//
// A step of training is bound by the slowest of five: the device, the bus between its memory and
// the host's, the disk, the host, and the network between ranks. The device's matrix products and
// its updates follow each other in one queue: the first are bound by its arithmetic, the others by
// its memory, as are the host's, which run beside the next forward pass. Where the device is the
// CPU, nothing but the disk runs beside anything else: products, updates, copies and collectives
// want the same cores, and their times add up. Some waits nothing hides: the first unit begins when
// its weights have come, and these when its update is done. Whoever offloads wants to know what
// binds, and whether it is worth it (ZeRO-Infinity, arXiv 2104.07857, section 4, asks the same of
// efficiency).
//
// Called by footprint.c and predict.c; table.c prints it. Read next: rehearse.h, the bytes.
#ifndef ZERO_PLAN_BOUND_H
#define ZERO_PLAN_BOUND_H
#include "zero/plan/rehearse.h"
#include "zero/rank/rank.h"

// Per second; 0: not known, as of a GPU that is not here.
struct Speeds {
    double flops;         // of one rank's matrix products
    double in, out;       // bytes of one rank over the bus, each way alone
    double read, written; // bytes of the disk, which all ranks of the machine share
    double update;        // bytes that one rank's device moves as it updates weights
    double host_update;   // and that the host does for one rank
    double sent;          // bytes of collectives that one rank sends; 0: takes no time
    char whose[128];      // they are, of a GPU that is not here (card.c); "": measured
};

// A function that keeps measurements, such as machine_measured (data/log/machine.h): returns the
// value of that name in `folder`, else measure(context).
typedef double KeepMeasured(const char *folder, const char *name, double (*measure)(void *context),
                            void *context);

// Finds the speeds that a run with these settings depends on, measured before it takes any memory.
// Errors, of a run alone and not of a plan: those of nvme_preflight for a folder that is not fit.
int speeds_find(const struct RankSettings *s, bool plan, KeepMeasured *keep, const char *folder,
                struct Speeds *out, struct Error *e);

// ---- rates.c ----

// The speeds of a step's kernels and collectives, measured in real steps of a small model.
struct Rates {
    struct KernelRates kernels; // of the device's compute queue
    double sent;                // bytes that a rank sends, per second; 0: not known
};

// ranks_here: ranks of this process. All 0 where the small model cannot be trained here.
void rates_find(const struct RankSettings *s, int ranks_here, KeepMeasured *keep,
                const char *folder, struct Rates *out);

// ---- bound.c ----

// The work of a rank in a step.
struct StepWork {
    struct Moves moves;
    struct StepFlops flops;
    // Seconds of the passes, where their kernels were timed (count.h); 0: their FLOP tell.
    double forward, backward;
    double update, host_update; // bytes of AdamW on the device, and on the host
    double sent[NSENDPHASE];    // bytes of collectives, by what they are made beside
    double sums[2];             // and of those in the compute queue, of each pass (tensor parallel)
    double units;  // that take turns: the fetch of one is not hidden; 0: all are hidden
    bool together; // kernels, copies and collectives share cores, or one queue: none overlap
    size_t nmicro;
    int disk_ranks; // that share the disk
    bool delayed;   // an update has the whole next step's time
};

struct Bound {                 // seconds; 0: nothing to do, or not known
    double compute, bus, disk; // compute: with the device's update
    double host;               // its update
    double sent;               // the collectives beside it
    double step;               // all of them together, as far as they wait for each other
};
struct Bound bound_of(const struct StepWork *w, const struct Speeds *s);
const char *bound_longest(const struct Bound *b); // "compute", "bus", "disk", "host" or "network"

#endif
