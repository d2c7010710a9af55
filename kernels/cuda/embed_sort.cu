// A stable sort of a batch's indices by their token's row: radix sort, lowest digit first.
//
// A pass sorts by 8 bits of row + 1, as rows are -1 .. v: each block counts the digits of its tile
// of indices; one block adds the counts up, digit by digit and tile by tile, so that each tile
// knows where its indices of each digit begin; then each tile moves its indices there, in order.
// After the pass by the highest digit the indices are sorted by row, since each pass is stable
// (Knuth, The Art of Computer Programming, vol. 3, 5.2.5). Two passes suffice for 65,534 tokens.
// Counts are integers, whose sums do not depend on the order, so atomic additions are allowed.
//
// 64k indices are 256 KB and never leave the L2 cache: this is a matter of a few launches beside
// the gigabytes of the sums. Called by embed.cu. Read next: classifier.cu.
#include "kernels/cuda/embed.cuh"
#include "kernels/cuda/gpu.cuh"

enum {
    BITS = 8,
    DIGITS = 1 << BITS,
    THREADS = DIGITS, // of a block: one per digit
    WARPS = THREADS / WARP,
    EACH = 8, // indices of a thread
    TILE = THREADS * EACH,
    SCAN_THREADS = 1024
};
static_assert(DIGITS == (int)EMBED_SORT_DIGITS && TILE == (int)EMBED_SORT_TILE,
              "differs from work.h");

// One pass: from (NULL: the indices in ascending order) to `to`.
struct Pass {
    unsigned rows, tiles, shift;
    Tokens tokens;
    const int32_t *from;
    int32_t *to;
    unsigned *counts; // (DIGITS, tiles)
};

static __device__ inline int32_t index_at(const struct Pass &p, unsigned i) {
    return p.from ? p.from[i] : (int32_t)i;
}
static __device__ inline unsigned digit_of(const struct Pass &p, int32_t index) {
    return (unsigned)(row_of(p.tokens, index) + 1) >> p.shift & (DIGITS - 1);
}

static __global__ void __launch_bounds__(THREADS) embed_sort_count_kernel(struct Pass p) {
    __shared__ unsigned counts[DIGITS];
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (unsigned k = 0; k < EACH; k++) {
        unsigned i = blockIdx.x * TILE + k * THREADS + threadIdx.x;
        if (i < p.rows)
            atomicAdd(&counts[digit_of(p, index_at(p, i))], 1u);
    }
    __syncthreads();
    p.counts[threadIdx.x * p.tiles + blockIdx.x] = counts[threadIdx.x];
}

// Returns the sum of x over the lanes before this one.
static __device__ inline unsigned sum_before(unsigned x) {
    unsigned lane = threadIdx.x % WARP, sum = x;
#pragma unroll
    for (unsigned offset = 1; offset < WARP; offset *= 2) {
        unsigned other = __shfl_up_sync(ALL_LANES, sum, offset);
        sum += lane >= offset ? other : 0;
    }
    return sum - x;
}

// Replaces each of n counts by the sum of those before it. One block; each thread takes a run.
static __global__ void __launch_bounds__(SCAN_THREADS)
    embed_sort_scan_kernel(unsigned *counts, unsigned n) {
    __shared__ unsigned sums[WARP];
    unsigned each = (n + SCAN_THREADS - 1) / SCAN_THREADS, begin = threadIdx.x * each;
    unsigned end = begin + each < n ? begin + each : n, mine = 0;
    for (unsigned i = begin; i < end; i++)
        mine += counts[i];
    unsigned before = sum_before(mine);
    if (threadIdx.x % WARP == WARP - 1)
        sums[threadIdx.x / WARP] = before + mine;
    __syncthreads();
    if (threadIdx.x < WARP) {
        unsigned warps_before = sum_before(sums[threadIdx.x]);
        __syncwarp();
        sums[threadIdx.x] = warps_before;
    }
    __syncthreads();
    before += sums[threadIdx.x / WARP];
    for (unsigned i = begin; i < end; i++) {
        unsigned count = counts[i];
        counts[i] = before;
        before += count;
    }
}

// Returns those of `lanes` that hold the same digit.
static __device__ inline unsigned same_digit(unsigned lanes, unsigned digit) {
#pragma unroll
    for (int bit = 0; bit < BITS; bit++) {
        bool set = digit >> bit & 1;
        unsigned those = __ballot_sync(ALL_LANES, set);
        lanes &= set ? those : ~those;
    }
    return lanes;
}

// Warp w of a block has the indices from w * EACH * WARP on, in EACH rounds of WARP indices.
// next[w][d] is where its next index of digit d goes.
static __global__ void __launch_bounds__(THREADS) embed_sort_move_kernel(struct Pass p) {
    __shared__ unsigned next[WARPS][DIGITS];
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, digits[EACH], ranks[EACH];
    int32_t indices[EACH];
    for (unsigned w = 0; w < WARPS; w++)
        next[w][threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (unsigned k = 0; k < EACH; k++) {
        unsigned i = blockIdx.x * TILE + (warp * EACH + k) * WARP + lane;
        bool exists = i < p.rows;
        indices[k] = exists ? index_at(p, i) : 0;
        digits[k] = exists ? digit_of(p, indices[k]) : 0;
        unsigned same = same_digit(__ballot_sync(ALL_LANES, exists), digits[k]);
        unsigned before = __popc(same & ((1u << lane) - 1)); // of my digit, in this round
        ranks[k] = next[warp][digits[k]] + before;
        __syncwarp();
        if (exists && !before)
            next[warp][digits[k]] += __popc(same);
        __syncwarp();
    }
    __syncthreads();
    unsigned at = p.counts[threadIdx.x * p.tiles + blockIdx.x];
    for (unsigned w = 0; w < WARPS; w++) {
        unsigned count = next[w][threadIdx.x];
        next[w][threadIdx.x] = at;
        at += count;
    }
    __syncthreads();
#pragma unroll
    for (unsigned k = 0; k < EACH; k++) {
        unsigned i = blockIdx.x * TILE + (warp * EACH + k) * WARP + lane;
        if (i < p.rows)
            p.to[next[warp][digits[k]] + ranks[k]] = indices[k];
    }
}

const int32_t *embed_sort(struct Stream *s, struct Tokens tokens, size_t rows, void *work) {
    size_t most = (size_t)tokens.v + 1;
    int32_t *order[2] = {(int32_t *)work, (int32_t *)work + rows};
    unsigned tiles = (unsigned)ceil_div(rows, TILE);
    struct Pass p = {
        (unsigned)rows, tiles, 0, tokens, nullptr, order[0], (unsigned *)work + 2 * rows};
    do {
        gpu_launch(s, embed_sort_count_kernel, tiles, THREADS, 0, p);
        gpu_launch(s, embed_sort_scan_kernel, 1, SCAN_THREADS, 0, p.counts, DIGITS * tiles);
        gpu_launch(s, embed_sort_move_kernel, tiles, THREADS, 0, p);
        p.from = p.to;
        p.to = p.to == order[0] ? order[1] : order[0];
        p.shift += BITS;
    } while (most >> p.shift);
    return p.from;
}
