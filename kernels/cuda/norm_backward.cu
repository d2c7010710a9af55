// Layer norm and RMS norm backward: dx in one pass over memory, dweight and dbias by partial sums.
//
// With n = (x - mean) rstd the normalised row and g = dy * weight:
//   dx += rstd (g - mean(g) - n mean(g n)),   dweight = sum over rows of dy n,   dbias = sum of dy
// where RMS norm leaves out mean(g), which passed through the row's mean. Because of the sums over
// rows the threads of a team have few channels each: besides the row they hold two sums per channel
// in registers, for all rows that the team sees: 5120 channels at most. Teams take rows in turn.
//
// The memory limits the kernel, if enough reads are in flight: 3.35 TB/s at 700 ns need 18 KB of
// reads for each multiprocessor of an H100, and an H200's 4.8 TB/s 25 KB (Little's law), and enough
// warps to process rows one after another. So a row is in shared memory, where cp.async copies it
// without a register, and the team's next row is copied while it works on one. A thread reads only
// what it has copied itself, so a slot needs no barrier. Two blocks fit a multiprocessor, each with
// as many teams as its threads allow: from 768 to 5120 channels in 16 bits 31 to 61 KB are in
// flight, and 20 to 32 warps work. On an H200 that gives 0.61 to 0.78 of a copy's rate, least at
// 1600 channels, for a reason that is not known yet (docs/gpu.md has the table).
//
// At its end a block adds the sums of its teams and writes them to scratch; a second kernel adds
// the blocks, in order. The number of blocks depends only on sizes: CHUNKS is two for each
// multiprocessor of an H100 or H200, and other GPUs take a few more or fewer rounds.
//
// Ba, Kiros, Hinton, "Layer Normalization", 2016. Called through the kernel table. Read next:
// embed.cu.
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/spans.h"

enum {
    CHUNKS = PTX_TURNING_BLOCKS,
    MANY = NORM_MANY, // channels of a thread
    MAX_WARPS = NORM_FEW_THREADS / WARP,
    SLICES = 8, // of the chunks, in the second kernel
};
static_assert(GPU_MAX_CHANNELS == NORM_MANY_THREADS * MANY, "differs from device.h");
static_assert(CHUNKS <= (int)NORM_BLOCKS, "differs from work.h");

struct Rows {
    size_t rows;
    unsigned c;
    float share; // 1 / c
    const void *dy, *x, *weight;
    const float *mean, *rstd;
    void *dx;
    float *sums; // (chunks, 2, c): of dy n, then of dy
};

// The division of c channels of a format.
struct Teams {
    size_t packs, threads, teams, blocks; // packs: per thread; teams: per block
};

static struct Teams divide_channels(size_t rows, size_t c, enum Dtype d) {
    struct NormTeams t = cuda_norm_teams(c, d);
    return {t.packs, t.threads, t.teams, size_min(CHUNKS, ceil_div(rows, t.teams))};
}

// ---- rows in shared memory ----

// A slot has a team's row of dy, x and dx. Four packs a thread, which fp32 has above 4096 channels,
// leave space for one slot.
enum { DY, X, DX, OPERANDS };
HOST_DEVICE static constexpr int slots(int packs) {
    return packs < 4 ? 2 : 1;
}

// Returns where a thread's pack k of an operand is in a slot; those of a team are adjacent.
template <int PACKS> static __device__ inline uint4 *slot_pack(uint4 *slot, int operand, int k) {
    return slot + (operand * PACKS + k) * blockDim.x + threadIdx.x;
}

