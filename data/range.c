// Ranges of large files: see range.h.
#include "data/range.h"
#include "data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

// ---- reading ------------------------------------------------------------------------------------

// Converts the n elements of 16 bits in the upper half of `out` to fp32, in place: result i never
// overwrites a value after i.
static void widen(float *out, size_t n, enum Dtype dtype) {
    const char *from = (const char *)out + n * sizeof(uint16_t);
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, from + i * sizeof h, sizeof h);
        out[i] = dtype_load(&h, dtype, 0);
    }
}

int range_read(int fd, const char *path, enum Dtype dtype, uint64_t at, size_t n, float *out,
               struct Error *e) {
    size_t bytes = dtype_size(dtype), step;
    for (; n; n -= step, at += step * bytes, out += step) {
        step = size_min(n, RANGE_BYTES / sizeof *out);
        char *to = (char *)out + step * (sizeof *out - bytes);
        ssize_t got = file_pread(fd, to, step * bytes, at);
        if (got < 0)
            return error_io(e, (int)got, E_FILE_READ, "cannot read %s", path);
        if ((size_t)got < step * bytes)
            return error_set(e, -EIO, E_FILE_READ,
                             "cannot read %s: it became shorter while it was read; start again",
                             path);
        if (dtype != F32)
            widen(out, step, dtype);
    }
    return 0;
}

// ---- writing ------------------------------------------------------------------------------------

int range_write_bytes(int fd, const char *path, uint64_t at, const void *bytes, size_t n,
                      struct Error *e) {
    int err = base_write(fd, bytes, n, (int64_t)at);
    return err ? error_io(e, err, E_FILE_WRITE, "cannot write %s", path) : 0;
}

size_t range_overflow(enum Dtype dtype, const float *values, size_t n) {
    // Half a unit past the largest number: from there on, rounding to nearest gives infinity.
    static const float limits[NDTYPE] = {INFINITY, 0x1.ffp127f, 65520.0f};
    size_t i = 0;
    while (i < n && fabsf(values[i]) < limits[dtype])
        i++;
    return i;
}

int range_write(int fd, const char *path, enum Dtype dtype, uint64_t at, size_t n,
                const float *values, struct Error *e) {
    enum { BUFFER = 16384 };
    uint16_t rounded[BUFFER];
    if (dtype == F32)
        return range_write_bytes(fd, path, at, values, n * sizeof *values, e);
    int code = 0;
    for (size_t step; n && !code; n -= step, values += step) {
        step = size_min(n, BUFFER);
        for (size_t i = 0; i < step; i++)
            dtype_store(rounded, dtype, i, values[i]);
        code = range_write_bytes(fd, path, at, rounded, step * sizeof *rounded, e);
        at += step * sizeof *rounded;
    }
    return code;
}

int range_reserve(int fd, const char *path, uint64_t bytes, struct Error *e) {
    int failed;
    do
        failed = fallocate(fd, 0, 0, (off_t)bytes);
    while (failed && errno == EINTR);
    if (failed && errno == EOPNOTSUPP)
        failed = ftruncate(fd, (off_t)bytes);
    if (!failed)
        return 0;
    return error_io(e, -errno, E_FILE_WRITE, "cannot write %s, of %llu bytes", path,
                    (unsigned long long)bytes);
}
