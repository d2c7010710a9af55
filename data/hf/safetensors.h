// Reads a safetensors file: 8 bytes with the header's length (little-endian), the header, and the
// tensors' bytes, one after another.
//
// The header is a JSON object. Each key is a tensor's name, and its value has dtype, shape, and the
// offsets of its bytes in the rest of the file; "__metadata__" holds texts. The order of the names
// means nothing. (github.com/huggingface/safetensors, "Format".)
//
// Files come from anywhere, so the header is checked against the file: the tensors must fill it
// without overlaps or gaps, and each must have the bytes of its shape and dtype. A file that opens
// can be read to the last element. Tensors of any dtype are listed; those of F32, BF16 and F16 can
// be read, in parts, directly to their destination: there is no buffer of the file's size or of a
// tensor's. Reading does not change an open file; threads may share it. Read next: folder.h.
#ifndef DATA_HF_SAFETENSORS_H
#define DATA_HF_SAFETENSORS_H
#include "kernels/base.h"
#include "kernels/dtype.h"

enum {
    SAFETENSORS_HEADER_MAX = 100000000, // bytes of JSON: the format's own limit
    TENSOR_MAX_DIM = 8
};

struct Tensor {
    char *name;
    char spelled[16]; // the dtype in the file: "F32", "I64"
    bool is_float;    // it can be read, as `dtype`
    enum Dtype dtype; // valid if is_float
    int ndim;         // 0: one element
    uint64_t shape[TENSOR_MAX_DIM];
    uint64_t count;      // elements
    uint64_t begin, end; // offsets in the file
};

struct Safetensors {
    char *path;
    int fd;
    size_t ntensor;
    struct Tensor *tensor; // sorted by name
};

// Opens a file, also through a link (caches are full of them), and checks its header. Errors:
// -errno of open and read, -EISDIR for a folder, -EINVAL for anything but a regular safetensors
// file: truncated, a header that is too large or no JSON, a tensor that lacks a key or repeats one,
// sizes that overflow, offsets that overlap, leave a gap, or contradict shape and dtype.
int safetensors_open(const char *path, struct Safetensors *f, struct Error *e);
void safetensors_close(struct Safetensors *f);

// Returns the tensor of this name; NULL: there is none.
const struct Tensor *safetensors_find(const struct Safetensors *f, const char *name);

// Reads elements [first, first + n) of a tensor, in the order in which they are stored (the last
// dimension runs fastest), as fp32 into `out`. Each read is of RANGE_BYTES at most, and nothing
// else is allocated. Errors: those of range_read; -EINVAL for a dtype that cannot be read.
int safetensors_read(const struct Safetensors *f, const struct Tensor *t, uint64_t first, size_t n,
                     float *out, struct Error *e);

// The same for weights. Errors: as above; -EINVAL for an element that is not finite: with it, all
// training steps would be skipped.
int safetensors_read_finite(const struct Safetensors *f, const struct Tensor *t, uint64_t first,
                            size_t n, float *out, struct Error *e);

// A shape as text, "[2, 3]", for an error line.
struct TensorShape {
    char text[200];
};
struct TensorShape tensor_shape(const struct Tensor *t);

#endif