// Starts copying a thread's part of a row. Only this thread has read the slot's old contents.
template <class T, Access ACCESS, int PACKS>
static __device__ inline void copy_row_to_slot(uint4 *slot, const struct Rows &a, size_t row,
                                               unsigned first) {
    const void *const from[OPERANDS] = {a.dy, a.x, a.dx};
    if (row < a.rows) {
#pragma unroll
        for (int operand = 0; operand < OPERANDS; operand++) {
            const T *x = (const T *)from[operand] + row * a.c;
#pragma unroll
            for (int k = 0; k < PACKS; k++) {
                unsigned i = first + k * blockDim.x * Pack<T>::N;
                uint4 *to = slot_pack<PACKS>(slot, operand, k);
                if (ACCESS == WHOLE)
                    ptx_copy_async(to, x + (i < a.c ? i : 0), i < a.c);
                else
                    *to = pack_bits(pack_read<ACCESS>(x, i, a.c));
            }
        }
    }
    ptx_copy_commit(); // an empty group after the last row
}

// ---- the sums of a row, and its dx ----

struct Stat {
    float mean, rstd;
};
static __device__ inline struct Stat read_stat(const struct Rows &a, size_t row) {
    if (row >= a.rows)
        return {0, 0};
    return {a.mean ? a.mean[row] : 0, a.rstd[row]};
}

// Adds a row's part to all sums: those of its channels, and those of the row itself (of g, of g n).
template <class T, int PACKS>
static __device__ inline void
add_part(uint4 *slot, struct Stat stat, const uint4 (&weight_bits)[PACKS],
         float (&dweight)[PACKS][Pack<T>::N], float (&dbias)[PACKS][Pack<T>::N], float2 &sum) {
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        Pack<T> dys = pack_of<T>(*slot_pack<PACKS>(slot, DY, k));
        Pack<T> xs = pack_of<T>(*slot_pack<PACKS>(slot, X, k));
        Pack<T> weight = pack_of<T>(weight_bits[k]);
#pragma unroll
        for (int j = 0; j < Pack<T>::N; j++) {
            float dy = to_float(dys.x[j]), n = (to_float(xs.x[j]) - stat.mean) * stat.rstd;
            float g = dy * to_float(weight.x[j]); // 0 past the row's end
            sum.x += g;
            sum.y = fmaf(g, n, sum.y);
            dweight[k][j] = fmaf(dy, n, dweight[k][j]);
            dbias[k][j] += dy;
        }
    }
}

// Writes dx of a row's part, from the row's sums of g and of g n.
template <class T, Access ACCESS, int PACKS>
static __device__ inline void write_part(uint4 *slot, struct Stat stat,
                                         const uint4 (&weight_bits)[PACKS], const struct Rows &a,
                                         size_t row, unsigned first, float2 sum) {
    float mean_g = a.mean ? sum.x * a.share : 0, mean_gn = sum.y * a.share;
    T *to = (T *)a.dx + row * a.c;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        Pack<T> dys = pack_of<T>(*slot_pack<PACKS>(slot, DY, k));
        Pack<T> xs = pack_of<T>(*slot_pack<PACKS>(slot, X, k));
        Pack<T> dx = pack_of<T>(*slot_pack<PACKS>(slot, DX, k)),
                weight = pack_of<T>(weight_bits[k]);
#pragma unroll
        for (int j = 0; j < Pack<T>::N; j++) {
            float n = (to_float(xs.x[j]) - stat.mean) * stat.rstd;
            float g = to_float(dys.x[j]) * to_float(weight.x[j]);
            float more = fmaf(-n, mean_gn, g - mean_g) * stat.rstd;
            dx.x[j] = from_float<T>(to_float(dx.x[j]) + more);
        }
        pack_write<ACCESS>(to, first + k * blockDim.x * Pack<T>::N, a.c, dx);
    }
}

// Returns the sums over the team, to all of its threads. Other threads read `shared` after the
// return: the next call must use another one.
static __device__ inline float2 team_sums(float2 x, float2 *shared) {
    unsigned warps = blockDim.x / WARP;
    float2 sum = {warp_sum(x.x), warp_sum(x.y)};
    if (threadIdx.x % WARP == 0)
        shared[threadIdx.y * warps + threadIdx.x / WARP] = sum;
    __syncthreads();
    sum = {0, 0};
    for (unsigned i = 0; i < warps; i++) {
        float2 other = shared[threadIdx.y * warps + i];
        sum.x += other.x;
        sum.y += other.y;
    }
    return sum;
}

