// A run beside its plan: what was predicted of a step is what its ranks took, sent and moved.
#ifndef TESTS_LIB_PLANNED_H
#define TESTS_LIB_PLANNED_H
#include "tests/lib/outcome.h"
#include "zero/plan/footprint.h"

enum { PLANNED_RANKS = 12 };

// The plan of a run. Fails the test where there is none.
struct Forecast planned(const struct RankSettings *s);

// Trains s->ranks <= PLANNED_RANKS ranks some steps, and fails the test where one of them has other
// bytes than the plan of that rank: of each tag in each tier, of each collective, to other nodes,
// over the bus, from or to the disk. `what` names the model. Returns the plan.
struct Forecast planned_is_measured(const struct RankSettings *s, const char *what);

// Elements of a model's groups, as the ranks pad them; and how many groups there are.
struct Elements {
    uint64_t all, trained;
    uint64_t gathered; // at stage 3 for one micro-batch
    uint64_t groups;
};

// planned_is_measured of data-parallel ranks whose states are all on the device; and the bytes that
// are kept and sent are what formulas say that know these numbers, and nothing of visits.
struct Forecast planned_by_formula(const struct RankSettings *s, const struct Elements *n,
                                   const char *what);

#endif
