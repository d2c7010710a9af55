// The plain kernels at the two ends of a GPT: tokens in, loss out.
//
// The embedding looks up a row per token and adds a row per position, where positions are learned.
// The classifier turns the logits of a row into its loss and, in place, into the gradient of that
// loss: softmax minus one at the target. Called through the kernel table; the fast versions are
// embed.c and classifier.c. Read ref_update.c next.
#include "kernels/cpu/cpu.h"

#include <math.h>

void oracle_embed_forward(struct Cpu *cpu, const struct EmbedForward *a) {
    (void)cpu;
    for (size_t r = 0; r < a->b * a->t; r++) {
        size_t token = (size_t)a->tokens[r], at = row_position(a->starts, r, a->t);
        for (size_t i = 0; i < a->c; i++) {
            float sum = dtype_load(a->wte, a->dtype, token * a->c + i);
            if (a->wpe)
                sum += dtype_load(a->wpe, a->dtype, at * a->c + i);
            dtype_store(a->out, a->dtype, r * a->c + i, sum);
        }
    }
}

// Whether row r holds its token for the first time in this batch.
static bool is_first(const struct EmbedBackward *a, size_t r) {
    for (size_t q = 0; q < r; q++)
        if (a->tokens[q] == a->tokens[r])
            return false;
    return true;
}

// A token may stand in many rows; all are summed before the one rounding.
static void backward_token(const struct EmbedBackward *a, size_t r) {
    CHECK(a->tokens[r] >= 0 && (size_t)a->tokens[r] < a->v, "token %d of %zu", a->tokens[r], a->v);
    for (size_t i = 0; i < a->c; i++) {
        size_t at = (size_t)a->tokens[r] * a->c + i;
        double sum = 0;
        for (size_t q = r; q < a->b * a->t; q++)
            if (a->tokens[q] == a->tokens[r])
                sum += dtype_load(a->dout, a->dtype, q * a->c + i);
        dtype_store(a->dwte, a->grad_dtype, at,
                    (float)(dtype_load(a->dwte, a->grad_dtype, at) + sum));
    }
}

void oracle_embed_backward(struct Cpu *cpu, const struct EmbedBackward *a) {
    (void)cpu;
    for (size_t r = 0; r < a->b * a->t; r++)
        if (is_first(a, r))
            backward_token(a, r);
    for (size_t at = 0; a->dwpe && at < a->t * a->c; at++) {
        double sum = a->accumulate ? dtype_load(a->dwpe, a->grad_dtype, at) : 0;
        size_t first = a->starts ? 0 : at / a->c, step = a->starts ? 1 : a->t;
        for (size_t r = first; r < a->b * a->t; r += step)
            if (row_position(a->starts, r, a->t) == at / a->c)
                sum += dtype_load(a->dout, a->dtype, r * a->c + at % a->c);
        dtype_store(a->dwpe, a->grad_dtype, at, (float)sum);
    }
}

size_t oracle_embed_backward_work(struct Cpu *cpu, const struct EmbedBackward *a) {
    (void)cpu;
    (void)a;
    return 0;
}

void oracle_classifier(struct Cpu *cpu, const struct Classifier *a) {
    (void)cpu;
    double dloss = a->loss_scale ? (double)a->dloss * *a->loss_scale : a->dloss;
    for (size_t r = 0; r < a->rows; r++) {
        size_t target = (size_t)a->targets[r], row = r * a->vp;
        if (a->targets[r] == UNCOUNTED) {
            a->loss[r] = 0;
            for (size_t i = 0; a->backward && i < a->vp; i++)
                dtype_store(a->logits, a->dtype, row + i, 0);
            continue;
        }
        CHECK(a->targets[r] >= 0 && target < a->v, "target %d of %zu", a->targets[r], a->v);
        double most = -INFINITY, sum = 0; // the largest logit is taken out: no exp overflows
        for (size_t i = 0; i < a->v; i++)
            most = fmax(most, dtype_load(a->logits, a->dtype, row + i));
        for (size_t i = 0; i < a->v; i++)
            sum += exp(dtype_load(a->logits, a->dtype, row + i) - most);
        double lse = most + log(sum);
        a->loss[r] = (float)(lse - dtype_load(a->logits, a->dtype, row + target));
        for (size_t i = 0; a->backward && i < a->vp; i++) {
            double p = exp(dtype_load(a->logits, a->dtype, row + i) - lse);
            double d = i < a->v ? (p - (i == target)) * dloss : 0;
            dtype_store(a->logits, a->dtype, row + i, (float)d);
        }
    }
}
