// A second partition of the weights, over few neighbouring ranks (ZeRO++'s hpZ).
//
// At stage 3 a block's weights are gathered for its forward pass and again for its backward pass,
// in every micro-batch, from all ranks. Here the first gather of a step leaves each rank 1/H of the
// group besides its shard, and later ones gather these parts, among H neighbours: on one machine,
// they cross no network. It costs memory, psi/H weights in the form in which they travel
// (zero/wire), and changes no bit.
//
// Wang et al. 2023, "ZeRO++: extremely efficient collective communication for giant model training"
// (arXiv 2306.10209), section 3.2. Opened by zero/rank/rank.c; it adds hops to the groups'
// chains. Read next: zero/param.c.
#ifndef ZERO_HPZ_HPZ_H
#define ZERO_HPZ_HPZ_H
#include "zero/zero.h"

// The second partition of all groups.
struct Hpz;

// Allocates in `tier`, and adds two hops to each group's chain FETCH. neighbours: H adjacent ranks
// of z->shard_group, this one among them. Errors: -ENOMEM; call hpz_close in any case.
int hpz_open(struct Hpz **out, struct Zero *z, struct Comm *neighbours, struct Tier *tier,
             struct Error *e);
void hpz_close(struct Hpz *hpz); // NULL: does nothing

#endif
