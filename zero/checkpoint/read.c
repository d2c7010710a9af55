// Reads the arrays of a checkpoint's files: each chunk that this rank keeps is put together from
// the files that have its elements. See checkpoint.h.
//
//     kept here, by TP rank 1 of 3    |--.--.--|     columns of a matrix, row by row
//     saved by TP rank 0 of 2      |-----.-----.-----|
//     saved by TP rank 1 of 2      |-----.-----.-----|
//
// A piece of a parameter is contiguous in the whole tensor, or its runs are, and so are a saver's;
// so they meet in runs (model/params.h). For each TP rank that saved, the wanted elements of a
// chunk lie in the order of its files. If runs are short, a window of the file is read at once, and
// they are picked from it. Elements of padding are 0.
#include "zero/checkpoint/files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW = 1 << 16 }; // elements

struct CheckpointReader {
    struct Zero *z;
    const struct CheckpointFiles *files;
    int file, fd; // the open file; -1: none
    // The window holds elements [begin, end) of an array of the open file, counted from its first.
    int group;
    enum State what;
    uint64_t begin, end;
    float *window;
};

// ---- elements of a TP rank's group, from its files ----

static bool file_has_element(const struct CheckpointFiles *f, int file, int tp_rank, int g,
                             uint64_t i) {
    const struct CheckpointGroup *part = &f->file[file].head.group[g];
    return checkpoint_tp_rank(f, file) == tp_rank && i >= part->begin &&
           i - part->begin < part->count;
}

static void close_file(struct CheckpointReader *r) {
    if (r->file >= 0)
        close(r->fd);
    r->file = -1;
    r->begin = r->end = 0;
}

// Opens the file with element i of a TP rank's group, unless it is open.
static int open_file(struct CheckpointReader *r, int tp_rank, int g, uint64_t i, struct Error *e) {
    const struct CheckpointFiles *f = r->files;
    struct CheckpointHead again;
    int file = 0;
    if (r->file >= 0 && file_has_element(f, r->file, tp_rank, g, i))
        return 0;
    close_file(r);
    while (file < f->count && !file_has_element(f, file, tp_rank, g, i))
        file++;
    CHECK(file < f->count, "no file has element %llu of group %d", (unsigned long long)i, g);
    const struct CheckpointFile *from = &f->file[file];
    int err = 0;
    if (from->fetched)
        r->fd = fcntl(f->fetched_fd, F_DUPFD_CLOEXEC, 0);
    else if (!(err = checkpoint_file_open(f->folder, from->path, &r->fd, &again, e)))
        checkpoint_head_free(&again);
    if (from->fetched && r->fd < 0)
        err = checkpoint_unreadable(from->path, e);
    if (!err)
        r->file = file;
    return err;
}

// Reads elements [i, i + n) of an array of the open file, from its first on, without the window.
static int read_direct(struct CheckpointReader *r, int g, enum State what, uint64_t i, size_t n,
                       float *out, struct Error *e) {
    const struct CheckpointFile *f = &r->files->file[r->file];
    int err = checkpoint_file_seek(r->fd, f->path, &f->head, (uint32_t)g, (int)what, i, e);
    return err ? err : checkpoint_file_read(r->fd, f->path, out, n * sizeof *out, e);
}

// Reads elements [i, i + n) of an array of the open file, counted likewise.
static int read_elements(struct CheckpointReader *r, int g, enum State what, uint64_t i, size_t n,
                         float *out, struct Error *e) {
    uint64_t left = r->files->file[r->file].head.group[g].count - i;
    int err = 0;
    if (n >= WINDOW / 4)
        return read_direct(r, g, what, i, n, out, e);
    if (r->group != g || r->what != what || i < r->begin || i + n > r->end) {
        size_t ahead = left < WINDOW ? (size_t)left : WINDOW;
        err = read_direct(r, g, what, i, ahead, r->window, e);
        r->group = g;
        r->what = what;
        r->begin = i;
        r->end = err ? i : i + ahead;
    }
    if (!err)
        memcpy(out, r->window + (i - r->begin), n * sizeof *out);
    return err;
}

