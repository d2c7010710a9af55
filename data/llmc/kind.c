// "llmc:FILE": see kind.h.
#include "data/llmc/kind.h"
#include "data/llmc/export.h"
#include "data/llmc/model.h"

#include <stdlib.h>

static int read_flags(const char *path, char **text, char **where, struct Error *e) {
    struct LlmcModel m;
    int err = llmc_model_open(&m, path, e);
    if (!err) {
        *text = llmc_model_flags(&m);
        *where = base_format("%s", path);
    }
    llmc_model_close(&m);
    return err;
}

static void close_source(void *model) {
    llmc_model_close(model);
    free(model);
}

static int open_source(const char *path, struct ImportSource *out, struct Error *e) {
    struct LlmcModel *m = base_alloc(sizeof *m);
    int err = llmc_model_open(m, path, e);
    if (err) {
        close_source(m);
        return err;
    }
    *out = llmc_model_source(m);
    out->kind = &llmc_weights;
    out->close = close_source;
    return 0;
}

static void close_sink(void *export) {
    llmc_export_close(export);
    free(export);
}

static int make_sink(const char *path, const struct ExportModel *model, struct ExportSink *out,
                     struct Error *e) {
    struct LlmcExport *x = base_alloc(sizeof *x);
    int err = llmc_export_open(x, path, model, e);
    if (err) {
        close_sink(x);
        return err;
    }
    *out = llmc_export_sink(x);
    out->close = close_sink;
    return 0;
}

const struct WeightsKind llmc_weights = {"llmc:", "FILE", read_flags, open_source, make_sink};
