// One transformer block of GPT-2, forward, restore and backward:
//
//   ln1 = norm(x)      qkv = ln1 Wqkv' + b    att = attention(qkv)    x2 = x + att Wproj' + b
//   ln2 = norm(x2)     fc = ln2 Wfc' + b      gelu = GELU(fc)         next x = x2 + gelu Wout' + b
//
// x arrives as two tensors (x, delta) that the first norm adds; the block's own last sum is left to
// the next unit in the same way. Each line of block_run makes some of the tensors of acts.h; the
// forward pass runs all lines, and restore only those whose tensors were not kept. Since a kernel
// gives the same bits each time and reads only stored values, a restored tensor is bitwise the one
// that was dropped.
//
// Sources: Radford et al. 2019 (GPT-2); Chen et al. 2016 (recomputation); Shoeybi et al. 2019
// (Megatron's f and g). Next: ends.c, the two other kinds of unit.
#include "model/launch.h"

#define BIT(tensor) (UINT32_C(1) << (tensor))

// What the parts of a block share while one unit runs.
struct Run {
    struct Model *m;
    const struct Group *group;
    const void *w;
    struct Grad dw;
    struct Acts *acts;
    void **act; // the layer's tensors
    size_t rows, C;
    enum Dtype dtype;
};

static struct Run run_of(struct Model *m, const struct Unit *u, const void *w, struct Grad dw,
                         struct Acts *acts) {
    return (struct Run){m,
                        &m->params->group[u->group],
                        w,
                        dw,
                        acts,
                        acts->block[u->layer],
                        acts_rows(acts),
                        m->config.channels,
                        m->config.dtype};
}

static const void *weight(const struct Run *r, enum BlockParam p) {
    return dtype_at(r->w, r->dtype, r->group->param[p].offset);
}

static void *gradient(const struct Run *r, enum BlockParam p) {
    return dtype_at(r->dw.mem, r->m->grad_dtype, r->group->param[p].offset);
}

// Where tensor parallelism will enter (Megatron-LM, section 3): f is the identity going forward and
// sums dx over the ranks of a group going backward; g sums the output going forward and is the
// identity going backward. With one rank both are the identity.
static void megatron_f_backward(struct Run *r, void *dx) {
    (void)r;
    (void)dx;
}
static void megatron_g_forward(struct Run *r, void *y) {
    (void)r;
    (void)y;
}

// y (rows, n) = x (rows, k) W (n, k)' + bias; gelu, if not NULL, receives GELU(y).
static void linear_forward(struct Run *r, void *y, const void *x, enum BlockParam w,
                           enum BlockParam bias, void *gelu) {
    size_t n = r->group->param[w].rows, k = r->group->param[w].cols;
    struct Matmul args = {
        .m = r->rows,
        .n = n,
        .k = k,
        .a = mat(x, r->dtype, k),
        .b = mat_transposed(weight(r, w), r->dtype, k),
        .c = mat(y, r->dtype, n),
        .bias = weight(r, bias),
        .gelu = gelu,
    };
    LAUNCH_WITH_WORK(r->m, matmul, args);
}

// dx (rows, k) = dy (rows, n) W (n, k), times GELU'(dgelu) where that is not NULL;
// dW (n, k) (+)= dy' x; dbias (n) (+)= column sums of dy.
static void linear_backward(struct Run *r, void *dx, const void *dy, const void *x,
                            enum BlockParam w, enum BlockParam bias, const void *dgelu) {
    size_t n = r->group->param[w].rows, k = r->group->param[w].cols;
    struct Matmul input = {
        .m = r->rows,
        .n = k,
        .k = n,
        .a = mat(dy, r->dtype, n),
        .b = mat(weight(r, w), r->dtype, k),
        .c = mat(dx, r->dtype, k),
        .dgelu = dgelu,
    };
    LAUNCH_WITH_WORK(r->m, matmul, input);
    struct Matmul weights = {
        .m = n,
        .n = k,
        .k = r->rows,
        .a = mat_transposed(dy, r->dtype, n),
        .b = mat(x, r->dtype, k),
        .c = mat(gradient(r, w), r->m->grad_dtype, k),
        .accumulate = r->dw.accumulate,
        .dbias = gradient(r, bias),
    };
    LAUNCH_WITH_WORK(r->m, matmul, weights);
}

static void attention_forward(struct Run *r) {
    struct AttentionForward args = {
        .b = r->acts->b,
        .t = r->acts->t,
        .nh = r->m->config.heads,
        .nkv = r->m->config.kv_heads,
        .hs = r->C / r->m->config.heads,
        .dtype = r->dtype,
        .qkv = r->act[ACT_QKV],
        .out = r->act[ACT_ATT],
        .lse = r->act[ACT_LSE],
    };
    LAUNCH_WITH_WORK(r->m, attention_forward, args);
}

// A block's norm: y = norm(sum), sum = x + delta.
struct NormPlace {
    enum Act sum, mean, rstd, y;
    enum BlockParam weight, bias;
};
static const struct NormPlace norm1 = {ACT_X,   ACT_MEAN1,     ACT_RSTD1,
                                       ACT_LN1, BLOCK_NORM1_W, BLOCK_NORM1_B};
static const struct NormPlace norm2 = {ACT_X2,  ACT_MEAN2,     ACT_RSTD2,
                                       ACT_LN2, BLOCK_NORM2_W, BLOCK_NORM2_B};

