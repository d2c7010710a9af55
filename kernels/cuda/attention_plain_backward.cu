// Causal attention, backward, on the ordinary arithmetic units: for head sizes and formats that the
// tensor-core kernels (attention_backward.cu) do not accept.
//
// Two kernels divide the work in the same way: that of dq owns queries and sums over keys, and
// makes the queries' statistics; that of dkv owns keys, computes transposed scores, and sums over
// queries, for each query head that reads these keys in turn (Dao, "FlashAttention-2", 2023,
// algorithm 2). All sums are fp32 and stay in registers, in the order of the passing rows.
//
// Called by cuda_attention_backward.
#include "kernels/cuda/attention_plain.cuh"

template <class T> struct PlainBackward {
    AttentionGrid grid;
    int hs, padded; // padded: rows of statistics per head
    float scale;
    const T *qkv, *out, *dout;
    const float *lse;
    QueryStats *stats;
    T *dqkv;
};

template <class T>
static __device__ inline HeadRows<const T> plain_queries(const PlainBackward<T> &a, int head) {
    return query_rows(a.qkv, a.grid, a.hs, head);
}
template <class T>
static __device__ inline HeadRows<const T> plain_keys(const PlainBackward<T> &a, int key_head) {
    return key_rows(a.qkv, a.grid, a.hs, key_head);
}
template <class T>
static __device__ inline HeadRows<const T> plain_values(const PlainBackward<T> &a, int key_head) {
    return value_rows(a.qkv, a.grid, a.hs, key_head);
}
template <class T>
static __device__ inline HeadRows<const T> plain_dout(const PlainBackward<T> &a, int head) {
    return out_rows(a.dout, a.grid, a.hs, head);
}

// Makes the statistics of rows y + 16 i from `row` on, given dO in a tile.
template <class T, int C>
static __device__ inline void plain_stats(QueryStats q[], const PlainBackward<T> &a, int head,
                                          int row, const float *dout) {
    using P = Plain<C>;
    HeadRows<const T> out = out_rows(a.out, a.grid, a.hs, head);
#pragma unroll
    for (int i = 0; i < P::R; i++) {
        int y = plain_y() + 16 * i, r = row + y;
        float d = 0;
        for (int c = plain_x(); c < a.hs && r < a.grid.t; c += 16)
            d = fmaf(dout[y * P::STRIDE + c],
                     to_float(out.at[static_cast<size_t>(r) * out.stride + c]), d);
        d = plain_row_sum(d);
        float lse = INFINITY; // past the end: no key gets weight
        if (r < a.grid.t)
            lse = a.lse[static_cast<size_t>(head) * a.grid.t + r] * LOG2_E;
        q[i] = {lse, d};
        if (plain_x() == 0)
            a.stats[static_cast<size_t>(head) * a.padded + r] = q[i];
    }
}

template <class T, int C>
static __global__ void __launch_bounds__(Plain<C>::THREADS, 2)
    attention_backward_dq_plain_kernel(PlainBackward<T> a) {
    using P = Plain<C>;
    DYN_SHARED(float, q);
    float *dout = q + P::TILE, *k = dout + P::TILE, *v = k + P::TILE, *scores = v + P::TILE;
    int head, block, t = a.grid.t;
    a.grid.locate(&head, &block);
    int row = (a.grid.blocks - 1 - block) * P::ROWS;
    plain_load<T, C>(q, plain_queries(a, head), row, t, a.hs);
    plain_load<T, C>(dout, plain_dout(a, head), row, t, a.hs);
    __syncthreads();
    QueryStats stats[P::R];
    plain_stats<T, C>(stats, a, head, row, dout);
    float acc[P::R][C] = {}, s[P::R][P::R], dp[P::R][P::R], scale[P::R];
    PlainTileWalk keys(a.grid, LAYOUT_KEYS, head, row,
                       a.grid.first_key(head, row) / P::ROWS * P::ROWS, row + P::ROWS, P::ROWS);
    while (keys.next()) {
        int j = keys.at;
        __syncthreads(); // nobody still reads the last tile
        plain_load<T, C>(k, plain_keys(a, head / a.grid.group), j, t, a.hs);
        plain_load<T, C>(v, plain_values(a, head / a.grid.group), j, t, a.hs);
        __syncthreads();
        plain_scores<C>(s, q, k);
        plain_scores<C>(dp, dout, v);
#pragma unroll
        for (int x = 0; x < P::R; x++)
#pragma unroll
            for (int y = 0; y < P::R; y++) {
                float p = ptx_exp2(fmaf(s[y][x], a.scale * LOG2_E, -stats[y].lse2));
                int key = j + plain_x() + 16 * x, query = row + plain_y() + 16 * y;
                if (key > query || key < a.grid.first_key(head, query) ||
                    !(keys.cells >> (4 * y + x) & 1))
                    p = 0;
                s[y][x] = p * (dp[y][x] - stats[y].d);
            }
        plain_store_scores<C>(scores, s);
        __syncthreads();
        plain_add<C>(acc, scores, k);
    }
#pragma unroll
    for (int i = 0; i < P::R; i++)
        scale[i] = a.scale;
    plain_store<T, C>(query_rows(a.dqkv, a.grid, a.hs, head), acc, row, t, a.hs, scale);
}

