// The optimizer's update, and two loops of the same kind: casts and random initial values.
//
// AdamW reads four or five arrays and writes three or four, once each: 28 bytes a parameter with
// 16-bit gradients and parameters and fp32 moments; 26 with split masters, and 22 with bf16
// masters. Arithmetic is free beside that, if memory never waits for it. So each thread walks one
// contiguous part, prefetches, and writes 16-bit copies past the caches, which would otherwise read
// their lines first; arrays updated in place were read anyway. Its bits are the contract's
// (kernels.h), the same for every instruction set. tests/bench/bench_adamw.c compares it with a
// copy of as many streams.
//
// Loshchilov, Hutter, "Decoupled Weight Decay Regularization", 2019; Ren et al., "ZeRO-Offload",
// 2021, section 5.1, on why the CPU's update must be fast.
//
// Called through the kernel table. Read next: ranks.c.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_array.h"

enum {
    PIECE = 8192, // elements that one thread takes at a time
    PART = 1024,  // a thread's share of AdamW is a multiple of this
    AHEAD = 1024  // bytes
};

struct AdamWFactors {
    Vec grad_scale, beta1, beta2, rest1, rest2; // rest: 1 - beta
    Vec correct1, correct2;                     // 1 / bias correction
    Vec eps, lr;
    uint64_t key; // of the random numbers
};

static struct AdamWFactors adamw_factors(const struct AdamW *a) {
    const struct StepState *s = a->state;
    return (struct AdamWFactors){
        .grad_scale = vec_set(s->grad_scale),
        .beta1 = vec_set(s->beta1),
        .beta2 = vec_set(s->beta2),
        .rest1 = vec_set(1.0f - s->beta1),
        .rest2 = vec_set(1.0f - s->beta2),
        .correct1 = vec_set(1.0f / s->correction.first),
        .correct2 = vec_set(1.0f / s->correction.second),
        .eps = vec_set(s->eps),
        .lr = vec_set(s->lr),
        .key = master_key(a->seed, s->updates),
    };
}

// Prefetches the lines that are needed AHEAD bytes later; past the end of an array that does
// nothing. Root and division take so long that a core, which looks some 200 instructions ahead, has
// too few loads in flight by itself: half of the memory's bandwidth.
VEC_INLINE void adamw_prefetch(struct AdamW a, size_t i) {
    _mm_prefetch((const char *)dtype_at(a.grad, a.grad_dtype, i) + AHEAD, _MM_HINT_T0);
    _mm_prefetch((const char *)dtype_at(a.m, a.moments_dtype, i) + AHEAD, _MM_HINT_T0);
    _mm_prefetch((const char *)dtype_at(a.v, a.moments_dtype, i) + AHEAD, _MM_HINT_T0);
    _mm_prefetch((const char *)dtype_at(a.master, master_dtype(a.master_format), i) + AHEAD,
                 _MM_HINT_T0);
    if (a.master_format == MASTER_SPLIT)
        _mm_prefetch((const char *)dtype_at(a.param, BF16, i) + AHEAD, _MM_HINT_T0);
}

// ---- the master weights, by their format (kernels/master.h) ----

typedef uint32_t VecBits __attribute__((vector_size(sizeof(Vec))));
typedef uint16_t VecLow __attribute__((vector_size(sizeof(Vec) / 2)));

// Returns the weights from element i on. v: as stored; clears its sign if that belongs to a split
// master (master_join). vec_read widens a split master's lower halves as if they were bf16, so they
// arrive in the upper 16 bits.
VEC_INLINE Vec master_read(struct AdamW a, size_t i, size_t end, Vec *v) {
    Vec w = vec_read(a.master, master_dtype(a.master_format), i, end);
    if (a.master_format != MASTER_SPLIT)
        return w;
    VecBits low = (VecBits)w >> 16, tie_up = (VecBits)*v >> 31;
    VecBits high = (VecBits)vec_read(a.param, BF16, i, end);
    *v = (Vec)((VecBits)*v & 0x7fffffff);
    return (Vec)((high - ((low + tie_up + 0x7fff) & 0x10000)) | low);
}

