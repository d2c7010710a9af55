// Steps of an export into a folder: see sink.h.
#include "data/hf/sink.h"

#include "data/file.h"

#include <stdlib.h>
#include <string.h>

int hf_sink_open(struct HfSink *s, const char *path, struct Error *e) {
    int length = (int)strlen(path);
    while (length > 1 && path[length - 1] == '/') // PATH.writing is beside it
        length--;
    s->path = base_format("%.*s", length, path);
    return hf_writer_check(s->path, s->flag, e);
}

void hf_sink_close(void *sink) {
    struct HfSink *s = sink;
    if (s->laid_out)
        hf_writer_free(&s->writer);
    free(s->path);
    free(s->piece);
    s->free(s->owner);
}

// ---- before training ----

static int list_param(void *sink, int layer, const char *param, struct Error *e) {
    struct HfSink *s = sink;
    struct HfPiece pieces[HF_PIECES_MAX];
    size_t n = s->pieces(s->owner, layer, param, pieces);
    (void)e;
    CHECK(n, "%s of layer %d has no name in %s", param, layer, s->path);
    s->piece = base_realloc(s->piece, (s->npiece + n) * sizeof *s->piece, "names of tensors");
    memcpy(s->piece + s->npiece, pieces, n * sizeof *pieces);
    s->npiece += n;
    return 0;
}

static void lay_out_once(struct HfSink *s) {
    if (s->laid_out)
        return;
    struct HfOut *out = base_alloc(s->npiece * sizeof *out);
    for (size_t i = 0; i < s->npiece; i++)
        out[i] = hf_piece_out(&s->piece[i]);
    hf_writer_init(&s->writer, s->path, s->stem, out, s->npiece, s->dtype, HF_SHARD_BYTES);
    free(out);
    s->laid_out = true;
}

static int check_room(void *sink, struct Error *e) {
    struct HfSink *s = sink;
    char *before = base_format("%s ", s->flag);
    lay_out_once(s);
    int err = file_check_room(s->path, before, hf_writer_bytes(&s->writer), e);
    free(before);
    return err;
}

// ---- the steps ----

static int make_files(void *sink, struct Error *e) {
    struct HfSink *s = sink;
    lay_out_once(s);
    int err = hf_writer_make(&s->writer, e);
    if (err)
        return err;
    err = s->put(s->owner, e);
    if (err)
        hf_writer_abandon(&s->writer);
    return err;
}

static int join_files(void *sink, struct Error *e) {
    struct HfSink *s = sink;
    lay_out_once(s);
    return hf_writer_join(&s->writer, e);
}

static int write_elements(void *sink, int layer, const char *param,
                          const struct WeightsRange *range, const float *values, struct Error *e) {
    const struct HfSink *s = sink;
    struct HfPiece pieces[HF_PIECES_MAX];
    size_t npiece = s->pieces(s->owner, layer, param, pieces);
    return hf_pieces_write(&s->writer, pieces, npiece, range, values, e);
}

static int sync_files(void *sink, struct Error *e) {
    const struct HfSink *s = sink;
    return hf_writer_sync(&s->writer, e);
}

static int commit_folder(void *sink, struct Error *e) {
    struct HfSink *s = sink;
    int err = hf_writer_commit(&s->writer, e);
    if (!err)
        log_line(LOG_NORMAL, "exported %s%s", s->prefix, s->path);
    return err;
}

static void abandon_folder(void *sink) {
    struct HfSink *s = sink;
    hf_writer_abandon(&s->writer);
}

struct ExportSink hf_sink(struct HfSink *s) {
    return (struct ExportSink){.write = write_elements,
                               .list = list_param,
                               .check_room = check_room,
                               .make = make_files,
                               .join = join_files,
                               .sync = sync_files,
                               .commit = commit_folder,
                               .abandon = abandon_folder,
                               .context = s,
                               .close = hf_sink_close};
}
