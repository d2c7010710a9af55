// Numbers in few bits, block by block: to them, and back, with sums over ranks.
//
// A warp takes a block of 256 elements, and a lane 8 of them that lie side by side: the largest
// magnitude is found by integers, in an order that does not matter, and the lane's 8 numbers are
// two words of 8 bits each, or one of 4. A sum over ranks stays in the lane's registers.
//
// kernels/quantize.h says what a block is. Called through the kernel table by zero/wire/.
#include "kernels/cuda/gpu.cuh"

enum { THREADS = 256, LANE = QUANTIZE_BLOCK / WARP, WARPS = THREADS / WARP };
static_assert(LANE == 8, "a lane's elements are words of 8 and of 4 bits");

// Which elements of which run a lane has; of the last block perhaps fewer than LANE, or none.
struct Place {
    size_t run, block, begin, count;
};

static __device__ inline bool find_place(size_t n, size_t runs, Place *p) {
    size_t blocks = quantized_blocks(n);
    size_t block = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    p->run = block / blocks;
    p->block = block % blocks;
    p->begin = p->block * QUANTIZE_BLOCK + threadIdx.x % WARP * LANE;
    p->count = p->begin >= n ? 0 : n - p->begin < LANE ? n - p->begin : LANE;
    return block < runs * blocks;
}

template <int BITS> static __device__ inline float *run_of(const void *runs, size_t n, size_t run) {
    return (float *)((char *)runs + run * quantized_bytes(BITS, n));
}

// The lane's bytes behind the run's scales.
template <int BITS> static __device__ inline uint8_t *bytes_of(float *run, size_t n, Place p) {
    return (uint8_t *)(run + quantized_blocks(n)) + p.begin * BITS / 8;
}

template <int BITS>
static __device__ inline void write_block(void *runs, size_t n, Place p, const float *x) {
    constexpr int BYTES = LANE * BITS / 8;
    float *to = run_of<BITS>(runs, n, p.run);
    uint8_t *q = bytes_of<BITS>(to, n, p);
    int32_t most = 0;
#pragma unroll
    for (int j = 0; j < LANE; j++)
        most = max(most, quantize_magnitude(x[j]));
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2)
        most = max(most, __shfl_xor_sync(ALL_LANES, most, offset));
    float scale = quantize_scale(most, BITS), divisor = quantize_divisor(scale);
    if (threadIdx.x % WARP == 0)
        to[p.block] = scale;
    uint32_t word[BYTES / 4] = {};
#pragma unroll
    for (int j = 0; j < LANE; j++)
        word[j * BITS / 32] |= ((uint32_t)quantize_one(x[j], divisor) & ((1u << BITS) - 1))
                               << j * BITS % 32;
    if (p.count == LANE) {
#pragma unroll
        for (int k = 0; k < BYTES / 4; k++)
            reinterpret_cast<uint32_t *>(q)[k] = word[k];
        return;
    }
    for (int k = 0; k < BYTES; k++)
        if ((size_t)k * 8 / BITS < p.count)
            q[k] = (uint8_t)(word[k / 4] >> k % 4 * 8);
}

// x = the block, or x += it.
template <int BITS>
static __device__ inline void read_block(const void *runs, size_t n, Place p, bool add, float *x) {
    constexpr int BYTES = LANE * BITS / 8;
    float *from = run_of<BITS>(runs, n, p.run);
    const uint8_t *q = bytes_of<BITS>(from, n, p);
    float scale = from[p.block];
    uint32_t word[BYTES / 4] = {};
    if (p.count == LANE) {
#pragma unroll
        for (int k = 0; k < BYTES / 4; k++)
            word[k] = reinterpret_cast<const uint32_t *>(q)[k];
    } else {
        for (int k = 0; k < BYTES; k++)
            if ((size_t)k * 8 / BITS < p.count)
                word[k / 4] |= (uint32_t)q[k] << k % 4 * 8;
    }
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        int32_t shifted = (int32_t)(word[j * BITS / 32] << (32 - BITS - j * BITS % 32));
        float value = dequantize_one(shifted >> (32 - BITS), scale);
        x[j] = add ? x[j] + value : value;
    }
}

