// Causal attention, forward, on tensor cores: FlashAttention-2.
//
// Source: Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning"
// (2023), algorithm 1; the running softmax is Milakov's and Gimelshein's (2018).
//
// A block owns 128 queries of one head, each warp 32 or 16 of them. Keys and values stream past in
// tiles of 64: S = Q K^T into registers; the running maximum m and sum of every query are updated;
// P = exp(S - m), rounded to the format, is the left operand of O += P V. When m grows, earlier
// sums are scaled down. At the end O is divided by the sum, and lse = m + log(sum) is kept for the
// backward pass.
//
// The scale 1/sqrt(HS) and the change of base from e to 2 are one constant inside a fused
// multiply-add. Tiles past a warp's last query or before the first key it sees are not computed,
// and only tiles that cross the diagonal or hold such a first key are masked.
//
// Called through the kernel table. Read attention_backward.cu next.
#include "kernels/cuda/attention.cuh"

template <class T> struct ForwardArgs {
    AttentionGrid grid;
    float scale; // 1 / sqrt(HS)
    const T *qkv;
    T *out;
    float *lse;
};

// A warp's queries and results. Lane 4 g + t has the rows g and g + 8 of each 16-row tile.
template <int HS> struct Queries {
    uint32_t q[Tiles<HS>::M][Tiles<HS>::K][4];
    float o[Tiles<HS>::M][HS / 8][4];
    float most[Tiles<HS>::M][2]; // of all scores so far, before scaling
    float sum[Tiles<HS>::M][2];  // of this lane's columns; the four lanes of a row add at the end
};

// Sets scores of keys after their query to -infinity: query r of the warp sees key j of the tile if
// j <= r + ahead. Lanes have the elements of d in ptx_mma.
template <int HS>
static __device__ inline void mask_later_keys(float s[Tiles<HS>::M][Tiles<HS>::ROWS / 8][4],
                                              int ahead) {
    int lane = threadIdx.x % WARP, mine = ahead + lane / 4 - lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < Tiles<HS>::M; m++)
#pragma unroll
        for (int n = 0; n < Tiles<HS>::ROWS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (8 * n + e % 2 > mine + 16 * m + e / 2 * 8)
                    s[m][n][e] = -INFINITY;
}

// Sets scores of keys before the first that a query sees to -infinity. The warp's first query is
// `row`, the tile's first key `key`.
template <int HS>
static __device__ inline void mask_earlier_keys(float s[Tiles<HS>::M][Tiles<HS>::ROWS / 8][4],
                                                const AttentionGrid &g, int head, int row,
                                                int key) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int m = 0; m < Tiles<HS>::M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int first = g.first_key(head, row + 16 * m + lane / 4 + 8 * half);
            int begin = first - key - lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < Tiles<HS>::ROWS / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (8 * n + e < begin)
                        s[m][n][2 * half + e] = -INFINITY;
        }
}

// Sets scores in cells that a layout leaves out to -infinity. Bit 4 m + n / 2 of `cells` is that of
// the 8 columns n.
template <int HS>
static __device__ inline void mask_cells(float s[Tiles<HS>::M][Tiles<HS>::ROWS / 8][4],
                                         uint32_t cells) {
#pragma unroll
    for (int m = 0; m < Tiles<HS>::M; m++)
#pragma unroll
        for (int n = 0; n < Tiles<HS>::ROWS / 8; n++)
            if (!(cells >> (4 * m + n / 2) & 1))
#pragma unroll
                for (int e = 0; e < 4; e++)
                    s[m][n][e] = -INFINITY;
}

// Returns the value subtracted from a row's scores. At an edge, rows may have seen no key yet:
// their largest score is -infinity, and e^x of hidden scores must be 0.
template <enum Mask MASK> static __device__ inline float subtracted_score(float most) {
    return MASK == MASK_EDGE && most == -INFINITY ? 0 : most;
}

// Returns the largest of a row's scores over the four lanes that hold it.
template <int N> static __device__ inline float row_most(const float s[N][4], int half) {
    float most = -INFINITY;
#pragma unroll
    for (int n = 0; n < N; n++)
        most = fmaxf(most, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 1));
    return fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 2));
}

