// Maps the elements of a TP rank's groups to those of the model's tensors. See params.h.
//
// A tensor is split by rows, each of its parts on its own, or by columns. So a range of a
// parameter's elements is at most one piece per part, and a piece is adjacent in the tensor, or has
// some columns of each row.
#include "model/params.h"

int params_pieces(const struct Group *group, size_t begin, size_t end,
                  struct Piece piece[MAX_PIECES]) {
    int n = 0;
    for (int i = 0; i < group->nparam; i++) {
        const struct Param *p = &group->param[i];
        size_t at = p->offset, stop = size_min(end, p->offset + p->real);
        for (int k = 0; k < MAX_PARTS; k++) {
            size_t next = at + p->part[k].rows * p->cols;
            size_t first = size_max(begin, at), last = size_min(stop, next);
            bool adjacent = p->cols == p->whole_cols;
            if (first < last)
                piece[n++] =
                    (struct Piece){.param = p,
                                   .begin = first,
                                   .range = {.at = p->part[k].first * p->whole_cols + p->first_col,
                                             .n = last - first,
                                             .first = first - at,
                                             .run = adjacent ? 0 : p->cols,
                                             .stride = adjacent ? 0 : p->whole_cols}};
            at = next;
        }
    }
    return n;
}

size_t params_find(const struct Param *p, uint64_t *at, size_t *element) {
    size_t row = (size_t)(*at / p->whole_cols), col = (size_t)(*at % p->whole_cols), before = 0;
    if (col >= p->first_col + p->cols) { // past the columns that are here: in the next row
        row++;
        col = 0;
    }
    col = size_max(col, p->first_col);
    for (int k = 0; k < MAX_PARTS; k++) {
        size_t first = p->part[k].first, rows = p->part[k].rows;
        if (row < first) {
            row = first;
            col = p->first_col;
        }
        if (row < first + rows) {
            size_t here = (before + row - first) * p->cols + (col - p->first_col);
            size_t end = p->cols == p->whole_cols ? before + rows : before + row - first + 1;
            *at = row * p->whole_cols + col;
            *element = p->offset + here;
            return end * p->cols - here;
        }
        before += rows;
    }
    return 0;
}

int params_counted(const struct Params *p, int g, size_t begin, size_t end,
                   struct Span span[MAX_PARAM]) {
    const struct Group *group = &p->group[g];
    int n = 0;
    if (!p->tp_rank && begin < end)
        span[n++] = (struct Span){begin, end};
    for (int i = 0; i < group->nparam && p->tp_rank; i++) {
        const struct Param *param = &group->param[i];
        size_t first = size_max(begin, param->offset);
        size_t last = size_min(end, param->offset + param->rows * param->cols);
        if (first >= last || !params_counts(p, param))
            continue;
        if (!n || span[n - 1].end < first)
            span[n++].begin = first;
        span[n - 1].end = last;
    }
    return n;
}

int params_partial(const struct Group *group, size_t row_parts, struct Span span[MAX_PARAM]) {
    int n = 0;
    for (int i = 0; i < group->nparam; i++) {
        const struct Param *p = &group->param[i];
        bool partial = p->grad == GRAD_OF_PART || (p->grad == GRAD_OF_ROWS && row_parts > 1);
        if (!partial || !p->rows)
            continue;
        if (!n || span[n - 1].end < p->offset)
            span[n++].begin = p->offset;
        span[n - 1].end = p->offset + p->rows * p->cols;
    }
    return n;
}
