// NF4: weights to 4 bits, and back.
//
// A block of threads takes a run: each thread a scale of its 256, and in turns as many neighbouring
// elements as 16 bytes hold. Elements that come back are looked up in shared memory, where the 16
// values lie in as many banks.
//
// kernels/nf4.h defines the format. Called through the kernel table.
#include "kernels/cuda/gpu.cuh"

enum { THREADS = NF4_BLOCKS, WARPS = THREADS / WARP };

// The codes of a pack of T.
template <class T> using Word = std::conditional_t<Pack<T>::N == 8, uint32_t, uint16_t>;

// Returns the lowest bit of code j in a word: the first of a byte is its upper half.
static __device__ inline int shift_of(int j) {
    return j / 2 * 8 + (j % 2 ? 0 : 4);
}

// Returns the largest of `magnitude` in the first `lanes` lanes or the next ones, in each of them.
static __device__ inline int32_t warp_largest(int32_t magnitude, int lanes) {
#pragma unroll
    for (int offset = lanes / 2; offset; offset /= 2)
        magnitude = max(magnitude, __shfl_xor_sync(ALL_LANES, magnitude, offset));
    return magnitude;
}

// Returns nf4_sum(absmax), in every thread.
static __device__ inline float sum_of(const float *absmax) {
    int lane = threadIdx.x % WARP;
    float column = absmax[lane], sum = 0;
    for (int i = WARP; i < NF4_BLOCKS; i += WARP)
        column += absmax[i + lane];
    float row = column;
    for (int k = 8; k < WARP; k += 8)
        row += __shfl_sync(ALL_LANES, column, (lane + k) % WARP);
    for (int k = 0; k < 8; k++)
        sum += __shfl_sync(ALL_LANES, row, k);
    return sum;
}

// Writes a pack's codes, and its block's absmax.
template <class T>
static __device__ inline void write_pack(struct Nf4Run *to, int at, Pack<T> v, float *absmax) {
    constexpr int N = Pack<T>::N;
    int32_t most = 0;
    Word<T> word = 0;
#pragma unroll
    for (int j = 0; j < N; j++)
        most = max(most, quantize_magnitude(to_float(v.x[j])));
    most = warp_largest(most, NF4_BLOCK / N);
    float largest = f32_from_bits((uint32_t)most), inverse = nf4_inverse(largest);
#pragma unroll
    for (int j = 0; j < N; j++)
        word |= (Word<T>)(nf4_code(to_float(v.x[j]), inverse) << shift_of(j));
    *reinterpret_cast<Word<T> *>(to->code + at / 2) = word;
    if (at % NF4_BLOCK == 0)
        absmax[at / NF4_BLOCK] = largest;
}

template <class T, Access ACCESS>
static __global__ void __launch_bounds__(THREADS) nf4_quantize_kernel(struct Nf4Quantize a) {
    __shared__ float absmax[NF4_BLOCKS];
    __shared__ int32_t most_of[WARPS];
    constexpr int N = Pack<T>::N;
    const T *x = (const T *)a.x + (size_t)blockIdx.x * NF4_RUN;
    struct Nf4Run *to = (struct Nf4Run *)a.to + blockIdx.x;
    int t = threadIdx.x;
    for (int at = t * N; at < NF4_RUN; at += THREADS * N)
        write_pack<T>(to, at, pack_read<ACCESS, T>(x, at, NF4_RUN), absmax);
    __syncthreads();
    float offset = nf4_offset(sum_of(absmax)), difference = absmax[t] - offset;
    int32_t most = warp_largest(quantize_magnitude(difference), WARP);
    if (t % WARP == 0)
        most_of[t / WARP] = most;
    __syncthreads();
    most = warp_largest(most_of[t % WARPS], WARPS);
    to->absmax[t] = nf4_absmax_code(difference, nf4_scale(most));
    if (t == 0) {
        to->scale = nf4_scale(most);
        to->offset = offset;
    }
}

template <class T, Access ACCESS>
static __global__ void __launch_bounds__(THREADS) nf4_dequantize_kernel(struct Nf4Dequantize a) {
    __shared__ float absmax[NF4_BLOCKS], value[NF4_CODES];
    constexpr int N = Pack<T>::N;
    const struct Nf4Run *from = (const struct Nf4Run *)a.from + blockIdx.x;
    T *x = (T *)a.x + (size_t)blockIdx.x * NF4_RUN;
    int t = threadIdx.x;
    absmax[t] = nf4_absmax(from->absmax[t], from->scale, from->offset);
    if (t < NF4_CODES)
        value[t] = nf4_value(t);
    __syncthreads();
#pragma unroll 4
    for (int at = t * N; at < NF4_RUN; at += THREADS * N) {
        Word<T> word = *reinterpret_cast<const Word<T> *>(from->code + at / 2);
        float scale = absmax[at / NF4_BLOCK];
        Pack<T> v;
#pragma unroll
        for (int j = 0; j < N; j++) {
            int32_t code = word >> shift_of(j) & 15;
            v.x[j] = from_float<T>(code == NF4_ZERO ? 0 : value[code] * scale);
        }
        pack_write<ACCESS>(x, at, NF4_RUN, v);
    }
}

extern "C" void cuda_nf4_quantize(struct Stream *s, const struct Nf4Quantize *a) {
    nf4_check(a->n);
    if (!a->n)
        return;
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        with_bool(is_aligned(a->x, 16), [&](auto yes) {
            gpu_launch(s, nf4_quantize_kernel < T, yes ? WHOLE : SCALAR >,
                       (unsigned)(a->n / NF4_RUN), THREADS, 0, *a);
        });
    });
}

extern "C" void cuda_nf4_dequantize(struct Stream *s, const struct Nf4Dequantize *a) {
    nf4_check(a->n);
    if (!a->n)
        return;
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        with_bool(is_aligned(a->x, 16), [&](auto yes) {
            gpu_launch(s, nf4_dequantize_kernel < T, yes ? WHOLE : SCALAR >,
                       (unsigned)(a->n / NF4_RUN), THREADS, 0, *a);
        });
    });
}