// Gives v the sign that says how a split master was rounded (master_tie_up).
VEC_INLINE Vec master_mark(struct AdamW a, Vec w, Vec v) {
    if (a.master_format != MASTER_SPLIT)
        return v;
    VecBits tie_up = (VecBits)(((VecBits)w & 0x1ffff) == 0x18000);
    return (Vec)((VecBits)v | (tie_up & 0x80000000));
}

// Returns bf16_at_random of each lane, the first of which is parameter `index`.
VEC_INLINE Vec master_round_at_random(Vec w, uint64_t key, uint64_t index) {
    VecBits random, u = (VecBits)w, nan = (VecBits)(w != w);
    for (int j = 0; j < VEC_LANES; j++)
        random[j] = master_random(key, index + (uint64_t)j);
    return (Vec)(((u + random) & ~nan & 0xffff0000) | (u & nan));
}

// Stores the lower halves of w.
VEC_INLINE void master_write_low(uint16_t *to, size_t n, Vec w) {
    VecLow low = __builtin_convertvector((VecBits)w & 0xffff, VecLow);
    if (n >= VEC_LANES)
        memcpy(to, &low, sizeof low);
    else
        memcpy(to, &low, n * sizeof *to);
}

// Stores w as the master weights and as the parameters. Arrays that were read are in the caches; a
// separate 16-bit copy goes past them.
VEC_INLINE void master_write(struct AdamW a, size_t i, size_t end, Vec w) {
    if (a.master_format == MASTER_SPLIT)
        master_write_low((uint16_t *)a.master + i, end - i, w);
    else
        vec_write(a.master, master_dtype(a.master_format), i, end, w);
    if (!a.param)
        return;
    bool is_copy = a.master_format != MASTER_SPLIT && a.param_dtype != F32;
    if (is_copy && end - i == VEC_LANES)
        vec_stream_half((uint16_t *)a.param + i, vec_narrow(w, a.param_dtype));
    else
        vec_write(a.param, a.param_dtype, i, end, w);
}

// ---- the update ----

// Updates the vector at element i of arrays that end at `end`. Whole vectors of 16-bit parameters
// begin at multiples of their size, as vec_stream_half needs.
VEC_INLINE void adamw_vector(struct AdamW a, struct AdamWFactors f, size_t i, size_t end,
                             Vec decay) {
    Vec g = vec_read(a.grad, a.grad_dtype, i, end) * f.grad_scale;
    Vec m = vec_fmaf(f.beta1, vec_read(a.m, a.moments_dtype, i, end), f.rest1 * g);
    Vec v = vec_read(a.v, a.moments_dtype, i, end), w = master_read(a, i, end, &v);
    v = vec_fmaf(f.beta2, v, f.rest2 * g * g);
    Vec step = m * f.correct1 / (vec_sqrt(v * f.correct2) + f.eps);
    w -= f.lr * vec_fmaf(decay, w, step);
    if (a.master_format == MASTER_BF16)
        w = master_round_at_random(w, f.key, a.index + i);
    vec_write(a.m, a.moments_dtype, i, end, m);
    vec_write(a.v, a.moments_dtype, i, end, master_mark(a, w, v));
    master_write(a, i, end, w);
}

// Works on copies of its operands: no store can change them, so they stay in registers. The dtypes
// in `a` are constants. The loop's body passes i + VEC_LANES as the end, so the compiler drops all
// tests for a tail.
VEC_INLINE void adamw_loop(struct AdamW a, struct AdamWFactors f, size_t i, size_t end,
                           float decay) {
    if (a.param && a.param_dtype != F32) { // up to a multiple of a vector
        uintptr_t param = (uintptr_t)dtype_at(a.param, a.param_dtype, i);
        size_t head = size_min(-param % sizeof(uint16_t[VEC_LANES]) / 2, end - i);
        if (head)
            adamw_vector(a, f, i, i + head, vec_set(decay));
        i += head;
    }
    for (; i + VEC_LANES <= end; i += VEC_LANES) {
        adamw_prefetch(a, i);
        adamw_vector(a, f, i, i + VEC_LANES, vec_set(decay));
    }
    if (i < end)
        adamw_vector(a, f, i, end, vec_set(decay));
}

