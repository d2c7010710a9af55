// Interleaves several sources in one sequence of samples, by their weights.
//
// With weights w and their sum W, W samples in a row are w[s] of source s, in an order that is as
// even as possible: of the first n samples, source s has n w[s] / W, rounded up or down, for every
// n (the windows of Baruah, Cohen, Plaxton and Varvel, "Proportionate progress", Algorithmica 1996,
// served by the earliest deadline). So a sample's source and its number there are a function of its
// own number. Called by data/text/loader.c and loader_ask.c.
#ifndef DATA_TEXT_MIX_H
#define DATA_TEXT_MIX_H
#include "kernels/base.h"

enum { MIX_SOURCES_MAX = 64, MIX_WEIGHT_MAX = 10000 };

struct Mix {
    size_t sources, period;         // period: W, of weights without a common divisor
    size_t weight[MIX_SOURCES_MAX]; // without a common divisor
    struct MixTurn {
        uint32_t source, number; // number: of the source's samples in this period
    } * turn;                    // [period]
};

// Takes 1 .. MIX_SOURCES_MAX sources, with weights of 1 .. MIX_WEIGHT_MAX.
void mix_open(struct Mix *m, const size_t *weight, size_t sources);
void mix_close(struct Mix *m);

// Returns the source of sample i, and the sample's number there.
size_t mix_find(const struct Mix *m, uint64_t i, uint64_t *number);

#endif
