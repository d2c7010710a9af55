// Shared by the plain attention kernels: tiles of fp32 in shared memory, and products of them.
//
// 16 x 16 threads own R x 16 rows of one head; the other side streams past in tiles of as many
// rows. Thread (y, x) computes the scores of the rows y, y + 16 .. and the columns x, x + 16 ..,
// and of results the same rows and the elements x, x + 16 .. of a head. Whatever the format in
// memory, tiles are fp32 and padded with zeros to a multiple of 16 elements, so the inner loops
// need not know the head size.
//
// Called by attention_plain.cu and attention_plain_backward.cu.
#ifndef KERNELS_CUDA_ATTENTION_PLAIN_CUH
#define KERNELS_CUDA_ATTENTION_PLAIN_CUH
#include "kernels/cuda/attention.cuh"

// C: elements of a head per thread, for head sizes up to 16 C.
template <int C> struct Plain {
    static constexpr int SIDE = 16, THREADS = SIDE * SIDE;
    static constexpr int R = C <= 8 ? 2 : 1; // rows per thread: what 99 KiB of shared memory hold
    static constexpr int ROWS = R * SIDE;
    static constexpr int STRIDE = SIDE * C + 4; // of a tile: 16-byte rows, few bank conflicts
    static constexpr int TILE = ROWS * STRIDE;
    static constexpr int SCORE_STRIDE = ROWS + 1;
    static constexpr int SCORES = ROWS * SCORE_STRIDE;
};

// The tiles that stream past a block's rows, of as many rows: those at begin .. end - 1, or those
// of them in a layout's list with a seen cell in our rows.
struct PlainTileWalk {
    int at, begin, end, rows, own;
    int n;          // walked parts of the list's tiles, of `rows` rows each
    uint32_t cells; // bit 4 * i + j: own rows 16 i .. 16 i + 15, passing rows 16 j ..
    LayoutList list;

    __device__ PlainTileWalk(const AttentionGrid &g, LayoutSide side, int head, int own, int begin,
                             int end, int rows)
        : at(begin - rows), begin(begin), end(end), rows(rows), own(own), n(0), cells(~0u), list() {
        if (g.layout.begin)
            list = layout_list(&g.layout, side, head, own);
    }
    // Goes to the next tile, at row `at`; false: there is none. `together` tiles make one of the
    // list's.
    __device__ bool next() {
        int together = LAYOUT_TILE / rows;
        at += rows;
        if (!list.tile)
            return at < end;
        for (; list.tile + n / together < list.end;) {
            const LayoutTile &tile = list.tile[n / together];
            at = static_cast<int>(tile.at) + n++ % together * rows;
            cells =
                tile.cells >> (own % LAYOUT_OWN / LAYOUT_CELL * 4 + at % LAYOUT_TILE / LAYOUT_CELL);
            if (begin <= at && at < end && cells & (rows == 16 ? 1 : 0x33))
                return true;
        }
        return false;
    }
};

static __device__ inline int plain_x() {
    return threadIdx.x % 16;
}
static __device__ inline int plain_y() {
    return threadIdx.x / 16;
}

// Return the sum, or the largest, over the 16 threads that share a row, to all of them.
static __device__ inline float plain_row_sum(float v) {
#pragma unroll
    for (int offset = 8; offset; offset /= 2)
        v += __shfl_xor_sync(ALL_LANES, v, offset);
    return v;
}
static __device__ inline float plain_row_most(float v) {
#pragma unroll
    for (int offset = 8; offset; offset /= 2)
        v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, offset));
    return v;
}

// Loads rows row .. row + ROWS - 1 of a matrix into a tile; zeros past row t and past element hs.
template <class T, int C>
static __device__ inline void plain_load(float *tile, const HeadRows<const T> &from, int row, int t,
                                         int hs) {
    using P = Plain<C>;
    for (int i = threadIdx.x; i < P::ROWS * P::SIDE * C; i += P::THREADS) {
        int r = i / (P::SIDE * C), c = i % (P::SIDE * C);
        float x = 0;
        if (row + r < t && c < hs)
            x = to_float(from.at[static_cast<size_t>(row + r) * from.stride + c]);
        tile[r * P::STRIDE + c] = x;
    }
}

