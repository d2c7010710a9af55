// Layer norm and RMS norm backward: dx in one pass over memory, dweight and dbias by partial sums.
//
// With n = (x - mean) rstd the normalised row and g = dy * weight:
//   dx += rstd (g - mean(g) - n mean(g n)),   dweight = sum over rows of dy n,   dbias = sum of dy
// where mean(g), which passed through the row's mean, is left out in RMS norm. The sums over rows
// are why the threads of a team keep few channels each: besides the row they hold two sums per
// channel in registers, for all rows that the team sees. Teams take rows in turn. While a row is
// summed over the team, the next one is already being read. Registers set the limit: MAX_THREADS *
// MAX_EACH = 5120 channels.
//
// At its end a block adds the sums of its teams and writes them to scratch; a second kernel adds
// the blocks, in order. How many blocks there are depends on sizes alone: CHUNKS is two for each
// multiprocessor of an H100 or H200, and other GPUs take a few more or fewer turns.
//
// Ba, Kiros, Hinton, "Layer Normalization", 2016. Called through the kernel table. Read next:
// embed.cu.
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/spans.h"

enum {
    CHUNKS = 264,
    MAX_THREADS = 320, // of a block: with two blocks on a multiprocessor, 96 registers for each
    MAX_EACH = 16,     // channels of a thread
    MAX_WARPS = MAX_THREADS / WARP,
    SHARED_CHANNELS = MAX_THREADS / 2 * 8, // of a block with two teams or more
    SLICES = 8,                            // of the chunks, in the second kernel
};
static_assert(GPU_MAX_CHANNELS == MAX_THREADS * MAX_EACH, "what device.h says");

struct Rows {
    size_t rows;
    unsigned c;
    const void *dy, *x, *weight;
    const float *mean, *rstd;
    void *dx;
    float *sums; // (chunks, 2, c): of dy n, then of dy
};

// How c channels of a format are shared out.
struct Teams {
    size_t packs, threads, teams, blocks; // packs: per thread; teams: per block
};

static struct Teams share_out(size_t rows, size_t c, enum Dtype d) {
    size_t all = ceil_div(c, 16 / dtype_size(d));
    struct Teams t = {1, 0, 0, 0};
    while (round_up(ceil_div(all, t.packs), WARP) > MAX_THREADS)
        t.packs *= 2;
    t.threads = round_up(ceil_div(all, t.packs), WARP);
    t.teams = t.packs > 1 ? 1 : MAX_THREADS / t.threads;
    t.blocks = size_min(CHUNKS, ceil_div(rows, t.teams));
    return t;
}

// A thread's part of one row, as it is stored. In words of 32 bits: a 16-bit variable would take as
// large a register.
template <int PACKS> struct Part {
    uint4 dy[PACKS], x[PACKS], dx[PACKS];
    float mean, rstd;
};

template <class T, Access ACCESS, int PACKS>
static __device__ inline void read_part(Part<PACKS> &p, const struct Rows &a, size_t row,
                                        unsigned first) {
    unsigned step = blockDim.x * Pack<T>::N;
    size_t at = row * a.c;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        p.dy[k] = pack_bits(pack_read<ACCESS>((const T *)a.dy + at, first + k * step, a.c));
        p.x[k] = pack_bits(pack_read<ACCESS>((const T *)a.x + at, first + k * step, a.c));
        p.dx[k] = pack_bits(pack_read<ACCESS>((const T *)a.dx + at, first + k * step, a.c));
    }
    p.mean = a.mean ? a.mean[row] : 0;
    p.rstd = a.rstd[row];
}

// Adds a row's part to all sums: those of its channels, and those of the row itself (of g, of g n).
template <class T, int PACKS>
static __device__ inline void add_part(const Part<PACKS> &p, const uint4 (&weight_bits)[PACKS],
                                       float (&dweight)[PACKS][Pack<T>::N],
                                       float (&dbias)[PACKS][Pack<T>::N], float2 &sum) {
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        Pack<T> dys = pack_of<T>(p.dy[k]), xs = pack_of<T>(p.x[k]);
        Pack<T> weight = pack_of<T>(weight_bits[k]);
#pragma unroll
        for (int j = 0; j < Pack<T>::N; j++) {
            float dy = to_float(dys.x[j]), n = (to_float(xs.x[j]) - p.mean) * p.rstd;
            float g = dy * to_float(weight.x[j]); // 0 past the row's end
            sum.x += g;
            sum.y = fmaf(g, n, sum.y);
            dweight[k][j] = fmaf(dy, n, dweight[k][j]);
            dbias[k][j] += dy;
        }
    }
}

// dx of a row's part, from the row's sums of g and of g n.
template <class T, Access ACCESS, int PACKS>
static __device__ inline void write_part(const Part<PACKS> &p, const uint4 (&weight_bits)[PACKS],
                                         const struct Rows &a, size_t row, unsigned first,
                                         float2 sum) {
    float mean_g = a.mean ? sum.x / (float)a.c : 0, mean_gn = sum.y / (float)a.c;
    unsigned step = blockDim.x * Pack<T>::N;
    T *to = (T *)a.dx + row * a.c;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        Pack<T> dys = pack_of<T>(p.dy[k]), xs = pack_of<T>(p.x[k]), dx = pack_of<T>(p.dx[k]);
        Pack<T> weight = pack_of<T>(weight_bits[k]);
#pragma unroll
        for (int j = 0; j < Pack<T>::N; j++) {
            float n = (to_float(xs.x[j]) - p.mean) * p.rstd;
            float g = to_float(dys.x[j]) * to_float(weight.x[j]);
            float more = fmaf(-n, mean_gn, g - mean_g) * p.rstd;
            dx.x[j] = from_float<T>(to_float(dx.x[j]) + more);
        }
        pack_write<ACCESS>(to, first + k * step, a.c, dx);
    }
}

