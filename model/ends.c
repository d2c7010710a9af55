// The two ends of the model: the embedding unit and the head unit.
//
// The head's logits, (rows, Vp), would be the largest tensor of all: 412 MB in fp32 for 2,048
// tokens of GPT-2. They exist only for one chunk of rows at a time, so the backward pass through
// the head's matrix must happen while a chunk is there: in training the head's forward pass stops
// at the norm, and its backward pass makes each chunk's logits, loss and gradients in one go. The
// head's backward follows its forward directly, so nothing is computed twice and its weights are
// gathered once.
//
// Next: units.c, which calls these; kernels/kernels.h for the contracts of the kernels.
#include "model/megatron.h"

// Returns a parameter's weights in w, those of its group, or NULL if the family lacks it.
static const void *weight(const struct Model *m, const void *w, enum EndParam p) {
    const struct Param *param = m->params->end[p];
    return param->rows ? dtype_at(w, m->config.dtype, param->offset) : NULL;
}

// Returns where its gradient is in dw; NULL: the family lacks it, or it is not trained.
static void *gradient(const struct Model *m, struct Grad dw, enum EndParam p) {
    const struct Param *param = m->params->end[p];
    return param->rows && dw.mem ? dtype_at(dw.mem, m->grad_dtype, param->offset) : NULL;
}

// The residual stream after the last block: x2 and delta of block L-1. In a stage without blocks it
// is the sum that its first unit made or received.
static const void *last_x(const struct Acts *acts) {
    return acts->layers ? acts->block[acts->layers - 1][ACT_X2] : acts->x_final;
}
static const void *last_delta(const struct Acts *acts) {
    return acts->layers ? acts->delta : NULL;
}

void stage_output(struct Model *m, struct Acts *acts) {
    if (acts->layers)
        LAUNCH(m, norm_forward,
               (struct NormForward){
                   .rows = acts_own_rows(acts),
                   .c = m->config.channels,
                   .dtype = m->config.dtype,
                   .x = last_x(acts),
                   .delta = acts->delta,
                   .sum = acts->x_final,
               });
}

void embedding_forward(struct Model *m, const struct Unit *u, void *const weights[],
                       struct Acts *acts) {
    void *x = acts->layers ? acts->block[0][ACT_X] : acts->x_final;
    const void *w = weights[u->group];
    LAUNCH(m, embed_forward,
           (struct EmbedForward){
               .b = acts->b,
               .t = acts->t,
               .c = m->config.channels,
               .v = m->config.vocab_padded,
               .dtype = m->config.dtype,
               .first_token = megatron_first_token(m),
               .tokens = acts->tokens,
               .starts = acts->starts,
               .wte = weight(m, w, END_WTE),
               .wpe = megatron_adds(m) ? weight(m, w, END_WPE) : NULL,
               .out = megatron_sum_of(acts, x),
           });
    megatron_sum(m, acts, x);
}

// If the two ends have a group each, their gradients may share a buffer: so this zeroes the
// elements that no kernel overwrites: the first n, which are only added to, and the padding after
// the group's parameters.
static void begin_gradient(struct Model *m, const struct Unit *u, struct Grad dw, size_t n) {
    const struct Group *g = &m->params->group[u->group];
    size_t size = dtype_size(m->grad_dtype), padding = g->padded - g->numel;
    if (g->first_unit != g->last_unit || dw.accumulate || m->sizing || !dw.mem)
        return;
    if (g->shared) // with parameters that only another stage's unit uses
        n = g->numel;
    if (n > 0)
        device_zero(m->device, QUEUE_COMPUTE, dw.mem, n * size);
    if (padding > 0)
        device_zero(m->device, QUEUE_COMPUTE, dtype_at(dw.mem, m->grad_dtype, g->numel),
                    padding * size);
}

void embedding_backward(struct Model *m, const struct Unit *u, void *const weights[],
                        const struct Grad grads[], struct Acts *acts) {
    struct Grad dw = grads[u->group];
    (void)weights;
    begin_gradient(m, u, dw, m->config.vocab_padded * m->config.channels); // dwte
    struct EmbedBackward args = {
        .b = acts->b,
        .t = acts->t,
        .c = m->config.channels,
        .v = m->config.vocab_padded,
        .first_token = megatron_first_token(m),
        .dtype = m->config.dtype,
        .grad_dtype = m->grad_dtype,
        .tokens = acts->tokens,
        .starts = acts->starts,
        .dout = megatron_all_rows(m, acts, acts->dx),
        .dwte = gradient(m, dw, END_WTE),
        .dwpe = gradient(m, dw, END_WPE),
        .accumulate = dw.accumulate,
    };
    LAUNCH_WITH_WORK(m, embed_backward, args);
}

