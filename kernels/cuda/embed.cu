// The embedding: a row of wte for the token plus, if positions are learned, a row of wpe for the
// position; and its backward pass.
//
// Backward sums the gradients of all occurrences of a token into the token's row. A few tokens
// occur often and most rarely or never, the order of each sum must be fixed, and atomic additions
// of floats have none. So the batch's indices are sorted by token first (embed_sort.cu; those of
// one token stay in ascending order), and the sorted list is cut into tiles of fixed size, whatever
// tokens they hold:
//   1. A warp takes a tile and a slice of the channels and adds row after row. When the token
//      changes, a sum is complete. If the tile has all occurrences of that token, the sum goes to
//      dwte; else it is a part, and goes to scratch: each tile has at most one part of a token that
//      began in an earlier tile (head), and one of a token that continues in a later one (tail).
//   2. For each token that is cut, a warp adds its tail and the heads that follow, in order.
// All tiles take equally long, however skewed the tokens are.
//
// If the vocabulary is split over ranks, each has the rows of some tokens. The others are sorted as
// two more tokens, one before and one after, which have no sums. So a rank's tokens are at the same
// indices of the sorted list as with the whole vocabulary, its sums are cut into the same parts,
// and its rows have the same bits.
//
// Positions that restart with each document of a packed batch are skewed too, as all documents have
// the first ones. They are summed like the tokens, into rows of wpe that begin as 0.
//
// Called through the kernel table. Read next: embed_sort.cu, then classifier.cu.
#include "kernels/cuda/embed.cuh"
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/spans.h"

enum {
    WARPS = 4,         // of a block
    TILE = EMBED_TILE, // indices
    AT_ONCE = 8,       // rows in flight
    POSITION_THREADS = 128,
};

// ---- forward ----

template <class T, Access ACCESS>
static __global__ void __launch_bounds__(WARPS *WARP)
    embed_forward_kernel(size_t rows, unsigned t, unsigned c, Tokens tokens, const int32_t *starts,
                         const T *wte, const T *wpe, T *out) {
    constexpr int N = Pack<T>::N;
    size_t row = (size_t)blockIdx.x * WARPS + threadIdx.y;
    if (row >= rows)
        return;
    int32_t at = row_of(tokens, (int32_t)row);
    unsigned known = at >= 0 && at < tokens.v ? c : 0; // channels: the others are read as 0
    const T *token = wte + (known ? (size_t)at * c : 0);
    const T *position = wpe ? wpe + row_position(starts, row, t) * c : nullptr;
    T *to = out + row * c;
#pragma unroll 4
    for (unsigned i = threadIdx.x * N; i < c; i += WARP * N) {
        Pack<T> a = pack_read<ACCESS>(token, i, known);
        if (position) {
            Pack<T> b = pack_read<ACCESS>(position, i, c);
#pragma unroll
            for (int j = 0; j < N; j++)
                a.x[j] = from_float<T>(to_float(a.x[j]) + to_float(b.x[j]));
        }
        pack_write<ACCESS>(to, i, c, a);
    }
}

// Returns a batch's tokens, of which first .. first + v - 1 have a row in a matrix of v rows.
static struct Tokens tokens_of(const int32_t *tokens, size_t first, size_t v) {
    CHECK(v < INT32_MAX && first <= INT32_MAX - v, "tokens %zu to %zu", first, first + v);
    return {tokens, (int32_t)first, (int32_t)v};
}

extern "C" void cuda_embed_forward(struct Stream *s, const struct EmbedForward *a) {
    size_t rows = a->b * a->t;
    CHECK(rows <= INT32_MAX && a->c <= INT32_MAX, "(%zu, %zu, %zu)", a->b, a->t, a->c);
    if (!rows)
        return;
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        bool whole = is_whole<T>(a->c) && is_aligned(a->wte, 16) && is_aligned(a->wpe, 16) &&
                     is_aligned(a->out, 16);
        with_bool(whole, [&](auto yes) {
            gpu_launch(s, embed_forward_kernel < T, yes ? WHOLE : SCALAR >,
                       (unsigned)ceil_div(rows, WARPS), dim3(WARP, WARPS), 0, rows, (unsigned)a->t,
                       (unsigned)a->c, tokens_of(a->tokens, a->first_token, a->v), a->starts,
                       (const T *)a->wte, (const T *)a->wpe, (T *)a->out);
        });
    });
}

// ---- backward: tokens ----

// Arguments of both steps. parts: (tiles, 2, c), heads and tails.
struct Tiles {
    unsigned rows, c;
    Tokens tokens;
    const int32_t *order; // order[i]: the batch index that is ith when sorted by token
    const void *dout;
    void *dwte;
    float *parts;
};

