// Rotary position embedding of queries and keys, with the norm of each head that Qwen3 has.
//
// A team of lanes, a power of two, owns a head: each lane holds one pack of its first half and the
// pack of its partners in the second half, 16 bytes each, so that a head is read and written once.
// A block takes a row, whose heads have the same angles: each lane reads its part of the table once
// and keeps it, and its team takes several heads in turn. Shuffles sum the norm over the team.
// Memory limits the speed: some 20 instructions for each pair of 2-byte elements that are read and
// written; both passes should move their bytes (cost.c) at the speed of a copy. If half a head is
// not a power of two of packs (HS 80: 5 of 8 lanes) some lanes idle, which costs loads in flight,
// not bytes.
//
// Backward, with dn the gradient dy rotated back, n = x rstd and g = dn weight:
//   dx = rstd (g - n mean(g n)),   dweight = sum over rows and heads of dn n
// For the sums CHUNKS blocks take rows in turn, four for each multiprocessor of an H100 or H200. A
// lane has the same channels of all its heads, and keeps their sums in registers; at its end a
// block adds those of its warps, in order, and a second kernel adds the blocks. These sums take
// registers, 128 in all for 16-bit formats: with 40 heads, for example, a multiprocessor holds five
// blocks of 96 threads with 64 bytes each in flight, 30 KB, while a copy at full speed needs some
// 40. There we expect three quarters of a copy's speed.
//
// Su et al., "RoFormer", 2021; the norm: Qwen Team, "Qwen3 Technical Report", 2025. Called through
// the kernel table. Read next: attention.cu.
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/spans.h"

enum {
    MAX_THREADS = 256, // of a block
    HEADS_EACH = 4,    // heads of a row per team, if the block may be large enough
    CHUNKS = ROTATE_BLOCKS,
    MAX_HALF = 256, // half a head: WARP packs of 16-bit numbers
    SLICES = 8,     // of the chunks, in the second kernel
};

struct Heads {
    size_t rows;
    // turned: queries and keys; heads: all that are moved. A row has 2 turned - nh, values too.
    unsigned t, nh, turned, heads, hs;
    const int32_t *starts;
    const float *table;
    const void *q_norm, *k_norm;
    float eps;
    const void *x;
    void *y;     // backward: dy, which becomes dx
    float *sums; // backward: (chunks, 2, hs), of q_norm and k_norm; NULL: none
};

// A lane's part of a head: the pairs (first[j], second[j]).
template <int N> struct Part { float first[N], second[N]; };

template <class T, Access ACCESS, int N = Pack<T>::N>
static __device__ inline Part<N> read_part(const void *base, size_t at, unsigned i, unsigned half) {
    Pack<T> first = pack_read<ACCESS>((const T *)base + at, i, half);
    Pack<T> second = pack_read<ACCESS>((const T *)base + at + half, i, half);
    Part<N> p;
#pragma unroll
    for (int j = 0; j < N; j++) {
        p.first[j] = to_float(first.x[j]);
        p.second[j] = to_float(second.x[j]);
    }
    return p;
}

template <class T, Access ACCESS, int N>
static __device__ inline void write_part(void *base, size_t at, unsigned i, unsigned half,
                                         const Part<N> &p) {
    Pack<T> first, second;
#pragma unroll
    for (int j = 0; j < N; j++) {
        first.x[j] = from_float<T>(p.first[j]);
        second.x[j] = from_float<T>(p.second[j]);
    }
    pack_write<ACCESS>((T *)base + at, i, half, first);
    pack_write<ACCESS>((T *)base + at + half, i, half, second);
}

// Returns cos (first) and sin (second) of the lane's pairs from i on, in a row of the table.
template <Access ACCESS, int N>
static __device__ inline Part<N> read_angles(const float *row, unsigned i, unsigned half) {
    Part<N> p;
#pragma unroll
    for (int j = 0; j < N; j += 2) {
        Pack<float> two = pack_read<ACCESS>(row, 2 * (i + j), 2 * half);
        p.first[j] = two.x[0];
        p.second[j] = two.x[1];
        p.first[j + 1] = two.x[2];
        p.second[j + 1] = two.x[3];
    }
    return p;
}