// Reads elements [i, i + n) of a TP rank's group, from as many files as have them.
static int read_range(struct CheckpointReader *r, int tp_rank, int g, enum State what, uint64_t i,
                      size_t n, float *out, struct Error *e) {
    int err = 0;
    for (size_t count; n && !err; n -= count, i += count, out += count) {
        err = open_file(r, tp_rank, g, i, e);
        if (err)
            return err;
        const struct CheckpointGroup *part = &r->files->file[r->file].head.group[g];
        uint64_t left = part->begin + part->count - i;
        count = left < n ? (size_t)left : n;
        err = read_elements(r, g, what, i - part->begin, count, out, e);
    }
    return err;
}

// ---- chunks that this rank keeps ----

// Reads the elements that a TP rank has of a piece; out: where the piece begins.
static int read_piece(struct CheckpointReader *r, int tp_rank, int g, enum State what,
                      const struct Piece *p, float *out, struct Error *e) {
    ptrdiff_t which = p->param - r->z->params->group[g].param;
    int number = r->z->params->group[g].number;
    const struct Param *from = &r->files->saved[tp_rank].group[number].param[which];
    int err = 0;
    for (size_t n, i = 0; i < p->range.n && !err; i += n) {
        n = weights_beside(&p->range, i);
        uint64_t begin = weights_at(&p->range, i), end = begin + n, at = begin;
        size_t element, beside;
        while (!err && at < end && (beside = params_find(from, &at, &element)) && at < end) {
            beside = size_min(beside, (size_t)(end - at));
            err = read_range(r, tp_rank, number, what, element, beside, out + i + (at - begin), e);
            at += beside;
        }
    }
    return err;
}

// Reads elements [begin, begin + n) of a group.
static int read_chunk(struct CheckpointReader *r, int g, enum State what, size_t begin, size_t n,
                      float *chunk, struct Error *e) {
    struct Piece piece[MAX_PIECES];
    int pieces = params_pieces(&r->z->params->group[g], begin, begin + n, piece), err = 0;
    memset(chunk, 0, n * sizeof *chunk);
    for (int tp_rank = 0; tp_rank < r->files->tp_size && !err; tp_rank++)
        for (int i = 0; i < pieces && !err; i++)
            if (params_counts(&r->files->saved[tp_rank], piece[i].param))
                err =
                    read_piece(r, tp_rank, g, what, &piece[i], chunk + (piece[i].begin - begin), e);
    return err;
}

static int read_group(struct CheckpointReader *r, int g, enum State arrays, float *chunk,
                      struct Error *e) {
    struct Zero *z = r->z;
    size_t kept = zero_owned_begin(z, g), numel = z->params->group[g].numel;
    size_t end = kept + zero_owned_numel(z, g);
    if (!params_packs(z->params, g)) // of which whole runs are written
        end = size_min(end, numel);
    int err = 0;
    bool adapter = z->params->group[g].kind == GROUP_ADAPTER;
    if (!r->files->wants_model)
        arrays = zero_narray(z, g, arrays);
    else if (adapter)
        return 0;
    for (enum State what = 0; what < arrays; what++)
        for (size_t n, i = kept; i < end && !err; i += n) {
            n = size_min(STATE_CHUNK, end - i);
            err = read_chunk(r, g, what, i, n, chunk, e);
            if (!err)
                zero_write_state(z, g, what, i - kept, n, chunk);
        }
    return err;
}

int checkpoint_read_arrays(struct Zero *z, const struct CheckpointFiles *f, enum State arrays,
                           struct Error *e) {
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    struct CheckpointReader r = {.z = z, .files = f, .file = -1};
    int err = 0;
    r.window = base_alloc(WINDOW * sizeof *r.window);
    zero_finish(z);
    for (int g = 0; g < z->params->ngroup && !err; g++)
        err = read_group(&r, g, arrays, chunk, e);
    close_file(&r);
    free(r.window);
    device_free_host(z->device, chunk);
    return err;
}
