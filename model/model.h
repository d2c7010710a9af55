// The model as units that the walk (zero/step.c) runs in order: embedding, block 0 .. L-1, head.
//
// Each function below puts kernels on the device's compute queue and returns. Weights come as one
// pointer per group, gradients likewise: where they lie, how long, and on which rank is none of the
// model's business.
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H
#include "model/acts.h"
#include "model/grad.h"
#include "model/params.h"

struct Model {
    struct ModelConfig config;
    struct Device *device;
    const struct Params *params;
    enum Dtype grad_dtype;
    struct Work work; // scratch of kernels
    struct Block work_block;
    bool sizing; // launches ask how much scratch they want instead of running (model/launch.h)
};

// Units 0 .. L+1; the group whose weights unit u reads.
static inline int model_units(const struct Model *m) {
    return params_units(m->params);
}
static inline int model_unit_group(const struct Model *m, int u) {
    return params_unit_group(m->params, u);
}

// Finds how much scratch the kernels want for micro-batches like `acts`, and takes it from `tier`.
// m->config, device, params and grad_dtype are set. Errors: -ENOMEM. model_close frees the scratch.
int model_open(struct Model *m, struct Acts *acts, struct Tier *tier, struct Error *e);
void model_close(struct Model *m);

// w[g]: group g's weights, padded elements of config.dtype. Only w[group of u] is read.
void unit_forward(struct Model *m, int u, void *const w[], struct Acts *acts);

// Makes again what the forward pass of unit u did not keep.
void acts_restore(struct Model *m, int u, void *const w[], struct Acts *acts);

// Turns acts->dx from the gradient behind unit u into the one before it, and leaves the gradient of
// u's weights in dw[group of u]. Of the tied group, the head writes first and the embedding adds.
void unit_backward(struct Model *m, int u, void *const w[], const struct Grad dw[],
                   struct Acts *acts);

// The parts, in block.c and ends.c.
void embed_unit_forward(struct Model *m, const void *w, struct Acts *acts);
void embed_unit_backward(struct Model *m, struct Grad dw, struct Acts *acts);
void block_unit_forward(struct Model *m, int u, const void *w, struct Acts *acts);
void block_unit_restore(struct Model *m, int u, const void *w, struct Acts *acts);
void block_unit_backward(struct Model *m, int u, const void *w, struct Grad dw, struct Acts *acts);
void head_unit_forward(struct Model *m, const void *w, struct Acts *acts);
void head_unit_backward(struct Model *m, const void *w, struct Grad dw, struct Acts *acts);

#endif