// The lane's elements of the run at `a`; past the end 0.
template <class T, Access ACCESS>
static __device__ inline void read_array(const T *a, size_t n, Place p, float *x) {
    constexpr int N = Pack<T>::N;
#pragma unroll
    for (int k = 0; k < LANE; k += N) {
        Pack<T> v = pack_read<ACCESS>(a, p.begin + k, n);
#pragma unroll
        for (int j = 0; j < N; j++)
            x[k + j] = p.begin + k + j < n ? to_float(v.x[j]) : 0;
    }
}

template <class T, Access ACCESS>
static __device__ inline void write_array(T *a, size_t n, Place p, const float *x) {
    constexpr int N = Pack<T>::N;
#pragma unroll
    for (int k = 0; k < LANE; k += N) {
        Pack<T> v;
#pragma unroll
        for (int j = 0; j < N; j++)
            v.x[j] = from_float<T>(x[k + j]);
        pack_write<ACCESS>(a, p.begin + k, n, v);
    }
}

template <class T, Access ACCESS, int BITS>
static __global__ void __launch_bounds__(THREADS) quantize_kernel(struct Quantize a) {
    Place p;
    if (!find_place(a.n, a.parts, &p))
        return;
    size_t rows = a.parts / a.columns, source = p.run % rows * a.columns + p.run / rows;
    float x[LANE];
    read_array<T, ACCESS>((const T *)a.x + source * a.n, a.n, p, x);
    write_block<BITS>(a.to, a.n, p, x);
}

// Adds the ranks' blocks to x, or begins with the first.
template <int BITS>
static __device__ inline void sum_blocks(const void *from, size_t n, Place p, size_t parts,
                                         size_t ranks, bool add, float *x) {
    for (size_t r = 0; r < ranks; r++) {
        Place of = p;
        of.run = r * parts + p.run;
        read_block<BITS>(from, n, of, add || r > 0, x);
    }
}

template <class T, Access ACCESS, int BITS>
static __global__ void __launch_bounds__(THREADS) dequantize_kernel(struct Dequantize a) {
    Place p;
    if (!find_place(a.n, a.parts, &p))
        return;
    T *to = (T *)a.x + p.run * a.n;
    float x[LANE];
    if (a.accumulate)
        read_array<T, ACCESS>(to, a.n, p, x);
    sum_blocks<BITS>(a.from, a.n, p, a.parts, a.ranks, a.accumulate, x);
    write_array<T, ACCESS>(to, a.n, p, x);
}

template <int BITS>
static __global__ void __launch_bounds__(THREADS) requantize_kernel(struct Requantize a) {
    Place p;
    if (!find_place(a.n, a.parts, &p))
        return;
    float x[LANE];
    sum_blocks<BITS>(a.from, a.n, p, a.parts, a.ranks, false, x);
    write_block<BITS>(a.to, a.n, p, x);
}

// A warp for each block.
static unsigned grid_for(size_t n, size_t runs) {
    return (unsigned)ceil_div(runs * quantized_blocks(n), WARPS);
}

template <class F> static void with_bits(int bits, F f) {
    if (bits == 8)
        f(std::integral_constant<int, 8>{});
    else
        f(std::integral_constant<int, 4>{});
}

extern "C" void cuda_quantize(struct Stream *s, const struct Quantize *a) {
    quantize_check(a->bits, a->n, a->parts);
    if (!a->n)
        return;
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        with_bool(is_aligned(a->x, 16), [&](auto yes) {
            with_bits(a->bits, [&](auto bits) {
                gpu_launch(s, quantize_kernel < T, yes ? ALIGNED : SCALAR, bits >,
                           grid_for(a->n, a->parts), THREADS, 0, *a);
            });
        });
    });
}

extern "C" void cuda_dequantize(struct Stream *s, const struct Dequantize *a) {
    quantize_check(a->bits, a->n, a->parts * a->ranks);
    if (!a->n)
        return;
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        with_bool(is_aligned(a->x, 16), [&](auto yes) {
            with_bits(a->bits, [&](auto bits) {
                gpu_launch(s, dequantize_kernel < T, yes ? ALIGNED : SCALAR, bits >,
                           grid_for(a->n, a->parts), THREADS, 0, *a);
            });
        });
    });
}

extern "C" void cuda_requantize(struct Stream *s, const struct Requantize *a) {
    quantize_check(a->bits, a->n, a->parts * a->ranks);
    if (!a->n)
        return;
    with_bits(a->bits, [&](auto bits) {
        gpu_launch(s, requantize_kernel<bits>, grid_for(a->n, a->parts), THREADS, 0, *a);
    });
}
