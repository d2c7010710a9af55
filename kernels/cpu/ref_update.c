// The plain kernels of the update: sum of squares, clip factor, AdamW, the casts and initial values
// of weights, and the kernels of collectives on other ranks' memory.
//
// They run once per step on whole groups of parameters, and know no layers or shapes. Values that
// change per step (learning rate, bias corrections, clip factor) are in struct StepState in device
// memory. Called through the kernel table; the fast versions are sum.c, adamw.c and ranks.c.
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

void oracle_sum(struct Cpu *cpu, const struct Sum *a) {
    (void)cpu;
    double sum = 0;
    for (size_t i = 0; i < a->n; i++) {
        double x = dtype_load(a->x, a->dtype, i);
        sum += a->square ? x * x : x;
    }
    a->out[0] = a->accumulate ? a->out[0] + sum : sum;
}

void oracle_step_clip(struct Cpu *cpu, const struct StepClip *a) {
    (void)cpu;
    double sum = 0;
    for (size_t r = 0; r < a->ranks; r++)
        for (size_t i = 0; i < a->n; i++) {
            double square = 0;
            for (size_t stage = 0; stage < a->stages; stage++)
                square += a->squares[(stage * a->ranks + r) * a->stride + i];
            sum += square;
        }
    step_state_end(a->state, sum);
}

static float load_master(const struct AdamW *a, size_t i) {
    if (a->master_format != MASTER_SPLIT)
        return dtype_load(a->master, master_dtype(a->master_format), i);
    bool tie_up = signbit(dtype_load(a->v, a->moments_dtype, i));
    return master_join(((uint16_t *)a->param)[i], ((uint16_t *)a->master)[i], tie_up);
}

// Call it after v is stored.
static void store_master(const struct AdamW *a, size_t i, float w) {
    uint64_t key = master_key(a->seed, a->state->updates);
    if (a->master_format == MASTER_FP32)
        ((float *)a->master)[i] = w;
    if (a->master_format == MASTER_BF16)
        w = f32_from_bf16(bf16_at_random(w, master_random(key, a->index + i)));
    if (a->master_format == MASTER_BF16)
        dtype_store(a->master, BF16, i, w);
    if (a->master_format == MASTER_SPLIT)
        ((uint16_t *)a->master)[i] = (uint16_t)f32_bits(w);
    if (a->master_format == MASTER_SPLIT && master_tie_up(w))
        dtype_store(a->v, a->moments_dtype, i, -dtype_load(a->v, a->moments_dtype, i));
    if (a->param)
        dtype_store(a->param, a->param_dtype, i, w);
}

void oracle_adamw(struct Cpu *cpu, const struct AdamW *a) {
    (void)cpu;
    const struct StepState *s = a->state;
    adamw_check(a);
    if (s->skip)
        return;
    for (size_t i = 0; i < a->n; i++) {
        double g = (double)dtype_load(a->grad, a->grad_dtype, i) * s->grad_scale;
        double m = dtype_load(a->m, a->moments_dtype, i);
        double v = fabsf(dtype_load(a->v, a->moments_dtype, i));
        m = s->beta1 * m + (1.0 - s->beta1) * g;
        v = s->beta2 * v + (1.0 - s->beta2) * g * g;
        double w = load_master(a, i), decay = i < a->n_decay ? s->weight_decay * w : 0;
        double move = m / s->correction.first / (sqrt(v / s->correction.second) + s->eps) + decay;
        dtype_store(a->m, a->moments_dtype, i, (float)m);
        dtype_store(a->v, a->moments_dtype, i, (float)v);
        store_master(a, i, (float)(w - s->lr * move));
    }
}

void oracle_cast(struct Cpu *cpu, const struct Cast *a) {
    (void)cpu;
    for (size_t i = 0; i < a->n; i++)
        dtype_store(a->dst, a->dst_dtype, i, dtype_load(a->src, a->src_dtype, i));
}

void oracle_fill_normal(struct Cpu *cpu, const struct FillNormal *a) {
    (void)cpu;
    for (size_t i = 0; i < a->n; i++)
        a->dst[i] = fill_value(a, i);
}

void oracle_rank_sum(struct Cpu *cpu, const struct RankSum *a) {
    (void)cpu;
    for (size_t i = 0; i < a->n; i++) {
        float sum = a->accumulate ? dtype_load(a->dst, a->dtype, i) : 0;
        for (size_t r = 0; r < a->ranks; r++) {
            float x = dtype_load(a->src[r], a->dtype, a->begin + i);
            sum = r == 0 && !a->accumulate ? x : sum + x;
        }
        dtype_store(a->dst, a->dtype, i, sum);
    }
}

void oracle_rank_gather(struct Cpu *cpu, const struct RankGather *a) {
    (void)cpu;
    for (size_t r = 0; r < a->ranks; r++)
        if (r != a->skip)
            memcpy((char *)a->dst + r * a->bytes, (char *)a->src[r] + a->begin + r * a->step,
                   a->bytes);
}
