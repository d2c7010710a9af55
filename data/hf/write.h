// Writer of a model's folder by byte ranges: safetensors files whose headers are there from the
// beginning, so that many ranks can each write the elements that they hold, at the same time and in
// any order, without a gather.
//
// Where each tensor lies follows from the list of tensors, dtype and the shards' limit alone, and
// every rank computes it for itself (hf_writer_init touches no file). One of them makes the files
// at their full size, so that a disk which is too small says so at once; when it has, the others
// open the same. All write their ranges and force them to the disk; when all have, the first gives
// the folder its name. Until then it is PATH.writing: a folder of the name PATH is complete or not
// there. What a dead run has left under that name is removed by the next.
//
// The caller keeps the order of these steps among ranks, and that every element is written: what is
// not, is 0. Values are rounded to the dtype to nearest, ties to even. Read next: pieces.h.
#ifndef DATA_HF_WRITE_H
#define DATA_HF_WRITE_H
#include "data/hf/safetensors.h"

// As transformers 4 does; readers take any.
static const uint64_t HF_SHARD_BYTES = 5000000000;

// A tensor to be written. Names are printable ASCII without quotes and backslashes.
struct HfOut {
    const char *name;
    int ndim;
    uint64_t shape[TENSOR_MAX_DIM];
};

struct HfPlace {
    char *name;
    size_t file;
    uint64_t begin; // byte of the file
    uint64_t count; // elements
};

struct HfShard {
    char *name, *path; // in the folder aside
    char *header;      // with its length in front
    size_t header_bytes;
    uint64_t bytes; // of the whole file
    int fd;
};

struct HfWriter {
    char *path, *aside;
    enum Dtype dtype;
    size_t ntensor;
    struct HfPlace *place; // in the order given
    size_t nfile;
    struct HfShard *file;
    char *index; // NULL: there is one file
    int folder;  // of the maker: the folder aside, locked; else -1
};

// Lays out n tensors in this order; a shard holds at most shard_bytes of them, or one that is
// larger. The path has no slash at its end. hf_writer_free it.
void hf_writer_init(struct HfWriter *w, const char *path, const struct HfOut *tensor, size_t n,
                    enum Dtype dtype, uint64_t shard_bytes);
void hf_writer_free(struct HfWriter *w);

// Bytes of all files, without those of hf_writer_put.
uint64_t hf_writer_bytes(const struct HfWriter *w);

// Can the folder be made? That which holds it must exist. Touches nothing. Errors: -EEXIST, also
// for somebody's file or folder aside, -errno.
int hf_writer_check(const char *path, const char *flag, struct Error *e);

// The first rank: makes the folder aside, in it the files at their full size with their headers,
// and the index. Where that fails, nothing stays. Errors: -EEXIST where PATH is there or somebody
// writes aside, -ENOSPC, -errno.
int hf_writer_make(struct HfWriter *w, struct Error *e);

// The others, when the first has made it: open the files. Errors: -errno.
int hf_writer_join(struct HfWriter *w, struct Error *e);

// The first rank: another file of the folder, whole (config.json, a tokenizer). Errors: -EINVAL for
// a name with a slash, -errno.
int hf_writer_put(struct HfWriter *w, const char *name, const void *bytes, size_t n,
                  struct Error *e);

// Elements [first, first + n) of tensor number `tensor`. Errors: -ERANGE for a finite value that
// would become infinite, -errno.
int hf_write_range(const struct HfWriter *w, size_t tensor, uint64_t first, size_t n,
                   const float *values, struct Error *e);

// Each rank, behind its last range: forces the files to the disk. Errors: -errno.
int hf_writer_sync(const struct HfWriter *w, struct Error *e);

// The first rank, when all have: gives the folder its name. Errors: -EEXIST where PATH has come to
// be, -errno: the folder aside is still there, or PATH is complete, but a power cut could take its
// name.
int hf_writer_commit(struct HfWriter *w, struct Error *e);

// The first rank, in place of a commit or behind one that failed: removes the folder aside.
void hf_writer_abandon(struct HfWriter *w);

#endif
