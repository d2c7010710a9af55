// Inside the CUDA simulator: the block of threads that runs, for block.cc, warp.cc and shared.cc.
#ifndef TESTS_CUSIM_BLOCK_H
#define TESTS_CUSIM_BLOCK_H
#include "tests/cusim/internal.h"

#include "tests/cusim/include/cusim/language.h"

namespace cusim {

enum class State : uint8_t { RUNS, AT_BARRIER, IN_WARP, OVER };

struct AsyncCopy {
    void *to;
    const void *from;
    bool wanted;
    int group; // commits of its thread before it
    const void *caller;
};

struct Fiber {
    void *stack_pointer;
    char *stack;
    uint3 index;
    int number, lane, warp;
    State state;
    const char *file; // where it waits
    int line;
    std::vector<AsyncCopy> copies; // under way
    int commits;
};

// A collective of the lanes of one mask. Lanes that leave it may start the next one with the same
// mask while others still read, so that values are kept twice.
struct Meeting {
    unsigned mask, arrived;
    Together kind;
    const char *file;
    int line;
    unsigned count; // held so far
    uint64_t value[2][32];
    float a[2][16][16], b[2][8][16]; // of mma
};

enum { MAX_MEETINGS = 8 };

struct Warp {
    unsigned live;
    Meeting meeting[MAX_MEETINGS];
};

struct Block {
    int threads, live, at_barrier, cursor;
    int barrier_sum, barrier_result;
    int barrier_line;
    const char *barrier_file;
    std::vector<Fiber> fiber;
    std::vector<int> order;
    std::vector<Warp> warp;
    char *dynamic;
    size_t dynamic_bytes;
    const std::function<void()> *body;
    void *launcher; // stack pointer of who runs the grid
    Fiber *now;
};
extern Block block;

void fiber_yield(); // the calling thread waits; another takes its turn
void fiber_leaves_warp(Fiber *f);

// shared.cc
char *shared_open(size_t dynamic_bytes); // the dynamic shared memory
void shared_poison();                    // at the start of a block
void shared_barrier();                   // all threads of the block met
void shared_warp_sync(int warp);         // so did all lanes of a warp that have not ended

// counters.cc, of which all but count_begin are called while it counts
void count_begin(); // a launch
void count_end();
void count_block();                         // the block has ended
void count_barrier();                       // all threads of the block met
void count_meeting();                       // the calling lane meets all others of its warp
void count_matrix(const uint64_t rows[32]); // ldmatrix of these addresses

} // namespace cusim
#endif