static __device__ inline int32_t row_at(const struct Tiles &a, unsigned i) {
    return row_of(a.tokens, a.order[i]);
}

// dwte[row] += sum, for N channels from i on.
template <class G, Access ACCESS, int N>
static __device__ inline void add_to_row(const struct Tiles &a, int32_t row, unsigned i,
                                         const float (&sum)[N]) {
    G *to = (G *)a.dwte + (size_t)row * a.c;
    Pack<G, N> g = pack_read<ACCESS, G, N>(to, i, a.c);
#pragma unroll
    for (int j = 0; j < N; j++)
        g.x[j] = from_float<G>(to_float(g.x[j]) + sum[j]);
    pack_write<ACCESS>(to, i, a.c, g);
}

// Returns where element j of the N channels from i on is in a part of a sum. Neighbouring lanes
// have neighbouring elements: for whole packs the first ones of all lanes come first, then the
// second ones.
template <Access ACCESS, int N>
static __device__ inline unsigned part_at(unsigned i, int j, unsigned c) {
    unsigned begin = i / (WARP * N) * (WARP * N);
    unsigned lanes = c - begin < WARP * N ? (c - begin) / N : WARP;
    return ACCESS == WHOLE ? begin + j * lanes + (i - begin) / N : i + j;
}

// Adds the sum of a row to dwte or, if it is a part, stores it to scratch; then sets it to 0.
// is_head: the row began in an earlier tile; is_tail: it continues in a later one.
template <class G, Access ACCESS, int N>
static __device__ inline void store_sum(const struct Tiles &a, int32_t row, bool is_head,
                                        bool is_tail, unsigned i, float (&sum)[N]) {
    if (is_head || is_tail) {
        float *part = a.parts + ((size_t)blockIdx.x * 2 + !is_head) * a.c;
#pragma unroll
        for (int j = 0; j < N; j++)
            if (i + j < a.c)
                part[part_at<ACCESS, N>(i, j, a.c)] = sum[j];
    } else {
        add_to_row<G, ACCESS>(a, row, i, sum);
    }
#pragma unroll
    for (int j = 0; j < N; j++)
        sum[j] = 0;
}

// Grid: (tiles, slices of channels). N suits both formats, so that one thread has the same channels
// of both.
template <class T, class G, Access ACCESS>
static __global__ void __launch_bounds__(WARP) embed_backward_tiles_kernel(struct Tiles a) {
    constexpr int N = sizeof(T) == 4 || sizeof(G) == 4 ? 4 : 8;
    __shared__ int32_t indices[TILE], rows[TILE];
    unsigned begin = blockIdx.x * TILE, count = a.rows - begin < TILE ? a.rows - begin : TILE;
    unsigned i = (blockIdx.y * WARP + threadIdx.x) * N;
    for (unsigned k = threadIdx.x; k < count; k += WARP) {
        indices[k] = a.order[begin + k];
        rows[k] = row_of(a.tokens, indices[k]);
    }
    __syncthreads();
    if (rows[count - 1] < 0 || rows[0] == a.tokens.v)
        return;
    int32_t before = begin ? row_at(a, begin - 1) : -1;
    int32_t after = begin + count < a.rows ? row_at(a, begin + count) : -1;
    unsigned first = 0; // with a row here, which those at both ends may lack
    while (rows[first] < 0)
        first++;
    while (rows[count - 1] == a.tokens.v)
        count--;
    float sum[N] = {};
    for (unsigned k = first; k < count; k += AT_ONCE) {
        Pack<T, N> x[AT_ONCE];
#pragma unroll
        for (unsigned u = 0; u < AT_ONCE; u++)
            if (k + u < count)
                x[u] = pack_read<ACCESS, T, N>((const T *)a.dout + (size_t)indices[k + u] * a.c, i,
                                               a.c);
#pragma unroll
        for (unsigned u = 0; u < AT_ONCE; u++) {
            if (k + u >= count)
                break;
#pragma unroll
            for (int j = 0; j < N; j++)
                sum[j] += to_float(x[u].x[j]);
            int32_t row = rows[k + u];
            bool is_last = k + u + 1 == count;
            if (is_last || rows[k + u + 1] != row)
                store_sum<G, ACCESS>(a, row, row == before, is_last && row == after, i, sum);
        }
    }
}

