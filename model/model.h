// The model as units that the walk (zero/step.c) runs in order: embedding, block 0 .. L-1, head.
//
// Each function below puts kernels on the device's compute queue and returns. Weights come as one
// pointer per group, gradients likewise: where they are, how long, and on which rank is none of the
// model's business.
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H
#include "kernels/tp_comm.h"
#include "model/acts.h"
#include "model/grad.h"
#include "model/params.h"

struct Model {
    struct ModelConfig config;
    struct Device *device;
    const struct Params *params;
    const struct TpComm *across; // this is a part of the model, and config its shape; NULL: all
    enum Dtype grad_dtype;
    struct Work work; // scratch of kernels
    struct Block work_block;
    float *rope;    // (T, HS / 2, 2) of rotary embedding (config.h); NULL: positions are learned
    int32_t *first; // (B, T), the first key of each query (kernels.h); NULL: attention sees all,
                    // or as acts->first says
    struct Layout layout; // of sparse attention; of dense, begin is NULL
    struct Block rope_block, first_block, layout_block;
    bool packed; // batches bring acts->starts and acts->first
    bool sizing; // launches ask how much scratch they want instead of running (model/launch.h)
};

// Units 0 .. L+1 (model/params.h).
static inline int model_units(const struct Model *m) {
    return m->params->nunit;
}

// Finds how much scratch the kernels want for micro-batches like `acts`, and takes it from `tier`,
// with the tables of rotary embedding, of sparse attention and, where batches bring none, of the
// attention window, which it fills. m->config, device, params, grad_dtype and packed are set.
// Errors: -ENOMEM. model_close frees the scratch.
int model_open(struct Model *m, struct Acts *acts, struct Tier *tier, struct Error *e);
void model_close(struct Model *m);

// w[g]: group g's weights, padded elements of config.dtype. Only w[group of u] is read. The last
// unit of a pipeline's stage that has no head leaves the stage's output in acts->x_final.
void unit_forward(struct Model *m, int u, void *const w[], struct Acts *acts);

// Makes again what the forward pass of unit u did not keep.
void acts_restore(struct Model *m, int u, void *const w[], struct Acts *acts);

// Turns acts->dx from the gradient behind unit u into the one before it, and leaves the gradient of
// u's weights in dw[group of u]. Of a group that two units use, the later one writes first, and the
// earlier one adds.
void unit_backward(struct Model *m, int u, void *const w[], const struct Grad dw[],
                   struct Acts *acts);

// What a unit of each kind does, in block.c and ends.c: w, dw are its group's.
void embedding_forward(struct Model *m, const struct Unit *u, const void *w, struct Acts *acts);
void embedding_backward(struct Model *m, const struct Unit *u, const void *w, struct Grad dw,
                        struct Acts *acts);
void block_forward(struct Model *m, const struct Unit *u, const void *w, struct Acts *acts);
void block_restore(struct Model *m, const struct Unit *u, const void *w, struct Acts *acts);
void block_backward(struct Model *m, const struct Unit *u, const void *w, struct Grad dw,
                    struct Acts *acts);
void stage_output(struct Model *m, struct Acts *acts); // behind the last unit, in place of a head
void head_forward(struct Model *m, const struct Unit *u, const void *w, struct Acts *acts);
void head_backward(struct Model *m, const struct Unit *u, const void *w, struct Grad dw,
                   struct Acts *acts);

#endif
