// The order of a pipeline's step: which stage makes which pass when, and what it sends to whom.
//
// Each stage of a pipeline has some of the layers. A micro-batch goes forward through all stages,
// and backward again; 1F1B (Narayanan et al. 2021, "Efficient large-scale language model training
// on GPU clusters using Megatron-LM", section 2.2) says in which order a stage takes up
// micro-batches: stage i of p begins with p - 1 - i forward passes, then alternates one forward and
// one backward pass, and ends with the backward passes that are left. So it keeps the activations
// of at most p - i micro-batches. With p = 3 and 4 micro-batches, a backward pass taking twice as
// long:
//
//   stage 0   F0 F1 F2 .  .  .  B0 B0 F3 B1 B1 .  B2 B2 ...
//   stage 1      F0 F1 .  B0 B0 F2 B1 B1 F3 B2 ...
//   stage 2         F0 B0 B0 F1 B1 B1 F2 B2 B2 F3 ...
//
// The output of a pass goes to a neighbour at once, in a SENDRECV: stage i sends the activations of
// a micro-batch to stage i + 1, and receives the gradient of another one from there, or does only
// one of the two. Where nothing is trained from stage i down, it receives no gradient, and its
// backward passes are empty. Both wait for each other in it. That cannot deadlock, because the
// whole step is ONE list, in an order in which it could be done one entry at a time, and a stage
// does those of its entries in which it takes part, in that order.
//
// Finding the order also computes when each entry begins and ends, given how long passes take: so
// the share of the time in which stages wait is known, the pipeline's bubble.
//
// Read next: split.h (which layers a stage has), then pipe.h.
#ifndef ZERO_PIPE_ORDER_H
#define ZERO_PIPE_ORDER_H
#include "zero/engine.h"

enum OrderKind { ORDER_FORWARD, ORDER_BACKWARD, ORDER_SENDRECV };
#define ORDER_NONE SIZE_MAX

struct OrderEntry {
    enum OrderKind kind;
    int stage;         // of a sendrecv: the lower one, whose neighbour is the next
    size_t micro;      // of a pass
    size_t down, up;   // of a sendrecv: the micro-batch whose activations go to the next stage, and
                       // whose gradient comes back; ORDER_NONE: none
    double begin, end; // in seconds since the step began
};

struct Order {
    int stages, first; // of all; the first one that is trained
    size_t micros, count;
    struct OrderEntry *entry;
    double span; // seconds of the whole step
};

// Seconds of a stage's passes of one micro-batch.
struct OrderCost {
    double forward, backward;
};

// Lists the entries of a step in an order in which they can be done, with their times. first: the
// first stage with parameters that are trained. cost: (stages). sendrecv: seconds of each. Free the
// list with order_free.
void order_make(struct Order *o, int stages, int first, size_t micros, const struct OrderCost *cost,
                double sendrecv);
void order_free(struct Order *o);

// Returns the share of all stages' time in which they do not compute.
double order_bubble(const struct Order *o);

// Fills in out, (2 micros) and zeroed, with a stage's passes, and what it sends and receives around
// them. It needs no list of the other stages, of which there may be many.
void order_passes(int stages, int first, int stage, size_t micros, struct Pass *out);

// Returns how many micro-batches' activations a stage keeps at a time, at most.
static inline size_t order_kept(int stages, int stage, size_t micros) {
    return size_min(micros, (size_t)(stages - stage));
}

#endif
