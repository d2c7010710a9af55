// See probes.h.
#include "kernels/cuda/gpu.cuh"

#include "tests/cusim/probes.h"

static __global__ void add_kernel(float *y, const float *x, float add, int n) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        y[i] = x[i] + add;
}

void probe_add(cudaStream_t s, float *y, const float *x, float add, int n) {
    ptx_launch(add_kernel, dim3((unsigned)(n + 31) / 32), dim3(32), 0, s, y, x, add, n);
}

static __global__ void accumulate_kernel(float *y, const float *x, int n) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        y[i] += x[i];
}

void probe_accumulate(cudaStream_t s, float *y, const float *x, int n) {
    ptx_launch(accumulate_kernel, dim3((unsigned)(n + 31) / 32), dim3(32), 0, s, y, x, n);
}

static __global__ void sum_kernel(float *sum, const float *x, int n) {
    __shared__ float part[4];
    float mine = 0;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        mine += x[i];
    for (int offset = 16; offset; offset /= 2)
        mine += __shfl_xor_sync(0xffffffffu, mine, offset);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0)
        *sum = part[0] + part[1] + part[2] + part[3];
}

void probe_sum(cudaStream_t s, float *sum, const float *x, int n) {
    ptx_launch(sum_kernel, dim3(1), dim3(128), 0, s, sum, x, n);
}

static __global__ void reverse_kernel(float *y, const float *x) {
    DYN_SHARED(float, staged);
    int i = (int)threadIdx.x;
    ptx_copy_async(staged + 4 * i, x + 4 * i, true);
    ptx_copy_commit();
    ptx_copy_wait<0>();
    __syncthreads();
    for (int k = 0; k < 4; k++)
        y[4 * i + k] = staged[127 - 4 * i - k];
}

void probe_reverse(cudaStream_t s, float *y, const float *x) {
    ptx_launch(reverse_kernel, dim3(1), dim3(32), 128 * sizeof(float), s, y, x);
}

static __global__ void product_kernel(float *d, const __nv_bfloat16 *a, const __nv_bfloat16 *b) {
    __shared__ __align__(16) __nv_bfloat16 rows[16][16], columns[16][16];
    int lane = (int)threadIdx.x;
    for (int i = lane; i < 256; i += 32) {
        rows[i / 16][i % 16] = a[i];
        columns[i / 16][i % 16] = b[i / 16 * 8 + i % 8]; // the 8 columns twice
    }
    __syncwarp();
    uint32_t left[4], right[4];
    float sum[4] = {0, 0, 0, 0};
    // Matrices 0..3: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15.
    ptx_ldmatrix(left, &rows[lane % 16][lane / 16 * 8]);
    ptx_ldmatrix_transposed(right, &columns[lane % 16][lane / 16 * 8]);
    ptx_mma(sum, left, right, __nv_bfloat16());
    int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++)
        d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sum[i];
}

void probe_product(cudaStream_t s, float *d, const void *a, const void *b) {
    ptx_launch(product_kernel, dim3(1), dim3(32), 0, s, d, static_cast<const __nv_bfloat16 *>(a),
               static_cast<const __nv_bfloat16 *>(b));
}

static __global__ void count_kernel(unsigned *count, int n) {
    if ((int)(blockIdx.x * blockDim.x + threadIdx.x) < n)
        atomicAdd(count, 1u);
}

void probe_count(cudaStream_t s, unsigned *count, int n) {
    ptx_launch(count_kernel, dim3((unsigned)(n + 63) / 64), dim3(64), 0, s, count, n);
}

// ---- faults ----

// What one warp has written another reads, and the other way round, without a barrier. The thread
// that comes last to a barrier goes on first, so that it does neither.
static __device__ float read_other_warp(ProbeFault fault) {
    __shared__ float value[64];
    int i = (int)threadIdx.x;
    bool writes = (i < 32) == (fault == FAULT_NO_BARRIER);
    value[i] = 0;
    __syncthreads();
    if (i == 63)
        return 0;
    if (writes)
        value[i % 32] = (float)i;
    return writes ? 0.0f : value[i % 32];
}

static __device__ float read_neighbour() {
    __shared__ float value[64];
    int i = (int)threadIdx.x;
    value[i] = 0;
    __syncthreads();
    value[i] = (float)i;
    return value[i ^ 1];
}

static __device__ void wait_apart(ProbeFault fault) {
    if (fault == FAULT_BARRIER_HALF) {
        if (threadIdx.x % 32 < 16)
            __syncwarp();
        __syncthreads();
    } else if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads(); // in another line
    }
}

static __device__ float shuffle_apart(ProbeFault fault, float x) {
    if (fault == FAULT_MASK)
        return __shfl_xor_sync(0x0000ffffu, x, 1);
    return threadIdx.x % 32 < 16 ? __shfl_sync(0x0000ffffu, x, 20) : x;
}

