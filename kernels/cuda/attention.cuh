// Shared by the attention kernels: the head and rows of a block, tiles in shared memory, fragments
// for the tensor cores.
//
// A block of threads owns 128 rows of one head: queries if it sums over keys (the forward pass,
// dQ), keys if it sums over queries (dK, dV). Its own rows stay in registers for the whole kernel;
// the other side streams past in tiles of 64 rows, two of them in shared memory: while one is used,
// the next arrives by cp.async. If several query heads read one key head, its keys see them one
// after the other, in order: a key's sum stays in the registers of one warp.
//
// In sparse attention only the tiles in the list of the block's rows stream past (struct TileWalk;
// kernels/layout.h); a warp skips tiles, and 16 rows of them, whose cells are all hidden from its
// own rows. That is compiled separately, so that dense attention does not lose registers to it.
//
// If queries have a first key, a block's loop begins or ends with the last tile that one of its
// rows sees; a warp skips tiles, or 16 rows of them, that none of its own rows sees; and only 16 x
// 16 scores with hidden ones test each score (Mask).
//
// A matrix product runs on mma.sync m16n8k16 (ptx.cuh). The rows that a warp owns are always the M
// of the product, 16 or 32 of them, so the score tile that a warp computes is in its own registers
// in exactly the layout of the next product's left operand: neither P nor dS ever passes through
// shared memory (Dao, "FlashAttention-2", 2023, section 3.3 for the forward pass; dK and dV achieve
// the same with the transposed scores K Q^T).
//
// The budget of registers is 16 x HS numbers per lane and operand: 32 rows a warp at HS = 64, 16 at
// HS = 128. Any other head size, fp32, and operands that are not aligned to 16 bytes use the plain
// kernels (attention_plain.cu).
//
// Read next: attention.cu, then attention_backward.cu.
#ifndef KERNELS_CUDA_ATTENTION_CUH
#define KERNELS_CUDA_ATTENTION_CUH
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/spans.h"

#include <math.h>
#include <string.h>

// The tile sizes, by head size.
template <int HS> struct Tiles {
    static constexpr int WARPS = HS / 16;
    static constexpr int THREADS = WARPS * WARP;
    static constexpr int BLOCKS_PER_SM = 128 / HS; // as registers allow: 255 a thread
    static constexpr int M = 128 / HS;             // 16-row tiles that a warp owns
    static constexpr int WARP_ROWS = 16 * M;
    static constexpr int K = HS / 16;    // steps of 16 along a row
    static constexpr int ROWS = 64;      // of a tile that streams past
    static constexpr int N = ROWS * HS;  // elements of it
    static constexpr int CHUNK = HS / 8; // 16-byte chunks in a row
    // A warp's rows' cells in a tile, and those in its first 16 columns.
    static constexpr uint32_t ALL_CELLS = M == 2 ? 0xff : 0xf, COLUMN_CELLS = M == 2 ? 0x11 : 1;
};

// Returns the first of this warp's rows, given the block's.
template <int HS> static __device__ inline int warp_row(int first) {
    return first + static_cast<int>(threadIdx.x) / WARP * Tiles<HS>::WARP_ROWS;
}

enum { ATTENTION_MAX_HS = 256 };

// Statistics of a query for the backward pass: its log-sum-exp in units of log2, and D, the sum
// over the head of dout * out (FlashAttention-2, section 3.1). The kernel for dQ writes them, the
// one for dK and dV reads them. Rows up to a multiple of ATTENTION_ROWS exist; lse2 = +infinity
// past T, so that no key gets weight from them.
struct QueryStats {
    float lse2, d;
};
static_assert(sizeof(QueryStats) == ATTENTION_STATS, "differs from work.h");

// Sizes, and the order in which blocks start. The blocks of a head differ in length: the last
// queries see all keys. Long ones come first, so that none is left to run alone at the end, but
// only within 64 heads at a time: the rows of those fit in the L2 cache, which the blocks of one
// head share.
struct AttentionGrid {
    int t, nh, nkv, group; // group: query heads that read one key head
    int vectors;           // vectors of qkv per token
    int heads, blocks;     // heads: over the whole batch, of queries or of keys; blocks: per head
    const int32_t *first;  // (B, T); NULL: 0
    Layout layout;         // begin NULL: none

    static const int TOGETHER = 64;

    // Sets the head, and the block's index in it, counted from the longest.
    __device__ void locate(int *head, int *block) const {
        int first = static_cast<int>(blockIdx.x) / (TOGETHER * blocks) * TOGETHER;
        int here = min(TOGETHER, heads - first);
        int index = static_cast<int>(blockIdx.x) - first * blocks;
        *head = first + index % here;
        *block = index / here;
    }
    // Returns the first key that query `row` sees, in the sequence of query head `head`; past the
    // end, the one that the last query sees.
    __device__ int first_key(int head, int row) const {
        return first ? first[static_cast<size_t>(head / nh) * t + min(row, t - 1)] : 0;
    }
};