// Multiplies rows [row, row + n) of norm, the final norm's output, with the head's matrix: (n, Vp).
static void make_logits(struct Model *m, const void *w, const struct Acts *acts, const void *norm,
                        size_t row, size_t n, void *logits) {
    size_t C = m->config.channels;
    enum Dtype dtype = m->config.dtype;
    struct Matmul args = {
        .m = n,
        .n = m->config.vocab_padded,
        .k = C,
        .a = mat(dtype_at(norm, dtype, row * C), dtype, C),
        .b = mat_transposed(weight(m, w, END_HEAD_W), dtype, C),
        .c = mat(logits, dtype, m->config.vocab_padded),
        .few_rows = is_few_rows(acts, n),
    };
    LAUNCH_WITH_WORK(m, matmul, args);
}

// Makes some rows' logits over the whole vocabulary: the TP ranks' parts, one after the other, each
// (logits_count, Vp).
static void make_whole_logits(struct Model *m, const void *w, struct Acts *acts, const void *norm) {
    size_t n = acts->logits_count;
    size_t bytes = n * m->config.vocab_padded * dtype_size(m->config.dtype);
    const struct TpComm *tp = m->across;
    char *part = (char *)acts->logits + (tp ? tp->rank * bytes : 0);
    make_logits(m, w, acts, norm, acts->logits_row, n, part);
    if (tp && !m->sizing)
        tp->all_gather(tp, acts->logits, part, bytes);
}

// The loss if the vocabulary is split over TP ranks: each rank computes partial results of a row's
// softmax, all gather them, and each gets the loss and the gradient of its own logits.
static void make_loss_over_tp(struct Model *m, struct Acts *acts, size_t row, size_t n,
                              bool backward) {
    const struct TpComm *tp = m->across;
    LAUNCH(m, classifier_part,
           (struct ClassifierPart){
               .rows = n,
               .v = m->config.vocab,
               .vp = m->config.vocab_padded,
               .first_token = megatron_first_token(m),
               .dtype = m->config.dtype,
               .logits = acts->logits,
               .targets = acts->targets + row,
               .part = acts->softmax + tp->rank * n,
           });
    if (!m->sizing)
        tp->all_gather(tp, acts->softmax, acts->softmax + tp->rank * n, n * sizeof *acts->softmax);
    LAUNCH(m, classifier_merge,
           (struct ClassifierMerge){
               .rows = n,
               .v = m->config.vocab,
               .vp = m->config.vocab_padded,
               .first_token = megatron_first_token(m),
               .parts = tp->size,
               .dtype = m->config.dtype,
               .logits = acts->logits,
               .targets = acts->targets + row,
               .all = acts->softmax,
               .loss = acts->losses + row,
               .loss_scale = backward ? acts->loss_scale : NULL,
               .dloss = acts->dloss,
               .backward = backward,
           });
}

// Makes the losses of rows [row, row + n) from their logits, which with `backward` become the
// logits' gradient.
static void make_loss(struct Model *m, struct Acts *acts, size_t row, size_t n, bool backward) {
    if (m->across) {
        make_loss_over_tp(m, acts, row, n, backward);
        return;
    }
    LAUNCH(m, classifier,
           (struct Classifier){
               .rows = n,
               .v = m->config.vocab,
               .vp = m->config.vocab_padded,
               .dtype = m->config.dtype,
               .logits = acts->logits,
               .targets = acts->targets + row,
               .loss = acts->losses + row,
               .loss_scale = backward ? acts->loss_scale : NULL,
               .dloss = acts->dloss,
               .backward = backward,
           });
}

static void sum_losses(struct Model *m, struct Acts *acts) {
    LAUNCH(m, sum,
           (struct Sum){
               .n = acts_rows(acts),
               .dtype = F32,
               .x = acts->losses,
               .accumulate = acts->accumulate_loss,
               .out = acts->loss_sum,
           });
}

