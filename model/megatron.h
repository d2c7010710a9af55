// The exchanges between TP ranks inside the model (kernels/tp_comm.h): Megatron-LM's f and g. With
// one rank each does nothing. The head's exchange is in ends.c.
//
// Between products there are R' rows: all R, or this rank's part (model/acts.h).
#ifndef MODEL_MEGATRON_H
#define MODEL_MEGATRON_H
#include "model/launch.h"

// f forward, at the beginning of a branch, and g backward, at its end: returns all rows
// (R, channels) of y (R', channels), valid until the next exchange.
const void *megatron_all_rows(struct Model *m, struct Acts *acts, const void *y);

// f backward, and g forward: y (R', channels) becomes the sum over the TP ranks. The product
// (R, channels) whose terms are summed is made in the buffer that megatron_sum_of returns.
void *megatron_sum_of(struct Acts *acts, void *y);
void megatron_sum(struct Model *m, struct Acts *acts, void *y);

// True on the TP rank that adds terms which all ranks have: a bias after a product whose sum is
// split, the position embedding.
static inline bool megatron_adds(const struct Model *m) {
    return !m->across || m->across->rank == 0;
}

// The first token of this rank's part of the vocabulary.
static inline size_t megatron_first_token(const struct Model *m) {
    return m->across ? m->across->rank * m->config.vocab_padded : 0;
}

#endif
