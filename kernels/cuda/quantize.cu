// Block quantization: to blocks of few bits, and back, with sums over ranks.
//
// A warp takes a block of 256 elements, and a lane four of each half of it, so that neighbouring
// lanes have neighbouring memory in every format. The largest magnitude is found by integers, so
// the order does not matter. A sum over ranks stays in the lane's registers.
//
// kernels/quantize.h defines a block. Called through the kernel table by zero/wire/.
#include "kernels/cuda/gpu.cuh"

// LANE: elements of a lane.
enum { THREADS = 256, WARPS = THREADS / WARP, QUAD = 4, HALF = WARP * QUAD, LANE = 2 * QUAD };
static_assert(2 * HALF == QUANTIZE_BLOCK, "a lane has four elements of each half");

// QUAD numbers.
template <int BITS> using Word = std::conditional_t<BITS == 8, uint32_t, uint16_t>;

// The block and run of a warp, and where in the run this lane's elements begin: those of the
// block's first half; the others come HALF later.
struct BlockPosition {
    size_t run, block, begin;
};

// Finds this warp's block among runs of n elements. False: there is none.
static __device__ inline bool find_block(size_t n, size_t runs, BlockPosition *p) {
    size_t blocks = quantized_blocks(n);
    size_t block = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    p->run = block / blocks;
    p->block = block % blocks;
    p->begin = p->block * QUANTIZE_BLOCK + threadIdx.x % WARP * QUAD;
    return block < runs * blocks;
}

template <int BITS>
static __device__ inline float *run_address(const void *runs, size_t n, size_t run) {
    return (float *)((char *)runs + run * quantized_bytes(BITS, n));
}

// Returns the address of the code of element `at`; codes come after the run's scales.
template <int BITS>
static __device__ inline uint8_t *code_address(float *run, size_t n, size_t at) {
    return (uint8_t *)(run + quantized_blocks(n)) + at * BITS / 8;
}

template <int BITS>
static __device__ inline void write_block(void *runs, size_t n, BlockPosition p, const float *x) {
    float *to = run_address<BITS>(runs, n, p.run);
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
#pragma unroll
    for (int k = 0; k < LANE; k += QUAD) {
        size_t at = p.begin + k / QUAD * HALF;
        uint8_t *q = code_address<BITS>(to, n, at);
        uint32_t word = 0;
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            word |= ((uint32_t)quantize_one(x[k + j], divisor) & ((1u << BITS) - 1)) << j * BITS;
        if (at + QUAD <= n)
            *reinterpret_cast<Word<BITS> *>(q) = (Word<BITS>)word;
        else
            for (int byte = 0; at + byte * 8 / BITS < n; byte++)
                q[byte] = (uint8_t)(word >> byte * 8);
    }
}

// x = the lane's elements of the block, or x += them if `add`. A code's sign is extended by shifts.
template <int BITS>
static __device__ inline void read_block(const void *runs, size_t n, BlockPosition p, bool add,
                                         float *x) {
    float *from = run_address<BITS>(runs, n, p.run);
    float scale = from[p.block];
#pragma unroll
    for (int k = 0; k < LANE; k += QUAD) {
        size_t at = p.begin + k / QUAD * HALF;
        const uint8_t *q = code_address<BITS>(from, n, at);
        uint32_t word = 0;
        if (at + QUAD <= n)
            word = *reinterpret_cast<const Word<BITS> *>(q);
        else
            for (int byte = 0; at + byte * 8 / BITS < n; byte++)
                word |= (uint32_t)q[byte] << byte * 8;
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            int32_t shifted = (int32_t)(word << (32 - BITS - j * BITS));
            float value = dequantize_one(shifted >> (32 - BITS), scale);
            x[k + j] = add ? x[k + j] + value : value;
        }
    }
}

// Reads the lane's elements of the run at `a`; 0 past the end.
template <class T, Access ACCESS>
static __device__ inline void read_array(const T *a, size_t n, BlockPosition p, float *x) {
#pragma unroll
    for (int k = 0; k < LANE; k += QUAD) {
        Pack<T, QUAD> v = pack_read<ACCESS, T, QUAD>(a, p.begin + k / QUAD * HALF, n);
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            x[k + j] = to_float(v.x[j]);
    }
}

template <class T, Access ACCESS>
static __device__ inline void write_array(T *a, size_t n, BlockPosition p, const float *x) {
#pragma unroll
    for (int k = 0; k < LANE; k += QUAD) {
        Pack<T, QUAD> v;
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            v.x[j] = from_float<T>(x[k + j]);
        pack_write<ACCESS>(a, p.begin + k / QUAD * HALF, n, v);
    }
}

template <class T, Access ACCESS, int BITS>
static __global__ void __launch_bounds__(THREADS) quantize_kernel(struct Quantize a) {
    BlockPosition p;
    if (!find_block(a.n, a.parts, &p))
        return;
    size_t rows = a.parts / a.columns, source = p.run % rows * a.columns + p.run / rows;
    float x[LANE];
    read_array<T, ACCESS>((const T *)a.x + source * a.n, a.n, p, x);
    write_block<BITS>(a.to, a.n, p, x);
}

// Adds the ranks' blocks at p to x (add), or makes x their sum. A rank has `parts` runs.
template <int BITS>
static __device__ inline void sum_blocks(const void *from, size_t n, BlockPosition p, size_t parts,
                                         size_t ranks, bool add, float *x) {
    for (size_t r = 0; r < ranks; r++) {
        BlockPosition of = p;
        of.run = r * parts + p.run;
        read_block<BITS>(from, n, of, add || r > 0, x);
    }
}

template <class T, Access ACCESS, int BITS>
static __global__ void __launch_bounds__(THREADS) dequantize_kernel(struct Dequantize a) {
    BlockPosition p;
    if (!find_block(a.n, a.parts, &p))
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
    BlockPosition p;
    if (!find_block(a.n, a.parts, &p))
        return;
    float x[LANE];
    sum_blocks<BITS>(a.from, a.n, p, a.parts, a.ranks, false, x);
    write_block<BITS>(a.to, a.n, p, x);
}

// Returns the grid with a warp for each block.
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
        with_bool(is_aligned(a->x, QUAD * sizeof(T)), [&](auto yes) {
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
        with_bool(is_aligned(a->x, QUAD * sizeof(T)), [&](auto yes) {
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
