// CUDA C's words for a C++ compiler: what kernels/cuda/*.cu means in the simulator.
//
// __shared__ variables lie in a section of their own, which is poisoned before every block.
// threadIdx and its like are constants as far as a thread can see: block.cc changes them whenever
// another thread takes its turn. A kernel and its launch bounds are annotations, which kernels.awk
// puts where the simulator finds them. What threads of a block do together (barriers, shuffles) is
// a call to the simulator that carries its place in the source.
//
// Read next: tests/cusim/block.cc, warp.cc.
#ifndef TESTS_CUSIM_LANGUAGE_H
#define TESTS_CUSIM_LANGUAGE_H
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <functional>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <tuple>
#include <type_traits>

#undef __shared__
#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __launch_bounds__
#undef __noinline__
#define __shared__ static __attribute__((section("cusim_shared")))
#define __global__ __attribute__((annotate("kernel")))
#define __device__
#define __host__
#define __constant__
#define __launch_bounds__(...) __attribute__((annotate("launch_bounds", __VA_ARGS__)))
#define __noinline__ __attribute__((noinline))

// block.cc defines them, not as constants.
extern const uint3 threadIdx __asm__("cusim_thread_index");
extern const uint3 blockIdx __asm__("cusim_block_index");
extern const dim3 blockDim __asm__("cusim_block_size");
extern const dim3 gridDim __asm__("cusim_grid_size");
static const int warpSize = 32;

#define HERE_ARGUMENTS const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace cusim {

enum class Together { SYNC, SHUFFLE, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR, VOTE, MMA, MATRIX };

int barrier(int predicate, int kind, const char *file, int line);
// All lanes of `mask` bring a value; afterwards each may read everybody's. present: who came.
const uint64_t *meet(unsigned mask, uint64_t value, Together kind, const char *file, int line,
                     unsigned *present);
int lane_now();
[[noreturn]] void die_absent(int lane, const char *file, int line);
void *dynamic_shared();

void mma(float d[4], const float a[8], const float b[4], const char *file, int line);
void load_matrix(uint32_t r[4], const void *row, bool transposed, const char *file, int line);
void copy_async(void *to, const void *from, bool wanted);
void copy_commit();
void copy_wait(int groups_under_way);
// At most 16 bytes, in one access.
typedef unsigned __int128 Bits;
Bits load(const void *p, size_t bytes);
void store(void *p, Bits bits, size_t bytes);
// An atomic operation's access; old values and new ones are the caller's.
void atomic_access(const void *p, size_t bytes);

cudaError_t launch(const void *kernel, dim3 grid, dim3 block, size_t shared_bytes,
                   cudaStream_t stream, std::function<void()> body);

// The lane that a shuffle reads from, by width (a power of two).
static inline int source_lane(Together kind, int argument, int width) {
    int lane = lane_now(), base = lane & ~(width - 1);
    if (kind == Together::SHUFFLE)
        return base + (argument & (width - 1));
    int from = kind == Together::SHUFFLE_UP     ? lane - argument
               : kind == Together::SHUFFLE_DOWN ? lane + argument
                                                : lane ^ argument;
    return from < base || from >= base + width ? lane : from;
}

template <class T>
T shuffle(unsigned mask, T value, Together kind, int argument, int width, const char *file,
          int line) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "at most 8 bytes");
    uint64_t bits = 0;
    unsigned present;
    __builtin_memcpy(&bits, &value, sizeof value);
    int from = source_lane(kind, argument, width);
    const uint64_t *all = meet(mask, bits, kind, file, line, &present);
    if (!(present >> from & 1))
        die_absent(from, file, line);
    __builtin_memcpy(&value, &all[from], sizeof value);
    return value;
}

// The lanes whose predicate is true.
static inline unsigned vote(unsigned mask, int predicate, const char *file, int line,
                            unsigned *present) {
    const uint64_t *all = meet(mask, predicate != 0, Together::VOTE, file, line, present);
    unsigned set = 0;
    for (int i = 0; i < 32; i++)
        if (*present >> i & 1 && all[i])
            set |= 1u << i;
    return set;
}

template <class T, class F> T atomically(T *p, F change) {
    static_assert(std::is_integral<T>::value, "sums of floats depend on the order: not here");
    atomic_access(p, sizeof *p);
    T old = __atomic_load_n(p, __ATOMIC_RELAXED); // the compiler does not tell of these
    __atomic_store_n(p, change(old), __ATOMIC_RELAXED);
    return old;
}

} // namespace cusim

// ---- a block's barriers, a warp's collectives ----