// A block looks at the end of one tile: if a token that began in it continues, the block adds the
// token's parts.
template <class G, Access ACCESS, int N>
static __global__ void __launch_bounds__(WARP) embed_backward_parts_kernel(struct Tiles a) {
    unsigned tile = blockIdx.x, begin = tile * TILE, end = begin + TILE; // not the last: end < rows
    unsigned tiles = (a.rows + TILE - 1) / TILE;
    unsigned i = (blockIdx.y * WARP + threadIdx.x) * N;
    int32_t row = row_at(a, end - 1);
    if (row < 0 || row == a.tokens.v)
        return;
    if (row_at(a, end) != row || (begin && row_at(a, begin - 1) == row))
        return;
    float sum[N];
    const float *tail = a.parts + ((size_t)tile * 2 + 1) * a.c;
#pragma unroll
    for (int j = 0; j < N; j++)
        sum[j] = i + j < a.c ? tail[part_at<ACCESS, N>(i, j, a.c)] : 0;
    // The tiles in which the token continues: those whose first index is its. They end before
    // `stop`, which is found by bisection, since a token may continue through all of them.
    unsigned stop = tile + 2, past = tiles;
    while (stop < past) {
        unsigned middle = stop + (past - stop) / 2;
        if (row_at(a, middle * TILE) == row)
            stop = middle + 1;
        else
            past = middle;
    }
#pragma unroll 8
    for (unsigned k = tile + 1; k < stop; k++) {
        const float *head = a.parts + (size_t)k * 2 * a.c;
#pragma unroll
        for (int j = 0; j < N; j++)
            sum[j] += i + j < a.c ? head[part_at<ACCESS, N>(i, j, a.c)] : 0;
    }
    add_to_row<G, ACCESS>(a, row, i, sum);
}

// ---- backward: positions ----

// dwpe[t] (+)= the sum over b of dout[b, t], in order. A thread has one pack of the (t, c) plane.
template <class T, class G, Access ACCESS>
static __global__ void __launch_bounds__(POSITION_THREADS)
    embed_backward_positions_kernel(unsigned b, size_t plane, const T *dout, G *dwpe,
                                    bool accumulate) {
    constexpr int N = sizeof(T) == 4 || sizeof(G) == 4 ? 4 : 8;
    size_t i = ((size_t)blockIdx.x * POSITION_THREADS + threadIdx.x) * N;
    if (i >= plane)
        return;
    float sum[N] = {};
    if (accumulate) {
        Pack<G, N> old = pack_read<ACCESS, G, N>(dwpe, i, plane);
#pragma unroll
        for (int j = 0; j < N; j++)
            sum[j] = to_float(old.x[j]);
    }
#pragma unroll 4
    for (unsigned k = 0; k < b; k++) {
        Pack<T, N> v = pack_read<ACCESS, T, N>(dout + k * plane, i, plane);
#pragma unroll
        for (int j = 0; j < N; j++)
            sum[j] += to_float(v.x[j]);
    }
    Pack<G, N> out;
#pragma unroll
    for (int j = 0; j < N; j++)
        out.x[j] = from_float<G>(sum[j]);
    pack_write<ACCESS>(dwpe, i, plane, out);
}

// Zeroes n elements.
template <class G, Access ACCESS>
static __global__ void __launch_bounds__(POSITION_THREADS) embed_zero_kernel(size_t n, G *x) {
    Pack<G> zeros = {};
    size_t i = ((size_t)blockIdx.x * POSITION_THREADS + threadIdx.x) * Pack<G>::N;
    if (i < n)
        pack_write<ACCESS>(x, i, n, zeros);
}

// Writes each row's position in its document.
static __global__ void __launch_bounds__(POSITION_THREADS)
    embed_positions_kernel(size_t rows, unsigned t, const int32_t *starts, int32_t *positions) {
    size_t row = (size_t)blockIdx.x * POSITION_THREADS + threadIdx.x;
    if (row < rows)
        positions[row] = (int32_t)row_position(starts, row, t);
}

// Begins a part of the backward pass for traces: it reads all of dout, and moves `bytes` besides.
static void begin_dout_part(struct Stream *s, const struct EmbedBackward *a, const char *name,
                            double bytes) {
    struct Cost cost = {0, bytes, ""};
    cost.bytes += (double)(a->b * a->t * a->c * dtype_size(a->dtype));
    span_part(s, name, cost);
}