// Updates the maxima with the tile's scores. Most tiles change no maximum of a warp: then the
// factor is 1 for all rows, and nothing is multiplied.
template <int HS, enum Mask MASK>
static __device__ inline void raise_maxima(Queries<HS> &w, float s[][Tiles<HS>::ROWS / 8][4],
                                           float scale2) {
#pragma unroll
    for (int m = 0; m < Tiles<HS>::M; m++) {
        float factor[2];
        bool grew = false;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float most = fmaxf(w.most[m][half], row_most<Tiles<HS>::ROWS / 8>(s[m], half));
            grew |= most != w.most[m][half];
            factor[half] = ptx_exp2((w.most[m][half] - subtracted_score<MASK>(most)) * scale2);
            w.most[m][half] = most;
            w.sum[m][half] *= factor[half];
        }
        if (__any_sync(ALL_LANES, grew))
#pragma unroll
            for (int n = 0; n < HS / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    w.o[m][n][e] *= factor[e / 2];
    }
}

// Processes one tile of keys and values, whose first key is `key`. cells: those that the warp's
// rows see; used only by the mask of an edge.
template <class T, int HS, enum Mask MASK>
static __device__ inline void process_tile(Queries<HS> &w, const ForwardArgs<T> &a,
                                           const WarpQueries &at, const T *keys, int key,
                                           float scale2, uint32_t cells) {
    using Z = Tiles<HS>;
    const T *values = keys + Z::N;
    float s[Z::M][Z::ROWS / 8][4] = {};
    int ahead = at.row - key; // the warp's first query minus the tile's first key
#pragma unroll
    for (int j = 0; j < Z::ROWS / 16; j++) {
        if (MASK && 16 * j > ahead + Z::WARP_ROWS - 1)
            continue;
        if (MASK == MASK_EDGE && !(cells >> j & Z::COLUMN_CELLS))
            continue;
        float part[Z::M][2][4] = {};
        product_transposed<T, HS, Z::M>(part, w.q, keys, 16 * j);
#pragma unroll
        for (int m = 0; m < Z::M; m++)
#pragma unroll
            for (int e = 0; e < 8; e++)
                s[m][2 * j + e / 4][e % 4] = part[m][e / 4][e % 4];
    }
    if (MASK)
        mask_later_keys<HS>(s, ahead);
    if (MASK == MASK_EDGE)
        mask_earlier_keys<HS>(s, a.grid, at.head, at.row, key);
    if (MASK == MASK_EDGE && cells != Z::ALL_CELLS)
        mask_cells<HS>(s, cells);
    raise_maxima<HS, MASK>(w, s, scale2);
#pragma unroll
    for (int j = 0; j < Z::ROWS / 16; j++) {
        uint32_t p[Z::M][4];
        if (MASK && 16 * j > ahead + Z::WARP_ROWS - 1)
            continue;
        if (MASK == MASK_EDGE && !(cells >> j & Z::COLUMN_CELLS))
            continue;
#pragma unroll
        for (int m = 0; m < Z::M; m++) {
#pragma unroll
            for (int e = 0; e < 8; e++) {
                float &x = s[m][2 * j + e / 4][e % 4];
                x = ptx_exp2(
                    fmaf(x, scale2, -subtracted_score<MASK>(w.most[m][e / 2 % 2]) * scale2));
                w.sum[m][e / 2 % 2] += x;
            }
            pack_left<T>(p[m], s[m][2 * j]);
            pack_left<T>(p[m] + 2, s[m][2 * j + 1]);
        }
        product_straight<T, HS, Z::M>(w.o, p, values, 16 * j);
    }
}

// Divides the warp's outputs by their sums, and stores them and each query's log-sum-exp.
template <class T, int HS>
static __device__ inline void store_output(const Queries<HS> &w, const ForwardArgs<T> &a, int head,
                                           int row) {
    HeadRows<T> out = out_rows(a.out, a.grid, HS, head);
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int m = 0; m < Tiles<HS>::M; m++) {
        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = w.sum[m][half];
            sum += __shfl_xor_sync(ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(ALL_LANES, sum, 2);
            int r = row + 16 * m + lane / 4 + 8 * half;
            if (lane % 4 == 0 && r < a.grid.t)
                a.lse[static_cast<size_t>(head) * a.grid.t + r] =
                    fmaf(w.most[m][half], a.scale, logf(sum));
            factor[half] = 1 / sum;
        }
        store_rows<T, HS>(out, w.o[m], row + 16 * m, a.grid.t, factor);
    }
}

