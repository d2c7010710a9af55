// Reads parameters' elements from tensors, and writes them: see pieces.h.
//
// Both walk the same runs: elements that are adjacent in the file, and at a fixed distance in the
// parameter.
#include "data/hf/pieces.h"

#include "data/json.h"

#include <errno.h>
#include <string.h>

enum { GATHERED = 4096 }; // elements of a transposed run that are copied at once

// Elements at .. at + n - 1 of the tensor. In the caller's range the first is element `from`, and
// the next ones are `distance` elements apart.
struct PieceRun {
    uint64_t at;
    size_t from, n, distance;
};

// The file's side of a run: a folder or a writer.
struct PieceSide {
    const struct HfFolder *folder;
    const struct HfWriter *writer;
    const struct HfTensor *tensor; // of the folder
    size_t index;                  // of the tensor in the writer
    float *out;
    const float *values;
};

struct HfOut hf_piece_out(const struct HfPiece *p) {
    struct HfOut out = {.name = p->name, .ndim = p->cols ? 2 : 1};
    out.shape[0] = p->transposed ? p->cols : p->rows;
    out.shape[1] = p->transposed ? p->rows : p->cols;
    return out;
}

int hf_pieces_ask(struct HfFolder *f, const struct HfPiece *piece, size_t npiece, struct Error *e) {
    for (size_t i = 0; i < npiece; i++) {
        const struct HfTensor *found = hf_folder_ask(f, piece[i].name);
        if (!found)
            return error_set(e, -EINVAL, E_HF_TENSOR_MISSING,
                             "%s: tensor %s is missing, although config.json asks for it; download "
                             "the folder again",
                             f->path, piece[i].name);
        const struct Tensor *t = found->tensor;
        struct HfOut want = hf_piece_out(&piece[i]);
        struct Tensor right = {.ndim = want.ndim};
        memcpy(right.shape, want.shape, sizeof right.shape);
        if (t->ndim != right.ndim ||
            memcmp(t->shape, right.shape, (size_t)t->ndim * sizeof *t->shape))
            return error_set(
                e, -EINVAL, E_HF_TENSOR_SHAPE,
                "%s: tensor %s is %s, but config.json asks for %s; take both from one model",
                found->file->path, json_shown(t->name).text, tensor_shape(t).text,
                tensor_shape(&right).text);
        if (!t->is_float)
            return error_set(e, -EINVAL, E_HF_TENSOR_DTYPE,
                             "%s: tensor %s is %s; save the model as F32, BF16 or F16",
                             found->file->path, json_shown(t->name).text, t->spelled);
    }
    return 0;
}

// ---- a run --------------------------------------------------------------------------------------

static int read_run(const struct PieceSide *s, struct PieceRun r, struct Error *e) {
    const struct HfTensor *t = s->tensor;
    float gathered[GATHERED];
    if (r.distance == 1)
        return safetensors_read_finite(t->file, t->tensor, r.at, r.n, s->out + r.from, e);
    int code = 0;
    for (size_t step; r.n && !code; r.n -= step, r.at += step, r.from += step * r.distance) {
        step = size_min(r.n, GATHERED);
        code = safetensors_read_finite(t->file, t->tensor, r.at, step, gathered, e);
        for (size_t i = 0; i < step && !code; i++)
            s->out[r.from + i * r.distance] = gathered[i];
    }
    return code;
}

static int write_run(const struct PieceSide *s, struct PieceRun r, struct Error *e) {
    float gathered[GATHERED];
    if (r.distance == 1)
        return hf_write_range(s->writer, s->index, r.at, r.n, s->values + r.from, e);
    int code = 0;
    for (size_t step; r.n && !code; r.n -= step, r.at += step, r.from += step * r.distance) {
        step = size_min(r.n, GATHERED);
        for (size_t i = 0; i < step; i++)
            gathered[i] = s->values[r.from + i * r.distance];
        code = hf_write_range(s->writer, s->index, r.at, step, gathered, e);
    }
    return code;
}

// ---- the runs of a piece ------------------------------------------------------------------------

// Columns [first, first + cols) of a piece.
struct Window {
    uint64_t first, cols;
};

