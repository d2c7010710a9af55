// AMX: products of whole tiles of bf16.
//
// The unit has eight registers of 16 rows of 64 bytes. tdpbf16ps adds to a tile of 16 x 16 fp32
// sums the product of a tile of A, 16 rows of 16 pairs (vec_pair.h), and one of B, 16 pairs by 16
// columns: 8,192 multiply-adds in 16 cycles, 8 times what vdpbf16ps does. Four registers hold a
// 32 x 32 part of C, two A and two B, so that each tile that is loaded is used twice: 64 lines are
// read in the 64 cycles of four products, half of what the first-level cache can give.
//
// A thread configures the registers once (tiles_open), and releases them after its work, since the
// system saves them whenever it switches threads. The process must have asked the system for them
// (instructions.c).
//
// Source: Intel, "Intel 64 and IA-32 architectures optimization reference manual", chapter 20.
// Used by matmul_loops.c, matmul_tile.c and matmul_few.c, and by attention_tile.h.
#ifndef KERNELS_CPU_VEC_TILES_H
#define KERNELS_CPU_VEC_TILES_H
#include "kernels/cpu/vec.h"

enum { TILES_SIDE = 16 }; // rows of a tile, and 32-bit items or sums of one

// Sums in memory, rows `ld` floats apart: 32 x 32, or what tiles_add says.
struct TilesSums {
    float *mem;
    size_t ld;
};

// 32 rows of pairs: two tiles, the lower one `lower` floats behind the upper one, and the next 16
// pairs of both `next` floats behind these. Rows of a tile are `ld` floats apart.
struct TilesRows {
    const float *mem;
    size_t ld, lower, next;
};

// Lines of memory to prefetch: 32, `ld` bytes apart, of each of up to 3 arrays; and later, into the
// second-level cache, `later_lines` adjacent ones.
struct TilesNext {
    const char *mem[3], *later;
    size_t ld, lines, later_lines; // lines: of all arrays
};

#ifdef __AMX_BF16__

enum { VEC_TILES = true };

// halves: registers 6 and 7 hold half a tile of A and of B, 8 pairs, for tiles_add.
VEC_INLINE void tiles_open(bool halves) {
    enum { PALETTE = 1, REGISTERS = 8, HALF_A = 6, HALF_B = 7 };
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = PALETTE};
    for (int i = 0; i < REGISTERS; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = TILES_SIDE;
    }
    if (halves) {
        config.row_bytes[HALF_A] /= 2;
        config.rows[HALF_B] /= 2;
    }
    _tile_loadconfig(&config);
}
VEC_INLINE void tiles_close(void) {
    _tile_release();
}

