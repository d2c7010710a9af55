// Residual addition and layer norm, or RMS norm, in one pass over memory.
//
// A team of warps owns a row. Each thread reads its packs of the row into registers, and the row
// stays there: the mean, then the variance around it, then the result are computed from it without
// reading memory again. A row of up to 8 packs a lane (2048 channels of 16 bits) has a team of one
// warp, which sums only by shuffles; a block then holds four rows. Wider rows have larger teams,
// one to a block.
//
// The team depends only on c and the format, so the bits do not depend on how rows are moved. All
// rows read weight and bias, hence from the L1 cache. RMS norm is layer norm around a mean of 0:
// one sum over the team less, the same memory traffic.
//
// Ba, Kiros, Hinton, "Layer Normalization", 2016; Zhang, Sennrich, "Root Mean Square Layer
// Normalization", 2019. Called through the kernel table. Read next: norm_backward.cu.
#include "kernels/cuda/gpu.cuh"

enum { MAX_PACKS = 8, MAX_WARPS = 8, ROWS = 4 };

struct NormArgs {
    size_t rows;
    unsigned c;
    float eps;
    const void *x, *delta;
    void *sum, *y;
    float *mean, *rstd;
    const void *weight, *bias;
};

// Returns the sum of x over the team, to all of its threads, always in the same order.
static __device__ inline float team_sum(float x) {
    __shared__ float sums[MAX_WARPS];
    x = warp_sum(x);
    if (blockDim.x == WARP)
        return x;
    __syncthreads(); // all have read the sums of the previous call
    if (threadIdx.x % WARP == 0)
        sums[threadIdx.x / WARP] = x;
    __syncthreads();
    float sum = 0;
    for (unsigned i = 0; i < blockDim.x / WARP; i++)
        sum += sums[i];
    return sum;
}

// Reads the thread's part of the row that begins at element `at`; adds delta, if any, and rounds
// and stores the sum. The thread's packs begin at channels first, first + step, ...
template <class T, Access ACCESS, int PACKS>
static __device__ inline void read_row(Pack<T> (&row)[PACKS], const struct NormArgs &l, size_t at,
                                       unsigned first, unsigned step) {
    constexpr int N = Pack<T>::N;
    const T *x = (const T *)l.x + at, *delta = (const T *)l.delta + at;
    Pack<T> more[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; k++)
        row[k] = pack_read<ACCESS>(x, first + k * step, l.c);
    if (!l.delta)
        return;
#pragma unroll
    for (int k = 0; k < PACKS; k++)
        more[k] = pack_read<ACCESS>(delta, first + k * step, l.c);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
#pragma unroll
        for (int j = 0; j < N; j++)
            row[k].x[j] = from_float<T>(to_float(row[k].x[j]) + to_float(more[k].x[j]));
        pack_write<ACCESS>((T *)l.sum + at, first + k * step, l.c, row[k]);
    }
}

template <class T, int PACKS>
static __device__ inline float sum_values(const Pack<T> (&row)[PACKS]) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
#pragma unroll
        for (int j = 0; j < Pack<T>::N; j++)
            sum += to_float(row[k].x[j]);
    }
    return sum;
}

// Returns the sum of (x - mean)^2 over the thread's part of the row, without elements past its end.
template <class T, int PACKS>
static __device__ inline float sum_squares(const Pack<T> (&row)[PACKS], float mean, unsigned first,
                                           unsigned step, unsigned end) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
#pragma unroll
        for (int j = 0; j < Pack<T>::N; j++) {
            float off = first + k * step + j < end ? to_float(row[k].x[j]) - mean : 0;
            sum = fmaf(off, off, sum);
        }
    }
    return sum;
}

// Block: (threads of a team, rows).
template <class T, Access ACCESS, int PACKS>
static __global__ void __launch_bounds__(MAX_WARPS *WARP) norm_forward_kernel(struct NormArgs l) {
    constexpr int N = Pack<T>::N;
    size_t r = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (r >= l.rows)
        return; // the whole warp; larger teams have no such row
    size_t at = r * l.c;
    unsigned step = blockDim.x * N, mine = threadIdx.x * N;
    Pack<T> row[PACKS];
    read_row<T, ACCESS>(row, l, at, mine, step);
    if (!l.y)
        return;
    float mean = 0;
    if (l.mean)
        mean = team_sum(sum_values(row)) / (float)l.c;
    float variance = team_sum(sum_squares(row, mean, mine, step, l.c)) / (float)l.c;
    float rstd = 1.0f / sqrtf(variance + l.eps);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        unsigned i = mine + k * step;
        Pack<T> weight = pack_read<ACCESS>((const T *)l.weight, i, l.c);
        Pack<T> bias = {};
        if (l.bias)
            bias = pack_read<ACCESS>((const T *)l.bias, i, l.c);
#pragma unroll
        for (int j = 0; j < N; j++) {
            float n = (to_float(row[k].x[j]) - mean) * rstd;
            row[k].x[j] = from_float<T>(fmaf(n, to_float(weight.x[j]), to_float(bias.x[j])));
        }
        pack_write<ACCESS>((T *)l.y + at, i, l.c, row[k]);
    }
    if (threadIdx.x == 0) {
        if (l.mean)
            l.mean[r] = mean;
        l.rstd[r] = rstd;
    }
}

template <class T, int PACKS>
static void launch(struct Stream *s, const struct NormArgs *l, unsigned warps, bool whole) {
    unsigned rows = warps == 1 ? ROWS : 1;
    with_bool(whole, [&](auto yes) {
        gpu_launch(s, norm_forward_kernel < T, yes ? WHOLE : SCALAR, PACKS >,
                   (unsigned)ceil_div(l->rows, rows), dim3(warps * WARP, rows), 0, *l);
    });
}

template <class T> static void pick_packs(struct Stream *s, const struct NormArgs *l, bool whole) {
    size_t packs = ceil_div(l->c, Pack<T>::N * WARP), warps = ceil_div(packs, MAX_PACKS);
    CHECK(warps <= MAX_WARPS, "a norm over %u channels; at most %zu fit into registers", l->c,
          (size_t)MAX_PACKS * MAX_WARPS * WARP * Pack<T>::N);
    size_t each = ceil_div(packs, warps); // packs per lane
    if (each <= 1)
        launch<T, 1>(s, l, (unsigned)warps, whole);
    else if (each <= 3)
        launch<T, 3>(s, l, (unsigned)warps, whole);
    else if (each <= 5)
        launch<T, 5>(s, l, (unsigned)warps, whole);
    else
        launch<T, MAX_PACKS>(s, l, (unsigned)warps, whole);
}

extern "C" void cuda_norm_forward(struct Stream *s, const struct NormForward *a) {
    struct NormArgs l = {a->rows, (unsigned)a->c, a->eps,  a->x,      a->delta, a->sum,
                         a->y,    a->mean,        a->rstd, a->weight, a->bias};
    if (!a->rows)
        return;
    CHECK(a->rows <= INT32_MAX && a->c <= INT32_MAX, "(%zu, %zu)", a->rows, a->c);
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        bool whole = is_whole<T>(a->c) && is_aligned(a->x, 16) && is_aligned(a->delta, 16) &&
                     is_aligned(a->sum, 16) && is_aligned(a->y, 16) && is_aligned(a->weight, 16) &&
                     is_aligned(a->bias, 16);
        pick_packs<T>(s, &l, whole);
    });
}