// Rotates the point (first, second) by an angle whose sine is sign * angle.second.
template <int N>
static __device__ inline void rotate(Part<N> &p, const Part<N> &angle, float sign) {
#pragma unroll
    for (int j = 0; j < N; j++) {
        float cosine = angle.first[j], sine = sign * angle.second[j], first = p.first[j];
        p.first[j] = fmaf(first, cosine, -(p.second[j] * sine));
        p.second[j] = fmaf(p.second[j], cosine, first * sine);
    }
}

template <int N> static __device__ inline float dot_product(const Part<N> &a, const Part<N> &b) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < N; j++)
        sum = fmaf(a.first[j], b.first[j], fmaf(a.second[j], b.second[j], sum));
    return sum;
}

template <int N> static __device__ inline void multiply(Part<N> &a, const Part<N> &b) {
#pragma unroll
    for (int j = 0; j < N; j++) {
        a.first[j] *= b.first[j];
        a.second[j] *= b.second[j];
    }
}

template <int N> static __device__ inline void scale(Part<N> &a, float factor) {
#pragma unroll
    for (int j = 0; j < N; j++) {
        a.first[j] *= factor;
        a.second[j] *= factor;
    }
}

// Returns the sum over a team's lanes, to all of them. All lanes of the warp must call it.
static __device__ inline float team_sum(float x) {
    for (unsigned offset = blockDim.x / 2; offset; offset /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, (int)offset);
    return x;
}

template <int N> static __device__ inline float part_rstd(const Part<N> &x, const struct Heads &a) {
    return 1.0f / sqrtf(team_sum(dot_product(x, x)) / (float)a.hs + a.eps);
}

// Grid: rows. Block: (lanes of a team, teams), whole warps.
template <class T, Access ACCESS, bool NORMS>
static __global__ void __launch_bounds__(MAX_THREADS) rotate_forward_kernel(struct Heads a) {
    constexpr int N = Pack<T>::N;
    unsigned half = a.hs / 2, mine = threadIdx.x * N;
    size_t row = blockIdx.x;
    Part<N> angle =
        read_angles<ACCESS, N>(a.table + row_position(a.starts, row, a.t) * a.hs, mine, half);
    // All teams make the same rounds, as the shuffles require; past the last head they do nothing.
    for (unsigned begin = 0; begin < a.heads; begin += blockDim.y) {
        unsigned head = begin + threadIdx.y, i = head < a.heads ? mine : half;
        size_t at = (row * (2 * a.turned - a.nh) + head) * a.hs;
        Part<N> p = read_part<T, ACCESS>(a.x, at, i, half);
        if (NORMS) {
            const void *weight = head < a.nh ? a.q_norm : a.k_norm;
            float rstd = part_rstd(p, a);
            if (weight && head < a.turned) {
                scale(p, rstd);
                multiply(p, read_part<T, ACCESS>(weight, 0, i, half));
            }
        }
        if (head < a.turned)
            rotate(p, angle, 1);
        write_part<T, ACCESS>(a.y, at, i, half, p);
    }
}

// Returns the index of a channel's sum in shared memory: lanes whose channels are N apart use
// different banks.
template <int N> static __device__ inline unsigned spread(unsigned channel) {
    return channel + channel / N;
}

// Writes the block's sums to its chunk of scratch: first over the teams of each warp, then its
// warps in turn.
template <int N>
static __device__ inline void write_sums(const struct Heads &a, Part<N> (&sums)[2]) {
    __shared__ float shared[2][2 * MAX_HALF + 2 * MAX_HALF / N];
    unsigned half = a.hs / 2, thread = threadIdx.y * blockDim.x + threadIdx.x;
    unsigned warps = blockDim.x * blockDim.y / WARP;
    float *chunk = a.sums + (size_t)blockIdx.x * 2 * a.hs;
    for (unsigned warp = 0; warp < warps; warp++) {
#pragma unroll
        for (int which = 0; which < 2; which++) {
#pragma unroll
            for (int j = 0; j < 2 * N; j++) {
                float sum = j < N ? sums[which].first[j % N] : sums[which].second[j % N];
                for (unsigned offset = blockDim.x; offset < WARP; offset *= 2)
                    sum += __shfl_xor_sync(ALL_LANES, sum, (int)offset);
                unsigned i = threadIdx.x * N + j % N, at = j < N ? i : half + i;
                if (thread / WARP != warp || thread % WARP >= blockDim.x || i >= half)
                    continue;
                if (warp)
                    sum += shared[which][spread<N>(at)];
                shared[which][spread<N>(at)] = sum;
            }
        }
        __syncthreads();
    }
    for (unsigned i = thread; i < 2 * a.hs; i += warps * WARP)
        chunk[i] = shared[i / a.hs][spread<N>(i % a.hs)];
}

