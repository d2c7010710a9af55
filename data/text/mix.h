// Several sources in one sequence of samples, each as often as its weight says.
//
// With weights w and their sum W, W samples in a row are w[s] of source s, in an order that is as
// even as can be: of the first n samples, source s has n w[s] / W, rounded up or down, for every n
// (the windows of Baruah, Cohen, Plaxton and Varvel, "Proportionate progress", Algorithmica 1996,
// served by the earliest deadline). A sample's source and its number there are thus a function of
// its own number, whoever asks. Called by data/text/loader.c.
#ifndef DATA_TEXT_MIX_H
#define DATA_TEXT_MIX_H
#include "kernels/base.h"

enum { MIX_SOURCES_MAX = 64, MIX_WEIGHT_MAX = 10000 };

struct Mix {
    size_t sources, period;         // period: W, of weights without a common divisor
    size_t weight[MIX_SOURCES_MAX]; // likewise
    struct MixTurn {
        uint32_t source, number; // that it is the source's in this period
    } * turn;                    // [period]
};

// weights: 1 .. MIX_WEIGHT_MAX each, of 1 .. MIX_SOURCES_MAX sources.
void mix_open(struct Mix *m, const size_t *weight, size_t sources);
void mix_close(struct Mix *m);

// The source of sample i, and which of its samples that is.
size_t mix_find(const struct Mix *m, uint64_t i, uint64_t *number);

#endif
