// A table of our parameters' names in Hugging Face's folders.
//
// Some of our matrices are several of transformers', stacked by rows: queries, keys and values;
// gate and up projection. GPT-2's matrices are Conv1D's there, stored as (in, out): ours
// transposed. All else is the same: matrices (out, in), the last index fastest, and rotary
// embeddings in pairs (i, i + head size / 2).
//
// The table has names and sizes of all parameters that a model may have. Used by pieces.h, which
// reads and writes the elements.
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

// Rows [row, row + rows) of a parameter of ours, which are a whole tensor: (rows, cols), or (cols,
// rows) if it is transposed, or (rows) if cols is 0: a vector.
struct HfPiece {
    char name[96]; // an adapter's have some 70 bytes
    size_t row, rows, cols;
    bool transposed;
};

// Writes the pieces of a parameter, from its first row on without gaps. Returns their number, at
// most HF_PIECES_MAX; 0: the family has no such parameter. Parameters: wte, wpe, norm.weight,
// norm.bias (the last norm), weight (the head's matrix, unless it is wte), and of block `layer`:
// norm1.*, norm2.*, attention.qkv.*, attention.q_norm.weight, attention.k_norm.weight,
// attention.proj.*, mlp.fc.* (SwiGLU: the gate's rows, then the up projection's), mlp.out.*, each
// .weight or .bias.
size_t hf_pieces(const char *family, const char *param, int layer, const struct HfSizes *sizes,
                 struct HfPiece pieces[HF_PIECES_MAX]);

#endif