// Turns p from dn to dx for a lane's part, and adds dn n to the sums of its kind.
template <class T, Access ACCESS, int N>
static __device__ inline void back_through_norm(const struct Heads &a, Part<N> &p, size_t at,
                                                unsigned head, unsigned i, Part<N> (&sums)[2]) {
    const void *weight = head < a.nh ? a.q_norm : a.k_norm;
    unsigned half = a.hs / 2;
    Part<N> n = {}, g = p;
    if (weight && i < half) {
        n = read_part<T, ACCESS>(a.x, at, i, half);
        multiply(g, read_part<T, ACCESS>(weight, 0, i, half));
    }
    float rstd = part_rstd(n, a);
    scale(n, rstd);
    float mean = team_sum(dot_product(g, n)) / (float)a.hs;
    if (!weight || i >= half)
        return;
#pragma unroll
    for (int j = 0; j < N; j++) {
        float first = p.first[j] * n.first[j], second = p.second[j] * n.second[j];
        sums[0].first[j] += head < a.nh ? first : 0;
        sums[0].second[j] += head < a.nh ? second : 0;
        sums[1].first[j] += head < a.nh ? 0 : first;
        sums[1].second[j] += head < a.nh ? 0 : second;
        p.first[j] = fmaf(-n.first[j], mean, g.first[j]) * rstd;
        p.second[j] = fmaf(-n.second[j], mean, g.second[j]) * rstd;
    }
}

template <class T, Access ACCESS, bool NORMS>
static __global__ void __launch_bounds__(MAX_THREADS, ACCESS == WHOLE ? 2 : 1)
    rotate_backward_kernel(struct Heads a) {
    constexpr int N = Pack<T>::N;
    unsigned half = a.hs / 2, mine = threadIdx.x * N;
    Part<N> sums[2] = {};
    for (size_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        Part<N> angle =
            read_angles<ACCESS, N>(a.table + row_position(a.starts, row, a.t) * a.hs, mine, half);
        for (unsigned begin = 0; begin < a.turned; begin += blockDim.y) {
            unsigned head = begin + threadIdx.y, i = head < a.turned ? mine : half;
            size_t at = (row * (2 * a.turned - a.nh) + head) * a.hs;
            Part<N> p = read_part<T, ACCESS>(a.y, at, i, half);
            rotate(p, angle, -1);
            if (NORMS)
                back_through_norm<T, ACCESS>(a, p, at, head, i, sums);
            write_part<T, ACCESS>(a.y, at, i, half, p);
        }
    }
    if (NORMS && a.sums)
        write_sums(a, sums);
}

// dq_norm and dk_norm (+)= the sum over chunks of their half of each: a block takes WARP channels,
// each of its SLICES warps a run of chunks.
template <class G>
static __global__ void __launch_bounds__(SLICES *WARP)
    rotate_sums_kernel(const float *sums, unsigned chunks, unsigned hs, bool accumulate, G *dq_norm,
                       G *dk_norm) {
    __shared__ float slices[SLICES][WARP];
    G *out = blockIdx.y ? dk_norm : dq_norm;
    unsigned i = blockIdx.x * WARP + threadIdx.x;
    unsigned each = (chunks + SLICES - 1) / SLICES, begin = threadIdx.y * each;
    unsigned end = begin + each < chunks ? begin + each : chunks;
    float sum = 0;
    if (i < hs) {
#pragma unroll 8
        for (unsigned k = begin; k < end; k++)
            sum += sums[((size_t)2 * k + blockIdx.y) * hs + i];
    }
    slices[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || i >= hs || !out)
        return;
    for (int slice = 1; slice < SLICES; slice++)
        sum += slices[slice][threadIdx.x];
    out[i] = from_float<G>(accumulate ? to_float(out[i]) + sum : sum);
}

// Returns the lanes of a team, and the teams of a block.
template <class T> static dim3 choose_block(const struct Heads &a) {
    unsigned lanes = 1, teams = (unsigned)ceil_div(a.heads, HEADS_EACH);
    while (lanes * Pack<T>::N < a.hs / 2)
        lanes *= 2;
    CHECK(a.hs % 2 == 0 && lanes <= WARP, "heads of %u channels; at most %u fit into a warp", a.hs,
          2 * WARP * Pack<T>::N);
    teams = (unsigned)round_up(teams, WARP / lanes); // whole warps
    return dim3(lanes, (unsigned)size_min(teams, MAX_THREADS / lanes));
}

