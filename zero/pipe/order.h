// The order of a pipeline's step: who does what when, and who hands what to whom.
//
// Stages of a pipeline have some of the layers each. A micro-batch goes forward through all of
// them, and backward again; 1F1B (Narayanan et al. 2021, "Efficient large-scale language model
// training on GPU clusters using Megatron-LM", section 2.2) says in which order a stage takes up
// micro-batches: stage i of p begins with p - 1 - i forward passes, then a forward and a backward
// pass by turns, and at the end the backward passes that are left. So it keeps what at most p - i
// micro-batches left for their backward passes. With p = 3 and 4 micro-batches, a backward pass
// taking twice as long:
//
//   stage 0   F0 F1 F2 .  .  .  B0 B0 F3 B1 B1 .  B2 B2 ...
//   stage 1      F0 F1 .  B0 B0 F2 B1 B1 F3 B2 ...
//   stage 2         F0 B0 B0 F1 B1 B1 F2 B2 B2 F3 ...
//
// What a pass has made goes to a neighbour at once, in a SWAP: stage i sends the activations of a
// micro-batch to stage i + 1, and receives the gradient of another one from there, or only one of
// the two. Both wait for each other in it. That cannot end in a circle, because the whole step is
// ONE list, in an order in which it can be done one by one, and a stage does those of its entries
// in which it takes part, in that order.
//
// The same walk through it that finds the order tells when each entry begins and ends, of passes
// that take so long: so the part of the time that stages wait is known, the pipeline's bubble.
//
// Read next: split.h (which layers a stage has), then pipe.h.
#ifndef ZERO_PIPE_ORDER_H
#define ZERO_PIPE_ORDER_H
#include "zero/engine.h"

enum OrderKind { ORDER_FORWARD, ORDER_BACKWARD, ORDER_SWAP };
#define ORDER_NONE SIZE_MAX

struct OrderEntry {
    enum OrderKind kind;
    int stage;         // of a swap: the lower one, whose neighbour is the next
    size_t micro;      // of a pass
    size_t down, up;   // of a swap: whose activations go to the next stage, and whose gradient
                       // comes back; ORDER_NONE: none
    double begin, end; // in seconds after the step's begin
};

struct Order {
    int stages;
    size_t micros, count;
    struct OrderEntry *entry;
    double span; // seconds of all of it
};

// Seconds that a stage's passes of one micro-batch take.
struct OrderCost {
    double forward, backward;
};

// cost: (stages). swap: seconds of each. order_free when done.
void order_make(struct Order *o, int stages, size_t micros, const struct OrderCost *cost,
                double swap);
void order_free(struct Order *o);

// The share of all stages' time in which they do not compute.
double order_bubble(const struct Order *o);

// out: (2 micros), zeroed; they become the passes of a stage, and say what it swaps around them.
// Its own part of the list is known without the others', of whom there may be many.
void order_passes(int stages, int stage, size_t micros, struct Pass *out);

// Micro-batches whose activations a stage keeps at a time, at most.
static inline size_t order_kept(int stages, int stage, size_t micros) {
    return size_min(micros, (size_t)(stages - stage));
}

#endif
