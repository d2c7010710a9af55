// Every kernel of kernels/cuda, run in the simulator on operands of moderate size, with what it
// asks of memory (tests/cusim/counters.cc).
#ifndef TESTS_LIB_MOVED_H
#define TESTS_LIB_MOVED_H
#include "tests/cusim/sim.h"

enum { MAX_MOVED = 80, MOVED_TEXT = 64 };

// Of one kernel function in one case.
struct Moved {
    char kernel[MOVED_TEXT], operands[MOVED_TEXT];
    double least; // 32-byte sectors that it must move
    bool by_cost; // they are those of kernels/cost.h; else what it touches
    struct SimCounts counts;
};

struct MovedRows {
    int n;
    struct Moved row[MAX_MOVED];
};

// Runs all cases. The device that it opens is closed again.
void moved_all(struct MovedRows *rows);

#endif
