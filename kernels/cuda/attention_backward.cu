// Causal attention, backward, on tensor cores: FlashAttention-2 in two kernels, without atomics.
//
// Source: Dao, "FlashAttention-2" (2023), algorithm 2. P = exp(S - lse), D = rowsum(dO * O):
//   dV = P^T dO      dP = dO V^T      dS = P * (dP - D)      dQ = dS K      dK = dS^T Q
//
// In the paper a block owns keys, and adds its part of dQ to device memory with atomics: five
// products, but sums in an order that changes from run to run. Here dQ has a kernel of its own,
// whose blocks own queries, and S and dP are computed in both: seven products. In exchange every
// sum stays in the registers of one warp from beginning to end. Nothing is added in device memory,
// so the bits are always the same and no fp32 copy of dQ is needed; and since the tensor cores
// leave each kernel's scores as the left operand of the next product, neither P nor dS passes
// through shared memory, as they must if one kernel needs both dS and its transpose.
//
// The kernel of dq runs first. It also makes D and lse in the units of exp2 for the other kernel
// (QueryStats), which costs it one read of O.
//
// Called through the kernel table. Read attention_plain.cu next.
#include "kernels/cuda/attention.cuh"

template <class T> struct BackwardArgs {
    AttentionGrid grid;
    float scale, scale2; // 1 / sqrt(HS), and that times log2(e)
    const T *qkv, *out, *dout;
    const float *lse;
    QueryStats *stats; // (B, NH, blocks * ATTENTION_ROWS)
    T *dqkv;
};

template <class T>
static __device__ inline QueryStats *head_stats(const BackwardArgs<T> &a, int head) {
    return a.stats + static_cast<size_t>(head) * a.grid.blocks * ATTENTION_ROWS;
}

// ---- dQ: a block owns 128 queries; keys and values stream past ----

template <int HS> struct Queries {
    uint32_t q[Tiles<HS>::M][Tiles<HS>::K][4], dout[Tiles<HS>::M][Tiles<HS>::K][4];
    float dq[Tiles<HS>::M][HS / 8][4];
    QueryStats stats[Tiles<HS>::M][2]; // of the rows g and g + 8 of each 16-row tile
};

// Reads a warp's queries and dO, and makes their statistics, for itself and for the other kernel.
template <class T, int HS>
static __device__ inline void load_queries(Queries<HS> &w, const BackwardArgs<T> &a, int head,
                                           int row) {
    using Z = Tiles<HS>;
    int lane = threadIdx.x % WARP, t = a.grid.t;
    QueryStats *stats = head_stats(a, head);
#pragma unroll
    for (int m = 0; m < Z::M; m++) {
        uint32_t out[Z::K][4];
        load_left<T, HS>(w.q[m], query_rows(a.qkv, a.grid, HS, head), row + 16 * m, t);
        load_left<T, HS>(w.dout[m], out_rows(a.dout, a.grid, HS, head), row + 16 * m, t);
        load_left<T, HS>(out, out_rows(a.out, a.grid, HS, head), row + 16 * m, t);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int r = row + 16 * m + lane / 4 + 8 * half;
            float d = 0;
#pragma unroll
            for (int k = 0; k < Z::K; k++)
                d += dot2<T>(w.dout[m][k][half], out[k][half]) +
                     dot2<T>(w.dout[m][k][half + 2], out[k][half + 2]);
            d += __shfl_xor_sync(ALL_LANES, d, 1);
            d += __shfl_xor_sync(ALL_LANES, d, 2);
            float lse = r < t ? a.lse[static_cast<size_t>(head) * t + r] * LOG2_E : INFINITY;
            w.stats[m][half] = {lse, d};
            if (lane % 4 == 0)
                stats[r] = w.stats[m][half];
        }
    }
}