// s[i][j] = row y + 16 i of `a` times row x + 16 j of `b`.
template <int C>
static __device__ inline void plain_scores(float s[][Plain<C>::R], const float *a, const float *b) {
    using P = Plain<C>;
    const float *row = a + plain_y() * P::STRIDE, *column = b + plain_x() * P::STRIDE;
#pragma unroll
    for (int i = 0; i < P::R; i++)
#pragma unroll
        for (int j = 0; j < P::R; j++)
            s[i][j] = 0;
#pragma unroll 4
    for (int c = 0; c < P::SIDE * C; c += 4) {
        Pack<float> x[P::R], y[P::R];
#pragma unroll
        for (int i = 0; i < P::R; i++) {
            x[i] = pack_load(row + i * P::SIDE * P::STRIDE + c);
            y[i] = pack_load(column + i * P::SIDE * P::STRIDE + c);
        }
#pragma unroll
        for (int i = 0; i < P::R; i++)
#pragma unroll
            for (int j = 0; j < P::R; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    s[i][j] = fmaf(x[i].x[e], y[j].x[e], s[i][j]);
    }
}

template <int C>
static __device__ inline void plain_store_scores(float *to, const float s[][Plain<C>::R]) {
    using P = Plain<C>;
#pragma unroll
    for (int i = 0; i < P::R; i++)
#pragma unroll
        for (int j = 0; j < P::R; j++)
            to[(plain_y() + 16 * i) * P::SCORE_STRIDE + plain_x() + 16 * j] = s[i][j];
}

// acc[i][c] += scores of row y + 16 i, times column x + 16 c of a tile.
template <int C>
static __device__ inline void plain_add(float acc[][C], const float *scores, const float *tile) {
    using P = Plain<C>;
#pragma unroll 2
    for (int k = 0; k < P::ROWS; k++) {
        float p[P::R];
#pragma unroll
        for (int i = 0; i < P::R; i++)
            p[i] = scores[(plain_y() + 16 * i) * P::SCORE_STRIDE + k];
#pragma unroll
        for (int c = 0; c < C; c++) {
            float x = tile[k * P::STRIDE + plain_x() + 16 * c];
#pragma unroll
            for (int i = 0; i < P::R; i++)
                acc[i][c] = fmaf(p[i], x, acc[i][c]);
        }
    }
}

// Stores row y + 16 i of the results, times `factor`, from row `row` of a matrix on.
template <class T, int C>
static __device__ inline void plain_store(const HeadRows<T> &to, const float acc[][C], int row,
                                          int t, int hs, const float factor[]) {
    using P = Plain<C>;
#pragma unroll
    for (int i = 0; i < P::R; i++) {
        int r = row + plain_y() + 16 * i;
#pragma unroll
        for (int c = 0; c < C; c++)
            if (r < t && plain_x() + 16 * c < hs)
                to.at[static_cast<size_t>(r) * to.stride + plain_x() + 16 * c] =
                    from_float<T>(acc[i][c] * factor[i]);
    }
}

// Starts a plain kernel with `tiles` tiles and `scores` score tiles of shared memory.
template <int C, class Args>
static inline void plain_launch(struct Stream *s, void (*kernel)(Args), const Args &args, int tiles,
                                int scores) {
    using P = Plain<C>;
    size_t shared_bytes = (tiles * P::TILE + scores * P::SCORES) * sizeof(float);
    CUDA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)));
    gpu_launch(s, kernel, dim3(args.grid.heads * args.grid.blocks), dim3(P::THREADS), shared_bytes,
               args);
}

// Calls f with the number of elements per thread for a head size, as a compile-time constant.
template <class F> static inline void with_columns(size_t hs, F f) {
    CHECK(hs > 0 && hs <= ATTENTION_MAX_HS, "head size %zu, expected 1 to %d", hs,
          ATTENTION_MAX_HS);
    if (hs <= 16)
        f(Plain<1>());
    else if (hs <= 64)
        f(Plain<4>());
    else if (hs <= 128)
        f(Plain<8>());
    else
        f(Plain<16>());
}

#endif
