// Where the places of tensor parallelism meet inside the model (kernels/across.h): Megatron-LM's f
// and g. With one place each is nothing. The head's exchange is in ends.c.
#ifndef MODEL_MEGATRON_H
#define MODEL_MEGATRON_H
#include "model/launch.h"

// f, identity going forward: dx (rows, channels), of which each place has made the part that comes
// through its columns, is summed going backward.
void megatron_f_backward(struct Model *m, void *dx, size_t rows);
// g, identity going backward: y (rows, channels), likewise through its rows, going forward.
void megatron_g_forward(struct Model *m, void *y, size_t rows);

// Whether this place is the one that adds what all have: a bias behind a product that is in parts,
// the embedding of positions.
static inline bool megatron_adds(const struct Model *m) {
    return !m->across || m->across->place == 0;
}

// The first token of this place's part of the vocabulary.
static inline size_t megatron_first_token(const struct Model *m) {
    return m->across ? m->across->place * m->config.vocab_padded : 0;
}

#endif
