// The optimizer's update, over a whole group of parameters in one launch.
//
// AdamW reads four or five arrays and writes three or four, once each: 28 bytes a parameter with
// 16-bit gradients and weights, 26 with split masters and 22 with bf16 masters; arithmetic is free
// beside that. A thread takes 4 neighbouring parameters at a time, 16 bytes of each fp32 array, and
// reads all of them before it uses any.
//
// The operations and their order are those of kernels/cpu/adamw.c, and each is rounded as IEEE 754
// says (nvcc's default for / and sqrtf), so the new weights have the CPU's bits. Values that change
// from step to step, learning rate, bias corrections, clip factor, are in device memory.
//
// Loshchilov, Hutter, "Decoupled Weight Decay Regularization", 2019. Called through the kernel
// table. Read next: cast.cu.
#include "kernels/cuda/gpu.cuh"

enum { THREADS = 256, N = 4 };

struct Factors {
    float grad_scale, beta1, beta2, rest1, rest2; // rest: 1 - beta
    float correct1, correct2;                     // 1 / bias correction
    float eps, lr, weight_decay;
};

static __device__ inline Factors factors_of(const struct StepState *s) {
    Factors f;
    f.grad_scale = s->grad_scale;
    f.beta1 = s->beta1;
    f.beta2 = s->beta2;
    f.rest1 = 1.0f - s->beta1;
    f.rest2 = 1.0f - s->beta2;
    f.correct1 = 1.0f / s->correction.first;
    f.correct2 = 1.0f / s->correction.second;
    f.eps = s->eps;
    f.lr = s->lr;
    f.weight_decay = s->weight_decay;
    return f;
}

static __device__ inline void update_parameter(const Factors &f, float decay, float grad, float &w,
                                               float &m, float &v) {
    float g = grad * f.grad_scale;
    m = fmaf(f.beta1, m, f.rest1 * g);
    v = fmaf(f.beta2, v, f.rest2 * g * g);
    float step = m * f.correct1 / (sqrtf(v * f.correct2) + f.eps);
    w -= f.lr * fmaf(decay, w, step);
}

typedef Pack<__nv_bfloat16, N> Halves; // also for other 16-bit values: their bits

static __device__ inline uint16_t half_bits(const Halves &h, int j) {
    uint16_t bits;
    memcpy(&bits, &h.x[j], sizeof bits);
    return bits;
}
static __device__ inline void set_half(Halves &h, int j, uint16_t bits) {
    memcpy(&h.x[j], &bits, sizeof bits);
}

// N stored master weights: see kernels/master.h. load returns weight j, store takes its new value.
// Of split masters load makes v positive, and store sets its sign; of bf16 masters store rounds w.
template <MasterFormat F> struct Masters;

template <> struct Masters<MASTER_FP32> {
    Pack<float> x;
    template <Access ACCESS> __device__ inline void read(const AdamW &a, size_t i) {
        x = pack_read<ACCESS>((const float *)a.master, i, a.n);
    }
    template <Access ACCESS> __device__ inline void write(const AdamW &a, size_t i) const {
        pack_write<ACCESS>((float *)a.master, i, a.n, x);
    }
    __device__ inline float load(int j, float &) const { return x.x[j]; }
    __device__ inline void store(int j, float &w, float &, uint16_t) { x.x[j] = w; }
};

template <> struct Masters<MASTER_SPLIT> {
    Halves low, weight;
    template <Access ACCESS> __device__ inline void read(const AdamW &a, size_t i) {
        low = pack_read<ACCESS, __nv_bfloat16, N>((const __nv_bfloat16 *)a.master, i, a.n);
        weight = pack_read<ACCESS, __nv_bfloat16, N>((const __nv_bfloat16 *)a.param, i, a.n);
    }
    template <Access ACCESS> __device__ inline void write(const AdamW &a, size_t i) const {
        pack_write<ACCESS>((__nv_bfloat16 *)a.master, i, a.n, low);
    }
    __device__ inline float load(int j, float &v) const {
        bool tie_up = f32_bits(v) >> 31;
        v = fabsf(v);
        return master_join(half_bits(weight, j), half_bits(low, j), tie_up);
    }
    __device__ inline void store(int j, float &w, float &v, uint16_t) {
        set_half(low, j, (uint16_t)f32_bits(w));
        v = master_tie_up(w) ? -v : v;
    }
};

