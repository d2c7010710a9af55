// Copying a block of a matrix into the order in which the tile reads it.
//
// A tile walks k and wants TILE_ROWS elements of A, and TILE_COLS of B, side by side for each k.
// Packing gives it that, for matrices stored either way round and in any dtype; it widens bf16 and
// fp16 to fp32 on the way, which is why their products cost no more than an fp32 one. Where the
// tile multiplies pairs of bf16 it joins two neighbours along k instead. Each element is packed
// about once and then used hundreds of times, yet at 256 rows it is the largest cost beside the
// product, so it is vectorised in all four cases.
//
// Called by matmul_loops.c; the shuffles are in vec_transpose.h.
#include "kernels/cpu/matmul_loops.h"
#include "kernels/cpu/vec_transpose.h"

enum { PREFETCH_K = 8 }; // how many steps of k ahead, where each k is a new line of memory

// One strip on its way: `width` is the panels', `steps` how many items each row has, and `pairs`
// what those are. width and pairs are constants.
struct Strip {
    float *dst;
    size_t width, steps;
    bool pairs;
};

// Stores step `l` of VEC_LANES rows of a strip from `row` on: part of a panel, or two whole ones.
VEC_INLINE void strip_store(const struct Strip *s, size_t row, size_t l, Vec x) {
    float *panel = s->dst + row / s->width * s->width * s->steps + l * s->width;
    if (s->width >= VEC_LANES)
        vec_store_f32(panel + row % s->width, x);
    else
        vec_store_split(panel, panel + s->width * s->steps, x);
}

// The bits of bf16 element i and, if there is a `second`, of the next, as an item.
VEC_INLINE float pair_of(const uint16_t *p, size_t i, bool second) {
    return f32_from_bits(p[i] | (second ? (uint32_t)p[i + 1] << 16 : 0));
}

// Steps first .. steps of `rows` <= VEC_LANES rows, element by element; rows that are missing
// become zeros.
VEC_INLINE void pack_slowly(const struct Strip *s, const struct PackSource *p, size_t row,
                            size_t rows, size_t first) {
    size_t ld = p->mat->ld, from = p->row + row;
    for (size_t l = first; l < s->steps; l++) {
        float lanes[VEC_LANES] = {0};
        for (size_t r = 0; r < rows; r++) {
            size_t at = (from + r) * ld + p->k;
            if (s->pairs)
                lanes[r] = pair_of(p->mat->data, at + 2 * l, p->depth - 2 * l > 1);
            else
                lanes[r] = dtype_load(p->mat->data, p->mat->dtype, at + l);
        }
        strip_store(s, row, l, vec_load_f32(lanes));
    }
}

// VEC_LANES rows whose k run along memory: transpose.
VEC_INLINE void pack_along_k(const struct Strip *s, const struct PackSource *p, size_t row,
                             enum Dtype d) {
    size_t ld = p->mat->ld, l = 0;
    const char *from = dtype_at(p->mat->data, d, (p->row + row) * ld + p->k);
    size_t step = d == F32 || s->pairs ? 4 : 8, item_bytes = 16 / step;
    for (; l + step <= p->depth / (s->pairs ? 2 : 1); l += step) {
        Vec item[4];
        vec_transpose(item, from + l * item_bytes, ld * dtype_size(d));
        UNROLL_WHOLE
        for (size_t c = 0; c < 4; c++) {
            if (d == F32 || s->pairs) {
                strip_store(s, row, l + c, item[c]);
            } else {
                strip_store(s, row, l + 2 * c, vec_pair_first(item[c], d));
                strip_store(s, row, l + 2 * c + 1, vec_pair_second(item[c], d));
            }
        }
    }
    pack_slowly(s, p, row, VEC_LANES, l);
}

// The items of n <= VEC_LANES rows that lie side by side from element `at` on.
VEC_INLINE Vec items_along_rows(const struct PackSource *p, size_t at, size_t n, enum Dtype d) {
    return n == VEC_LANES ? vec_load(p->mat->data, d, at) : vec_load_part(p->mat->data, d, at, n);
}

// The same for pairs; there is a second element of each, or 0 in its place.
VEC_INLINE Vec pairs_along_rows(const struct PackSource *p, size_t at, size_t n, bool second) {
    const uint16_t *from = p->mat->data;
    if (n == VEC_LANES && second)
        return vec_pair_bf16(vec_load_half(from + at), vec_load_half(from + at + p->mat->ld));
    VecHalf other = vec_load_half_part(from + at + p->mat->ld, second ? n : 0);
    return vec_pair_bf16(vec_load_half_part(from + at, n), other);
}

// A whole strip, or `rows` of it, whose rows run along memory: copy.
VEC_INLINE void pack_along_rows(const struct Strip *s, const struct PackSource *p, size_t row,
                                size_t rows, size_t strip, enum Dtype d) {
    size_t ld = p->mat->ld, per = s->pairs ? 2 : 1;
    for (size_t l = 0; l < s->steps; l++) {
        size_t at = (p->k + l * per) * ld + p->row + row;
        for (size_t i = 0; i < per; i++)
            for (size_t r = 0; r < strip; r += 64 / dtype_size(d))
                __builtin_prefetch(dtype_at(p->mat->data, d, at + (PREFETCH_K + i) * ld + r));
        for (size_t r = 0; r < strip; r += VEC_LANES) {
            Vec x = vec_set(0.0f);
            size_t n = r < rows ? size_min(VEC_LANES, rows - r) : 0;
            if (n && s->pairs)
                x = pairs_along_rows(p, at + r, n, p->depth - l * per > 1);
            else if (n)
                x = items_along_rows(p, at + r, n, d);
            strip_store(s, r, l, x);
        }
    }
}

VEC_INLINE void pack(float *dst, const struct PackSource *p, size_t first, size_t last,
                     size_t strip, size_t width, enum Dtype d) {
    bool pairs = item_elements(d) == 2;
    for (size_t i = first; i < last; i++) {
        size_t row = i * strip, rows = size_min(strip, p->rows - row);
        struct Strip s = {dst + row * p->steps, width, p->steps, pairs};
        if (!p->along_k) {
            if (rows == strip)
                pack_along_rows(&s, p, row, strip, strip, d);
            else
                pack_along_rows(&s, p, row, rows, strip, d);
            continue;
        }
        struct PackSource here = *p;
        here.row += row;
        for (size_t r = 0; r < strip; r += VEC_LANES) {
            if (r + VEC_LANES <= rows)
                pack_along_k(&s, &here, r, d);
            else
                pack_slowly(&s, &here, r, rows > r ? rows - r : 0, 0);
        }
    }
}

void CPU_NAME(matmul_pack_a)(float *dst, const struct PackSource *s, size_t first, size_t last) {
    WITH_DTYPE(s->mat->dtype, pack(dst, s, first, last, STRIP_ROWS, TILE_ROWS, D));
}

void CPU_NAME(matmul_pack_b)(float *dst, const struct PackSource *s, size_t first, size_t last) {
    WITH_DTYPE(s->mat->dtype, pack(dst, s, first, last, STRIP_COLS, TILE_COLS, D));
}
