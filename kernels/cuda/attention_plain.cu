// Causal attention, forward, on the ordinary arithmetic units: for head sizes and formats that the
// tensor-core kernel (attention.cu) does not accept.
//
// The same algorithm (Dao, "FlashAttention-2", 2023, algorithm 1) in fp32 throughout: the softmax
// is updated as keys stream past, and no T x T matrix exists. P goes through shared memory, since a
// thread computes scores of other rows than it needs.
//
// Called by cuda_attention_forward. Read attention_plain_backward.cu next.
#include "kernels/cuda/attention_plain.cuh"

template <class T> struct PlainForward {
    AttentionGrid grid;
    int hs;
    float scale;
    const T *qkv;
    T *out;
    float *lse;
};

// The running softmax of some rows. The sum is this thread's share of the columns.
template <int R> struct Running { float most[R], sum[R]; };

// Turns a tile of scores into unnormalised P, and scales down earlier sums. The block's first query
// is `ahead` after the tile's first key; begin: the first column that each of this thread's rows
// sees; cells: those that a layout shows. A row that has seen no key yet has the largest score
// -infinity.
template <int C>
static __device__ inline void plain_softmax(Running<Plain<C>::R> &w, float acc[][C],
                                            float s[][Plain<C>::R], int ahead, const int begin[],
                                            uint32_t cells, float scale2) {
    using P = Plain<C>;
#pragma unroll
    for (int i = 0; i < P::R; i++) {
        float most = w.most[i];
#pragma unroll
        for (int j = 0; j < P::R; j++) {
            int column = plain_x() + 16 * j;
            if (column > plain_y() + 16 * i + ahead || column < begin[i] ||
                !(cells >> (4 * i + j) & 1))
                s[i][j] = -INFINITY;
            most = fmaxf(most, s[i][j]);
        }
        most = plain_row_most(most);
        float base = most == -INFINITY ? 0 : most;
        float factor = ptx_exp2((w.most[i] - base) * scale2);
        w.most[i] = most;
        w.sum[i] *= factor;
#pragma unroll
        for (int c = 0; c < C; c++)
            acc[i][c] *= factor;
#pragma unroll
        for (int j = 0; j < P::R; j++) {
            s[i][j] = ptx_exp2(fmaf(s[i][j], scale2, -base * scale2));
            w.sum[i] += s[i][j];
        }
    }
}

template <class T, int C>
static __global__ void __launch_bounds__(Plain<C>::THREADS, 2)
    attention_forward_plain_kernel(PlainForward<T> a) {
    using P = Plain<C>;
    DYN_SHARED(float, q);
    float *k = q + P::TILE, *v = k + P::TILE, *p = v + P::TILE;
    int head, block, t = a.grid.t;
    a.grid.locate(&head, &block);
    int row = (a.grid.blocks - 1 - block) * P::ROWS;
    plain_load<T, C>(q, query_rows(a.qkv, a.grid, a.hs, head), row, t, a.hs);
    Running<P::R> w;
    float acc[P::R][C] = {}, s[P::R][P::R];
#pragma unroll
    for (int i = 0; i < P::R; i++)
        w.most[i] = -INFINITY, w.sum[i] = 0;
    float scale2 = a.scale * LOG2_E;
    PlainTileWalk keys(a.grid, LAYOUT_KEYS, head, row,
                       a.grid.first_key(head, row) / P::ROWS * P::ROWS, row + P::ROWS, P::ROWS);
    while (keys.next()) {
        int j = keys.at;
        __syncthreads(); // nobody still reads the last tile
        plain_load<T, C>(k, key_rows(a.qkv, a.grid, a.hs, head / a.grid.group), j, t, a.hs);
        plain_load<T, C>(v, value_rows(a.qkv, a.grid, a.hs, head / a.grid.group), j, t, a.hs);
        __syncthreads();
        plain_scores<C>(s, q, k);
        int begin[P::R];
#pragma unroll
        for (int i = 0; i < P::R; i++)
            begin[i] = a.grid.first_key(head, row + plain_y() + 16 * i) - j;
        plain_softmax<C>(w, acc, s, row - j, begin, keys.cells, scale2);
        plain_store_scores<C>(p, s);
        __syncthreads();
        plain_add<C>(acc, p, v);
    }
    float factor[P::R];
#pragma unroll
    for (int i = 0; i < P::R; i++) {
        float sum = plain_row_sum(w.sum[i]);
        int r = row + plain_y() + 16 * i;
        if (plain_x() == 0 && r < t)
            a.lse[static_cast<size_t>(head) * t + r] = fmaf(w.most[i], a.scale, logf(sum));
        factor[i] = 1 / sum;
    }
    plain_store<T, C>(out_rows(a.out, a.grid, a.hs, head), acc, row, t, a.hs, factor);
}

template <class T, class P> struct PlainForwardKernel;
template <class T, int C> struct PlainForwardKernel<T, Plain<C>> {
    static void launch(struct Stream *s, const struct AttentionForward *a) {
        PlainForward<T> args = {
            attention_grid(a, Plain<C>::ROWS), static_cast<int>(a->hs),  attention_scale(a->hs),
            static_cast<const T *>(a->qkv),    static_cast<T *>(a->out), a->lse};
        plain_launch<C>(s, attention_forward_plain_kernel<T, C>, args, 3, 1);
    }
};

void attention_plain_forward(struct Stream *s, const struct AttentionForward *a) {
    with_type(a->dtype, [&](auto *type) {
        with_columns(a->hs, [&](auto p) {
            PlainForwardKernel<std::remove_pointer_t<decltype(type)>, decltype(p)>::launch(s, a);
        });
    });
}
