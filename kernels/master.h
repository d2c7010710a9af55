// The formats of AdamW's master weights: three, chosen by --master-dtype.
//
//   format   `master` of a parameter        its bf16 weight
//   fp32     4 bytes, an fp32 number        a copy of it, rounded
//   split    2 bytes, an fp32's lower half  the upper half of the same number
//   bf16     none of its own                the master weight itself
//
// SPLIT loses nothing. The weight of the forward pass is the master rounded to nearest, ties to
// even, as with an fp32 master: h = hi + up for the fp32 bits hi << 16 | lo, where up is 1 if lo is
// past the middle. lo and h give hi back, except for lo = 0x8000: then h is the even one of two
// neighbours, and hi may be h or h - 1. So 32 bits do not fit into h and 16 more; the missing bit
// is in the sign of AdamW's second moment v, which is never negative: v is stored with its sign set
// if lo is 0x8000 and hi was odd. So a run with split masters has every bit of one with fp32
// masters. (After "Split-SGD-BF16": Kalamkar et al., "A study of bfloat16 for deep learning
// training", 2019, and Wang et al., "Optimizing deep learning recommender systems training on CPU
// cluster architectures", 2020, section VII, which rounds towards zero instead.)
//
// BF16 rounds each update up or down at random, with the probability that preserves the mean (Gupta
// et al., "Deep learning with limited numerical precision", 2015, section 3): rounding to nearest
// would lose all updates smaller than 2^-9 of their weight. The random number is a function of
// seed, update and element, so it does not depend on stages, tiers, ranks, threads or kernels.
//
// Used by the kernels adamw, and by zero/master/ for the halves of a number. Read next: kernels.h,
// struct AdamW.
#ifndef KERNELS_MASTER_H
#define KERNELS_MASTER_H
#include "kernels/dtype.h"

#include <stdbool.h>

enum MasterFormat { MASTER_FP32, MASTER_SPLIT, MASTER_BF16, NMASTER };

static inline const char *master_name(enum MasterFormat f) {
    static const char *const names[NMASTER] = {"fp32", "split", "bf16"};
    return names[f];
}

// Returns a dtype of the size of the elements of AdamW.master; for bf16 these are the weights.
HOST_DEVICE static inline enum Dtype master_dtype(enum MasterFormat f) {
    return f == MASTER_FP32 ? F32 : BF16;
}

// True if a split master is rounded up in a tie, hi odd and lo 0x8000: the bit in v's sign.
HOST_DEVICE static inline bool master_tie_up(float master) {
    return (f32_bits(master) & 0x1ffffu) == 0x18000u;
}

// Joins a split master from its halves and the bit in v's sign; any NaN for a NaN.
HOST_DEVICE static inline float master_join(uint16_t weight, uint16_t low, bool tie_up) {
    uint32_t up = ((uint32_t)low + tie_up + 0x7fffu) >> 16;
    return f32_from_bits((weight - up) << 16 | low);
}

// Splits a master weight; returns a v for it: 0 with the sign that says how it was rounded.
HOST_DEVICE static inline float master_cut(float master, uint16_t *weight, uint16_t *low) {
    *weight = bf16_from_f32(master);
    *low = (uint16_t)f32_bits(master);
    return master_tie_up(master) ? -0.0f : 0;
}

// Rounds x to bf16, away from 0 if random (16 bits) is at least 0x10000 minus the dropped bits. A
// NaN stays one, infinities stay.
HOST_DEVICE static inline uint16_t bf16_at_random(float x, uint16_t random) {
    uint32_t u = f32_bits(x);
    return (u & 0x7fffffffu) > 0x7f800000u ? bf16_from_f32(x) : (uint16_t)((u + random) >> 16);
}

// Returns the random number for element `index` of a group; key: from master_key.
HOST_DEVICE static inline uint16_t master_random(uint64_t key, uint64_t index) {
    return (uint16_t)(rng_bits(key, index) >> 48);
}
HOST_DEVICE static inline uint64_t master_key(uint64_t seed, uint64_t update) {
    return rng_bits(seed, update);
}

#endif