// Writes the sums of the block to its chunk of scratch. Its teams add theirs in turn; `sums`: the
// memory of the slots.
template <class T, int PACKS>
static __device__ inline void write_sums(float2 *sums, const struct Rows &a,
                                         const float (&dweight)[PACKS][Pack<T>::N],
                                         const float (&dbias)[PACKS][Pack<T>::N], unsigned first) {
    unsigned step = blockDim.x * Pack<T>::N, last = blockDim.y - 1;
    float *chunk = a.sums + (size_t)blockIdx.x * 2 * a.c;
    for (unsigned team = 0; team <= last; team++) {
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
#pragma unroll
            for (int j = 0; j < Pack<T>::N; j++) {
                unsigned i = first + k * step + j;
                if (threadIdx.y != team || i >= a.c)
                    continue;
                float2 sum = {dweight[k][j], dbias[k][j]};
                if (team) {
                    sum.x += sums[i].x;
                    sum.y += sums[i].y;
                }
                if (team == last) {
                    chunk[i] = sum.x;
                    chunk[a.c + i] = sum.y;
                } else
                    sums[i] = sum;
            }
        }
        __syncthreads();
    }
}

// Block: (threads of a team, teams). The template that moves single elements, which training never
// uses, needs more registers.
template <class T, Access ACCESS, int PACKS>
static __global__ void __launch_bounds__(NORM_THREADS(PACKS *Pack<T>::N), ACCESS == WHOLE ? 2 : 1)
    norm_backward_rows_kernel(struct Rows a) {
    constexpr int N = Pack<T>::N, SLOTS = slots(PACKS);
    __shared__ float2 shared[2][MAX_WARPS];
    DYN_SHARED(uint4, rows);
    unsigned first = threadIdx.x * N, slot_size = OPERANDS * PACKS * blockDim.x;
    uint4 *own = rows + threadIdx.y * SLOTS * slot_size;
    size_t stride = (size_t)gridDim.x * blockDim.y;
    size_t row = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
    float dweight[PACKS][N] = {}, dbias[PACKS][N] = {};
    uint4 weight[PACKS];
    for (int i = 0; i < SLOTS; i++)
        copy_row_to_slot<T, ACCESS, PACKS>(own + i * slot_size, a, row + i * stride, first);
    struct Stat stat = read_stat(a, row);
#pragma unroll
    for (int k = 0; k < PACKS; k++)
        weight[k] =
            pack_bits(pack_read<ACCESS>((const T *)a.weight, first + k * blockDim.x * N, a.c));
    // All teams of a block make the same number of rounds, as its barriers require.
    unsigned turns = (unsigned)((a.rows + stride - 1 - blockIdx.x * blockDim.y) / stride);
    for (unsigned turn = 0; turn < turns; turn++, row += stride) {
        uint4 *slot = own + turn % SLOTS * slot_size;
        struct Stat next = read_stat(a, row + stride);
        float2 sum = {0, 0}; // of g, of g n
        ptx_copy_wait<SLOTS - 1>();
        if (row < a.rows)
            add_part<T>(slot, stat, weight, dweight, dbias, sum);
        sum = team_sums(sum, shared[turn % 2]);
        if (row < a.rows)
            write_part<T, ACCESS>(slot, stat, weight, a, row, first, sum);
        copy_row_to_slot<T, ACCESS, PACKS>(slot, a, row + SLOTS * stride, first);
        stat = next;
    }
    __syncthreads(); // all have read their slots
    if (a.sums)
        write_sums<T, PACKS>((float2 *)rows, a, dweight, dbias, first);
}

