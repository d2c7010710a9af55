// "hf:DIR": see kind.h.
#include "data/hf/kind.h"
#include "data/hf/export.h"
#include "data/hf/model.h"

#include <stdlib.h>

static int read_flags(const char *folder, char **text, char **where, struct Error *e) {
    int err = hf_model_flags(folder, text, e);
    if (!err)
        *where = base_format("%s/config.json", folder);
    return err;
}

static void close_source(void *model) {
    hf_model_close(model);
    free(model);
}

static int open_source(const char *folder, struct ImportSource *out, struct Error *e) {
    struct HfModel *m = base_alloc(sizeof *m);
    int err = hf_model_open(m, folder, e);
    if (err) {
        close_source(m);
        return err;
    }
    *out = hf_model_source(m);
    out->kind = &hf_weights;
    out->close = close_source;
    return 0;
}

static void close_sink(void *export) {
    hf_export_close(export);
    free(export);
}

static int make_sink(const char *folder, const struct ExportModel *model, struct ExportSink *out,
                     struct Error *e) {
    struct HfExport *x = base_alloc(sizeof *x);
    const struct ImportSource *from = model->from;
    const struct HfModel *beside = from && from->kind == &hf_weights ? from->context : NULL;
    int err = hf_export_open(x, folder, model, beside, e);
    if (err) {
        close_sink(x);
        return err;
    }
    *out = hf_export_sink(x);
    out->close = close_sink;
    return 0;
}

const struct WeightsKind hf_weights = {"hf:", "DIR", read_flags, open_source, make_sink};
