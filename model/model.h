// The model as units that the walk (zero/step.c) runs in order: embedding, block 0 .. L-1, head.
//
// Each function below puts kernels on the device's compute queue and returns. Weights and gradients
// come as one pointer per group: the model does not know on which device or rank they are kept.
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H
#include "kernels/tp_comm.h"
#include "model/acts.h"
#include "model/grad.h"
#include "model/kv_cache.h"
#include "model/params.h"

struct Model {
    struct ModelConfig config;
    struct Device *device;
    const struct Params *params;
    const struct TpComm *across; // config is the shape of this part of the model; NULL: not split
    enum Dtype grad_dtype;
    struct Work work; // scratch of kernels
    struct Block work_block;
    float *rope;    // (T, HS / 2, 2), for rotary embedding (config.h); NULL: positions are learned
    int32_t *first; // (B, T), the first key of each query (kernels.h); NULL: attention sees all,
                    // or acts->first applies
    struct Layout layout; // of sparse attention; begin is NULL for dense attention
    struct Block rope_block, first_block, layout_block;
    struct KvCache cache; // of generation; without capacity there is none
    bool packed;          // batches come with acts->starts and acts->first
    bool sizing; // launches ask how much scratch they need instead of running (model/launch.h)
};

// Returns the number of units here: L + 2 in a whole model (model/params.h).
static inline int model_units(const struct Model *m) {
    return m->params->nunit;
}

// Finds how much scratch the kernels need for micro-batches like `acts`, and allocates it from
// `tier`, together with the tables of rotary embedding, of sparse attention and, if batches bring
// none, of the attention window, which it fills. m->config, device, params, grad_dtype and packed
// are set. Errors: -ENOMEM. model_close frees all of it.
int model_open(struct Model *m, struct Acts *acts, struct Tier *tier, struct Error *e);
void model_close(struct Model *m);

// w[g]: group g's weights, padded elements of config.dtype. Only those of u's groups are read. If a
// pipeline stage has no head, its last unit leaves the stage's output in acts->x_final.
void unit_forward(struct Model *m, int u, void *const w[], struct Acts *acts);

// Recomputes the tensors that the forward pass of unit u did not keep.
void acts_restore(struct Model *m, int u, void *const w[], struct Acts *acts);

// Turns acts->dx from the gradient of unit u's output into that of its input, and leaves the
// gradient of u's trained weights in dw[its group]. If two units use a group, the later one writes
// its gradient first, and the earlier one adds.
void unit_backward(struct Model *m, int u, void *const w[], const struct Grad dw[],
                   struct Acts *acts);

// The kinds of unit, in block.c and ends.c.
void embedding_forward(struct Model *m, const struct Unit *u, void *const w[], struct Acts *acts);
void embedding_backward(struct Model *m, const struct Unit *u, void *const w[],
                        const struct Grad dw[], struct Acts *acts);
void block_forward(struct Model *m, const struct Unit *u, void *const w[], struct Acts *acts);
void block_restore(struct Model *m, const struct Unit *u, void *const w[], struct Acts *acts);
void block_backward(struct Model *m, const struct Unit *u, void *const w[], const struct Grad dw[],
                    struct Acts *acts);
void stage_output(struct Model *m, struct Acts *acts); // after the last unit, if it is not the head
void head_forward(struct Model *m, const struct Unit *u, void *const w[], struct Acts *acts);
void head_backward(struct Model *m, const struct Unit *u, void *const w[], const struct Grad dw[],
                   struct Acts *acts);

#endif