// out (+)= the sum over chunks of one half of each: a block takes WARP channels, each of its SLICES
// warps a run of chunks.
template <class G>
static __global__ void __launch_bounds__(SLICES *WARP)
    norm_backward_sums_kernel(const float *sums, unsigned chunks, unsigned c, bool accumulate,
                              G *dweight, G *dbias) {
    __shared__ float slices[SLICES][WARP];
    unsigned i = blockIdx.x * WARP + threadIdx.x;
    unsigned each = (chunks + SLICES - 1) / SLICES, begin = threadIdx.y * each;
    unsigned end = begin + each < chunks ? begin + each : chunks;
    float sum = 0;
    if (i < c) {
#pragma unroll 8
        for (unsigned k = begin; k < end; k++)
            sum += sums[((size_t)2 * k + blockIdx.y) * c + i];
    }
    slices[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || i >= c)
        return;
    for (int slice = 1; slice < SLICES; slice++)
        sum += slices[slice][threadIdx.x];
    G *out = blockIdx.y ? dbias : dweight;
    out[i] = from_float<G>(accumulate ? to_float(out[i]) + sum : sum);
}

template <class T, int PACKS>
static void launch(struct Stream *s, const struct Rows *a, struct Teams t, bool whole) {
    size_t bytes = t.teams * slots(PACKS) * OPERANDS * PACKS * t.threads * sizeof(uint4);
    if (!t.blocks)
        return;
    with_bool(whole, [&](auto yes) {
        auto kernel = norm_backward_rows_kernel < T, yes ? WHOLE : SCALAR, PACKS > ;
        CUDA_CHECK(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
        gpu_launch(s, kernel, (unsigned)t.blocks, dim3((unsigned)t.threads, (unsigned)t.teams),
                   bytes, *a);
    });
}

extern "C" void cuda_norm_backward(struct Stream *s, const struct NormBackward *a) {
    struct Teams t = divide_channels(a->rows, a->c, a->dtype);
    struct Rows rows = {.rows = a->rows,
                        .c = (unsigned)a->c,
                        .share = 1 / (float)a->c,
                        .dy = a->dy,
                        .x = a->x,
                        .weight = a->weight,
                        .mean = a->mean,
                        .rstd = a->rstd,
                        .dx = a->dx,
                        .sums = a->dweight ? (float *)a->work.mem : nullptr};
    CHECK(a->c <= GPU_MAX_CHANNELS && a->rows <= INT32_MAX,
          "a norm over %zu rows of %zu channels; at most %d channels fit into registers", a->rows,
          a->c, GPU_MAX_CHANNELS);
    CHECK(a->work.bytes >= (a->dweight ? t.blocks * 2 * a->c * sizeof(float) : 0), "%zu bytes",
          a->work.bytes);
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        bool whole = is_whole<T>(a->c) && is_aligned(a->dy, 16) && is_aligned(a->x, 16) &&
                     is_aligned(a->weight, 16) && is_aligned(a->dx, 16);
        if (t.packs == 1)
            launch<T, 1>(s, &rows, t, whole);
        else if (t.packs == 2)
            launch<T, 2>(s, &rows, t, whole);
        else
            launch<T, MANY / Pack<T>::N>(s, &rows, t, whole);
    });
    if (!a->dweight)
        return;
    struct Cost sums = {0, (double)(t.blocks * 2 * a->c * sizeof(float)), ""};
    span_part(s, "norm_backward sums", sums);
    with_type(a->grad_dtype, [&](auto *type) {
        using G = std::remove_pointer_t<decltype(type)>;
        dim3 blocks((unsigned)ceil_div(a->c, WARP), a->dbias ? 2 : 1);
        gpu_launch(s, norm_backward_sums_kernel<G>, blocks, dim3(WARP, SLICES), 0, rows.sums,
                   (unsigned)t.blocks, rows.c, a->accumulate, (G *)a->dweight, (G *)a->dbias);
    });
}
