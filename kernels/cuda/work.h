// Scratch of CUDA's kernels: how many bytes each asks for, and what that depends on.
//
// A plan asks it for GPUs that are not here, also in builds without CUDA (plan.c): so this and
// work.c want nothing of CUDA's, and every build has them. What kernels and plan must agree on,
// such as how rows are shared out, stands here alone.
//
// Called by plan.c, and by the kernels whose scratch it is.
#ifndef KERNELS_CUDA_WORK_H
#define KERNELS_CUDA_WORK_H
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

// The work queries of the kernel table; d is not looked at.
#define X(op, Args) size_t cuda_##op##_work(struct Device *d, const struct Args *a);
KERNEL_WORK_LIST(X)
#undef X

// Of a device, as kernels/device.h has them: pieces are whole tiles of a matrix product.
enum { GPU_PIECE_BYTES = 1 << 30, GPU_PIECE_ROWS = 256 };

// ---- matmul ----

// Bytes of workspace that an algorithm of cuBLASLt's for a C of this size may ask for: 32 MiB,
// which NVIDIA advises for Hopper. A C of less than 128k elements has no use for all of it: 64
// partial sums of it, and 64 KiB for what an algorithm keeps apart from C.
size_t blas_workspace_bytes(size_t m, size_t n);

// The parts of a product's scratch, each a multiple of its boundary, to which the first is aligned,
// too. own: for our own epilogue, then for our own sums of rows; neither addresses nor what
// cuBLASLt will refuse are known, so this counts with the worst.
enum { MATMUL_BOUNDARY = 256 };
struct MatmulScratch {
    size_t workspace, own, dbias;
};
struct MatmulScratch cuda_matmul_scratch(const struct Matmul *a);

// Rows of a slice whose product in fp32 fits into 4 MiB: a multiple of 8, so that a slice of a
// transposed A begins where 16 bytes do; at least 8.
size_t cuda_slice_rows(const struct Matmul *a);

// Rows of a piece of our own sums of rows, and the bytes of their partial sums.
enum { ROW_SUMS_PIECE = 128 };
size_t cuda_row_sums_bytes(const struct Matmul *a);

// ---- the others ----

// How c channels of a format are shared out by the norm's backward pass: FEW channels a thread, and
// MANY at most, for rows that are too long for so few; of a block so many threads: with two blocks
// on a multiprocessor, 64 registers for each, or 96.
enum {
    NORM_FEW = 8,
    NORM_MANY = 16,
    NORM_FEW_THREADS = 512,
    NORM_MANY_THREADS = 320,
    NORM_BLOCKS = 264, // at most: two for each multiprocessor of an H100 or H200
};
#define NORM_THREADS(channels) ((channels) > NORM_FEW ? NORM_MANY_THREADS : NORM_FEW_THREADS)
struct NormTeams {
    size_t packs, threads, teams; // packs: per thread; teams: per block
};
struct NormTeams cuda_norm_teams(size_t c, enum Dtype d);

enum { ROTATE_BLOCKS = 528 }; // that sum up: four for each multiprocessor of an H100 or H200

// Rows of a block of attention, to which the statistics of its queries are rounded up, and the
// bytes of a query's.
enum { ATTENTION_ROWS = 128, ATTENTION_STATS = 2 * sizeof(float) };

// The embedding's backward pass sorts the places of a batch, in tiles of the sort's, by digits;
// sums its own tiles of them; and has positions that begin anew.
enum { EMBED_TILE = 64, EMBED_SORT_TILE = 2048, EMBED_SORT_DIGITS = 256 };
struct EmbedScratch {
    size_t sort, parts, positions;
};
struct EmbedScratch cuda_embed_scratch(const struct EmbedBackward *a);

#ifdef __cplusplus
}
#endif
#endif
