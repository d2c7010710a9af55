// The plain kernels at the two ends of a GPT: tokens in, loss out.
//
// The embedding looks up a row per token and, if positions are learned, adds a row per position.
// The classifier turns the logits of a row into its loss and, in place, into the gradient of that
// loss: softmax minus one at the target. If the vocabulary is split over ranks, the classifier has
// two halves, and the embedding knows a range of tokens. Called through the kernel table; the fast
// versions are embed.c and classifier.c. Read ref_update.c next.
#include "kernels/cpu/cpu.h"

#include <math.h>

void oracle_embed_forward(struct Cpu *cpu, const struct EmbedForward *a) {
    (void)cpu;
    for (size_t r = 0; r < a->b * a->t; r++) {
        size_t row = token_row(a->tokens[r], a->first_token);
        size_t at = row_position(a->starts, r, a->t);
        for (size_t i = 0; i < a->c; i++) {
            float sum = row < a->v ? dtype_load(a->wte, a->dtype, row * a->c + i) : 0;
            if (a->wpe)
                sum += dtype_load(a->wpe, a->dtype, at * a->c + i);
            dtype_store(a->out, a->dtype, r * a->c + i, sum);
        }
    }
}

// True if no earlier row of this batch has row r's token.
static bool is_first(const struct EmbedBackward *a, size_t r) {
    for (size_t q = 0; q < r; q++)
        if (a->tokens[q] == a->tokens[r])
            return false;
    return true;
}

// Sums all rows with the token of row r, its first, before the one rounding.
static void backward_token(const struct EmbedBackward *a, size_t r) {
    size_t row = token_row(a->tokens[r], a->first_token);
    CHECK(a->tokens[r] >= 0, "token %d", a->tokens[r]);
    for (size_t i = 0; i < a->c && row < a->v; i++) {
        size_t at = row * a->c + i;
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
        double most = -INFINITY, sum = 0; // the largest logit is subtracted: no exp overflows
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

// Computes the part of one row: see struct SoftmaxPart.
static struct SoftmaxPart softmax_part(const struct ClassifierPart *a, size_t r) {
    struct SoftmaxPart p = {-INFINITY, -INFINITY, 0};
    size_t row = r * a->vp, target = token_row(a->targets[r], a->first_token);
    if (a->targets[r] == UNCOUNTED)
        return p;
    CHECK(a->targets[r] >= 0, "target %d", a->targets[r]);
    for (size_t i = 0; i < a->v; i++)
        p.max = fmaxf(p.max, dtype_load(a->logits, a->dtype, row + i));
    for (size_t i = 0; i < a->v; i++) {
        double x = dtype_load(a->logits, a->dtype, row + i);
        p.sum += x == -INFINITY ? 0 : exp(x - p.max); // -inf minus -inf would be NaN
    }
    if (target < a->v)
        p.target = dtype_load(a->logits, a->dtype, row + target);
    return p;
}

void oracle_classifier_part(struct Cpu *cpu, const struct ClassifierPart *a) {
    (void)cpu;
    for (size_t r = 0; r < a->rows; r++)
        a->part[r] = softmax_part(a, r);
}

// Merges the ranks' parts of row r. A part that adds nothing has a sum of 0, and a maximum whose
// exp is 0.
static struct SoftmaxPart merge_parts(const struct ClassifierMerge *a, size_t r) {
    struct SoftmaxPart all = {-INFINITY, -INFINITY, 0};
    for (size_t p = 0; p < a->parts; p++) {
        const struct SoftmaxPart *part = &a->all[p * a->rows + r];
        all.max = fmaxf(all.max, part->max);
        if (part->target != -INFINITY)
            all.target = part->target;
    }
    for (size_t p = 0; p < a->parts; p++) {
        const struct SoftmaxPart *part = &a->all[p * a->rows + r];
        all.sum += part->sum * exp((double)part->max - all.max);
    }
    return all;
}

void oracle_classifier_merge(struct Cpu *cpu, const struct ClassifierMerge *a) {
    (void)cpu;
    double dloss = a->loss_scale ? (double)a->dloss * *a->loss_scale : a->dloss;
    for (size_t r = 0; r < a->rows; r++) {
        size_t target = token_row(a->targets[r], a->first_token), row = r * a->vp;
        bool counts = a->targets[r] != UNCOUNTED;
        struct SoftmaxPart all = merge_parts(a, r);
        double lse = all.max + log(all.sum);
        a->loss[r] = counts ? (float)(lse - all.target) : 0;
        for (size_t i = 0; a->backward && i < a->vp; i++) {
            double d = 0;
            if (counts && i < a->v)
                d = (exp(dtype_load(a->logits, a->dtype, row + i) - lse) - (i == target)) * dloss;
            dtype_store(a->logits, a->dtype, row + i, (float)d);
        }
    }
}