// This and the next three each make a format constant. That must happen inside the parallel region:
// the compiler makes a function of its body, to which constants do not propagate.
VEC_INLINE void adamw_with_param_dtype(struct AdamW a, const struct AdamWFactors *f, size_t i,
                                       size_t end, float decay) {
    if (a.master_format != MASTER_FP32)
        a.param_dtype = BF16; // the only dtype that adamw_check accepts here
    if (!a.param)
        adamw_loop(a, *f, i, end, decay);
    else
        WITH_DTYPE(a.param_dtype, (a.param_dtype = D, adamw_loop(a, *f, i, end, decay)));
}

VEC_INLINE void adamw_with_grad_dtype(struct AdamW a, const struct AdamWFactors *f, size_t i,
                                      size_t end, float decay) {
    WITH_DTYPE(a.grad_dtype, (a.grad_dtype = D, adamw_with_param_dtype(a, f, i, end, decay)));
}

VEC_INLINE void adamw_with_moments_dtype(struct AdamW a, const struct AdamWFactors *f, size_t i,
                                         size_t end, float decay) {
    if (a.moments_dtype == F32) {
        a.moments_dtype = F32;
        adamw_with_grad_dtype(a, f, i, end, decay);
    } else {
        a.moments_dtype = BF16;
        adamw_with_grad_dtype(a, f, i, end, decay);
    }
}

static void adamw_range(const struct AdamW *args, const struct AdamWFactors *f, size_t i,
                        size_t end, float decay) {
    struct AdamW a = *args;
    if (a.master_format == MASTER_FP32) {
        a.master_format = MASTER_FP32;
        adamw_with_moments_dtype(a, f, i, end, decay);
    } else if (a.master_format == MASTER_SPLIT) {
        a.master_format = MASTER_SPLIT;
        adamw_with_moments_dtype(a, f, i, end, decay);
    } else {
        a.master_format = MASTER_BF16;
        adamw_with_moments_dtype(a, f, i, end, decay);
    }
}

// Each thread takes one contiguous part.
void CPU_NAME(adamw)(struct Cpu *cpu, const struct AdamW *a) {
    adamw_check(a);
    if (a->state->skip)
        return;
    struct AdamWFactors f = adamw_factors(a);
    size_t threads = (size_t)cpu->device.threads, part = round_up(ceil_div(a->n, threads), PART);
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t t = 0; t < threads; t++) {
        size_t begin = size_min(t * part, a->n), end = size_min(begin + part, a->n);
        size_t middle = size_max(begin, size_min(end, a->n_decay));
        adamw_range(a, &f, begin, middle, a->state->weight_decay);
        adamw_range(a, &f, middle, end, 0);
        _mm_sfence(); // before anyone learns that the parameters are ready
    }
}

VEC_INLINE void cast(struct Cpu *cpu, const struct Cast *a, enum Dtype dst, enum Dtype src) {
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t begin = 0; begin < a->n; begin += PIECE) {
        size_t end = size_min(begin + PIECE, a->n);
        if (dst == src)
            memcpy(dtype_at(a->dst, dst, begin), dtype_at(a->src, src, begin),
                   (end - begin) * dtype_size(dst));
        else
            for (size_t i = begin; i < end; i += VEC_LANES)
                vec_write(a->dst, dst, i, end, vec_read(a->src, src, i, end));
    }
}

VEC_INLINE void cast_to(struct Cpu *cpu, const struct Cast *a, enum Dtype dst) {
    WITH_DTYPE(a->src_dtype, cast(cpu, a, dst, D));
}

void CPU_NAME(cast)(struct Cpu *cpu, const struct Cast *a) {
    WITH_DTYPE(a->dst_dtype, cast_to(cpu, a, D));
}

// Not vectorised: the values are those of rng_normal to the bit, whatever the CPU.
void CPU_NAME(fill_normal)(struct Cpu *cpu, const struct FillNormal *a) {
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t i = 0; i < a->n; i++)
        a->dst[i] = fill_value(a, i);
}