static inline void __syncthreads(HERE_ARGUMENTS) {
    cusim::barrier(0, 0, file, line);
}
static inline int __syncthreads_count(int predicate, HERE_ARGUMENTS) {
    return cusim::barrier(predicate, 1, file, line);
}
static inline int __syncthreads_and(int predicate, HERE_ARGUMENTS) {
    return cusim::barrier(!predicate, 2, file, line) == 0;
}
static inline int __syncthreads_or(int predicate, HERE_ARGUMENTS) {
    return cusim::barrier(predicate, 3, file, line) != 0;
}
static inline void __syncwarp(unsigned mask = 0xffffffffu, HERE_ARGUMENTS) {
    unsigned present;
    cusim::meet(mask, 0, cusim::Together::SYNC, file, line, &present);
}
template <class T>
static inline T __shfl_sync(unsigned mask, T v, int lane, int width = 32, HERE_ARGUMENTS) {
    return cusim::shuffle(mask, v, cusim::Together::SHUFFLE, lane, width, file, line);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32, HERE_ARGUMENTS) {
    return cusim::shuffle(mask, v, cusim::Together::SHUFFLE_UP, (int)by, width, file, line);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32, HERE_ARGUMENTS) {
    return cusim::shuffle(mask, v, cusim::Together::SHUFFLE_DOWN, (int)by, width, file, line);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32, HERE_ARGUMENTS) {
    return cusim::shuffle(mask, v, cusim::Together::SHUFFLE_XOR, lanes, width, file, line);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate, HERE_ARGUMENTS) {
    unsigned present;
    return cusim::vote(mask, predicate, file, line, &present);
}
static inline int __any_sync(unsigned mask, int predicate, HERE_ARGUMENTS) {
    unsigned present;
    return cusim::vote(mask, predicate, file, line, &present) != 0;
}
static inline int __all_sync(unsigned mask, int predicate, HERE_ARGUMENTS) {
    unsigned present;
    return cusim::vote(mask, predicate, file, line, &present) == present;
}
template <class T> static inline unsigned __match_any_sync(unsigned mask, T v, HERE_ARGUMENTS) {
    uint64_t bits = 0;
    unsigned present, same = 0;
    __builtin_memcpy(&bits, &v, sizeof v);
    const uint64_t *all = cusim::meet(mask, bits, cusim::Together::VOTE, file, line, &present);
    for (int i = 0; i < 32; i++)
        if (present >> i & 1 && all[i] == bits)
            same |= 1u << i;
    return same;
}
template <class T> static inline T __reduce_add_sync(unsigned mask, T v, HERE_ARGUMENTS) {
    static_assert(std::is_integral<T>::value, "integers only, as in CUDA");
    unsigned present;
    const uint64_t *all =
        cusim::meet(mask, (uint64_t)v, cusim::Together::VOTE, file, line, &present);
    T sum = 0;
    for (int i = 0; i < 32; i++)
        if (present >> i & 1)
            sum += (T)all[i];
    return sum;
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}

// ---- atomics, on integers ----

template <class T> static inline T atomicAdd(T *p, typename std::common_type<T>::type v) {
    return cusim::atomically(p, [v](T old) { return (T)(old + v); });
}
template <class T> static inline T atomicSub(T *p, typename std::common_type<T>::type v) {
    return cusim::atomically(p, [v](T old) { return (T)(old - v); });
}
template <class T> static inline T atomicMax(T *p, typename std::common_type<T>::type v) {
    return cusim::atomically(p, [v](T old) { return old > v ? old : v; });
}
template <class T> static inline T atomicMin(T *p, typename std::common_type<T>::type v) {
    return cusim::atomically(p, [v](T old) { return old < v ? old : v; });
}
template <class T> static inline T atomicOr(T *p, typename std::common_type<T>::type v) {
    return cusim::atomically(p, [v](T old) { return (T)(old | v); });
}
template <class T> static inline T atomicAnd(T *p, typename std::common_type<T>::type v) {
    return cusim::atomically(p, [v](T old) { return (T)(old & v); });
}
template <class T> static inline T atomicExch(T *p, typename std::common_type<T>::type v) {
    return cusim::atomically(p, [v](T) { return v; });
}
template <class T>
static inline T atomicCAS(T *p, typename std::common_type<T>::type expected,
                          typename std::common_type<T>::type v) {
    return cusim::atomically(p, [=](T old) { return old == expected ? v : old; });
}
static inline unsigned atomicInc(unsigned *p, unsigned last) {
    return cusim::atomically(p, [last](unsigned old) { return old >= last ? 0 : old + 1; });
}

// ---- loads and stores with a hint for the caches ----

template <class T> static inline T __ldg(const T *p) {
    return *p;
}
template <class T> static inline T __ldcs(const T *p) {
    return *p;
}
template <class T> static inline T __ldcg(const T *p) {
    return *p;
}
template <class T> static inline T __ldca(const T *p) {
    return *p;
}
template <class T> static inline void __stcs(T *p, T v) {
    *p = v;
}
template <class T> static inline void __stcg(T *p, T v) {
    *p = v;
}
template <class T> static inline void __stwt(T *p, T v) {
    *p = v;
}

// ---- arithmetic ----

static inline uint32_t __float_as_uint(float x) {
    uint32_t u;
    __builtin_memcpy(&u, &x, sizeof u);
    return u;
}
static inline int __float_as_int(float x) {
    return (int)__float_as_uint(x);
}
static inline float __uint_as_float(uint32_t u) {
    float x;
    __builtin_memcpy(&x, &u, sizeof x);
    return x;
}
static inline float __int_as_float(int i) {
    return __uint_as_float((uint32_t)i);
}
static inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
static inline float __fadd_rn(float a, float b) {
    return a + b;
}
static inline float __fsub_rn(float a, float b) {
    return a - b;
}
static inline float __fmul_rn(float a, float b) {
    return a * b;
}
static inline float __fdiv_rn(float a, float b) {
    return a / b;
}
static inline float __fsqrt_rn(float x) {
    return sqrtf(x);
}
static inline float __frcp_rn(float x) {
    return 1.0f / x;
}
static inline float __fdividef(float a, float b) {
    return a / b;
}
static inline float rsqrtf(float x) {
    return (float)(1.0 / sqrt((double)x));
}
// The C library has functions of these names for itself.
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
static inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
static inline int __clz(int x) {
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __ffs(int x) {
    return __builtin_ffs(x);
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}
template <class A, class B> static inline typename std::common_type<A, B>::type min(A a, B b) {
    typedef typename std::common_type<A, B>::type T;
    return (T)b < (T)a ? (T)b : (T)a;
}
template <class A, class B> static inline typename std::common_type<A, B>::type max(A a, B b) {
    typedef typename std::common_type<A, B>::type T;
    return (T)a < (T)b ? (T)b : (T)a;
}

template <class T>
static inline cudaError_t cudaFuncSetAttribute(T *kernel, cudaFuncAttribute attribute, int value) {
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}
#endif
