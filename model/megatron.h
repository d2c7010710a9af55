// The exchanges between TP ranks inside the model (kernels/tp_comm.h): Megatron-LM's f and g. With
// one rank each does nothing. The head's exchange is in ends.c.
//
// Between products there are R' rows: all R, or this rank's part (model/acts.h).
#ifndef MODEL_MEGATRON_H
#define MODEL_MEGATRON_H
#include "model/launch.h"

// Returns the buffer for a product (R, channels) whose sum over the TP ranks megatron_f_backward or
// megatron_g_forward leaves in y.
void *megatron_sum_of(struct Acts *acts, void *y);

// f, at the beginning of a branch. Forward: returns all rows (R, channels) of y (R', channels),
// valid until the next exchange. Backward: dx (R', channels) becomes the sum over the TP ranks.
const void *megatron_f_forward(struct Model *m, struct Acts *acts, const void *y);
void megatron_f_backward(struct Model *m, struct Acts *acts, void *dx);
// g, at the end of a branch. Forward: y (R', channels) becomes the sum over the TP ranks. Backward:
// returns all rows of dy (R', channels), valid until the next exchange.
void megatron_g_forward(struct Model *m, struct Acts *acts, void *y);
const void *megatron_g_backward(struct Model *m, struct Acts *acts, const void *dy);

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
