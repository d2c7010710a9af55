// Checks that every operand of every kernel is in its device's memory: see tier_check.h.
#include "kernels/tier_check.h"

#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

// A block of host memory.
struct FarBlock {
    const char *mem;
    size_t bytes;
    const char *tier;
    char *purpose;
    struct FarBlock *next;
};

static const struct TierOperand {
    const char *op, *name;
    size_t offset; // of the pointer in the kernel's struct
} operands[] = {
#define ROW(op, Args, field)                                                                       \
    { #op, #field, offsetof(struct Args, field) }
    ROW(matmul, Matmul, a.data),
    ROW(matmul, Matmul, b.data),
    ROW(matmul, Matmul, a2.data),
    ROW(matmul, Matmul, b2.data),
    ROW(matmul, Matmul, c.data),
    ROW(matmul, Matmul, bias),
    ROW(matmul, Matmul, dgelu),
    ROW(matmul, Matmul, gelu),
    ROW(matmul, Matmul, dbias),
    ROW(matmul, Matmul, work.mem),
    ROW(norm_forward, NormForward, x),
    ROW(norm_forward, NormForward, delta),
    ROW(norm_forward, NormForward, sum),
    ROW(norm_forward, NormForward, y),
    ROW(norm_forward, NormForward, mean),
    ROW(norm_forward, NormForward, rstd),
    ROW(norm_forward, NormForward, weight),
    ROW(norm_forward, NormForward, bias),
    ROW(norm_backward, NormBackward, dy),
    ROW(norm_backward, NormBackward, x),
    ROW(norm_backward, NormBackward, weight),
    ROW(norm_backward, NormBackward, mean),
    ROW(norm_backward, NormBackward, rstd),
    ROW(norm_backward, NormBackward, dx),
    ROW(norm_backward, NormBackward, dweight),
    ROW(norm_backward, NormBackward, dbias),
    ROW(norm_backward, NormBackward, work.mem),
    ROW(attention_forward, AttentionForward, qkv),
    ROW(attention_forward, AttentionForward, first),
    ROW(attention_forward, AttentionForward, layout.begin),
    ROW(attention_forward, AttentionForward, out),
    ROW(attention_forward, AttentionForward, lse),
    ROW(attention_forward, AttentionForward, work.mem),
    ROW(attention_backward, AttentionBackward, qkv),
    ROW(attention_backward, AttentionBackward, out),
    ROW(attention_backward, AttentionBackward, dout),
    ROW(attention_backward, AttentionBackward, first),
    ROW(attention_backward, AttentionBackward, layout.begin),
    ROW(attention_backward, AttentionBackward, lse),
    ROW(attention_backward, AttentionBackward, dqkv),
    ROW(attention_backward, AttentionBackward, work.mem),
    ROW(attention_cached, AttentionCached, starts),
    ROW(attention_cached, AttentionCached, qkv),
    ROW(attention_cached, AttentionCached, cache),
    ROW(attention_cached, AttentionCached, out),
    ROW(attention_cached, AttentionCached, work.mem),
    ROW(rotate_forward, RotateForward, starts),
    ROW(rotate_forward, RotateForward, table),
    ROW(rotate_forward, RotateForward, q_norm),
    ROW(rotate_forward, RotateForward, k_norm),
    ROW(rotate_forward, RotateForward, x),
    ROW(rotate_forward, RotateForward, y),
    ROW(rotate_backward, RotateBackward, starts),
    ROW(rotate_backward, RotateBackward, table),
    ROW(rotate_backward, RotateBackward, x),
    ROW(rotate_backward, RotateBackward, q_norm),
    ROW(rotate_backward, RotateBackward, k_norm),
    ROW(rotate_backward, RotateBackward, dy),
    ROW(rotate_backward, RotateBackward, dq_norm),
    ROW(rotate_backward, RotateBackward, dk_norm),
    ROW(rotate_backward, RotateBackward, work.mem),
    ROW(gelu_forward, GeluForward, x),
    ROW(gelu_forward, GeluForward, y),
    ROW(dropout, Dropout, x),
    ROW(dropout, Dropout, y),
    ROW(swiglu_forward, SwigluForward, x),
    ROW(swiglu_forward, SwigluForward, y),
    ROW(swiglu_backward, SwigluBackward, x),
    ROW(swiglu_backward, SwigluBackward, dy),
    ROW(swiglu_backward, SwigluBackward, dx),
    ROW(embed_forward, EmbedForward, tokens),
    ROW(embed_forward, EmbedForward, starts),
    ROW(embed_forward, EmbedForward, wte),
    ROW(embed_forward, EmbedForward, wpe),
    ROW(embed_forward, EmbedForward, out),
    ROW(embed_backward, EmbedBackward, tokens),
    ROW(embed_backward, EmbedBackward, starts),
    ROW(embed_backward, EmbedBackward, dout),
    ROW(embed_backward, EmbedBackward, dwte),
    ROW(embed_backward, EmbedBackward, dwpe),
    ROW(embed_backward, EmbedBackward, work.mem),
    ROW(classifier, Classifier, logits),
    ROW(classifier, Classifier, targets),
    ROW(classifier, Classifier, loss),
    ROW(classifier, Classifier, loss_scale),
    ROW(classifier_part, ClassifierPart, logits),
    ROW(classifier_part, ClassifierPart, targets),
    ROW(classifier_part, ClassifierPart, part),
    ROW(classifier_merge, ClassifierMerge, logits),
    ROW(classifier_merge, ClassifierMerge, targets),
    ROW(classifier_merge, ClassifierMerge, all),
    ROW(classifier_merge, ClassifierMerge, loss),
    ROW(classifier_merge, ClassifierMerge, loss_scale),
    ROW(sum, Sum, x),
    ROW(sum, Sum, out),
    ROW(step_clip, StepClip, squares),
    ROW(step_clip, StepClip, state),
    ROW(adamw, AdamW, master),
    ROW(adamw, AdamW, m),
    ROW(adamw, AdamW, v),
    ROW(adamw, AdamW, grad),
    ROW(adamw, AdamW, param),
    ROW(adamw, AdamW, state),
    ROW(cast, Cast, dst),
    ROW(cast, Cast, src),
    ROW(fill_normal, FillNormal, dst),
    ROW(rank_sum, RankSum, dst),
    ROW(rank_gather, RankGather, dst),
    ROW(quantize, Quantize, x),
    ROW(quantize, Quantize, to),
    ROW(dequantize, Dequantize, from),
    ROW(dequantize, Dequantize, x),
    ROW(requantize, Requantize, from),
    ROW(requantize, Requantize, to),
    ROW(nf4_quantize, Nf4Quantize, x),
    ROW(nf4_quantize, Nf4Quantize, to),
    ROW(nf4_dequantize, Nf4Dequantize, from),
    ROW(nf4_dequantize, Nf4Dequantize, x),
#undef ROW
};

void tier_check_add(struct Device *d, const void *mem, size_t bytes, const char *tier,
                    const char *purpose) {
    struct FarBlock *far = base_alloc(sizeof *far);
    *far = (struct FarBlock){mem, bytes, tier, base_format("%s", purpose), d->far_blocks};
    d->far_blocks = far;
}

void tier_check_remove(struct Device *d, const void *mem) {
    struct FarBlock **at = &d->far_blocks, *far;
    while ((far = *at) && far->mem != mem)
        at = &far->next;
    CHECK(far, "a block at %p that was never taken", mem);
    *at = far->next;
    free(far->purpose);
    free(far);
}

static void check_operand(const struct Device *d, const struct TierOperand *o, const void *args) {
    const char *mem;
    memcpy(&mem, (const char *)args + o->offset, sizeof mem);
    for (const struct FarBlock *far = d->far_blocks; mem && far; far = far->next)
        CHECK(mem < far->mem || mem >= far->mem + far->bytes,
              "kernel %s of device %s: operand %s lies in tier %s (%s, byte %zu of %zu): expected "
              "the device's own memory, to which it is to be copied first",
              o->op, d->name, o->name, far->tier, far->purpose, (size_t)(mem - far->mem),
              far->bytes);
}

void tier_check_launch(const struct Device *d, const char *op, const void *args) {
    bool known = false;
    for (size_t i = 0; i < sizeof operands / sizeof operands[0]; i++)
        if (strcmp(operands[i].op, op) == 0) {
            check_operand(d, &operands[i], args);
            known = true;
        }
    CHECK(known, "kernel %s has no operands in the table above", op);
}
