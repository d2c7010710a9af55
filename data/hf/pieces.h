// Reads and writes a parameter's elements in a folder's tensors.
//
// A rank holds a range of a parameter's elements, in our order: rows, the last index fastest. The
// range may begin and end in the middle of a row, and have only some columns (kernels/weights.h).
// These functions find its bytes in the tensors: a matrix in our layout has one run in each piece,
// or in each row for some columns; a transposed one, a run in each of its rows. Elements without a
// piece (the rows that pad the vocabulary) are read as 0, and not written.
//
// Called by model.c and export.c, once for each parameter and part of it.
#ifndef DATA_HF_PIECES_H
#define DATA_HF_PIECES_H
#include "data/hf/folder.h"
#include "data/hf/names.h"
#include "data/hf/write.h"
#include "kernels/weights.h"

// Asks the folder for the tensors of these pieces. Errors, -EINVAL: one is missing, has another
// shape, or a dtype that cannot be read.
int hf_pieces_ask(struct HfFolder *f, const struct HfPiece *piece, size_t npiece, struct Error *e);

// Returns the tensor of a piece, for hf_writer_init; its name is the piece's.
struct HfOut hf_piece_out(const struct HfPiece *piece);

// Reads these elements of the parameter into `out`. A range of some columns needs a parameter of
// one piece. The pieces must have been asked for. Errors: those of safetensors_read_finite.
int hf_pieces_read(const struct HfFolder *f, const struct HfPiece *piece, size_t npiece,
                   const struct WeightsRange *range, float *out, struct Error *e);

// Writes these elements. Each piece is a tensor of the writer. Errors: those of hf_write_range.
int hf_pieces_write(const struct HfWriter *w, const struct HfPiece *piece, size_t npiece,
                    const struct WeightsRange *range, const float *values, struct Error *e);

#endif