// The sums over the team, in all of its threads. `shared` is read by other threads after the
// return: the next call must be given another one.
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

// Writes the sums of the block to its chunk of scratch. Its teams add theirs in turn.
template <class T, int PACKS>
static __device__ inline void write_sums(const struct Rows &a,
                                         const float (&dweight)[PACKS][Pack<T>::N],
                                         const float (&dbias)[PACKS][Pack<T>::N], unsigned first) {
    __shared__ float2 sums[SHARED_CHANNELS];
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

// Block: (threads of a team, teams).
template <class T, Access ACCESS, int PACKS>
static __global__ void __launch_bounds__(MAX_THREADS, PACKS > 1 ? 1 : 2)
    norm_backward_rows_kernel(struct Rows a) {
    constexpr int N = Pack<T>::N;
    constexpr bool AHEAD = PACKS < 4; // four packs leave no registers to read ahead with
    __shared__ float2 shared[2][MAX_WARPS];
    unsigned first = threadIdx.x * N, step = blockDim.x * N;
    size_t stride = (size_t)gridDim.x * blockDim.y;
    size_t row = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
    Part<PACKS> part, next;
    float dweight[PACKS][N] = {}, dbias[PACKS][N] = {};
    uint4 weight[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; k++)
        weight[k] = pack_bits(pack_read<ACCESS>((const T *)a.weight, first + k * step, a.c));
    if (row < a.rows)
        read_part<T, ACCESS>(part, a, row, first);
    // All teams of a block make as many turns, as its barriers want it.
    unsigned turns = (unsigned)((a.rows + stride - 1 - blockIdx.x * blockDim.y) / stride);
    for (unsigned turn = 0; turn < turns; turn++, row += stride) {
        bool more = row + stride < a.rows;
        if (AHEAD && more)
            read_part<T, ACCESS>(next, a, row + stride, first);
        float2 sum = {0, 0}; // of g, of g n
        if (row < a.rows)
            add_part<T>(part, weight, dweight, dbias, sum);
        sum = team_sums(sum, shared[turn % 2]);
        if (row < a.rows)
            write_part<T, ACCESS>(part, weight, a, row, first, sum);
        if (AHEAD)
            part = next;
        else if (more)
            read_part<T, ACCESS>(part, a, row + stride, first);
    }
    write_sums<T, PACKS>(a, dweight, dbias, first);
}

// out (+)= the sum over chunks of one half of each: a block takes WARP channels, each of its
// SLICES warps a run of chunks.
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
    if (!t.blocks)
        return;
    with_bool(whole, [&](auto yes) {
        gpu_launch(s, norm_backward_rows_kernel < T, yes ? WHOLE : SCALAR, PACKS >,
                   (unsigned)t.blocks, dim3((unsigned)t.threads, (unsigned)t.teams), 0, *a);
    });
}

extern "C" size_t cuda_norm_backward_work(struct Device *d, const struct NormBackward *a) {
    (void)d;
    return share_out(a->rows, a->c, a->dtype).blocks * 2 * a->c * sizeof(float);
}

extern "C" void cuda_norm_backward(struct Stream *s, const struct NormBackward *a) {
    struct Teams t = share_out(a->rows, a->c, a->dtype);
    struct Rows rows = {a->rows, (unsigned)a->c,      a->dy, a->x, a->weight, a->mean, a->rstd,
                        a->dx,   (float *)a->work.mem};
    CHECK(a->c <= MAX_THREADS * MAX_EACH && a->rows <= INT32_MAX,
          "a norm over %zu rows of %zu channels; at most %d channels fit into registers", a->rows,
          a->c, MAX_THREADS * MAX_EACH);
    CHECK(a->work.bytes >= t.blocks * 2 * a->c * sizeof(float), "%zu bytes", a->work.bytes);
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        bool whole = is_whole<T>(a->c) && is_aligned(a->dy, 16) && is_aligned(a->x, 16) &&
                     is_aligned(a->weight, 16) && is_aligned(a->dx, 16);
        if (t.packs == 1)
            launch<T, 1>(s, &rows, t, whole);
        else if (t.packs == 2)
            launch<T, 2>(s, &rows, t, whole);
        else
            launch<T, MAX_EACH / Pack<T>::N>(s, &rows, t, whole);
    });
    struct Cost sums = {0, (double)(t.blocks * 2 * a->c * sizeof(float)), ""};
    span_part(s, "norm_backward sums", sums);
    with_type(a->grad_dtype, [&](auto *type) {
        using G = std::remove_pointer_t<decltype(type)>;
        dim3 blocks((unsigned)ceil_div(a->c, WARP), a->dbias ? 2 : 1);
        gpu_launch(s, norm_backward_sums_kernel<G>, blocks, dim3(WARP, SLICES), 0, rows.sums,
                   (unsigned)t.blocks, rows.c, a->accumulate, (G *)a->dweight, (G *)a->dbias);
    });
}
