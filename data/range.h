// Ranges of large files: bytes and elements at a place that the caller knows, so that many ranks
// can read or write one file at the same time without a position that they would share.
//
// Elements are fp32 in memory, and in the file fp32, bf16 or fp16, side by side. Nothing of the
// file's size, or of a tensor's, is ever held. Used by the formats of models: data/hf/, data/llmc/.
// Small files that are read whole are data/file.h's.
#ifndef DATA_RANGE_H
#define DATA_RANGE_H
#include "kernels/base.h"
#include "kernels/dtype.h"

enum { RANGE_BYTES = 4 << 20 }; // of one read at most

// Reads the n elements that lie from byte `at` on into `out`; nothing is allocated. Errors: -errno
// of read, -EIO for a file that became shorter.
int range_read(int fd, const char *path, enum Dtype dtype, uint64_t at, size_t n, float *out,
               struct Error *e);

// Returns the index of the first of n values that is infinite or NaN; n: there is none.
size_t range_not_finite(const float *values, size_t n);

// Writes them, rounded to nearest, ties to even. Errors: -errno, -ENOSPC.
int range_write(int fd, const char *path, enum Dtype dtype, uint64_t at, size_t n,
                const float *values, struct Error *e);

// Returns the index of the first of n values that is not finite, or not in `dtype`; n: none.
size_t range_overflow(enum Dtype dtype, const float *values, size_t n);

// Writes n bytes at byte `at` of the file, in as many calls as it takes. Errors: -errno, -ENOSPC.
int range_write_bytes(int fd, const char *path, uint64_t at, const void *bytes, size_t n,
                      struct Error *e);

// Makes the file as long as that. Its blocks are taken now, where the file system can do that, so
// that a disk which is too small says so at once. Errors: -errno, -ENOSPC.
int range_reserve(int fd, const char *path, uint64_t bytes, struct Error *e);

#endif