// Queues the sort of the batch by token. Returns the arguments of the sums into rows of dw.
static struct Tiles sort_tiles(struct Stream *s, const struct EmbedBackward *a,
                               struct Tokens tokens, void *dw) {
    struct Tiles tiles = {};
    tiles.rows = (unsigned)(a->b * a->t);
    tiles.c = (unsigned)a->c;
    tiles.tokens = tokens;
    tiles.order = embed_sort(s, tokens, tiles.rows, a->work.mem);
    tiles.dout = a->dout;
    tiles.dwte = dw;
    tiles.parts = (float *)((char *)a->work.mem + cuda_embed_scratch(a).sort);
    return tiles;
}

template <class T, class G, Access ACCESS>
static void launch_tiles(struct Stream *s, const struct Tiles &tiles) {
    constexpr size_t N = sizeof(T) == 4 || sizeof(G) == 4 ? 4 : 8;
    size_t count = ceil_div(tiles.rows, TILE);
    dim3 sums((unsigned)count, (unsigned)ceil_div(tiles.c, WARP * N));
    dim3 cuts((unsigned)count - 1, sums.y);
    gpu_launch(s, embed_backward_tiles_kernel<T, G, ACCESS>, sums, WARP, 0, tiles);
    if (count > 1)
        gpu_launch(s, embed_backward_parts_kernel<G, ACCESS, N>, cuts, WARP, 0, tiles);
}

// Queues the sums into dwpe's rows for positions that restart, made as those of tokens. The scratch
// is free again: earlier queued work has read it.
template <class T, class G, Access ACCESS>
static void launch_restarted(struct Stream *s, const struct EmbedBackward *a) {
    struct EmbedScratch bytes = cuda_embed_scratch(a);
    size_t rows = a->b * a->t;
    int32_t *positions = (int32_t *)((char *)a->work.mem + bytes.sort + bytes.parts);
    gpu_launch(s, embed_positions_kernel, (unsigned)ceil_div(rows, POSITION_THREADS),
               POSITION_THREADS, 0, rows, (unsigned)a->t, a->starts, positions);
    if (!a->accumulate)
        gpu_launch(s, embed_zero_kernel<G, ACCESS>,
                   (unsigned)ceil_div(a->t * a->c, POSITION_THREADS * Pack<G>::N), POSITION_THREADS,
                   0, a->t * a->c, (G *)a->dwpe);
    launch_tiles<T, G, ACCESS>(s, sort_tiles(s, a, tokens_of(positions, 0, a->t), a->dwpe));
}

template <class T, class G>
static void launch_backward(struct Stream *s, const struct EmbedBackward *a, struct Tiles tiles) {
    constexpr size_t N = sizeof(T) == 4 || sizeof(G) == 4 ? 4 : 8;
    size_t plane = a->t * a->c;
    bool whole = is_whole<T>(a->c) && is_whole<G>(a->c) && is_aligned(a->dout, 16) &&
                 is_aligned(a->dwte, 16) && is_aligned(a->dwpe, 16);
    begin_dout_part(s, a, "embed_backward tokens",
                    (double)(2 * size_min(tiles.rows, a->v) * a->c * sizeof(G)));
    with_bool(whole, [&](auto yes) {
        constexpr Access ACCESS = yes ? WHOLE : SCALAR;
        launch_tiles<T, G, ACCESS>(s, tiles);
        if (!a->dwpe)
            return;
        begin_dout_part(s, a, "embed_backward positions",
                        (double)((a->accumulate ? 2 : 1) * plane * sizeof(G)));
        if (a->starts)
            launch_restarted<T, G, ACCESS>(s, a);
        else
            gpu_launch(s, embed_backward_positions_kernel<T, G, ACCESS>,
                       (unsigned)ceil_div(plane, POSITION_THREADS * N), POSITION_THREADS, 0,
                       (unsigned)a->b, plane, (const T *)a->dout, (G *)a->dwpe, a->accumulate);
    });
}

extern "C" void cuda_embed_backward(struct Stream *s, const struct EmbedBackward *a) {
    size_t rows = a->b * a->t;
    CHECK(rows <= INT32_MAX, "%zu tokens", rows);
    CHECK(a->work.bytes >= cuda_embed_backward_work(nullptr, a), "%zu bytes", a->work.bytes);
    if (!rows)
        return;
    struct Cost sort = {0, (double)(2 * rows * sizeof *a->tokens), ""};
    span_part(s, "embed_backward sort", sort);
    struct Tiles tiles = sort_tiles(s, a, tokens_of(a->tokens, a->first_token, a->v), a->dwte);
    with_type(a->dtype, [&](auto *in) {
        with_type(a->grad_dtype, [&](auto *out) {
            launch_backward<std::remove_pointer_t<decltype(in)>,
                            std::remove_pointer_t<decltype(out)>>(s, a, tiles);
        });
    });
}
