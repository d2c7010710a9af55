// Elements of a parameter of ours, read from a folder's tensors or written to them.
//
// A rank holds a range of a parameter's elements, in the order in which we store them: rows, the
// last index fastest. The range may begin and end in the middle of a row, and have some columns
// alone (kernels/weights.h). These functions find out which bytes of which tensors that is: of a
// matrix that is stored as we do, one run in each piece, or of some columns one in each row; of a
// transposed one, a run in each of its rows. What the pieces do not have (the rows that pad
// the vocabulary) is 0 when read, and passed over when written.
//
// Called by whoever loads and saves models, once for each parameter and part of it.
#ifndef DATA_HF_PIECES_H
#define DATA_HF_PIECES_H
#include "data/hf/folder.h"
#include "data/hf/names.h"
#include "data/hf/write.h"
#include "kernels/weights.h"

// Asks the folder for the tensors of these pieces. Errors, -EINVAL: one is not there, has another
// shape, or is of a dtype that cannot be read.
int hf_pieces_ask(struct HfFolder *f, const struct HfPiece *piece, size_t npiece, struct Error *e);

// The tensor of a piece, for hf_writer_init; its name is the piece's.
struct HfOut hf_piece_out(const struct HfPiece *piece);

// Reads these elements of the parameter into `out`; some columns alone only of one that is one
// piece. The pieces must have been asked for. Errors: those of safetensors_read; -EINVAL for an
// element that is not finite.
int hf_pieces_read(const struct HfFolder *f, const struct HfPiece *piece, size_t npiece,
                   const struct WeightsRange *range, float *out, struct Error *e);

// Writes them. Each piece is a tensor of the writer. Errors: those of hf_write_range.
int hf_pieces_write(const struct HfWriter *w, const struct HfPiece *piece, size_t npiece,
                    const struct WeightsRange *range, const float *values, struct Error *e);

#endif
