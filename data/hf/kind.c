// "hf:DIR": see kind.h.
#include "data/hf/kind.h"
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

const struct WeightsKind hf_weights = {"hf:", "DIR", read_flags, open_source, hf_make_sink};
