// Reader of one safetensors file: 8 bytes that say how long the header is (little-endian), the
// header, and the tensors' bytes, one behind the other.
//
// The header is a JSON object. Each key is a tensor's name, and its value says dtype, shape, and
// where in the rest of the file its bytes begin and end; "__metadata__" holds texts. The order of
// the names means nothing. (github.com/huggingface/safetensors, "Format".)
//
// Files come from anywhere, so everything that the header says is held against the file: the
// tensors must fill it without overlap, hole or rest, and each must have the bytes that its shape
// and dtype ask for. A file that opens can be read to the last element. Tensors of any dtype are
// listed; those of F32, BF16 and F16 can be read, in parts, straight to where they are wanted:
// there is no buffer of the file's size or of the tensor's, here or in the reader's memory. An open
// file is not changed by reading; threads may share it. Read next: folder.h.
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
    bool is_float;    // of a dtype that can be read: `dtype`
    enum Dtype dtype; // only where is_float
    int ndim;         // 0: one element
    uint64_t shape[TENSOR_MAX_DIM];
    uint64_t count;      // elements
    uint64_t begin, end; // bytes of the file
};

struct Safetensors {
    char *path;
    int fd;
    size_t ntensor;
    struct Tensor *tensor; // sorted by name
};

// Opens a file (a link to one will do: caches are full of them) and checks its header.
// Errors: -errno of open and read, -EISDIR for a folder, -EINVAL for what is no regular file or no
// safetensors file: truncated, too large a header, no JSON, a tensor that lacks a key or repeats
// one, sizes that overflow, offsets that overlap, leave a hole, or contradict shape and dtype.
int safetensors_open(const char *path, struct Safetensors *f, struct Error *e);
void safetensors_close(struct Safetensors *f);

// NULL: there is none of this name.
const struct Tensor *safetensors_find(const struct Safetensors *f, const char *name);

// Reads elements [first, first + n) of a tensor, in the order in which they are stored (the last
// dimension runs fastest), as fp32 into `out`. Each read is of RANGE_BYTES at most, and nothing
// else is allocated. Errors: those of range_read; -EINVAL for a dtype that cannot be read.
int safetensors_read(const struct Safetensors *f, const struct Tensor *t, uint64_t first, size_t n,
                     float *out, struct Error *e);

// As "[2, 3]", for an error line.
struct TensorShape {
    char text[200];
};
struct TensorShape tensor_shape(const struct Tensor *t);

#endif