static __device__ float read_early(const float *x) {
    __shared__ __align__(16) float staged[64];
    int i = (int)threadIdx.x;
    staged[i] = 0;
    __syncthreads();
    if (i % 4 == 0)
        ptx_copy_async(staged + i, x + i, true);
    ptx_copy_commit();
    ptx_copy_wait<1>(); // of the group before
    __syncthreads();
    float y = staged[i];
    ptx_copy_wait<0>();
    return y;
}

static __global__ void fault_kernel(ProbeFault fault, float *y) {
    DYN_SHARED(float, dynamic);
    int i = (int)threadIdx.x;
    float x = (float)i;
    if (fault == FAULT_NO_BARRIER || fault == FAULT_OVERWRITTEN)
        x = read_other_warp(fault);
    else if (fault == FAULT_NO_WARP_BARRIER)
        x = read_neighbour();
    else if (fault == FAULT_BARRIER_BRANCH || fault == FAULT_BARRIER_HALF)
        wait_apart(fault);
    else if (fault == FAULT_MASK || fault == FAULT_ABSENT_LANE)
        x = shuffle_apart(fault, x);
    else if (fault == FAULT_SHARED_UNWRITTEN)
        x = dynamic[i];
    else if (fault == FAULT_SHARED_BOUNDS)
        dynamic[i + 1] = x;
    else
        x = read_early(y);
    y[i] = x;
}

void probe_fault(cudaStream_t s, enum ProbeFault fault, float *y) {
    ptx_launch(fault_kernel, dim3(1), dim3(64), 64 * sizeof(float), s, fault, y);
}

// ---- alignment ----

template <class T> static __device__ T *moved(void *p, int bytes) {
    return reinterpret_cast<T *>(static_cast<char *>(p) + bytes);
}

struct alignas(16) Two {
    float x[8];
};

static __global__ void access_kernel(ProbeAccess access, void *x, int offset) {
    DYN_SHARED(float, shared);
    float *mine = shared + 4 * threadIdx.x;
    uint4 got = {};
    uint32_t matrix[4];
    for (int i = 0; i < 4; i++)
        mine[i] = 0;
    __syncwarp();
    if (access == ACCESS_PAIR)
        got.x = (uint32_t)__low2float(*moved<__nv_bfloat162>(x, offset));
    else if (access == ACCESS_PACK)
        got.x = (uint32_t)to_float(pack_load(moved<__nv_bfloat16>(x, offset)).x[0]);
    else if (access == ACCESS_ATOMIC)
        atomicAdd(moved<unsigned>(x, offset), 1u);
    else if (access == ACCESS_COPY)
        ptx_copy_async(mine, moved<char>(x, offset), true);
    else if (access == ACCESS_STAGE)
        ptx_copy_async(moved<char>(mine, offset), x, true);
    else if (access == ACCESS_SHARED)
        got = *moved<uint4>(shared, offset);
    else if (access == ACCESS_MATRIX)
        ptx_ldmatrix(matrix, moved<char>(shared, offset));
    ptx_copy_commit();
    ptx_copy_wait<0>();
    if (threadIdx.x)
        return;
    if (access == ACCESS_LONG)
        *moved<long long>(x, offset) = got.x;
    else if (access == ACCESS_STRUCT)
        *moved<Two>(x, offset) = *moved<Two>(shared, 0);
    else if (access == ACCESS_CLEAR)
        *moved<Two>(x, offset) = {};
    else if (access == ACCESS_FETCH)
        *moved<Two>(shared, 0) = *moved<Two>(x, offset);
    else if (access == ACCESS_ADD)
        *moved<float>(x, offset) += 1;
    else
        *moved<float2>(x, access == ACCESS_FLOAT2 ? offset : 0) = {(float)got.x, 1};
}

void probe_access(cudaStream_t s, enum ProbeAccess access, void *x, int offset) {
    ptx_launch(access_kernel, dim3(1), dim3(32), 33 * 16, s, access, x, offset);
}

// ---- what a block may have ----

static __global__ void __launch_bounds__(64) bounds_kernel(float *y) {
    if (threadIdx.x == 0)
        *y = 3;
}

void probe_bounds(cudaStream_t s, float *y, int threads) {
    ptx_launch(bounds_kernel, dim3(1), dim3((unsigned)threads), 0, s, y);
}

static __global__ void large_kernel(float *y, int last) {
    DYN_SHARED(float, dynamic);
    if (threadIdx.x)
        return;
    dynamic[last] = 3;
    *y = dynamic[last];
}