template <> struct Masters<MASTER_BF16> {
    Halves x;
    template <Access ACCESS> __device__ inline void read(const AdamW &a, size_t i) {
        x = pack_read<ACCESS, __nv_bfloat16, N>((const __nv_bfloat16 *)a.master, i, a.n);
    }
    template <Access ACCESS> __device__ inline void write(const AdamW &a, size_t i) const {
        pack_write<ACCESS>((__nv_bfloat16 *)a.master, i, a.n, x);
    }
    __device__ inline float load(int j, float &) const { return f32_from_bf16(half_bits(x, j)); }
    __device__ inline void store(int j, float &w, float &, uint16_t random) {
        uint16_t rounded = bf16_at_random(w, random);
        set_half(x, j, rounded);
        w = f32_from_bf16(rounded);
    }
};

// Formats: G of gradients; M of the moments; P of the parameters that receive copies of the new
// weights, if any; F of the master weights.
template <class G, class M, class P, MasterFormat F, Access ACCESS>
static __global__ void __launch_bounds__(THREADS) adamw_kernel(struct AdamW a) {
    size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * N;
    if (i >= a.n)
        return;
    Masters<F> master;
    master.template read<ACCESS>(a, i);
    Pack<M, N> m = pack_read<ACCESS, M, N>((const M *)a.m, i, a.n);
    Pack<M, N> v = pack_read<ACCESS, M, N>((const M *)a.v, i, a.n);
    Pack<G, N> grad = pack_read<ACCESS, G, N>((const G *)a.grad, i, a.n);
    if (a.state->skip)
        return;
    Factors f = factors_of(a.state);
    uint64_t key = F == MASTER_BF16 ? master_key(a.seed, a.state->updates) : 0;
    Pack<P, N> param;
#pragma unroll
    for (int j = 0; j < N; j++) {
        float m32 = to_float(m.x[j]), v32 = to_float(v.x[j]), w = master.load(j, v32);
        update_parameter(f, i + j < a.n_decay ? f.weight_decay : 0, to_float(grad.x[j]), w, m32,
                         v32);
        master.store(j, w, v32, F == MASTER_BF16 ? master_random(key, a.index + i + j) : 0);
        m.x[j] = from_float<M>(m32);
        v.x[j] = from_float<M>(v32);
        param.x[j] = from_float<P>(w);
    }
    pack_write<ACCESS>((M *)a.m, i, a.n, m);
    pack_write<ACCESS>((M *)a.v, i, a.n, v);
    master.template write<ACCESS>(a, i);
    if (a.param)
        pack_write<ACCESS>((P *)a.param, i, a.n, param);
}

template <class G, class M, class P, MasterFormat F>
static void launch(struct Stream *s, const struct AdamW *a) {
    bool aligned = is_aligned(a->master, N * dtype_size(master_dtype(F))) &&
                   is_aligned(a->m, N * sizeof(M)) && is_aligned(a->v, N * sizeof(M)) &&
                   is_aligned(a->grad, N * sizeof(G)) && is_aligned(a->param, N * sizeof(P));
    with_bool(aligned, [&](auto yes) {
        gpu_launch(s, adamw_kernel < G, M, P, F, yes ? ALIGNED : SCALAR >,
                   (unsigned)ceil_div(a->n, THREADS * N), THREADS, 0, *a);
    });
}

// Masters other than fp32 only have bf16 parameters.
template <class G, class M> static void launch_master(struct Stream *s, const struct AdamW *a) {
    if (a->master_format == MASTER_SPLIT)
        launch<G, M, __nv_bfloat16, MASTER_SPLIT>(s, a);
    else if (a->master_format == MASTER_BF16)
        launch<G, M, __nv_bfloat16, MASTER_BF16>(s, a);
    else
        with_type(a->param_dtype, [&](auto *param) {
            launch<G, M, std::remove_pointer_t<decltype(param)>, MASTER_FP32>(s, a);
        });
}

extern "C" void cuda_adamw(struct Stream *s, const struct AdamW *a) {
    adamw_check(a);
    if (!a->n)
        return;
    with_type(a->grad_dtype, [&](auto *grad) {
        using G = std::remove_pointer_t<decltype(grad)>;
        if (a->moments_dtype == F32)
            launch_master<G, float>(s, a);
        else
            launch_master<G, __nv_bfloat16>(s, a);
    });
}
