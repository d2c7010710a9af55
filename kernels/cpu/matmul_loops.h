// The interface between the files of the blocked matmul: the sizes of its tiles, and the functions
// that pack and multiply them.
//
// All of it is compiled once per instruction set. Read matmul_loops.c first.
#ifndef KERNELS_CPU_MATMUL_LOOPS_H
#define KERNELS_CPU_MATMUL_LOOPS_H
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_pair.h"
#include "kernels/cpu/vec_tiles.h"

// The tile of C that is summed in registers: TILE_ROWS rows of TILE_VECS vectors. With the
// TILE_VECS vectors of a row of B and one broadcast element of A, it fills the register file: 24 +
// 3 + 1 of 32 registers with AVX-512, 12 + 3 + 1 of 16 otherwise. With AMX the sums are four
// registers of that unit, and the epilogue takes SUM_ROWS rows at a time. STEP_UNIT: a panel's
// steps are a multiple of it; those past the end are zeros.
enum {
    SUM_ROWS = VEC_LANES == 16 ? 8 : 4,
    TILE_ROWS = VEC_TILES ? 2 * TILES_SIDE : SUM_ROWS,
    TILE_VECS = VEC_TILES ? 2 : 3,
    TILE_COLS = TILE_VECS * VEC_LANES,
    STEP_UNIT = VEC_TILES ? TILES_SIDE : 1,
};

// Fully unrolls the next loop, with a constant, small number of iterations, so that its arrays
// become registers.
#ifdef __clang__
#define UNROLL_WHOLE _Pragma("clang loop unroll(full)")
#else
#define UNROLL_WHOLE _Pragma("GCC unroll 8")
#endif

// Packing works in strips: some vectors of rows of A, or as many columns of B as a tile has.
enum { STRIP_ROWS = 2 * VEC_LANES, STRIP_COLS = TILE_COLS };

// A part of an operand to pack: `rows` rows of A (or columns of B) and a range of k. Packed, it is
// a row of panels, TILE_ROWS rows (TILE_COLS columns) wide; in a panel the items (vec_pair.h) of
// one step along k, an element or two neighbours, are adjacent, for every dtype and order of the
// matrix. (AMX's panels of A have TILES_SIDE adjacent steps of a row, then those of the next row;
// the next steps are after the panel's last row.) Up to a whole strip, rows past the end are zeros,
// and so are steps past it, and the missing half of the last pair if k is odd.
struct PackSource {
    const struct Mat *mat;
    bool along_k;     // true: consecutive k are adjacent in memory; false: consecutive rows
    size_t row, rows; // the first, and their number
    size_t k, depth;  // the first, and the number of elements of each row
    size_t steps;     // the same in items
    size_t panel;     // items of each row of a panel: these, and those of another source
};

// Packs strips first .. end - 1 of the source; panel 0 is at dst.
void CPU_NAME(matmul_pack_a)(float *dst, const struct PackSource *s, size_t first, size_t end);
void CPU_NAME(matmul_pack_b)(float *dst, const struct PackSource *s, size_t first, size_t end);

// One pass over a range of k: the use of a tile's sums. later: lines of the resident operand that
// the next pass or group reads, of which each tile prefetches some; only for AMX.
struct TilePass {
    const struct Matmul *args;
    float *sums; // of earlier passes; NULL: C itself holds them (it is fp32), or there is one pass
    size_t sums_ld, sums_row, sums_col; // index in C of sums[0]
    bool first, last;
    size_t a_ld; // not 0: A is read where it lies, with rows so many items apart; only for AMX
    const char *later;
    size_t later_lines;
};

// Computes C's tile at (i, j) from a panel of A and one of B with `steps` steps.
void CPU_NAME(matmul_tile)(const struct TilePass *pass, const float *a, const float *b,
                           size_t steps, size_t i, size_t j);

// Runs the epilogue of a row after its product: x = product[0 .. n) for C's elements (i, j) .. (i,
// j + n).
void CPU_NAME(matmul_finish_row)(const struct Matmul *args, const float *product, size_t i,
                                 size_t j, size_t n);

// The blocked matmul with all epilogues, and the scratch it needs. `threads`: the device's.
void CPU_NAME(matmul_loops)(const struct Matmul *args, int threads);
size_t CPU_NAME(matmul_loops_work)(const struct Matmul *args, int threads);
// A product with few_rows (kernels.h), and the scratch it needs: none but with AMX.
void CPU_NAME(matmul_few)(const struct Matmul *args, int threads);
size_t CPU_NAME(matmul_few_work)(const struct Matmul *args);
void avx512bf16_matmul_loops(const struct Matmul *args, int threads);
size_t avx512bf16_matmul_loops_work(const struct Matmul *args, int threads);

#endif