// Adds dS K of keys `key` .. key + 15 of a tile to dq. The warp's first query is `ahead` after the
// first of them; on the diagonal, before some of them. cells: of these keys, bit 4 m of the 16
// queries m.
template <class T, int HS, enum Mask MASK>
static __device__ inline void add_to_dq(Queries<HS> &w, const BackwardArgs<T> &a,
                                        const WarpQueries &at, const T *keys, int key, int ahead,
                                        uint32_t cells) {
    using Z = Tiles<HS>;
    const T *values = keys + Z::N;
    int lane = threadIdx.x % WARP;
    float s[Z::M][2][4] = {}, dp[Z::M][2][4]; // dp - D
#pragma unroll
    for (int m = 0; m < Z::M; m++)
#pragma unroll
        for (int e = 0; e < 8; e++)
            dp[m][e / 4][e % 4] = -w.stats[m][e / 2 % 2].d;
    product_transposed<T, HS, Z::M>(s, w.q, keys, key);
    product_transposed<T, HS, Z::M>(dp, w.dout, values, key);
    int mine = ahead + lane / 4 - lane % 4 * 2;
    uint32_t ds[Z::M][4];
#pragma unroll
    for (int m = 0; m < Z::M; m++) {
        int begin[2] = {}; // of the rows g and g + 8: this lane's column of the first key they see
        if (MASK == MASK_EDGE)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int r = at.row + 16 * m + lane / 4 + 8 * half;
                begin[half] = a.grid.first_key(at.head, r) - at.row + ahead - lane % 4 * 2;
            }
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                QueryStats q = w.stats[m][e / 2];
                float p = ptx_exp2(fmaf(s[m][n][e], a.scale2, -q.lse2));
                if (MASK && 8 * n + e % 2 > mine + 16 * m + e / 2 * 8)
                    p = 0;
                if (MASK == MASK_EDGE && (8 * n + e % 2 < begin[e / 2] || !(cells >> 4 * m & 1)))
                    p = 0;
                dp[m][n][e] *= p;
            }
        pack_left<T>(ds[m], dp[m][0]);
        pack_left<T>(ds[m] + 2, dp[m][1]);
    }
    product_straight<T, HS, Z::M>(w.dq, ds, keys, key);
}

template <class T, int HS, bool SPARSE>
static __global__ void __launch_bounds__(Tiles<HS>::THREADS, Tiles<HS>::BLOCKS_PER_SM)
    attention_backward_dq_mma_kernel(BackwardArgs<T> a) {
    using Z = Tiles<HS>;
    DYN_SHARED(T, shared); // [2] pairs of tiles: keys, values
    int head, block, t = a.grid.t;
    a.grid.locate(&head, &block);
    int first = (a.grid.blocks - 1 - block) * ATTENTION_ROWS;
    int row = warp_row<HS>(first);
    HeadRows<const T> source = my_source<T, HS>(key_rows(a.qkv, a.grid, HS, head / a.grid.group),
                                                value_rows(a.qkv, a.grid, HS, head / a.grid.group));
    WarpQueries at = {head, row, a.grid.first_key(head, row),
                      a.grid.first_key(head, row + Z::WARP_ROWS - 1)};
    TileWalk<SPARSE> keys(a.grid, LAYOUT_KEYS, head, first,
                          a.grid.first_key(head, first) / Z::ROWS * Z::ROWS);
    copy_tiles<T, HS>(shared, source, keys.at(), t);
    ptx_copy_commit();
    Queries<HS> w = {};
    load_queries<T, HS>(w, a, head, row);

    int end = min(first + ATTENTION_ROWS, t);
    for (int stage = 0; keys.has_tile_before(end); keys.step(), stage ^= 1) {
        int j = keys.at();
        T *tile = shared + stage * 2 * Z::N, *next = shared + (stage ^ 1) * 2 * Z::N;
        ptx_copy_wait<0>();
        __syncthreads(); // this tile has arrived for all, and nobody still uses the previous one
        if (keys.next() < end) {
            copy_tiles<T, HS>(next, source, keys.next(), t);
            ptx_copy_commit();
        }
        int unseen = max(at.begin - j, 0) / 16 * 16; // keys before the first that the warp sees
#pragma unroll 1
        for (int key = unseen; key < Z::ROWS && j + key < row + Z::WARP_ROWS; key += 16) {
            int ahead = row - j - key;
            uint32_t here = keys.template column<HS>(key);
            if (!here)
                continue;
            if (j + key < at.all_begin || here != Z::COLUMN_CELLS)
                add_to_dq<T, HS, MASK_EDGE>(w, a, at, tile, key, ahead, here);
            else if (ahead < 15)
                add_to_dq<T, HS, MASK_DIAGONAL>(w, a, at, tile, key, ahead, here);
            else
                add_to_dq<T, HS, MASK_NONE>(w, a, at, tile, key, ahead, here);
        }
    }
    HeadRows<T> dq = query_rows(a.dqkv, a.grid, HS, head);
    float factor[2] = {a.scale, a.scale};
#pragma unroll
    for (int m = 0; m < Z::M; m++)
        store_rows<T, HS>(dq, w.dq[m], row + 16 * m, t, factor);
}

// ---- dK and dV: a block owns 128 keys; queries and dO stream past, head by head of the group ----