template <class T> static bool is_whole_head(const struct Heads &a) {
    return is_whole<T>(a.hs / 2) && is_aligned(a.table, 16) && is_aligned(a.q_norm, 16) &&
           is_aligned(a.k_norm, 16) && is_aligned(a.x, 16) && is_aligned(a.y, 16);
}

extern "C" void cuda_rotate_forward(struct Stream *s, const struct RotateForward *a) {
    size_t rows = a->b * a->t, turned = a->nh + a->nkv;
    CHECK(rows <= INT32_MAX && turned + a->nkv <= INT32_MAX && a->hs <= INT32_MAX,
          "(%zu, %zu + 2 x %zu, %zu)", rows, a->nh, a->nkv, a->hs);
    struct Heads heads = {rows,
                          (unsigned)a->t,
                          (unsigned)a->nh,
                          (unsigned)turned,
                          (unsigned)(a->y == a->x ? turned : turned + a->nkv),
                          (unsigned)a->hs,
                          a->starts,
                          a->table,
                          a->q_norm,
                          a->k_norm,
                          a->eps,
                          a->x,
                          a->y,
                          nullptr};
    if (!rows || !a->hs)
        return;
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        dim3 block = choose_block<T>(heads);
        with_bool(is_whole_head<T>(heads), [&](auto whole) {
            with_bool(a->q_norm || a->k_norm, [&](auto norms) {
                constexpr Access ACCESS = whole ? WHOLE : SCALAR;
                gpu_launch(s, rotate_forward_kernel<T, ACCESS, norms>, (unsigned)rows, block, 0,
                           heads);
            });
        });
    });
}

static size_t chunks_of(const struct RotateBackward *a) {
    return size_min(CHUNKS, a->b * a->t);
}

static void launch_sums(struct Stream *s, const struct RotateBackward *a) {
    struct Cost sums = {0, (double)(chunks_of(a) * 2 * a->hs * sizeof(float)), ""};
    span_part(s, "rotate_backward sums", sums);
    with_type(a->grad_dtype, [&](auto *type) {
        using G = std::remove_pointer_t<decltype(type)>;
        gpu_launch(s, rotate_sums_kernel<G>, dim3((unsigned)ceil_div(a->hs, WARP), 2),
                   dim3(WARP, SLICES), 0, (const float *)a->work.mem, (unsigned)chunks_of(a),
                   (unsigned)a->hs, a->accumulate, (G *)a->dq_norm, (G *)a->dk_norm);
    });
}

extern "C" void cuda_rotate_backward(struct Stream *s, const struct RotateBackward *a) {
    size_t rows = a->b * a->t, turned = a->nh + a->nkv;
    bool has_norm = a->q_norm || a->k_norm, wants_sums = a->dq_norm || a->dk_norm;
    CHECK(rows <= INT32_MAX && turned + a->nkv <= INT32_MAX && a->hs <= INT32_MAX,
          "(%zu, %zu + 2 x %zu, %zu)", rows, a->nh, a->nkv, a->hs);
    CHECK(a->work.bytes >= cuda_rotate_backward_work(nullptr, a), "%zu bytes", a->work.bytes);
    struct Heads heads = {rows,
                          (unsigned)a->t,
                          (unsigned)a->nh,
                          (unsigned)turned,
                          (unsigned)turned,
                          (unsigned)a->hs,
                          a->starts,
                          a->table,
                          a->q_norm,
                          a->k_norm,
                          a->eps,
                          has_norm ? a->x : nullptr,
                          a->dy,
                          wants_sums ? (float *)a->work.mem : nullptr};
    if (!rows || !a->hs)
        return;
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        dim3 block = choose_block<T>(heads);
        unsigned blocks = (unsigned)(wants_sums ? chunks_of(a) : rows);
        with_bool(is_whole_head<T>(heads), [&](auto whole) {
            with_bool(has_norm || wants_sums, [&](auto norms) {
                constexpr Access ACCESS = whole ? WHOLE : SCALAR;
                gpu_launch(s, rotate_backward_kernel<T, ACCESS, norms>, blocks, block, 0, heads);
            });
        });
    });
    if (wants_sums)
        launch_sums(s, a);
}
