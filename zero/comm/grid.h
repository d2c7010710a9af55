// The grid of a job's ranks: where a rank stands in it, and which ranks form its groups.
//
// Ranks fill a grid of four axes: replica, pipeline stages (pp), data parallel (dp), tensor
// parallel (tp), from the slowest to the fastest, so that the ranks that communicate most are
// neighbours (Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters
// using Megatron-LM"). A group is a line along one axis: tp, whose ranks each have a part of every
// matrix and work on the same tokens; dp, whose ranks share one such part's state in shards; pp,
// whose ranks each have some of the layers; and replica, whose ranks keep the same shard of it.
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

// Returns the grid of `ranks` ranks: `tp` of tensor parallelism, `shard` that share state in
// shards, `pp` stages of a pipeline. Their product divides `ranks`.
static inline struct Grid grid_of(int ranks, int tp, int shard, int pp) {
    return (struct Grid){{tp, shard, pp, ranks / (tp * shard * pp)}};
}

// Returns the distance between neighbours along an axis, in ranks.
static inline int grid_stride(const struct Grid *g, enum Axis axis) {
    int stride = 1;
    for (int a = 0; a < (int)axis; a++)
        stride *= g->size[a];
    return stride;
}

// Returns the coordinate of a rank along an axis: its rank in that group.
static inline int grid_coord(const struct Grid *g, int rank, enum Axis axis) {
    return rank / grid_stride(g, axis) % g->size[axis];
}

// Returns the rank in the job of member i of the group that `rank` is in.
static inline int grid_member(const struct Grid *g, int rank, enum Axis axis, int i) {
    return rank + (i - grid_coord(g, rank, axis)) * grid_stride(g, axis);
}

// The number of ranks with tokens of their own, and a rank's index among them: those along tp and
// pp have the same tokens.
static inline int grid_data_ranks(const struct Grid *g) {
    return g->size[AXIS_REPLICA] * g->size[AXIS_DP];
}
static inline int grid_data_rank(const struct Grid *g, int rank) {
    return grid_coord(g, rank, AXIS_REPLICA) * g->size[AXIS_DP] + grid_coord(g, rank, AXIS_DP);
}

// Returns the rank with the last pipeline stage for these tokens; of the TP ranks the first.
static inline int grid_last_of_data(const struct Grid *g, int data_rank) {
    int dp = g->size[AXIS_DP], replica = data_rank / dp, last = g->size[AXIS_PP] - 1;
    return replica * grid_stride(g, AXIS_REPLICA) + last * grid_stride(g, AXIS_PP) +
           data_rank % dp * grid_stride(g, AXIS_DP);
}

// A group as it lies in the job: member i is rank origin + i * stride.
struct GridLine {
    enum Axis axis;
    int origin, stride, size, coord; // coord: of the rank that asks
};

static inline struct GridLine grid_line(const struct Grid *g, int rank, enum Axis axis) {
    return (struct GridLine){axis, grid_member(g, rank, axis, 0), grid_stride(g, axis),
                             g->size[axis], grid_coord(g, rank, axis)};
}

#endif