template <int HS> struct Keys {
    uint32_t k[Tiles<HS>::M][Tiles<HS>::K][4], v[Tiles<HS>::M][Tiles<HS>::K][4];
    float dk[Tiles<HS>::M][HS / 8][4], dv[Tiles<HS>::M][HS / 8][4];
};

// A tile that streams past: 64 queries, their dO, their statistics and, if queries have a first
// key, those, relative to the block's first.
template <class T, int HS> struct QueryTiles {
    T q_dout[2 * Tiles<HS>::N];
    QueryStats stats[Tiles<HS>::ROWS];
    int first[Tiles<HS>::ROWS];
};

// Values that are the same for all threads and only needed between tiles are in shared memory: the
// products need the registers. head: of the keys, over the whole batch. Queries first .. end - 1 of
// the member-th query head of its group stream past; source: the 0th's.
template <class T> struct BlockState {
    HeadRows<const T> source[2];
    int head, member, first, end;
};

// Returns the first row of the first tile of `rows` queries, from `first` on, of which none sees
// the block's 128 keys from `first` on, or T. head: of queries. Each lane looks at one tile.
static __device__ inline int queries_end(const AttentionGrid &g, int head, int first, int rows) {
    if (!g.first)
        return g.t;
    int end = first;
    unsigned seen;
    do {
        int i = end + static_cast<int>(threadIdx.x) % WARP * rows;
        seen = __ballot_sync(ALL_LANES, i < g.t && g.first_key(head, i) < first + ATTENTION_ROWS);
        end += __popc(seen) * rows;
    } while (seen == ALL_LANES);
    return min(end, g.t);
}

// Starts copying a tile of queries of query head `head`, from row `row` on. Their first keys are
// stored relative to the key `at`, if queries have some, or with `edges`.
template <class T, int HS>
static __device__ inline void copy_queries(QueryTiles<T, HS> *to, const HeadRows<const T> &source,
                                           const BackwardArgs<T> &a, int head, int row, int at,
                                           bool edges) {
    constexpr int PER_COPY = 16 / sizeof(QueryStats);
    copy_tiles<T, HS>(to->q_dout, source, row, a.grid.t);
    int i = static_cast<int>(threadIdx.x) * PER_COPY;
    if (i < Tiles<HS>::ROWS)
        ptx_copy_async(to->stats + i, head_stats(a, head) + row + i, true);
    ptx_copy_commit();
    if ((edges || a.grid.first) && ptx_thread() < Tiles<HS>::ROWS)
        to->first[ptx_thread()] = a.grid.first_key(head, row + ptx_thread()) - at;
}

// The same for the block's current query head, the member of its group.
template <class T, int HS>
static __device__ inline void
copy_queries_of_member(QueryTiles<T, HS> *to, const BackwardArgs<T> &a, const BlockState<T> &state,
                       int row, bool edges) {
    const HeadRows<const T> &first = state.source[ptx_thread() / (Tiles<HS>::THREADS / 2)];
    copy_queries<T, HS>(to, {first.at + state.member * HS, first.stride}, a,
                        state.head * a.grid.group + state.member, row, state.first, edges);
}

// Returns the current head's queries that see the block's keys.
template <class T, bool SPARSE>
static __device__ inline TileWalk<SPARSE> queries_of_member(const BackwardArgs<T> &a,
                                                            const BlockState<T> &state) {
    return TileWalk<SPARSE>(a.grid, LAYOUT_QUERIES, state.head * a.grid.group + state.member,
                            state.first, state.first);
}

// Goes to the next query head of the group, and starts copying its first tile. False: there is
// none.
template <class T, int HS, bool SPARSE>
static __device__ inline bool start_next_member(QueryTiles<T, HS> *tiles, const BackwardArgs<T> &a,
                                                BlockState<T> &state) {
    if (state.member + 1 == a.grid.group)
        return false;
    __syncthreads(); // nobody still uses this head's last tile or `member`
    if (ptx_thread() == 0)
        state.member++;
    __syncthreads();
    copy_queries_of_member<T, HS>(tiles + queries_of_member<T, SPARSE>(a, state).first_buffer(), a,
                                  state, state.first, SPARSE);
    return true;
}

