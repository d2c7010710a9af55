// Where a rank stands among all ranks of a job, and which of them form its groups.
//
// Ranks fill a grid of four axes: replica, pipeline stages (pp), data parallel (dp), tensor
// parallel (tp), from the slowest to the fastest, so that the ranks that talk most lie next to each
// other (Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters
// using Megatron-LM"). A group is a line along one axis: tp, whose ranks have a part of every
// matrix each and work on the same tokens; dp, whose ranks share one such part's state in shards;
// pp, whose ranks have some of the layers each; and replica, whose ranks keep the same shard of it.
#ifndef ZERO_COMM_GRID_H
#define ZERO_COMM_GRID_H
#include "kernels/base.h"

enum Axis {
    AXIS_TP, // the fastest first
    AXIS_DP,
    AXIS_PP,
    AXIS_REPLICA,
    NAXIS,
    AXIS_ALL = NAXIS // no axis: the whole job
};

static inline const char *axis_name(enum Axis a) {
    return (const char *const[]){"tp", "dp", "pp", "replica", "all"}[a];
}

struct Grid {
    int size[NAXIS];
};

// Ranks with `tp` places of tensor parallelism, whose state is in shards over `shard` of them, in
// `pp` stages of a pipeline; the product is a divisor of `ranks`.
static inline struct Grid grid_of(int ranks, int tp, int shard, int pp) {
    return (struct Grid){{tp, shard, pp, ranks / (tp * shard * pp)}};
}

// Between neighbours along an axis, in ranks.
static inline int grid_stride(const struct Grid *g, enum Axis axis) {
    int stride = 1;
    for (int a = 0; a < (int)axis; a++)
        stride *= g->size[a];
    return stride;
}

// The place of a rank along an axis: its rank in that group.
static inline int grid_coord(const struct Grid *g, int rank, enum Axis axis) {
    return rank / grid_stride(g, axis) % g->size[axis];
}

// The rank, among all, of place i of the group that `rank` is in.
static inline int grid_member(const struct Grid *g, int rank, enum Axis axis, int i) {
    return rank + (i - grid_coord(g, rank, axis)) * grid_stride(g, axis);
}

// Ranks that have tokens of their own, and which of them a rank is: those along tp and pp have the
// same.
static inline int grid_data_ranks(const struct Grid *g) {
    return g->size[AXIS_REPLICA] * g->size[AXIS_DP];
}
static inline int grid_data_rank(const struct Grid *g, int rank) {
    return grid_coord(g, rank, AXIS_REPLICA) * g->size[AXIS_DP] + grid_coord(g, rank, AXIS_DP);
}

// The rank that has the last stage of a pipeline for these tokens; of tp the first.
static inline int grid_last_of_data(const struct Grid *g, int data_rank) {
    int dp = g->size[AXIS_DP], replica = data_rank / dp, last = g->size[AXIS_PP] - 1;
    return replica * grid_stride(g, AXIS_REPLICA) + last * grid_stride(g, AXIS_PP) +
           data_rank % dp * grid_stride(g, AXIS_DP);
}

// A group as it lies in the job: place i is rank origin + i * stride.
struct GridLine {
    enum Axis axis;
    int origin, stride, size, place; // the last: of the rank that asks
};

static inline struct GridLine grid_line(const struct Grid *g, int rank, enum Axis axis) {
    return (struct GridLine){axis, grid_member(g, rank, axis, 0), grid_stride(g, axis),
                             g->size[axis], grid_coord(g, rank, axis)};
}

#endif
