// Scratch of CUDA's kernels: the bytes that each needs, and the sizes that these depend on.
//
// A plan needs it for GPUs that are not present, also in builds without CUDA (plan.c): so this and
// work.c use nothing of CUDA, and every build has them. Decisions that kernels and plan share, such
// as the division of rows, are made only here.
//
// Called by plan.c, and by the kernels that use the scratch.
#ifndef KERNELS_CUDA_WORK_H
#define KERNELS_CUDA_WORK_H
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct Device *plan_device_open(void); // plan.c

// The work queries of the kernel table; d is ignored.
#define X(op, Args) size_t cuda_##op##_work(struct Device *d, const struct Args *a);
KERNEL_WORK_LIST(X)
#undef X

// Sizes of a device (kernels/device.h): pieces are whole tiles of a matrix product.
enum { GPU_PIECE_BYTES = 1 << 30, GPU_PIECE_ROWS = 256 };

// ---- matmul ----

// Returns the bytes of workspace that an algorithm of cuBLASLt may use for a C of this size: 32
// MiB, which NVIDIA advises for Hopper. A C of less than 128k elements cannot use all of it: 64
// partial sums of it, and 64 KiB for other data of an algorithm.
size_t blas_workspace_bytes(size_t m, size_t n);

// The parts of a product's scratch, each a multiple of the boundary to which the first is aligned.
// own: for our own epilogue, then for our own sums of rows; neither addresses nor cuBLASLt's
// refusals are known here, so this assumes the worst.
enum { MATMUL_BOUNDARY = 256 };
struct MatmulScratch {
    size_t workspace, own, dbias;
};
struct MatmulScratch cuda_matmul_scratch(const struct Matmul *a);

// Returns the rows of a slice whose product in fp32 fits into 4 MiB: a multiple of 8, so that a
// slice of a transposed A is aligned to 16 bytes; at least 8.
size_t cuda_slice_rows(const struct Matmul *a);

// Rows of a piece of our own sums of rows, and the bytes of their partial sums.
enum { ROW_SUMS_PIECE = 128 };
size_t cuda_row_sums_bytes(const struct Matmul *a);

// ---- the others ----

// The norm's backward pass divides c channels of a format: FEW channels a thread, or MANY for rows
// that are too long for so few; threads of a block: with two blocks on a multiprocessor, 64
// registers for each thread, or 96.
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

enum { ROTATE_BLOCKS = 528 }; // that make sums: four for each multiprocessor of an H100 or H200

// Rows of a block of attention, to which the statistics of its queries are rounded up, and the
// bytes of one query's.
enum { ATTENTION_ROWS = 128, ATTENTION_STATS = 2 * sizeof(float) };

// Scratch of the embedding's backward pass, which sorts the batch's tokens, in the sort's tiles, by
// digits; sums its own tiles; and stores positions that restart.
enum { EMBED_TILE = 64, EMBED_SORT_TILE = 2048, EMBED_SORT_DIGITS = 256 };
struct EmbedScratch {
    size_t sort, parts, positions;
};
struct EmbedScratch cuda_embed_scratch(const struct EmbedBackward *a);

#ifdef __cplusplus
}
#endif
#endif
