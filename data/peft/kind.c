// PEFT's folders of adapters, as a source and as a sink of weights: see kind.h.
#include "data/peft/kind.h"

#include "data/hf/config.h"
#include "data/hf/sink.h"
#include "data/json.h"
#include "data/peft/adapter.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

// ---- the base ----

static struct PeftBase parse_base(const char *model) {
    struct PeftBase base;
    cJSON *flags = cJSON_Parse(model);
    CHECK(flags, "flags that are no JSON: %s", model);
    hf_config_sizes(flags, &base.sizes);
    base.layers = (size_t)cJSON_GetObjectItem(flags, "layers")->valuedouble;
    base.gpt2 = !strcmp(cJSON_GetObjectItem(flags, "family")->valuestring, "gpt2");
    cJSON_Delete(flags);
    return base;
}

static struct PeftName parse_param(int layer, const char *param) {
    struct PeftName name = {.layer = (size_t)layer};
    bool known = layer >= 0 && lora_param_read(param, &name.target, &name.matrix);
    CHECK(known, "%s of layer %d is no adapter's", param, layer);
    return name;
}

int peft_flags(const char *dir, bool gpt2, char **text, struct Error *e) {
    struct PeftConfig c;
    int err = peft_config_read(&c, dir, gpt2, e);
    if (err)
        return err;
    char *targets = base_format("%s", "");
    for (int t = 0; t < NLORA; t++)
        if (c.targets >> t & 1)
            base_append(&targets, "%s%s", *targets ? "," : "",
                        lora_target_name((enum LoraTarget)t, gpt2));
    cJSON *flags = cJSON_CreateObject();
    cJSON_AddNumberToObject(flags, "lora-rank", (double)c.rank);
    cJSON_AddNumberToObject(flags, "lora-alpha", c.alpha);
    cJSON_AddNumberToObject(flags, "lora-dropout", c.dropout);
    cJSON_AddStringToObject(flags, "lora-targets", targets);
    *text = json_line_text(flags);
    free(targets);
    return 0;
}

// ---- the source ----

static int read_elements(void *adapter, int layer, const char *param,
                         const struct WeightsRange *range, float *out, struct Error *e) {
    struct PeftName name = parse_param(layer, param);
    int err = 0;
    for (size_t n, i = 0; i < range->n && !err; i += n) {
        n = weights_beside(range, i);
        err = peft_adapter_read(adapter, &name, weights_at(range, i), n, out + i, e);
    }
    return err;
}

static void close_source(void *adapter) {
    peft_adapter_close(adapter);
    free(adapter);
}

int peft_source_open(const char *dir, const char *model, struct ImportSource *out,
                     struct Error *e) {
    struct PeftBase base = parse_base(model);
    struct PeftAdapter *a = base_alloc(sizeof *a);
    int err = peft_adapter_open(a, dir, &base, e);
    if (err) {
        close_source(a);
        return err;
    }
    *out = (struct ImportSource){.adapters = true,
                                 .dtype = NDTYPE,
                                 .read = read_elements,
                                 .close = close_source,
                                 .context = a};
    return 0;
}

// ---- the sink ----

struct PeftExport {
    struct HfSink sink;
    struct PeftBase base;
    struct PeftConfig config;
};

static size_t fill_pieces(const void *export, int layer, const char *param,
                          struct HfPiece pieces[HF_PIECES_MAX]) {
    const struct PeftExport *x = export;
    struct PeftName name = parse_param(layer, param);
    char *text = peft_name(&name, x->base.gpt2);
    uint64_t shape[2];
    peft_shape(&name, x->base.gpt2, &x->base.sizes, x->config.rank, shape);
    *pieces = (struct HfPiece){.rows = shape[0], .cols = shape[1]};
    int length = snprintf(pieces->name, sizeof pieces->name, "%s", text);
    CHECK((size_t)length < sizeof pieces->name, "%s is too long for a name", text);
    free(text);
    return 1;
}

static int put_config(void *export, struct Error *e) {
    struct PeftExport *x = export;
    for (size_t i = 0; i < x->sink.npiece; i++) {
        struct PeftName name;
        CHECK(peft_name_read(&name, x->sink.piece[i].name, x->base.gpt2), "%s",
              x->sink.piece[i].name);
        x->config.targets |= 1u << name.target;
    }
    char *config = peft_config_write(&x->config, x->base.gpt2);
    int err = hf_writer_put(&x->sink.writer, "adapter_config.json", config, strlen(config), e);
    free(config);
    return err;
}

int peft_sink_open(const char *dir, const char *model, const struct PeftConfig *c, const char *base,
                   struct ExportSink *out, struct Error *e) {
    if (!*dir)
        return error_set(e, -EINVAL, E_EXPORT_NAME,
                         "--export-adapter: expected a new folder's name");
    struct PeftExport *x = base_alloc(sizeof *x);
    *x = (struct PeftExport){.sink = {.flag = "--export-adapter",
                                      .prefix = "the adapter ",
                                      .stem = PEFT_STEM,
                                      .dtype = F32,
                                      .owner = x,
                                      .pieces = fill_pieces,
                                      .put = put_config,
                                      .free = free},
                             .base = parse_base(model),
                             .config = *c};
    char *absolute = base ? realpath(base, NULL) : NULL;
    snprintf(x->config.base, sizeof x->config.base, "%s", absolute ? absolute : "");
    free(absolute);
    int err = hf_sink_open(&x->sink, dir, e);
    if (err) {
        hf_sink_close(&x->sink);
        return err;
    }
    *out = hf_sink(&x->sink);
    out->adapters = true;
    return 0;
}