template <class T, int HS, bool SPARSE>
static __global__ void __launch_bounds__(Tiles<HS>::THREADS, Tiles<HS>::BLOCKS_PER_SM)
    attention_forward_mma_kernel(ForwardArgs<T> a) {
    using Z = Tiles<HS>;
    DYN_SHARED(T, shared); // [2] pairs of tiles: keys, values
    int head, block, t = a.grid.t;
    a.grid.locate(&head, &block);
    int first = (a.grid.blocks - 1 - block) * ATTENTION_ROWS; // the last queries see most keys
    int row = warp_row<HS>(first);
    WarpQueries at = {head, row, a.grid.first_key(head, row),
                      a.grid.first_key(head, row + Z::WARP_ROWS - 1)};
    HeadRows<const T> source = my_source<T, HS>(key_rows(a.qkv, a.grid, HS, head / a.grid.group),
                                                value_rows(a.qkv, a.grid, HS, head / a.grid.group));

    Queries<HS> w = {};
#pragma unroll
    for (int m = 0; m < Z::M; m++) {
        load_left<T, HS>(w.q[m], query_rows(a.qkv, a.grid, HS, head), row + 16 * m, t);
        w.most[m][0] = w.most[m][1] = -INFINITY;
    }
    TileWalk<SPARSE> keys(a.grid, LAYOUT_KEYS, head, first,
                          a.grid.first_key(head, first) / Z::ROWS * Z::ROWS);
    copy_tiles<T, HS>(shared, source, keys.at(), t);
    ptx_copy_commit();
    int end = min(first + ATTENTION_ROWS, t);
    float scale2 = a.scale * LOG2_E;
    for (int stage = 0; keys.has_tile_before(end); keys.step(), stage ^= 1) {
        int j = keys.at();
        uint32_t cells = keys.template cells<HS>();
        T *tile = shared + stage * 2 * Z::N, *next = shared + (stage ^ 1) * 2 * Z::N;
        ptx_copy_wait<0>();
        __syncthreads(); // this tile has arrived for all, and nobody still uses the previous one
        if (keys.next() < end) {
            copy_tiles<T, HS>(next, source, keys.next(), t);
            ptx_copy_commit();
        }
        if (j >= row + Z::WARP_ROWS || j + Z::ROWS <= at.begin || !cells)
            continue;
        if (j < at.all_begin || cells != Z::ALL_CELLS)
            process_tile<T, HS, MASK_EDGE>(w, a, at, tile, j, scale2, cells);
        else if (j + Z::ROWS - 1 <= row)
            process_tile<T, HS, MASK_NONE>(w, a, at, tile, j, scale2, cells);
        else
            process_tile<T, HS, MASK_DIAGONAL>(w, a, at, tile, j, scale2, cells);
    }
    store_output<T, HS>(w, a, head, row);
}

template <class T, int HS, bool SPARSE>
static void launch_kernel(struct Stream *s, const struct AttentionForward *a) {
    using Z = Tiles<HS>;
    ForwardArgs<T> args = {attention_grid(a, ATTENTION_ROWS), attention_scale(HS),
                           static_cast<const T *>(a->qkv), static_cast<T *>(a->out), a->lse};
    size_t shared_bytes = 4 * Z::N * sizeof(T);
    CUDA_CHECK(cudaFuncSetAttribute(attention_forward_mma_kernel<T, HS, SPARSE>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)));
    gpu_launch(s, attention_forward_mma_kernel<T, HS, SPARSE>,
               dim3(args.grid.heads * args.grid.blocks), dim3(Z::THREADS), shared_bytes, args);
}

template <class T, int HS>
static void launch_sparse_or_dense(struct Stream *s, const struct AttentionForward *a) {
    a->layout.begin ? launch_kernel<T, HS, true>(s, a) : launch_kernel<T, HS, false>(s, a);
}

extern "C" void cuda_attention_forward(struct Stream *s, const struct AttentionForward *a) {
    if (!attention_on_tensor_cores(a->dtype, a->hs) || !is_aligned(a->qkv, 16) ||
        !is_aligned(a->out, 16))
        attention_plain_forward(s, a);
    else if (a->hs == 64)
        a->dtype == BF16 ? launch_sparse_or_dense<__nv_bfloat16, 64>(s, a)
                         : launch_sparse_or_dense<__half, 64>(s, a);
    else
        a->dtype == BF16 ? launch_sparse_or_dense<__nv_bfloat16, 128>(s, a)
                         : launch_sparse_or_dense<__half, 128>(s, a);
}
