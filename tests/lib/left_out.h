// What a training step on CUDA cannot do without: each record, wait and synchronisation of a step
// is left out, one at a time, in the simulator (tests/cusim/sim.h), and each must be missed. Some
// data race, another hash of the weights, or the end of the run shows it.
//
// They are told apart by kind, queue and event: "wait by compute: weights arrived". The same line
// of code makes some of them once for each group; one of these that is needed shows that the line
// is. What one setup needs another may have for other reasons, so each must be missed in some
// setup.
#ifndef TESTS_LIB_LEFT_OUT_H
#define TESTS_LIB_LEFT_OUT_H
#include "tests/lib/gpu_runs.h"

enum { LEFT_OUT_KINDS = 256, LEFT_OUT_NAME = 64 };

// How one that was left out was missed. ENDED: by the run's end, or because it did not come to one.
// ELSEWHERE: it is another test's.
enum Missed { MISSED_NOT, MISSED_HASH, MISSED_RACE, MISSED_ENDED, MISSED_ELSEWHERE, NMISSED };

// What was found so far.
struct LeftOut {
    size_t count, tried;
    char name[LEFT_OUT_KINDS][LEFT_OUT_NAME];
    enum Missed missed[LEFT_OUT_KINDS]; // in the first setup that missed it
};

// Those of such a run are another test's.
void left_out_elsewhere(struct LeftOut *l, const struct RankSettings *s);

void left_out_kind_elsewhere(struct LeftOut *l, const char *name);

// Tries those of one step; all of them, or only those that no setup has missed yet.
void left_out_try(struct LeftOut *l, const struct RankSettings *s, bool all);

// Those of a batch of validation that nothing has missed yet.
void left_out_try_validation(struct LeftOut *l, const struct RankSettings *s);

// How the first one of that name that is missed at all is missed, in one step.
enum Missed left_out_one(const struct RankSettings *s, const char *name);

// Prints which nobody missed, and returns how many those are.
size_t left_out_unneeded(const struct LeftOut *l);

// Fails unless these n events are those of which something was left out and missed.
void left_out_expect(const struct LeftOut *l, const char *const events[], size_t n);

#endif