// Adds P^T dO and dS^T Q of queries `query` .. query + 15 of a tile, the columns of the transposed
// scores, to dv and dk. The first of them is `ahead` after the warp's first key; on the diagonal,
// before some of its keys. cells: of these queries, bit 4 m of the 16 keys m.
template <class T, int HS, enum Mask MASK>
static __device__ inline void add_to_dkv(Keys<HS> &w, const QueryTiles<T, HS> &tile, int query,
                                         int ahead, float scale2, uint32_t cells) {
    using Z = Tiles<HS>;
    const T *queries = tile.q_dout, *douts = tile.q_dout + Z::N;
    int lane = threadIdx.x % WARP;
    int mine = ahead - lane / 4 + lane % 4 * 2;
    uint32_t p[Z::M][4], ds[Z::M][4];
#pragma unroll
    for (int n = 0; n < 2; n++) {
        float s[Z::M][4] = {}, dp[Z::M][4]; // dp - D
        QueryStats q[2];                    // of this lane's two columns
        memcpy(q, __builtin_assume_aligned(tile.stats + query + 8 * n + lane % 4 * 2, 16),
               sizeof q);
        int begin[2] = {}; // this lane's row of the first key that these two columns see
        if (MASK == MASK_EDGE)
            for (int e = 0; e < 2; e++)
                begin[e] = tile.first[query + 8 * n + lane % 4 * 2 + e] - warp_row<HS>(lane / 4);
#pragma unroll
        for (int m = 0; m < Z::M; m++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                dp[m][e] = -q[e % 2].d;
        product_transposed8<T, HS, Z::M>(s, w.k, queries + 8 * n * HS, query);
        product_transposed8<T, HS, Z::M>(dp, w.v, douts + 8 * n * HS, query);
#pragma unroll
        for (int m = 0; m < Z::M; m++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float x = ptx_exp2(fmaf(s[m][e], scale2, -q[e % 2].lse2));
                if (MASK && 16 * m + e / 2 * 8 > mine + 8 * n + e % 2)
                    x = 0;
                if (MASK == MASK_EDGE &&
                    (16 * m + e / 2 * 8 < begin[e % 2] || !(cells >> 4 * m & 1)))
                    x = 0;
                s[m][e] = x;
                dp[m][e] *= x;
            }
            pack_left<T>(p[m] + 2 * n, s[m]);
            pack_left<T>(ds[m] + 2 * n, dp[m]);
        }
    }
    product_straight<T, HS, Z::M>(w.dv, p, douts, query);
    product_straight<T, HS, Z::M>(w.dk, ds, queries, query);
}

// Calls add_to_dkv with the mask that these queries need; does nothing if the warp's keys come
// before all that they see, or a layout hides them.
template <class T, int HS>
static __device__ inline void process_queries(Keys<HS> &w, const BackwardArgs<T> &a,
                                              const QueryTiles<T, HS> &tile, int query, int ahead,
                                              uint32_t cells) {
    using Z = Tiles<HS>;
    bool holes = cells != Z::COLUMN_CELLS;
    if (!cells)
        return;
    if (holes || (a.grid.first && tile.first[query + 15] > warp_row<HS>(0))) {
        if (tile.first[query] < warp_row<HS>(Z::WARP_ROWS))
            add_to_dkv<T, HS, MASK_EDGE>(w, tile, query, ahead, a.scale2, cells);
    } else if (ahead < Z::WARP_ROWS - 1) {
        add_to_dkv<T, HS, MASK_DIAGONAL>(w, tile, query, ahead, a.scale2, cells);
    } else {
        add_to_dkv<T, HS, MASK_NONE>(w, tile, query, ahead, a.scale2, cells);
    }
}