// The grid with blocks of `rows` rows per query head. `a`: AttentionForward, AttentionBackward.
template <class Args> static inline AttentionGrid attention_grid(const Args *a, int rows) {
    size_t blocks = ceil_div(a->t, rows);
    CHECK(a->b * a->nh * blocks < 0x7fffffff, "%zu x %zu heads of %zu rows", a->b, a->nh, a->t);
    return {static_cast<int>(a->t),
            static_cast<int>(a->nh),
            static_cast<int>(a->nkv),
            static_cast<int>(a->nh / a->nkv),
            static_cast<int>(a->nh + 2 * a->nkv),
            static_cast<int>(a->b * a->nh),
            static_cast<int>(blocks),
            a->first,
            a->layout};
}
// The same for each key head.
template <class Args> static inline AttentionGrid attention_key_grid(const Args *a, int rows) {
    AttentionGrid g = attention_grid(a, rows);
    g.heads = static_cast<int>(a->b * a->nkv);
    return g;
}

// The rows of one head as a T x HS matrix in device memory, rows `stride` elements apart.
template <class T> struct HeadRows {
    T *at;
    int stride;
};
// Returns the rows of query head number `head` in an array (B, T, NH, HS).
template <class T>
static __device__ inline HeadRows<T> out_rows(T *p, const AttentionGrid &g, int hs, int head) {
    size_t b = head / g.nh, h = head % g.nh;
    return {p + (b * g.t * g.nh + h) * hs, g.nh * hs};
}
// Return the rows of a vector in qkv (B, T, NH + 2 NKV, HS): of sequence b's `vector`; the queries
// of query head number `head`; the keys and the values of key head number `head`.
template <class T>
static __device__ inline HeadRows<T> qkv_rows(T *p, const AttentionGrid &g, int hs, int b,
                                              int vector) {
    return {p + (static_cast<size_t>(b) * g.t * g.vectors + vector) * hs, g.vectors * hs};
}
template <class T>
static __device__ inline HeadRows<T> query_rows(T *p, const AttentionGrid &g, int hs, int head) {
    return qkv_rows(p, g, hs, head / g.nh, head % g.nh);
}
template <class T>
static __device__ inline HeadRows<T> key_rows(T *p, const AttentionGrid &g, int hs, int head) {
    return qkv_rows(p, g, hs, head / g.nkv, g.nh + head % g.nkv);
}
template <class T>
static __device__ inline HeadRows<T> value_rows(T *p, const AttentionGrid &g, int hs, int head) {
    return qkv_rows(p, g, hs, head / g.nkv, g.nh + g.nkv + head % g.nkv);
}

// The queries of a warp: its query head and first query, the first key that it sees, and the first
// key that all of its queries see.
struct WarpQueries {
    int head, row, begin, all_begin;
};

// The hidden scores of a tile: none, those of keys after their query, or also those of keys before
// the first that their query sees.
enum Mask { MASK_NONE, MASK_DIAGONAL, MASK_EDGE };

// Walks the tiles of 64 rows that stream past 128 rows of a query head, from `begin` on. If the
// attention is dense, it walks all of them.
template <bool SPARSE> struct TileWalk {
    int row;
    __device__ TileWalk(const AttentionGrid &, LayoutSide, int, int, int begin) : row(begin) {}
    __device__ bool has_tile_before(int end) const { return row < end; }
    __device__ int at() const { return row; }
    __device__ int next() const { return row + LAYOUT_TILE; }
    __device__ void step() { row += LAYOUT_TILE; }
    __device__ int buffer(int ahead) const { // of two: that of the tile `ahead` tiles after this
        return (row / LAYOUT_TILE + ahead) % 2;
    }
    __device__ int first_buffer() const { // that of the first tile, if begin is a multiple of 128
        return 0;
    }
    template <int HS> __device__ uint32_t cells() const { return Tiles<HS>::ALL_CELLS; }
    template <int HS> __device__ uint32_t column(int) const { return Tiles<HS>::COLUMN_CELLS; }
};
// If it is sparse, it walks those in the rows' list, which has at least the one on the diagonal.
template <> struct TileWalk<true> {
    LayoutList list;
    __device__ TileWalk(const AttentionGrid &g, LayoutSide side, int head, int own, int begin)
        : list(layout_list(&g.layout, side, head, own)) {
        while (at() < begin)
            list.tile++;
    }
    __device__ bool has_tile_before(int end) const { return list.tile < list.end && at() < end; }
    __device__ int at() const { return static_cast<int>(list.tile->at); }
    __device__ int next() const { // past any end, if there is none
        return list.tile + 1 < list.end ? static_cast<int>(list.tile[1].at) : 0x7fffffff;
    }
    __device__ void step() { list.tile++; }
    __device__ int buffer(int ahead) const { // by its address, which takes no register
        size_t index = reinterpret_cast<uintptr_t>(list.tile) / sizeof(LayoutTile);
        return static_cast<int>((index + static_cast<size_t>(ahead)) % 2);
    }
    __device__ int first_buffer() const { return buffer(0); }
    // The cells of the warp's own rows: bit 4 * (row / 16) + passing row / 16.
    template <int HS> __device__ uint32_t cells() const {
        return list.tile->cells >> warp_row<HS>(0) / LAYOUT_CELL * 4 & Tiles<HS>::ALL_CELLS;
    }
    // Those of 16 passing rows, from row `passing` of the tile on: bit 4 * (row / 16).
    template <int HS> __device__ uint32_t column(int passing) const {
        return cells<HS>() >> passing / LAYOUT_CELL & Tiles<HS>::COLUMN_CELLS;
    }
};