// Turns transposed scores s of keys from `row` on and queries from i on into P, and dp into dS.
// cells: those that a layout shows.
template <class T, int C>
static __device__ inline void plain_gradients(float s[][Plain<C>::R], float dp[][Plain<C>::R],
                                              const PlainBackward<T> &a, int head, int row, int i,
                                              uint32_t cells) {
    using P = Plain<C>;
#pragma unroll
    for (int x = 0; x < P::R; x++) {
        int query = i + plain_x() + 16 * x, first = a.grid.first_key(head, query);
        QueryStats stats = a.stats[static_cast<size_t>(head) * a.padded + query];
#pragma unroll
        for (int y = 0; y < P::R; y++) {
            int key = row + plain_y() + 16 * y;
            float p = ptx_exp2(fmaf(s[y][x], a.scale * LOG2_E, -stats.lse2));
            if (key > query || key < first || !(cells >> (4 * y + x) & 1))
                p = 0;
            s[y][x] = p;
            dp[y][x] = p * (dp[y][x] - stats.d);
        }
    }
}

template <class T, int C>
static __global__ void __launch_bounds__(Plain<C>::THREADS, 2)
    attention_backward_dkv_plain_kernel(PlainBackward<T> a) {
    using P = Plain<C>;
    DYN_SHARED(float, k);
    float *v = k + P::TILE, *q = v + P::TILE, *dout = q + P::TILE, *ps = dout + P::TILE;
    float *dss = ps + P::SCORES;
    int head, block, t = a.grid.t;
    a.grid.locate(&head, &block);
    int row = block * P::ROWS;
    plain_load<T, C>(k, plain_keys(a, head), row, t, a.hs);
    plain_load<T, C>(v, plain_values(a, head), row, t, a.hs);
    float dk[P::R][C] = {}, dv[P::R][C] = {}, s[P::R][P::R], dp[P::R][P::R], scale[P::R], one[P::R];
    for (int h = head * a.grid.group; h < (head + 1) * a.grid.group; h++) {
        PlainTileWalk queries(a.grid, LAYOUT_QUERIES, h, row, row, t, P::ROWS);
        while (queries.next() && a.grid.first_key(h, queries.at) < row + P::ROWS) {
            int i = queries.at;
            __syncthreads(); // nobody still reads the last tile
            plain_load<T, C>(q, plain_queries(a, h), i, t, a.hs);
            plain_load<T, C>(dout, plain_dout(a, h), i, t, a.hs);
            __syncthreads();
            plain_scores<C>(s, k, q);
            plain_scores<C>(dp, v, dout);
            plain_gradients<T, C>(s, dp, a, h, row, i, queries.cells);
            plain_store_scores<C>(ps, s);
            plain_store_scores<C>(dss, dp);
            __syncthreads();
            plain_add<C>(dv, ps, dout);
            plain_add<C>(dk, dss, q);
        }
    }
#pragma unroll
    for (int i = 0; i < P::R; i++)
        scale[i] = a.scale, one[i] = 1;
    plain_store<T, C>(key_rows(a.dqkv, a.grid, a.hs, head), dk, row, t, a.hs, scale);
    plain_store<T, C>(value_rows(a.dqkv, a.grid, a.hs, head), dv, row, t, a.hs, one);
}

template <class T, class P> struct PlainBackwardKernels;
template <class T, int C> struct PlainBackwardKernels<T, Plain<C>> {
    static void launch(struct Stream *s, const struct AttentionBackward *a) {
        PlainBackward<T> args = {attention_grid(a, Plain<C>::ROWS),
                                 static_cast<int>(a->hs),
                                 static_cast<int>(round_up(a->t, ATTENTION_ROWS)),
                                 attention_scale(a->hs),
                                 static_cast<const T *>(a->qkv),
                                 static_cast<const T *>(a->out),
                                 static_cast<const T *>(a->dout),
                                 a->lse,
                                 static_cast<QueryStats *>(a->work.mem),
                                 static_cast<T *>(a->dqkv)};
        attention_part(s, a, "attention_backward dq", 2);
        plain_launch<C>(s, attention_backward_dq_plain_kernel<T, C>, args, 4, 1);
        attention_part(s, a, "attention_backward dkv", 3);
        args.grid = attention_key_grid(a, Plain<C>::ROWS);
        plain_launch<C>(s, attention_backward_dkv_plain_kernel<T, C>, args, 4, 2);
    }
};

void attention_plain_backward(struct Stream *s, const struct AttentionBackward *a) {
    with_type(a->dtype, [&](auto *type) {
        with_columns(a->hs, [&](auto p) {
            PlainBackwardKernels<std::remove_pointer_t<decltype(type)>, decltype(p)>::launch(s, a);
        });
    });
}
