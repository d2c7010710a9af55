// Copying a block of a matrix into the order in which the tile reads it.
//
// A tile walks k and wants TILE_ROWS elements of A, and TILE_COLS of B, side by side for each k.
// Packing gives it that, for matrices stored either way round and in any dtype; it widens bf16 and
// fp16 to fp32 on the way, which is why their products cost no more than an fp32 one. Each element
// is packed about once and then used hundreds of times, yet at 256 rows it is the largest cost
// beside the product, so it is vectorised in all four cases.
//
// Called by matmul_loops.c; the shuffles are in vec_transpose.h.
#include "kernels/cpu/matmul_loops.h"
#include "kernels/cpu/vec_transpose.h"

enum { PREFETCH_K = 8 }; // how many steps of k ahead, where each k is a new line of memory

// One strip on its way: `width` is the panels' and `depth` the k range.
struct Strip {
    float *dst;
    size_t width, depth;
};

// Stores step `l` of VEC_LANES rows of a strip from `row` on: part of a panel, or two whole ones.
VEC_INLINE void strip_store(const struct Strip *s, size_t row, size_t l, Vec x) {
    float *panel = s->dst + row / s->width * s->width * s->depth;
    if (s->width >= VEC_LANES) {
        vec_store_f32(panel + l * s->width + row % s->width, x);
        return;
    }
    float lanes[VEC_LANES];
    vec_store_f32(lanes, x);
    for (size_t r = 0; r < VEC_LANES; r += s->width)
        memcpy(panel + r * s->depth + l * s->width, lanes + r, s->width * sizeof(float));
}

// Steps first .. depth of `rows` <= VEC_LANES rows, element by element; rows that are missing
// become zeros.
VEC_INLINE void pack_slowly(const struct Strip *s, const struct PackSource *p, size_t row,
                            size_t rows, size_t first) {
    size_t ld = p->mat->ld, from = p->row + row;
    for (size_t l = first; l < s->depth; l++) {
        float lanes[VEC_LANES] = {0};
        for (size_t r = 0; r < rows; r++)
            lanes[r] = dtype_load(p->mat->data, p->mat->dtype, (from + r) * ld + p->k + l);
        strip_store(s, row, l, vec_load_f32(lanes));
    }
}

// VEC_LANES rows whose k run along memory: transpose.
VEC_INLINE void pack_along_k(const struct Strip *s, const struct PackSource *p, size_t row,
                             enum Dtype d) {
    size_t ld = p->mat->ld, l = 0;
    const char *from = dtype_at(p->mat->data, d, (p->row + row) * ld + p->k);
    size_t step = d == F32 ? 4 : 8;
    for (; l + step <= s->depth; l += step) {
        Vec item[4];
        vec_transpose(item, from + l * dtype_size(d), ld * dtype_size(d));
        UNROLL_WHOLE
        for (size_t c = 0; c < 4; c++) {
            if (d == F32) {
                strip_store(s, row, l + c, item[c]);
            } else {
                strip_store(s, row, l + 2 * c, vec_pair_first(item[c], d));
                strip_store(s, row, l + 2 * c + 1, vec_pair_second(item[c], d));
            }
        }
    }
    pack_slowly(s, p, row, VEC_LANES, l);
}

// A whole strip, or `rows` of it, whose rows run along memory: copy.
VEC_INLINE void pack_along_rows(const struct Strip *s, const struct PackSource *p, size_t row,
                                size_t rows, size_t strip, enum Dtype d) {
    size_t ld = p->mat->ld;
    for (size_t l = 0; l < s->depth; l++) {
        size_t at = (p->k + l) * ld + p->row + row;
        for (size_t r = 0; r < strip; r += 64 / dtype_size(d))
            __builtin_prefetch(dtype_at(p->mat->data, d, at + PREFETCH_K * ld + r));
        for (size_t r = 0; r < strip; r += VEC_LANES) {
            Vec x = vec_set(0.0f);
            if (r + VEC_LANES <= rows)
                x = vec_load(p->mat->data, d, at + r);
            else if (r < rows)
                x = vec_load_part(p->mat->data, d, at + r, rows - r);
            strip_store(s, r, l, x);
        }
    }
}

VEC_INLINE void pack(float *dst, const struct PackSource *p, size_t first, size_t last,
                     size_t strip, size_t width, enum Dtype d) {
    for (size_t i = first; i < last; i++) {
        size_t row = i * strip, rows = size_min(strip, p->rows - row);
        struct Strip s = {dst + row * p->depth, width, p->depth};
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