// True if the tensor-core kernels accept this: a matrix row must be whole 16-byte chunks.
static inline bool attention_on_tensor_cores(enum Dtype d, size_t hs) {
    return d != F32 && (hs == 64 || hs == 128);
}
static inline float attention_scale(size_t hs) {
    return static_cast<float>(1 / sqrt(static_cast<double>(hs)));
}

// Begins a part of the backward pass, with `products` of its five matrix products to itself: S and
// dP, which both parts compute, count half in each. Either part reads or writes six of the eight
// matrices (B, T, NH, HS).
static inline void attention_part(struct Stream *s, const struct AttentionBackward *a,
                                  const char *name, int products) {
    if (!span_is_on(s))
        return;
    struct Cost cost = cost_attention_backward(a);
    cost.flops *= products / 5.0;
    cost.bytes *= 6.0 / 8;
    span_part(s, name, cost);
}

// The plain kernels: any head size up to ATTENTION_MAX_HS, any format, any alignment.
void attention_plain_forward(struct Stream *s, const struct AttentionForward *a);
void attention_plain_backward(struct Stream *s, const struct AttentionBackward *a);

// ---- fragments ----

// Packs two numbers rounded to T, the first in the lower half.
static __device__ inline uint32_t pack2(float x, float y, __nv_bfloat16) {
    __nv_bfloat162 v = __floats2bfloat162_rn(x, y);
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}
static __device__ inline uint32_t pack2(float x, float y, __half) {
    __half2 v = __floats2half2_rn(x, y);
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}
// Returns the sum of the products of two such pairs.
template <class T> static __device__ inline float dot2(uint32_t a, uint32_t b) {
    T x[2], y[2];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    return fmaf(to_float(x[0]), to_float(y[0]), to_float(x[1]) * to_float(y[1]));
}

// Makes a 16 x 8 tile of accumulators the left (or, from a + 2 on, right) half of the next
// product's left operand.
template <class T> static __device__ inline void pack_left(uint32_t *a, const float acc[4]) {
    a[0] = pack2(acc[0], acc[1], T());
    a[1] = pack2(acc[2], acc[3], T());
}

// Loads 16 rows from `row` on of a matrix with T rows in device memory, as left operands; rows past
// the end are zero. Each block reads them once, so shared memory would not pay off.
template <class T, int HS>
static __device__ inline void load_left(uint32_t a[][4], const HeadRows<const T> &from, int row,
                                        int t) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int r = row + lane / 4 + 8 * half;
        const T *p = from.at + static_cast<size_t>(r < t ? r : 0) * from.stride + lane % 4 * 2;
#pragma unroll
        for (int k = 0; k < HS / 16; k++) {
            uint32_t low = *reinterpret_cast<const uint32_t *>(p + 16 * k);
            uint32_t high = *reinterpret_cast<const uint32_t *>(p + 16 * k + 8);
            a[k][half] = r < t ? low : 0;
            a[k][half + 2] = r < t ? high : 0;
        }
    }
}

// Stores accumulators of 16 rows, times `factor`, to rows of a matrix in device memory.
template <class T, int HS>
static __device__ inline void store_rows(const HeadRows<T> &to, const float acc[][4], int row,
                                         int t, const float factor[2]) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int r = row + lane / 4 + 8 * half;
        if (r >= t)
            continue;
        T *p = to.at + static_cast<size_t>(r) * to.stride + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < HS / 8; n++)
            *reinterpret_cast<uint32_t *>(p + 8 * n) =
                pack2(acc[n][2 * half] * factor[half], acc[n][2 * half + 1] * factor[half], T());
    }
}

