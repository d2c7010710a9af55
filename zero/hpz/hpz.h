// A second partition of the weights, over few ranks that are near each other (ZeRO++'s hpZ).
//
// At stage 3 a block's weights are gathered for its forward pass and again for its backward pass,
// in every micro-batch, from all ranks. Here the first gathering of a step leaves each rank 1/H of
// the group, besides its shard, and the later ones are made of these, among H neighbours: on one
// machine, they cross no network. It costs memory, psi/H weights as they travel (zero/wire), and
// changes no bit.
//
// Wang et al. 2023, "ZeRO++: extremely efficient collective communication for giant model training"
// (arXiv 2306.10209), section 3.2. Opened by zero/rank/rank.c; it adds hops to the groups'
// chains. Read next: zero/param.c.
#ifndef ZERO_HPZ_HPZ_H
#define ZERO_HPZ_HPZ_H
#include "zero/zero.h"

// Of all groups.
struct Hpz;

// Takes the memory in `tier`. near: H ranks of z->dp that lie side by side, this one among them.
// Errors: -ENOMEM; hpz_close is due in any case.
int hpz_open(struct Hpz **out, struct Zero *z, struct Comm *near, struct Tier *tier,
             struct Error *e);
void hpz_close(struct Hpz *s); // NULL: nothing

#endif
