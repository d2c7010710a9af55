// Where the places of tensor parallelism meet inside the model (kernels/tp_comm.h): Megatron-LM's f
// and g. With one place each is nothing. The head's exchange is in ends.c.
//
// Rows between products are R', all R or this place's part (model/acts.h).
#ifndef MODEL_MEGATRON_H
#define MODEL_MEGATRON_H
#include "model/launch.h"

// Where a product of (R, channels) is to be made whose sum over the places megatron_f_backward or
// megatron_g_forward leaves in y.
void *megatron_sum_of(struct Acts *acts, void *y);

// f, at the beginning of a branch. Forward: all rows (R, channels) of y (R', channels), until the
// next exchange. Backward: dx (R', channels), the sum of what each place has made.
const void *megatron_f_forward(struct Model *m, struct Acts *acts, const void *y);
void megatron_f_backward(struct Model *m, struct Acts *acts, void *dx);
// g, at its end. Forward: y (R', channels), the sum of what each place has made. Backward: all rows
// of dy (R', channels), until the next exchange.
void megatron_g_forward(struct Model *m, struct Acts *acts, void *y);
const void *megatron_g_backward(struct Model *m, struct Acts *acts, const void *dy);

// Whether this place is the one that adds what all have: a bias behind a product that is in parts,
// the embedding of positions.
static inline bool megatron_adds(const struct Model *m) {
    return !m->across || m->across->rank == 0;
}

// The first token of this place's part of the vocabulary.
static inline size_t megatron_first_token(const struct Model *m) {
    return m->across ? m->across->rank * m->config.vocab_padded : 0;
}

#endif