// to (32, 32) = from (NULL: 0) + A (32, steps) B (steps, 32), steps of pairs, a multiple of 16. b:
// 32 columns of each step. Meanwhile prefetches the lines of `next`, where the sums will go, a few
// at a time: more than the core can have in flight would stall it.
VEC_INLINE void tiles_multiply(struct TilesSums from, struct TilesSums to, struct TilesRows a,
                               const float *b, size_t steps, const struct TilesNext *next) {
    enum { WIDE = 2 * TILES_SIDE, BLOCK = WIDE * TILES_SIDE };
    size_t in = from.ld * sizeof *b, out = to.ld * sizeof *b, lda = a.ld * sizeof *b;
    if (from.mem) {
        _tile_loadd(0, from.mem, in);
        _tile_loadd(1, from.mem + TILES_SIDE, in);
        _tile_loadd(2, from.mem + TILES_SIDE * from.ld, in);
        _tile_loadd(3, from.mem + TILES_SIDE * from.ld + TILES_SIDE, in);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    size_t per_block = (next->lines * TILES_SIDE + steps - 1) / steps, line = 0;
    size_t later_per_block = (next->later_lines * TILES_SIDE + steps - 1) / steps;
    const char *later = next->later;
    const char *all = next->later_lines ? later + 64 * next->later_lines : later;
    for (size_t l = 0; l < steps; l += TILES_SIDE, a.mem += a.next, b += BLOCK) {
        for (size_t end = size_min(line + per_block, next->lines); line < end; line++)
            __builtin_prefetch(next->mem[line / WIDE % 3] + line % WIDE * next->ld, 1);
        for (size_t i = 0; i < later_per_block && later != all; i++, later += 64)
            __builtin_prefetch(later, 0, 2);
        _tile_loadd(4, a.mem, lda);
        _tile_loadd(6, b, WIDE * sizeof *b);
        _tile_loadd(5, a.mem + a.lower, lda);
        _tile_loadd(7, b + TILES_SIDE, WIDE * sizeof *b);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to.mem, out);
    _tile_stored(1, to.mem + TILES_SIDE, out);
    _tile_stored(2, to.mem + TILES_SIDE * to.ld, out);
    _tile_stored(3, to.mem + TILES_SIDE * to.ld + TILES_SIDE, out);
}

// to (32, 16) = W (32, 32 blocks) X (32 blocks, 16). Rows of w are `ld` bytes apart and read as
// they lie; x: for each block of 32 k, 16 pairs by 16 columns. Prefetches the 32 rows behind them,
// if `ahead`.
VEC_INLINE void tiles_stream(float *to, const char *w, size_t ld, const float *x, size_t blocks,
                             bool ahead) {
    enum { WIDE = 2 * TILES_SIDE, BLOCK = TILES_SIDE * TILES_SIDE };
    _tile_zero(0);
    _tile_zero(1);
    for (size_t i = 0; i < blocks; i++, w += 64, x += BLOCK) {
        for (size_t r = 0; r < WIDE && ahead; r++)
            __builtin_prefetch(w + (WIDE + r) * ld);
        _tile_loadd(2, x, 64);
        _tile_loadd(3, w, ld);
        _tile_loadd(4, w + TILES_SIDE * ld, ld);
        _tile_dpbf16ps(0, 3, 2);
        _tile_dpbf16ps(1, 4, 2);
    }
    _tile_stored(0, to, 64);
    _tile_stored(1, to + BLOCK, 64);
}

// CALL(i, 16 i) for the first n <= 4 tiles of a row; registers are named by constants.
#define TILES_EACH(n, CALL)                                                                        \
    do {                                                                                           \
        CALL(0, 0);                                                                                \
        if (n > 1)                                                                                 \
            CALL(1, 16);                                                                           \
        if (n > 2)                                                                                 \
            CALL(2, 32);                                                                           \
        if (n > 3)                                                                                 \
            CALL(3, 48);                                                                           \
    } while (0)
#define TILES_LOAD(i, at) _tile_loadd(i, c.mem + at, ld)
#define TILES_ZERO(i, at) _tile_zero(i)
#define TILES_STORE(i, at) _tile_stored(i, c.mem + at, ld)
#define TILES_WHOLE(i, at)                                                                         \
    {                                                                                              \
        _tile_loadd(5, right + at, ldb);                                                           \
        _tile_dpbf16ps(i, 4, 5);                                                                   \
    }
#define TILES_HALF(i, at)                                                                          \
    {                                                                                              \
        _tile_loadd(7, right + at, ldb);                                                           \
        _tile_dpbf16ps(i, 6, 7);                                                                   \
    }

// c (16, 16 n) = itself (keep) or 0, + A (16, steps) B (steps, 16 n) for steps from .. end - 1 of
// pairs, multiples of 8; n <= 4. a, b: of step 0; rows are a_ld and b_ld apart. A tile's 16
// products are added to each other before the sum, so tiles begin at multiples of 16 steps,
// wherever `from` is: steps with zeros in A, or left out, leave the same bits.
static inline void tiles_add(struct TilesSums c, const float *a, size_t a_ld, const float *b,
                             size_t b_ld, size_t from, size_t end, bool keep, size_t n) {
    size_t ld = c.ld * sizeof *a, lda = a_ld * sizeof *a, ldb = b_ld * sizeof *b;
    __asm__ volatile("" ::: "memory"); // gcc does not know that _tile_loadd reads memory
    if (keep)
        TILES_EACH(n, TILES_LOAD);
    else
        TILES_EACH(n, TILES_ZERO);
    for (size_t l = from, step; l < end; l += step) {
        const float *right = b + l * b_ld;
        step = l % TILES_SIDE || end - l < TILES_SIDE ? TILES_SIDE / 2 : TILES_SIDE;
        if (step == TILES_SIDE) {
            _tile_loadd(4, a + l, lda);
            TILES_EACH(n, TILES_WHOLE);
        } else {
            _tile_loadd(6, a + l, lda);
            TILES_EACH(n, TILES_HALF);
        }
    }
    TILES_EACH(n, TILES_STORE);
}
#undef TILES_EACH
#undef TILES_LOAD
#undef TILES_ZERO
#undef TILES_STORE
#undef TILES_WHOLE
#undef TILES_HALF

#else

enum { VEC_TILES = false };

VEC_INLINE void tiles_open(bool halves) {
    (void)halves;
}
VEC_INLINE void tiles_close(void) {}
VEC_INLINE void tiles_multiply(struct TilesSums from, struct TilesSums to, struct TilesRows a,
                               const float *b, size_t steps, const struct TilesNext *next) {
    (void)from, (void)to, (void)a, (void)b, (void)steps, (void)next;
    __builtin_unreachable();
}
VEC_INLINE void tiles_stream(float *to, const char *w, size_t ld, const float *x, size_t blocks,
                             bool ahead) {
    (void)to, (void)w, (void)ld, (void)x, (void)blocks, (void)ahead;
    __builtin_unreachable();
}
static inline void tiles_add(struct TilesSums c, const float *a, size_t a_ld, const float *b,
                             size_t b_ld, size_t from, size_t end, bool keep, size_t n) {
    (void)c, (void)a, (void)a_ld, (void)b, (void)b_ld, (void)from, (void)end, (void)keep, (void)n;
    __builtin_unreachable();
}

#endif
#endif
