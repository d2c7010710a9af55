// Whose rates a plan has for a GPU that is not here, where no --cluster names one.
//
// The files of docs/clusters whose cards can run this program are in it: all but the V100's. Of
// those that have the memory that is planned for it is the smallest; of several such the slowest,
// so that its times are seldom too short. A plan says whose they are: they rank candidates, and are
// no promise.
//
// Called by predict.c. Read next: cluster.h.
#ifndef ZERO_PLAN_CARD_H
#define ZERO_PLAN_CARD_H
#include "zero/plan/bound.h"
#include "zero/plan/cluster.h"
#include "zero/plan/rates.h"

// The cluster of that card. device_bytes: of a GPU; 0: not known. Where that, or more than any has,
// it is the slowest of the largest. Returns its file's name.
const char *card_choose(size_t device_bytes, struct Cluster *out);

// Rates of its kernels, and of all that was not measured here (0), for a run with these settings.
void card_assume(const struct RankSettings *s, struct Rates *rates, struct Speeds *speeds);

#endif