void head_forward(struct Model *m, const struct Unit *u, void *const weights[], struct Acts *acts) {
    const void *w = weights[u->group];
    LAUNCH(m, norm_forward,
           (struct NormForward){
               .rows = acts_own_rows(acts),
               .c = m->config.channels,
               .dtype = m->config.dtype,
               .eps = (float)m->config.norm_eps,
               .x = last_x(acts),
               .delta = last_delta(acts),
               .sum = acts->x_final,
               .y = acts->norm_final,
               .mean = acts->mean_final,
               .rstd = acts->rstd_final,
               .weight = weight(m, w, END_NORM_W),
               .bias = weight(m, w, END_NORM_B),
           });
    if (acts->mode == HEAD_TRAIN)
        return;
    const void *norm = megatron_all_rows(m, acts, acts->norm_final);
    if (acts->mode == HEAD_LOGITS) {
        make_whole_logits(m, w, acts, norm);
        return;
    }
    for (size_t row = 0; row < acts_rows(acts); row += acts->logit_rows) {
        size_t n = size_min(acts->logit_rows, acts_rows(acts) - row);
        make_logits(m, w, acts, norm, row, n, acts->logits);
        make_loss(m, acts, row, n, false);
    }
    sum_losses(m, acts);
}

// Of rows [row, row + n): dnorm (n, C) = dlogits (n, Vp) W (Vp, C); dW (+)= dlogits' norm, if it is
// trained.
static void chunk_backward(struct Model *m, const void *w, struct Grad dw, struct Acts *acts,
                           const void *norm, size_t row, size_t n) {
    size_t C = m->config.channels, Vp = m->config.vocab_padded;
    enum Dtype dtype = m->config.dtype;
    struct Matmul input = {
        .m = n,
        .n = C,
        .k = Vp,
        .a = mat(acts->logits, dtype, Vp),
        .b = mat(weight(m, w, END_HEAD_W), dtype, C),
        .c = mat(dtype_at(megatron_sum_of(acts, acts->dnorm), dtype, row * C), dtype, C),
    };
    LAUNCH_WITH_WORK(m, matmul, input);
    if (!dw.mem)
        return;
    struct Matmul weights = {
        .m = Vp,
        .n = C,
        .k = n,
        .a = mat_transposed(acts->logits, dtype, Vp),
        .b = mat(dtype_at(norm, dtype, row * C), dtype, C),
        .c = mat(gradient(m, dw, END_HEAD_W), m->grad_dtype, C),
        .accumulate = dw.accumulate || row > 0,
    };
    LAUNCH_WITH_WORK(m, matmul, weights);
}

void head_backward(struct Model *m, const struct Unit *u, void *const weights[],
                   const struct Grad grads[], struct Acts *acts) {
    const void *w = weights[u->group];
    struct Grad dw = grads[u->group];
    size_t rows = acts_rows(acts), own = acts_own_rows(acts), C = m->config.channels;
    const void *norm = megatron_all_rows(m, acts, acts->norm_final);
    begin_gradient(m, u, dw, 0);
    for (size_t row = 0; row < rows; row += acts->logit_rows) {
        size_t n = size_min(acts->logit_rows, rows - row);
        make_logits(m, w, acts, norm, row, n, acts->logits);
        make_loss(m, acts, row, n, true);
        chunk_backward(m, w, dw, acts, norm, row, n);
    }
    megatron_sum(m, acts, acts->dnorm); // once, after all chunks
    sum_losses(m, acts);
    if (!m->sizing)
        device_zero(m->device, QUEUE_COMPUTE, acts->dx, own * C * dtype_size(m->config.dtype));
    struct NormBackward args = {
        .rows = own,
        .c = C,
        .dtype = m->config.dtype,
        .grad_dtype = m->grad_dtype,
        .dy = acts->dnorm,
        .x = acts->x_final,
        .weight = weight(m, w, END_NORM_W),
        .mean = acts->mean_final,
        .rstd = acts->rstd_final,
        .dx = acts->dx,
        .dweight = gradient(m, dw, END_NORM_W),
        .dbias = gradient(m, dw, END_NORM_B),
        .accumulate = dw.accumulate,
    };
    LAUNCH_WITH_WORK(m, norm_backward, args);
}
