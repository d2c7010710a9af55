// llm.c's file of a GPT-2 model: its header, and the offset of each parameter.
//
//   byte 0     256 int32: magic, version, max_seq_len, vocab_size, num_layers, num_heads, channels,
//              padded_vocab_size; the others are 0
//   byte 1024  16 tensors without gaps, each with all its layers: wte, wpe, ln1w, ln1b, qkvw, qkvb,
//              attprojw, attprojb, ln2w, ln2b, fcw, fcb, fcprojw, fcprojb, lnfw, lnfb
//
// All is little-endian. Matrices are (out, in), like ours, and the queries' rows come before the
// keys' and the values', so that a range of a parameter is one range of the file. Version 3 has
// fp32, version 5 bf16; both have padding rows after the vocabulary's, which are no weights.
// Version 1, older, has none, and is not read. The header is checked against the file's length: a
// file that opens can be read to its last element.
//
// (github.com/karpathy/llm.c: write_model in train_gpt2.py, gpt2_write_to_checkpoint in
// train_gpt2.cu.) Used by kind.h. Read next: model.c, export.c.
#ifndef DATA_LLMC_FORMAT_H
#define DATA_LLMC_FORMAT_H
#include "kernels/base.h"
#include "kernels/dtype.h"

enum { LLMC_HEADER_BYTES = 1024, LLMC_VOCAB_MULTIPLE = 128 };

struct LlmcShape {
    enum Dtype dtype;
    size_t positions;           // max_seq_len
    size_t vocab, vocab_padded; // V, Vp
    size_t layers, heads, channels;
};

// Reads a header. file_bytes: of the whole file. Errors: -EINVAL with the file, the field, its
// value and what would be right.
int llmc_read_header(const char *path, const uint8_t header[LLMC_HEADER_BYTES], uint64_t file_bytes,
                     struct LlmcShape *out, struct Error *e);
void llmc_write_header(const struct LlmcShape *s, uint8_t header[LLMC_HEADER_BYTES]);

// Returns the bytes of the whole file.
uint64_t llmc_bytes(const struct LlmcShape *s);

// Returns the offset of a parameter, named as in kernels/weights.h; *count: its elements without
// padding. 0: there is no parameter of that name and layer.
uint64_t llmc_find(const struct LlmcShape *s, int layer, const char *param, uint64_t *count);

#endif
