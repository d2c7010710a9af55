// The optimizer's update, over a whole group of parameters in one launch.
//
// AdamW reads four arrays and writes three or four, once each: 28 bytes a parameter with 16-bit
// gradients and weights; arithmetic is free beside that. A thread takes 4 neighbouring parameters
// at a time, 16 bytes of each fp32 array, and reads them all before it looks at anything.
//
// The operations and their order are those of kernels/cpu/adamw.c, and each is rounded as IEEE 754
// says (nvcc's default for / and sqrtf), so the new weights have the CPU's bits. What changes from
// step to step, learning rate, bias corrections, clip factor, is in device memory.
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

static __device__ inline void update(const Factors &f, float decay, float grad, float &w, float &m,
                                     float &v) {
    float g = grad * f.grad_scale;
    m = fmaf(f.beta1, m, f.rest1 * g);
    v = fmaf(f.beta2, v, f.rest2 * g * g);
    float step = m * f.correct1 / (sqrtf(v * f.correct2) + f.eps);
    w -= f.lr * fmaf(decay, w, step);
}

// G: of gradients; M: of the moments; P: of the parameters that the new weights are copied to, if
// there are any.
template <class G, class M, class P, Access ACCESS>
static __global__ void __launch_bounds__(THREADS) adamw_kernel(struct AdamW a) {
    size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * N;
    if (i >= a.n)
        return;
    Pack<float> w = pack_read<ACCESS>((const float *)a.master, i, a.n);
    Pack<M, N> m = pack_read<ACCESS, M, N>((const M *)a.m, i, a.n);
    Pack<M, N> v = pack_read<ACCESS, M, N>((const M *)a.v, i, a.n);
    Pack<G, N> grad = pack_read<ACCESS, G, N>((const G *)a.grad, i, a.n);
    if (a.state->skip)
        return;
    Factors f = factors_of(a.state);
    Pack<P, N> param;
#pragma unroll
    for (int j = 0; j < N; j++) {
        float m32 = to_float(m.x[j]), v32 = to_float(v.x[j]);
        update(f, i + j < a.n_decay ? f.weight_decay : 0, to_float(grad.x[j]), w.x[j], m32, v32);
        m.x[j] = from_float<M>(m32);
        v.x[j] = from_float<M>(v32);
        param.x[j] = from_float<P>(w.x[j]);
    }
    pack_write<ACCESS>((M *)a.m, i, a.n, m);
    pack_write<ACCESS>((M *)a.v, i, a.n, v);
    pack_write<ACCESS>(a.master, i, a.n, w);
    if (a.param)
        pack_write<ACCESS>((P *)a.param, i, a.n, param);
}

template <class G, class M, class P> static void launch(struct Stream *s, const struct AdamW *a) {
    bool aligned = is_aligned(a->master, 16) && is_aligned(a->m, N * sizeof(M)) &&
                   is_aligned(a->v, N * sizeof(M)) && is_aligned(a->grad, N * sizeof(G)) &&
                   is_aligned(a->param, N * sizeof(P));
    with_bool(aligned, [&](auto yes) {
        gpu_launch(s, adamw_kernel < G, M, P, yes ? ALIGNED : SCALAR >,
                   (unsigned)ceil_div(a->n, THREADS * N), THREADS, 0, *a);
    });
}

extern "C" void cuda_adamw(struct Stream *s, const struct AdamW *a) {
    CHECK(a->moments_dtype == F32 || a->moments_dtype == BF16, "moments in %s",
          dtype_name(a->moments_dtype));
    if (!a->n)
        return;
    with_type(a->grad_dtype, [&](auto *grad) {
        with_type(a->param_dtype, [&](auto *param) {
            using G = std::remove_pointer_t<decltype(grad)>;
            using P = std::remove_pointer_t<decltype(param)>;
            if (a->moments_dtype == F32)
                launch<G, float, P>(s, a);
            else
                launch<G, __nv_bfloat16, P>(s, a);
        });
    });
}