template <class T, int HS, bool SPARSE>
static __global__ void __launch_bounds__(Tiles<HS>::THREADS, Tiles<HS>::BLOCKS_PER_SM)
    attention_backward_dkv_mma_kernel(BackwardArgs<T> a) {
    using Z = Tiles<HS>;
    typedef QueryTiles<T, HS> Pair;
    DYN_SHARED(Pair, tiles); // [2]
    int head, block, t = a.grid.t;
    a.grid.locate(&head, &block);
    int first = block * ATTENTION_ROWS; // most queries see the first keys
    int row = warp_row<HS>(first);
    HeadRows<const T> source = my_source<T, HS>(query_rows(a.qkv, a.grid, HS, head * a.grid.group),
                                                out_rows(a.dout, a.grid, HS, head * a.grid.group));
    TileWalk<SPARSE> begin(a.grid, LAYOUT_QUERIES, head * a.grid.group, first, first);
    copy_queries<T, HS>(tiles + begin.first_buffer(), source, a, head * a.grid.group, first, first,
                        SPARSE);
    __shared__ BlockState<T> state;
    int end = queries_end(a.grid, head * a.grid.group, first, Z::ROWS);
    if (threadIdx.x % (Z::THREADS / 2) == 0)
        state.source[ptx_thread() / (Z::THREADS / 2)] = source;
    if (threadIdx.x == 0)
        state.head = head, state.member = 0, state.first = first, state.end = end;
    __syncthreads();
    Keys<HS> w = {};
#pragma unroll
    for (int m = 0; m < Z::M; m++) {
        load_left<T, HS>(w.k[m], key_rows(a.qkv, a.grid, HS, head), row + 16 * m, t);
        load_left<T, HS>(w.v[m], value_rows(a.qkv, a.grid, HS, head), row + 16 * m, t);
    }
    do {
        TileWalk<SPARSE> queries = queries_of_member<T, SPARSE>(a, state);
        for (; queries.has_tile_before(state.end); queries.step()) {
            ptx_copy_wait<0>();
            __syncthreads(); // this tile has arrived for all; nobody still uses the previous one
            if (queries.next() < state.end)
                copy_queries_of_member<T, HS>(tiles + queries.buffer(1), a, state, queries.next(),
                                              SPARSE);
            row = warp_row<HS>(state.first);
            int i = queries.at(), unseen = max(row - i, 0) / 16 * 16; // before the warp's first key
#pragma unroll 1
            for (int query = unseen; query < Z::ROWS; query += 16)
                process_queries<T, HS>(w, a, tiles[queries.buffer(0)], query, i + query - row,
                                       queries.template column<HS>(query));
        }
    } while (start_next_member<T, HS, SPARSE>(tiles, a, state));
    head = state.head;
    row = warp_row<HS>(state.first);

    float scale[2] = {a.scale, a.scale}, one[2] = {1, 1};
#pragma unroll
    for (int m = 0; m < Z::M; m++) {
        int r = row + 16 * m;
        store_rows<T, HS>(key_rows(a.dqkv, a.grid, HS, head), w.dk[m], r, t, scale);
        store_rows<T, HS>(value_rows(a.dqkv, a.grid, HS, head), w.dv[m], r, t, one);
    }
}

// ---- launching ----

template <class T, int HS>
static void launch_kernel(struct Stream *s, void (*kernel)(BackwardArgs<T>),
                          const BackwardArgs<T> &args, size_t shared_bytes) {
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)));
    gpu_launch(s, kernel, dim3(args.grid.heads * args.grid.blocks), dim3(Tiles<HS>::THREADS),
               shared_bytes, args);
}

template <class T, int HS, bool SPARSE>
static void launch_both(struct Stream *s, const struct AttentionBackward *a) {
    BackwardArgs<T> args = {attention_grid(a, ATTENTION_ROWS),
                            attention_scale(HS),
                            attention_scale(HS) * LOG2_E,
                            static_cast<const T *>(a->qkv),
                            static_cast<const T *>(a->out),
                            static_cast<const T *>(a->dout),
                            a->lse,
                            static_cast<QueryStats *>(a->work.mem),
                            static_cast<T *>(a->dqkv)};
    attention_part(s, a, "attention_backward dq", 2);
    launch_kernel<T, HS>(s, attention_backward_dq_mma_kernel<T, HS, SPARSE>, args,
                         4 * Tiles<HS>::N * sizeof(T));
    attention_part(s, a, "attention_backward dkv", 3);
    args.grid = attention_key_grid(a, ATTENTION_ROWS);
    launch_kernel<T, HS>(s, attention_backward_dkv_mma_kernel<T, HS, SPARSE>, args,
                         2 * sizeof(QueryTiles<T, HS>));
}

template <class T, int HS>
static void launch_sparse_or_dense(struct Stream *s, const struct AttentionBackward *a) {
    a->layout.begin ? launch_both<T, HS, true>(s, a) : launch_both<T, HS, false>(s, a);
}

extern "C" void cuda_attention_backward(struct Stream *s, const struct AttentionBackward *a) {
    CHECK(a->work.bytes >= cuda_attention_backward_work(nullptr, a) && is_aligned(a->work.mem, 16),
          "attention's work buffer %p has %zu bytes", a->work.mem, a->work.bytes);
    if (!attention_on_tensor_cores(a->dtype, a->hs) || !is_aligned(a->qkv, 16) ||
        !is_aligned(a->out, 16) || !is_aligned(a->dout, 16) || !is_aligned(a->dqkv, 16))
        attention_plain_backward(s, a);
    else if (a->hs == 64)
        a->dtype == BF16 ? launch_sparse_or_dense<__nv_bfloat16, 64>(s, a)
                         : launch_sparse_or_dense<__half, 64>(s, a);
    else
        a->dtype == BF16 ? launch_sparse_or_dense<__nv_bfloat16, 128>(s, a)
                         : launch_sparse_or_dense<__half, 128>(s, a);
}
