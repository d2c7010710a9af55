// The memory that a rank may have, and the limits that it exceeds.
//
// A rank's tiers are bounded by flags (--device-mem, --host-mem-per-rank), what the ranks of a node
// offload together by another (--host-mem), and all by the place where they are: a GPU's memory, or
// the machine's. A forecast (footprint.h) is held against all of these at once.
//
// Called by fit.c, which refuses, and choose.c, which chooses among what is not refused.
#ifndef ZERO_PLAN_CAPACITY_H
#define ZERO_PLAN_CAPACITY_H
#include "zero/plan/footprint.h"

// The memory that is too small: as --device-mem, --host-mem-per-rank and --host-mem allow, the
// one that the device tier is in (a GPU's, or the machine's), and the machine's.
enum Shortage {
    SHORT_NOT,
    SHORT_DEVICE,
    SHORT_HOST,
    SHORT_NODE,
    SHORT_PLACE,
    SHORT_MEMORY,
    NSHORTAGE
};

// Bytes for each rank, but for SHORT_NODE: of a node; SIZE_MAX: not bounded.
struct Capacity {
    size_t of[NSHORTAGE];
};

// place: what rank_device_memory found for the ranks of this process; host: bytes that are free in
// the CPU's memory for `processes` with as many ranks each. plan: a machine that may not be this
// one has what flags say.
struct Capacity capacity_of(const struct RankSettings *s, const struct RankDeviceMemory *place,
                            size_t host, int ranks_here, int processes, bool plan);

enum Shortage capacity_shortage(const struct Forecast *f, const struct Capacity *room); // the first

// Returns the bytes that a rank needs beyond its limits, all together, so that a change that only
// moves them elsewhere gains nothing.
size_t capacity_excess(const struct Forecast *f, const struct Capacity *room);

// Returns bytes in MiB, in which tables count.
static inline double mib(size_t bytes) {
    return (double)bytes / (1 << 20);
}

// The bytes needed of each, and how they are meant if ranks are unlike: " on average"; else "".
struct Needs {
    size_t of[NSHORTAGE];
    const char *how[NSHORTAGE];
    int node_ranks, ranks; // of a node, and of the job
};
struct Needs capacity_needs(const struct Forecast *f);

// "2 x 10.0 MiB (0.01 GB) of device memory are needed, ..." for ranks that need so much each, or a
// node's ranks that need so much together; of everything that there is too little of, "and" between
// two.
enum { LACK_BYTES = 512 };
void capacity_describe(const struct Capacity *room, const struct Needs *needs,
                       char text[LACK_BYTES]);

// The same of one: "2 x 10.0 MiB (0.01 GB) of device memory", or "20.0 MiB (0.02 GB) of CPU memory
// on a node of 2 ranks".
void capacity_describe_need(const struct Needs *needs, enum Shortage of, char text[LACK_BYTES]);

#endif