// delta NULL: x is the sum.
static void norm_forward(struct Run *r, const struct NormPlace *norm, const void *x,
                         const void *delta) {
    LAUNCH(r->m, norm_forward,
           (struct NormForward){
               .rows = r->rows,
               .c = r->C,
               .dtype = r->dtype,
               .eps = r->m->config.norm_eps,
               .x = x,
               .delta = delta,
               .sum = r->act[norm->sum],
               .y = r->act[norm->y],
               .mean = r->act[norm->mean],
               .rstd = r->act[norm->rstd],
               .weight = weight(r, norm->weight),
               .bias = weight(r, norm->bias),
           });
}

// Makes the tensors in `need`. x, delta: the block's input; in a restore, x is the kept sum and
// delta NULL.
static void block_run(struct Run *r, const void *x, const void *delta, uint32_t need) {
    if (need & (BIT(ACT_X) | BIT(ACT_LN1)))
        norm_forward(r, &norm1, x, delta);
    if (need & BIT(ACT_QKV))
        linear_forward(r, r->act[ACT_QKV], r->act[ACT_LN1], BLOCK_QKV_W, BLOCK_QKV_B, NULL);
    if (need & BIT(ACT_ATT))
        attention_forward(r);
    if (need & BIT(ACT_X2)) {
        linear_forward(r, r->acts->delta, r->act[ACT_ATT], BLOCK_PROJ_W, BLOCK_PROJ_B, NULL);
        megatron_g_forward(r, r->acts->delta);
        norm_forward(r, &norm2, r->act[ACT_X], r->acts->delta);
    } else if (need & BIT(ACT_LN2)) {
        norm_forward(r, &norm2, r->act[ACT_X2], NULL);
    }
    if (need & BIT(ACT_FC))
        linear_forward(r, r->act[ACT_FC], r->act[ACT_LN2], BLOCK_FC_W, BLOCK_FC_B,
                       r->act[ACT_GELU]);
    else if (need & BIT(ACT_GELU))
        LAUNCH(
            r->m, gelu_forward,
            (struct GeluForward){r->rows * 4 * r->C, r->dtype, r->act[ACT_FC], r->act[ACT_GELU]});
}

void block_forward(struct Model *m, const struct Unit *u, const void *w, struct Acts *acts) {
    struct Run r = run_of(m, u, w, (struct Grad){0}, acts);
    bool first = u->layer == 0; // the embedding wrote the first block's x itself
    const void *x = first ? r.act[ACT_X] : acts->block[u->layer - 1][ACT_X2];
    block_run(&r, x, first ? NULL : acts->delta, BIT(NACT) - 1);
    linear_forward(&r, acts->delta, r.act[ACT_GELU], BLOCK_OUT_W, BLOCK_OUT_B, NULL);
    megatron_g_forward(&r, acts->delta);
}

void block_restore(struct Model *m, const struct Unit *u, const void *w, struct Acts *acts) {
    struct Run r = run_of(m, u, w, (struct Grad){0}, acts);
    block_run(&r, r.act[ACT_X], NULL, ~acts->kept);
}

// acts->dx += the gradient by the norm's input, from acts->dnorm by its output.
static void norm_backward(struct Run *r, const struct NormPlace *norm) {
    struct NormBackward args = {
        .rows = r->rows,
        .c = r->C,
        .dtype = r->dtype,
        .grad_dtype = r->m->grad_dtype,
        .dy = r->acts->dnorm,
        .x = r->act[norm->sum],
        .weight = weight(r, norm->weight),
        .mean = r->act[norm->mean],
        .rstd = r->act[norm->rstd],
        .dx = r->acts->dx,
        .dweight = gradient(r, norm->weight),
        .dbias = gradient(r, norm->bias),
        .accumulate = r->dw.accumulate,
    };
    LAUNCH_WITH_WORK(r->m, norm_backward, args);
}

static void attention_backward(struct Run *r, const void *dout, void *dqkv) {
    struct AttentionBackward args = {
        .b = r->acts->b,
        .t = r->acts->t,
        .nh = r->m->config.heads,
        .nkv = r->m->config.kv_heads,
        .hs = r->C / r->m->config.heads,
        .dtype = r->dtype,
        .qkv = r->act[ACT_QKV],
        .out = r->act[ACT_ATT],
        .dout = dout,
        .lse = r->act[ACT_LSE],
        .dqkv = dqkv,
    };
    LAUNCH_WITH_WORK(r->m, attention_backward, args);
}

// acts->dx enters as the gradient of the block's output sum. Both branches leave it where it is
// (the residual connection) and add what flows through them, in norm_backward.
void block_backward(struct Model *m, const struct Unit *u, const void *w, struct Grad dw,
                    struct Acts *acts) {
    struct Run r = run_of(m, u, w, dw, acts);
    void *dfc = acts->dwide;
    linear_backward(&r, dfc, acts->dx, r.act[ACT_GELU], BLOCK_OUT_W, BLOCK_OUT_B, r.act[ACT_FC]);
    linear_backward(&r, acts->dnorm, dfc, r.act[ACT_LN2], BLOCK_FC_W, BLOCK_FC_B, NULL);
    megatron_f_backward(&r, acts->dnorm);
    norm_backward(&r, &norm2);

    void *dqkv = acts->dwide;
    void *datt = dtype_at(acts->dwide, r.dtype, 3 * r.rows * r.C);
    linear_backward(&r, datt, acts->dx, r.act[ACT_ATT], BLOCK_PROJ_W, BLOCK_PROJ_B, NULL);
    attention_backward(&r, datt, dqkv);
    linear_backward(&r, acts->dnorm, dqkv, r.act[ACT_LN1], BLOCK_QKV_W, BLOCK_QKV_B, NULL);
    megatron_f_backward(&r, acts->dnorm);
    norm_backward(&r, &norm1);
}
