// Which units of a model are frozen: their parameters are read, and not trained (--freeze).
//
// A frozen group has no gradient, no master weights and no moments, at any stage and in any tier.
// It is gathered, offloaded and split over ranks as others are.
#ifndef MODEL_FREEZE_H
#define MODEL_FREEZE_H
#include "kernels/base.h"

enum { MAX_LAYERS = 1024 };

struct Freeze {
    bool embeddings, head;            // a head that is the embedding is frozen with it
    uint64_t layers[MAX_LAYERS / 64]; // a bit each
};

static inline bool freeze_has_layer(const struct Freeze *f, size_t layer) {
    return f->layers[layer / 64] >> layer % 64 & 1;
}

// Reads "none", or words with commas between: embeddings, head, layers:N, layers:FIRST-LAST, of a
// model with so many layers. Errors: -EINVAL with --freeze, its value and what would be right, also
// if nothing is left to train.
int freeze_read(struct Freeze *out, const char *text, size_t layers, bool untied, struct Error *e);

#endif
