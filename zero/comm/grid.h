// Where a rank stands among all ranks of a job, and which of them form its groups.
//
// Ranks fill a grid of four axes: replica, pipeline stages (pp), data parallel (dp), tensor
// parallel (tp), from the slowest to the fastest, so that the ranks that talk most lie next to each
// other (Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters
// using Megatron-LM"). A group is a line along one axis. In this version all axes but dp have one
// place, and the dp group is the whole job; groups are asked for through the grid all the same.
#ifndef ZERO_COMM_GRID_H
#define ZERO_COMM_GRID_H
#include "kernels/base.h"

enum Axis { AXIS_TP, AXIS_DP, AXIS_PP, AXIS_REPLICA, NAXIS }; // the fastest first

static inline const char *axis_name(enum Axis a) {
    return (const char *const[]){"tp", "dp", "pp", "replica"}[a];
}

struct Grid {
    int size[NAXIS];
};

static inline struct Grid grid_of_dp(int ranks) {
    return (struct Grid){{1, ranks, 1, 1}};
}

// Between neighbours along an axis, in ranks.
static inline int grid_stride(const struct Grid *g, enum Axis axis) {
    int stride = 1;
    for (int a = 0; a < (int)axis; a++)
        stride *= g->size[a];
    return stride;
}

// The place of a rank along an axis: its rank in that group.
static inline int grid_place(const struct Grid *g, int rank, enum Axis axis) {
    return rank / grid_stride(g, axis) % g->size[axis];
}

// The rank, among all, of place i of the group that `rank` is in.
static inline int grid_member(const struct Grid *g, int rank, enum Axis axis, int i) {
    return rank + (i - grid_place(g, rank, axis)) * grid_stride(g, axis);
}

#endif