// ---- tiles in shared memory ----
// A row's 16-byte chunk c is at index c ^ (row % 8). ldmatrix reads one chunk of eight rows at a
// time: at index c they would all be in the same banks, so they are in eight different ones.

// Returns the matrix that this thread copies: half of a block's threads fetch tiles of one, half of
// the other. One source per thread keeps registers free.
template <class T, int HS>
static __device__ inline HeadRows<const T> my_source(const HeadRows<const T> &first,
                                                     const HeadRows<const T> &second) {
    return threadIdx.x < Tiles<HS>::THREADS / 2 ? first : second;
}

// Starts the copy of rows row .. row + 63 of both matrices into two adjacent tiles; rows past t
// become zero.
template <class T, int HS>
static __device__ inline void copy_tiles(T *tiles, const HeadRows<const T> &mine, int row, int t) {
    using Z = Tiles<HS>;
    constexpr int HALF = Z::THREADS / 2, AT_ONCE = HALF / Z::CHUNK;
    static_assert(AT_ONCE == 8, "row % 8 is the same in each round");
    int thread = ptx_thread(), chunk = thread % Z::CHUNK, line = thread % HALF / Z::CHUNK;
    T *to = tiles + thread / HALF * Z::N + line * HS + (chunk ^ line) * 8;
    const T *p = mine.at + static_cast<size_t>(row + line) * mine.stride + chunk * 8;
    int step = AT_ONCE * mine.stride;
#pragma unroll
    for (int i = 0; i < Z::ROWS / AT_ONCE; i++) {
        ptx_copy_async(to + i * AT_ONCE * HS, p, row + line + i * AT_ONCE < t);
        p += step;
    }
}

// Returns the index in a tile of the chunk whose address this lane gives ldmatrix, for a product
// with the transposed tile: the tile's rows are the columns of the right operand.
template <int HS> static __device__ inline int ldmatrix_offset_transposed() {
    int lane = threadIdx.x % WARP, row = lane / 16 * 8 + lane % 8;
    return row * HS + (lane / 8 % 2 ^ lane % 8) * 8;
}
// The same for a product with the tile itself: its rows are those of the right operand.
template <int HS> static __device__ inline int ldmatrix_offset_straight() {
    int lane = threadIdx.x % WARP, row = lane % 16;
    return row * HS + (lane / 16 ^ lane % 8) * 8;
}

// d += a (16 x 16, a's columns 16 k ..) times the transposed rows `row` .. row + 15 of a tile, for
// M fragments a: two 16 x 8 accumulators each. An XOR with 16 k moves by 2 k chunks.
template <class T, int HS, int M>
static __device__ inline void product_transposed(float d[M][2][4], const uint32_t a[M][HS / 16][4],
                                                 const T *tile, int row) {
    int at = ldmatrix_offset_transposed<HS>();
#pragma unroll
    for (int k = 0; k < HS / 16; k++) {
        uint32_t b[4];
        ptx_ldmatrix(b, tile + (row * HS + at ^ 16 * k));
#pragma unroll
        for (int m = 0; m < M; m++) {
            ptx_mma(d[m][0], a[m][k], b, T());
            ptx_mma(d[m][1], a[m][k], b + 2, T());
        }
    }
}

// The same for only 8 rows of the tile, one accumulator per fragment: fewer registers at a time.
template <class T, int HS, int M>
static __device__ inline void product_transposed8(float d[M][4], const uint32_t a[M][HS / 16][4],
                                                  const T *tile, int row) {
    int lane = threadIdx.x % WARP, at = lane % 8 * HS + (lane / 8 ^ lane % 8) * 8;
#pragma unroll
    for (int k = 0; k < HS / 16; k += 2) {
        uint32_t b[4];
        ptx_ldmatrix(b, tile + (row * HS + at ^ 16 * k));
#pragma unroll
        for (int m = 0; m < M; m++) {
            ptx_mma(d[m], a[m][k], b, T());
            ptx_mma(d[m], a[m][k + 1], b + 2, T());
        }
    }
}

// d (16 x HS) += a (16 x 16) times rows `row` .. row + 15 of a tile.
template <class T, int HS, int M>
static __device__ inline void product_straight(float d[M][HS / 8][4], const uint32_t a[M][4],
                                               const T *tile, int row) {
    int at = ldmatrix_offset_straight<HS>();
#pragma unroll
    for (int n = 0; n < HS / 16; n++) {
        uint32_t b[4];
        ptx_ldmatrix_transposed(b, tile + (row * HS + at ^ 16 * n));
#pragma unroll
        for (int m = 0; m < M; m++) {
            ptx_mma(d[m][2 * n], a[m], b, T());
            ptx_mma(d[m][2 * n + 1], a[m], b + 2, T());
        }
    }
}

#endif