// Reads or writes elements [begin, end) of a piece's window, in our order; the first is element
// `from` of the caller's range. Our column c is the tensor's row c, whose element r is element
// r * cols + c of the window.
static int transfer_transposed(const struct PieceSide *s, const struct HfPiece *p, struct Window w,
                               uint64_t begin, uint64_t end, size_t from, struct Error *e) {
    int code = 0;
    for (uint64_t c = 0; c < w.cols && !code; c++) {
        uint64_t first = begin > c ? ceil_div(begin - c, w.cols) : 0;
        uint64_t last = end > c ? ceil_div(end - c, w.cols) : 0;
        if (first >= last)
            continue;
        struct PieceRun run = {(w.first + c) * p->rows + first,
                               from + (size_t)(first * w.cols + c - begin), (size_t)(last - first),
                               w.cols};
        code = s->folder ? read_run(s, run, e) : write_run(s, run, e);
    }
    return code;
}

// Reads or writes elements [begin, end) of any piece's window. A window of some columns has a run
// in each row.
static int transfer_piece(const struct PieceSide *s, const struct HfPiece *p, struct Window w,
                          uint64_t begin, uint64_t end, size_t from, struct Error *e) {
    bool all = w.cols == p->cols;
    int code = 0;
    if (p->transposed)
        return transfer_transposed(s, p, w, begin, end, from, e);
    for (uint64_t n, i = begin; i < end && !code; i += n) {
        n = all || end - i < w.cols - i % w.cols ? end - i : w.cols - i % w.cols;
        uint64_t at = all ? i : i / w.cols * p->cols + w.first + i % w.cols;
        struct PieceRun run = {at, from + (size_t)(i - begin), (size_t)n, 1};
        code = s->folder ? read_run(s, run, e) : write_run(s, run, e);
    }
    return code;
}

static void find_tensor(struct PieceSide *s, const char *name) {
    if (s->folder) {
        s->tensor = hf_folder_find(s->folder, name);
        CHECK(s->tensor, "tensor %s was not asked for", name);
        return;
    }
    for (s->index = 0; s->index < s->writer->ntensor; s->index++)
        if (!strcmp(s->writer->entry[s->index].name, name))
            return;
    CHECK(false, "tensor %s is not among those to be written", name);
}

// Reads or writes the elements of [first, first + n) that the pieces have.
static int transfer_adjacent(struct PieceSide *s, const struct HfPiece *piece, size_t npiece,
                             uint64_t first, size_t n, struct Error *e) {
    int code = 0;
    for (size_t i = 0; i < npiece && !code; i++) {
        const struct HfPiece *p = &piece[i];
        size_t cols = size_max(p->cols, 1);
        uint64_t begin = p->row * cols, end = begin + p->rows * cols;
        uint64_t low = first > begin ? first : begin, high = first + n < end ? first + n : end;
        if (low >= high)
            continue;
        find_tensor(s, p->name);
        code = transfer_piece(s, p, (struct Window){0, p->cols}, low - begin, high - begin,
                              (size_t)(low - first), e);
    }
    return code;
}

// Reads or writes elements of a parameter, or of some of its columns.
static int transfer_param(struct PieceSide *s, const struct HfPiece *piece, size_t npiece,
                          const struct WeightsRange *r, struct Error *e) {
    if (!r->stride)
        return transfer_adjacent(s, piece, npiece, weights_at(r, 0), r->n, e);
    CHECK(npiece == 1 && piece->cols == r->stride && r->at + r->run <= r->stride &&
              r->first + r->n <= piece->rows * r->run,
          "%zu elements of columns %llu to %llu of %s", r->n, (unsigned long long)r->at,
          (unsigned long long)r->at + r->run, piece->name);
    find_tensor(s, piece->name);
    return transfer_piece(s, piece, (struct Window){r->at, r->run}, r->first, r->first + r->n, 0,
                          e);
}

int hf_pieces_read(const struct HfFolder *f, const struct HfPiece *piece, size_t npiece,
                   const struct WeightsRange *range, float *out, struct Error *e) {
    uint64_t end = 0, first = weights_at(range, 0); // without a piece, all elements are padding
    size_t n = range->n;
    if (npiece) {
        const struct HfPiece *last = &piece[npiece - 1];
        end = (last->row + last->rows) * size_max(last->cols, 1);
    }
    size_t stored = range->stride     ? n
                    : first >= end    ? 0
                    : end - first < n ? (size_t)(end - first)
                                      : n;
    memset(out + stored, 0, (n - stored) * sizeof *out);
    struct PieceSide s = {.folder = f, .out = out};
    return transfer_param(&s, piece, npiece, range, e);
}

int hf_pieces_write(const struct HfWriter *w, const struct HfPiece *piece, size_t npiece,
                    const struct WeightsRange *range, const float *values, struct Error *e) {
    struct PieceSide s = {.writer = w, .values = values};
    return transfer_param(&s, piece, npiece, range, e);
}