void probe_shared(cudaStream_t s, float *y, int threads, int bytes, int limit) {
    if (limit)
        cudaFuncSetAttribute(large_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, limit);
    ptx_launch(large_kernel, dim3(1), dim3((unsigned)threads), (size_t)bytes, s, y, bytes / 4 - 1);
}

void probe_both_shared(cudaStream_t s, int bytes) {
    const __nv_bfloat16 *none = nullptr;
    ptx_launch(product_kernel, dim3(1), dim3(32), (size_t)bytes, s, (float *)nullptr, none, none);
}

// ---- what is counted ----

struct alignas(16) Quad {
    float x[4];
};
// Returned in two registers, by which it is loaded.
static __device__ __noinline__ Quad load_quad(const float *x) {
    return *reinterpret_cast<const Quad *>(x);
}

static __global__ void move_kernel(ProbeMove move, float *y, const float *x) {
    unsigned i = threadIdx.x;
    float sum = 0;
    if (move == MOVE_PACKS) {
        reinterpret_cast<float4 *>(y)[i] = reinterpret_cast<const float4 *>(x)[i];
        return;
    }
    if (move == MOVE_HALVES) {
        *reinterpret_cast<Quad *>(y + 4 * i) = load_quad(x + 4 * i);
        return;
    }
    if (move == MOVE_SECOND)
        sum = x[2 * i];
    else if (move == MOVE_SECTORS)
        sum = x[8 * i];
    else if (move == MOVE_SHIFTED)
        sum = x[i + 1];
    else if (move == MOVE_ONE)
        sum = x[0];
    else if (move == MOVE_RANDOM)
        sum = x[probe_random(i)];
    else
        for (unsigned k = 0; k < 3; k++) {
            bool unequal = move == MOVE_UNEQUAL || move == MOVE_MET;
            if (!unequal || k != 1 || i % 2 == 0)
                sum += x[(move == MOVE_AGAIN ? 0 : 64 * k) + i];
            if (move == MOVE_MET)
                __syncwarp();
        }
    y[i] = sum;
}

void probe_move(cudaStream_t s, enum ProbeMove move, float *y, const float *x) {
    ptx_launch(move_kernel, dim3(1), dim3(64), 0, s, move, y, x);
}

static __global__ void first_kernel(float *y, const float *x) {
    *y = *x;
}

void probe_first(cudaStream_t s, float *y, const float *x, int blocks) {
    ptx_launch(first_kernel, dim3((unsigned)blocks), dim3(1), 0, s, y, x);
}

template <class T> static __device__ void write_and_read(int write, int read, void *y) {
    DYN_SHARED(T, shared);
    shared[write] = T();
    __syncwarp();
    static_cast<T *>(y)[threadIdx.x] = shared[read];
}

static __global__ void bank_kernel(ProbeBank bank, void *y) {
    int i = (int)threadIdx.x, column = i * (bank == BANK_COLUMN ? 32 : 33);
    if (bank == BANK_PAIRS)
        write_and_read<uint64_t>(i, i, y);
    else if (bank == BANK_PACKS)
        write_and_read<uint4>(i, i, y);
    else if (bank == BANK_PACKROWS)
        write_and_read<uint4>(8 * i, 8 * i, y);
    else if (bank == BANK_COLUMN || bank == BANK_PADDED)
        write_and_read<float>(column, column, y);
    else
        write_and_read<float>(i, bank == BANK_ONE ? 0 : i, y);
}

void probe_bank(cudaStream_t s, enum ProbeBank bank, void *y) {
    ptx_launch(bank_kernel, dim3(1), dim3(32), 32 * 33 * sizeof(float), s, bank, y);
}

static __global__ void matrix_kernel(unsigned *y, const char *x, int stride) {
    DYN_SHARED(char, shared);
    int lane = (int)threadIdx.x;
    uint32_t r[4];
    ptx_copy_async(shared + lane * stride, x + 16 * lane, true);
    ptx_copy_commit();
    ptx_copy_wait<0>();
    __syncwarp();
    ptx_ldmatrix(r, shared + lane * stride);
    y[lane] = r[0];
}

void probe_matrix(cudaStream_t s, unsigned *y, const void *x, int stride) {
    ptx_launch(matrix_kernel, dim3(1), dim3(32), 32 * stride, s, y, static_cast<const char *>(x),
               stride);
}

static __global__ void count_shared_kernel(unsigned *y) {
    DYN_SHARED(unsigned, count);
    if (threadIdx.x == 0)
        *count = 0;
    __syncthreads();
    atomicAdd(count, 1u);
    __syncthreads();
    if (threadIdx.x == 0)
        *y = *count;
}

void probe_count_shared(cudaStream_t s, unsigned *y) {
    ptx_launch(count_shared_kernel, dim3(1), dim3(32), sizeof(unsigned), s, y);
}
