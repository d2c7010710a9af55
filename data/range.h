// Reads and writes ranges of large files, at offsets that the caller gives, so that many ranks can
// use one file at the same time without a shared file position.
//
// Elements are fp32 in memory, and in the file fp32, bf16 or fp16, adjacent. No buffer has the
// file's size, or a tensor's. Used by the formats of models: data/hf/, data/llmc/. data/file.h
// reads small files whole.
#ifndef DATA_RANGE_H
#define DATA_RANGE_H
#include "kernels/base.h"
#include "kernels/dtype.h"

enum { RANGE_BYTES = 4 << 20 }; // the most that one read takes

// Reads the n elements at byte `at` into `out`; allocates nothing. Errors: -errno of read, -EIO for
// a file that became shorter.
int range_read(int fd, const char *path, enum Dtype dtype, uint64_t at, size_t n, float *out,
               struct Error *e);

// Writes n elements, rounded to nearest, ties to even. Errors: -errno, -ENOSPC.
int range_write(int fd, const char *path, enum Dtype dtype, uint64_t at, size_t n,
                const float *values, struct Error *e);

// Returns the index of the first of n values that is not finite, or not in `dtype` (F32: all are);
// n: there is none.
size_t range_overflow(enum Dtype dtype, const float *values, size_t n);

// Writes n bytes at byte `at` of the file, in as many calls as it takes. Errors: -errno, -ENOSPC.
int range_write_bytes(int fd, const char *path, uint64_t at, const void *bytes, size_t n,
                      struct Error *e);

// Gives the file this length. Allocates its blocks, if the file system can, so that a disk that is
// too small fails at once. Errors: -errno, -ENOSPC.
int range_reserve(int fd, const char *path, uint64_t bytes, struct Error *e);

#endif
