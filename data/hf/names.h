// What our parameters are called in Hugging Face's folders, as a table.
//
// Where we have one matrix, transformers may have several, stacked here from the first row on:
// queries, keys and values; gate and up projection. GPT-2's matrices are Conv1D's there, stored as
// (in, out): ours transposed. All else is the same: matrices (out, in), the last index fastest, and
// rotary embeddings in pairs (i, i + head size / 2).
//
// The table knows names and sizes, not which parameters a model has: a bias that the model lacks
// is not asked for. Used by pieces.h, which reads and writes the elements.
#ifndef DATA_HF_NAMES_H
#define DATA_HF_NAMES_H
#include "kernels/base.h"

struct HfSizes {
    size_t channels;  // C
    size_t heads;     // NH
    size_t kv_heads;  // NKV
    size_t head_size; // HS
    size_t ffn;       // F
    size_t vocab;     // V, without padding
    size_t positions; // rows of wpe
};

enum { HF_PIECES_MAX = 3 };

// Rows [row, row + rows) of a parameter of ours, and the tensor that has them, whole: (rows, cols),
// or (cols, rows) where it is transposed, or (rows) where cols is 0: a vector.
struct HfPiece {
    char name[64];
    size_t row, rows, cols;
    bool transposed;
};

// The pieces of a parameter, from its first row on without gaps; returns how many, at most
// HF_PIECES_MAX, and 0 for a parameter that the family has no name for. Parameters: wte, wpe,
// norm.weight, norm.bias (the last norm), weight (the head's matrix, where it is not wte), and of a
// block `layer`: norm1.*, norm2.*, attention.qkv.*, attention.q_norm.weight,
// attention.k_norm.weight, attention.proj.*, mlp.fc.* (SwiGLU: the gate's rows, then the up
// projection's), mlp.out.*, each .weight or .bias.
size_t hf_pieces(const char *family, const char *param, int layer, const struct HfSizes *sizes,
                 struct HfPiece pieces[HF_PIECES_MAX]);

#endif
