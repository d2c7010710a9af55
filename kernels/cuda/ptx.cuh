// Code that CUDA C cannot express: every line of PTX, and the two constructs that a compiler for
// the host could not handle.
//
// Kernels call these functions and contain no assembly of their own, so that each file of kernels
// can also be compiled for the CPU: tests/cusim/include/kernels/cuda/ptx.cuh is this header's twin
// there, with the same names and meanings.
//
// Source: NVIDIA, "Parallel Thread Execution ISA", sections on mma, ldmatrix, cp.async and
// cache operators.
#ifndef KERNELS_CUDA_PTX_CUH
#define KERNELS_CUDA_PTX_CUH
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

// Maximum blocks of a grid in y (compute capability 5 to 12). A kernel whose y depends on the data
// handles the rest in a loop.
enum { PTX_MAX_GRID_Y = 65535 };
// Blocks of a kernel that walks all rows in rounds, and keeps sums: two for each multiprocessor of
// an H100 or H200. The simulator has fewer, so that a test's rows take several rounds.
enum { PTX_TURNING_BLOCKS = 264 };

// Dynamic shared memory, aligned to 128 bytes, as an array of T.
#define DYN_SHARED(T, name)                                                                        \
    extern __shared__ __align__(128) unsigned char dynamic_shared_memory[];                        \
    T *name = reinterpret_cast<T *>(dynamic_shared_memory)

// Starts `kernel` on `stream`. Arguments are copied.
template <class... P, class... A>
static inline cudaError_t ptx_launch(void (*kernel)(P...), dim3 grid, dim3 block,
                                     size_t shared_bytes, cudaStream_t stream, A... args) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
}

// d (16 x 8, fp32) += a (16 x 16, row-major) b (16 x 8, column-major), by one warp. The elements of
// lane 4 g + t: d[0..1] at (g, 2 t + 0..1), d[2..3] at (g + 8, ...); a[0] at (g, 2 t + 0..1), a[1]
// at (g + 8, 2 t ..), a[2] at (g, 2 t + 8 ..), a[3] at (g + 8, 2 t + 8 ..); b[0] at (2 t + 0..1,
// g), b[1] at (2 t + 8 .., g).
static __device__ inline void ptx_mma(float d[4], const uint32_t a[4], const uint32_t b[2],
                                      __nv_bfloat16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},"
                 "{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
static __device__ inline void ptx_mma(float d[4], const uint32_t a[4], const uint32_t b[2],
                                      __half) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},"
                 "{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Loads four 8 x 8 matrices of 16-bit elements from shared memory. Lane 8 i + j gives the address
// of row j of matrix i (16 bytes, aligned); lane 4 g + t gets elements 2 t, 2 t + 1 of row g of
// matrix i in r[i]; _transposed: of column g.
static __device__ inline void ptx_ldmatrix(uint32_t r[4], const void *row) {
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
static __device__ inline void ptx_ldmatrix_transposed(uint32_t r[4], const void *row) {
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

// Starts a copy of 16 bytes from global to shared memory, both aligned; zeros if !wanted (then
// `from` is not read).
static __device__ inline void ptx_copy_async(void *to, const void *from, bool wanted) {
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(address), "l"(from),
                 "r"(wanted ? 16 : 0)
                 : "memory");
}
// Closes a group of the copies that this thread has started.
static __device__ inline void ptx_copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most N of this thread's last groups are in flight.
template <int N> static __device__ inline void ptx_copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Loads or stores a value in one access: aligned to its size, which is at most 16 bytes. (The twin
// tells the simulator, whose compiler would split it.)
template <class P> static __device__ inline P ptx_load(const P *p) {
    return *p;
}
template <class P> static __device__ inline void ptx_store(P *p, const P &v) {
    *p = v;
}

// Load 16 bytes from global memory that are not read again, and store 16 bytes that are not read
// soon. Their lines are the first to leave the L2 cache. (For global memory PTX defines "last use",
// .lu, as .cs.) The load is not volatile: several may be in flight, and none moves past the store
// that replaces what it read.
static __device__ inline uint4 ptx_load_last(const void *p) {
    uint4 v;
    asm("ld.global.cs.v4.u32 {%0,%1,%2,%3},[%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(p));
    return v;
}
static __device__ inline void ptx_store_streaming(void *p, uint4 v) {
    asm volatile("st.global.cs.v4.u32 [%0],{%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}

// Orders this warp's accesses to registers and shared memory before the following wgmma
// instructions. Only on sm_90a: only files of variants for it call this.
static __device__ inline void ptx_wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Returns threadIdx.x, read again at each call. In a loop that fills the registers this keeps the
// compiler from holding values derived from it.
static __device__ inline int ptx_thread() {
    int thread;
    asm volatile("mov.u32 %0,%%tid.x;" : "=r"(thread));
    return thread;
}

// 2^x to 2 units in the last place; below 2^-126 it is 0. (Without .ftz every call costs three more
// instructions, which scale denormal results.)
static __device__ inline float ptx_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
