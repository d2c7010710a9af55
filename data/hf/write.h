// Writes a model's folder by byte ranges: safetensors files whose headers are written first, so
// that many ranks can each write the elements that they hold, at the same time and in any order,
// without a gather.
//
// The list of tensors, the dtype and the shards' limit decide where each tensor lies, so every rank
// computes the layout itself (hf_writer_init touches no file). The first rank makes the files at
// their full size, so that a disk that is too small fails at once; then the others open the files.
// All write their ranges and sync them; then the first renames the folder. Until then it is
// PATH.writing: a folder named PATH is complete or absent. The next run removes the PATH.writing of
// a dead one.
//
// The caller keeps these steps in order among ranks, and writes every element: others are 0. Values
// are rounded to the dtype to nearest, ties to even. Read next: pieces.h.
#ifndef DATA_HF_WRITE_H
#define DATA_HF_WRITE_H
#include "data/hf/safetensors.h"

// Bytes of a shard at most, as in transformers 4. Readers accept any size.
static const uint64_t HF_SHARD_BYTES = 5000000000;

#define HF_MODEL_STEM "model"

// A tensor to write. Names are printable ASCII without quotes and backslashes.
struct HfOut {
    const char *name;
    int ndim;
    uint64_t shape[TENSOR_MAX_DIM];
};

struct HfEntry {
    char *name;
    size_t file;
    uint64_t begin; // offset in the file
    uint64_t count; // elements
};

struct HfShard {
    char *name, *path; // in PATH.writing
    char *header;      // preceded by its length
    size_t header_bytes;
    uint64_t bytes; // of the whole file
    int fd;
};

struct HfWriter {
    char *path, *tmp_path;
    const char *stem; // of the files' names
    enum Dtype dtype;
    size_t ntensor;
    struct HfEntry *entry; // in the order given
    size_t nfile;
    struct HfShard *file;
    char *index; // NULL: there is one file
    int folder;  // of the first rank: PATH.writing, locked; else -1
};

// Lays out n tensors in this order, in STEM.safetensors or in shards that begin so: HF_MODEL_STEM,
// or another (data/peft/adapter.h). A shard has at most shard_bytes, or one larger tensor. The path
// has no slash at its end; `stem` must outlive w. hf_writer_free it.
void hf_writer_init(struct HfWriter *w, const char *path, const char *stem,
                    const struct HfOut *tensor, size_t n, enum Dtype dtype, uint64_t shard_bytes);
void hf_writer_free(struct HfWriter *w);

// Returns the bytes of all files, without those of hf_writer_put.
uint64_t hf_writer_bytes(const struct HfWriter *w);

// Checks that the folder can be made; its parent must exist. Changes nothing. Errors: -EEXIST, also
// for a PATH.writing that is not a dead run's, -errno.
int hf_writer_check(const char *path, const char *flag, struct Error *e);

// The first rank: makes PATH.writing, in it the files at their full size with their headers, and
// the index. If that fails, nothing is left. Errors: -EEXIST if PATH exists or another run writes
// PATH.writing, -ENOSPC, -errno.
int hf_writer_make(struct HfWriter *w, struct Error *e);

// A process without the first rank, when that has made the files: opens them. Errors: -errno.
int hf_writer_join(struct HfWriter *w, struct Error *e);

// The first rank: writes another whole file into the folder (config.json, a tokenizer), by a name
// without a slash. Errors: -errno.
int hf_writer_put(struct HfWriter *w, const char *name, const void *bytes, size_t n,
                  struct Error *e);

// Writes elements [first, first + n) of tensor number `tensor`. Errors: -ERANGE for a value that is
// not finite, or would not be once it is rounded; -errno.
int hf_write_range(const struct HfWriter *w, size_t tensor, uint64_t first, size_t n,
                   const float *values, struct Error *e);

// Each rank, after its last range: syncs the files to the disk. Errors: -errno.
int hf_writer_sync(const struct HfWriter *w, struct Error *e);

// The first rank, when all have synced: renames the folder. Errors: -EEXIST if PATH exists by now;
// -errno: PATH.writing is still there, or PATH is complete, but a power cut could lose its name.
int hf_writer_commit(struct HfWriter *w, struct Error *e);

// The first rank, instead of a commit or after a failed one: removes PATH.writing.
void hf_writer_abandon(struct HfWriter *w);

#endif
