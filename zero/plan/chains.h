// How one group's bytes travel in a step: --plan --show-chain GROUP.
//
// A rehearsal (rehearse.h) tells of each hop what it sends, moves and computes; those of one group
// are printed in the order of its chains (zero/hop.h), with the queue that they are in. Called by
// predict.c.
#ifndef ZERO_PLAN_CHAINS_H
#define ZERO_PLAN_CHAINS_H
#include "zero/rank/rank.h"

// Of the group that s->show_chain names, such as "block.1", on the first rank that has it. Errors:
// -EINVAL, where the model has no such group; those of rank_open.
int chains_print(FILE *out, const struct RankSettings *s, struct Error *e);

#endif
