// One transformer block, forward, restore and backward:
//
//   norm1 = norm(x)    qkv = norm1 Wqkv' + b    att = attention(qkv)    x2 = x + att Wproj' + b
//   norm2 = norm(x2)   fc = norm2 Wfc' + b      mlp = activation(fc)    next x = x2 + mlp Wout' + b
//
// The family (config.h) decides two branches, both named: if positions are rotary, queries and keys
// are rotated before attention; and the activation is GELU, in the product's epilogue, or SwiGLU.
// Biases and norms that a family lacks are NULL.
//
// x arrives as two tensors (x, delta) that the first norm adds; the block leaves its own last sum
// to the next unit in the same way. Each line of block_run makes some of the tensors of acts.h; the
// forward pass runs all lines, restore only those whose tensors were not kept. A kernel gives the
// same bits each time and reads only stored values, so a restored tensor is bitwise equal to the
// one that was dropped.
//
// Sources: Radford et al. 2019 (GPT-2); Touvron et al. 2023 (Llama); Chen et al. 2016
// (recomputation); Shoeybi et al. 2019 (Megatron's f and g: megatron.c). Next: block_ops.c; then
// ends.c, the two other kinds of unit.
#include "model/block_ops.h"
#include "model/megatron.h"

// Returns all rows of a norm's output, which a branch reads.
static const void *branch_input(struct BlockRun *r, enum Act norm) {
    return megatron_all_rows(r->m, r->acts, r->act[norm]);
}

// Makes acts->delta: a branch's last product of tensor x, summed over the TP ranks.
static void branch_output(struct BlockRun *r, enum Act x, enum BlockParam w, enum BlockParam bias) {
    void *delta = r->acts->delta;
    linear_forward(r, megatron_sum_of(r->acts, delta), r->act[x], w, bias, NULL);
    megatron_sum(r->m, r->acts, delta);
}

// Backward from dy, the gradient of the branch's first product, to dnorm, that of its input.
static void branch_input_backward(struct BlockRun *r, enum Act norm, const void *dy,
                                  enum BlockParam w, enum BlockParam bias) {
    void *dnorm = r->acts->dnorm;
    linear_backward(r, megatron_sum_of(r->acts, dnorm), dy, branch_input(r, norm), w, bias, NULL);
    megatron_sum(r->m, r->acts, dnorm);
}

// Makes the tensors in `need`. x, delta: the block's input; when restoring, x is the kept sum and
// delta is NULL.
static void block_run(struct BlockRun *r, const void *x, const void *delta, uint32_t need) {
    if (need & (BIT(ACT_X) | BIT(ACT_NORM1)))
        norm_forward(r, &norm1, x, delta);
    if (need & BIT(ACT_QKV))
        linear_forward(r, r->act[ACT_QKV], branch_input(r, ACT_NORM1), BLOCK_QKV_W, BLOCK_QKV_B,
                       NULL);
    if (is_rotary(r) && need & BIT(r->act[ACT_ROTATED] ? ACT_ROTATED : ACT_QKV))
        rotate_forward(r);
    if (need & BIT(ACT_ATT))
        attention_forward(r);
    if (need & BIT(ACT_X2)) {
        branch_output(r, ACT_ATT, BLOCK_PROJ_W, BLOCK_PROJ_B);
        norm_forward(r, &norm2, r->act[ACT_X], r->acts->delta);
    } else if (need & BIT(ACT_NORM2)) {
        norm_forward(r, &norm2, r->act[ACT_X2], NULL);
    }
    if (need & BIT(ACT_FC))
        linear_forward(r, r->act[ACT_FC], branch_input(r, ACT_NORM2), BLOCK_FC_W, BLOCK_FC_B,
                       is_swiglu(r) ? NULL : r->act[ACT_MLP]);
    if (need & BIT(ACT_MLP) && (is_swiglu(r) || !(need & BIT(ACT_FC))))
        activation_forward(r);
}

void block_forward(struct Model *m, const struct Unit *u, void *const w[], struct Acts *acts) {
    struct BlockRun r = run_of(m, u, w, NULL, acts);
    bool first = u->layer == 0; // its x is there: by the embedding, or received (zero/pipe)
    const void *x = first ? r.act[ACT_X] : acts->block[u->layer - 1][ACT_X2];
    block_run(&r, x, first ? NULL : acts->delta, BIT(NACT) - 1);
    branch_output(&r, ACT_MLP, BLOCK_OUT_W, BLOCK_OUT_B);
}

void block_restore(struct Model *m, const struct Unit *u, void *const w[], struct Acts *acts) {
    struct BlockRun r = run_of(m, u, w, NULL, acts);
    r.restores = true;
    block_run(&r, r.act[ACT_X], NULL, ~acts->kept);
}

// On entry acts->dx is the gradient of the block's output sum. Both branches leave it (the residual
// connection), and norm_backward adds the gradient that flows through them.
void block_backward(struct Model *m, const struct Unit *u, void *const w[], const struct Grad dw[],
                    struct Acts *acts) {
    struct BlockRun r = run_of(m, u, w, dw, acts);
    void *dfc = acts->dwide;
    activation_backward(&r, megatron_all_rows(m, acts, acts->dx), dfc);
    branch_input_backward(&r, ACT_NORM2, dfc, BLOCK_FC_W, BLOCK_FC_B);
    norm_backward(&r, &norm2);

    void *dqkv = acts->dwide;
    void *datt = dtype_at(dqkv, r.dtype, r.rows * model_qkv_width(&m->config));
    linear_backward(&r, datt, megatron_all_rows(m, acts, acts->dx), r.act[ACT_ATT], BLOCK_PROJ_W,
                    BLOCK_PROJ_B, NULL);
    attention_backward(&r, datt, dqkv);
    if (is_rotary(&r))
        rotate_backward(&r, dqkv);
    branch_input_backward(&r, ACT_NORM1, dqkv, BLOCK_QKV_W, BLOCK_QKV_B);
    norm_backward(&r, &norm1);
}
