// PEFT's folders of adapters, as a source and as a sink of weights: see kind.h.
#include "data/peft/kind.h"

#include "data/file.h"
#include "data/hf/config.h"
#include "data/hf/write.h"
#include "data/json.h"
#include "data/peft/adapter.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

// ---- the base ----

static struct PeftBase base_of(const char *model) {
    struct PeftBase base;
    cJSON *flags = cJSON_Parse(model);
    CHECK(flags, "flags that are no JSON: %s", model);
    hf_config_sizes(flags, &base.sizes);
    base.layers = (size_t)cJSON_GetObjectItem(flags, "layers")->valuedouble;
    base.gpt2 = !strcmp(cJSON_GetObjectItem(flags, "family")->valuestring, "gpt2");
    cJSON_Delete(flags);
    return base;
}

static struct PeftName name_of(int layer, const char *param) {
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
    for (int t = 0; t < NLORA; t++) {
        char *before = targets;
        if (!(c.targets >> t & 1))
            continue;
        targets = base_format("%s%s%s", before, *before ? "," : "",
                              lora_target_name((enum LoraTarget)t, gpt2));
        free(before);
    }
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

static int read_range(void *adapter, int layer, const char *param, const struct WeightsRange *range,
                      float *out, struct Error *e) {
    struct PeftName name = name_of(layer, param);
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
    struct PeftBase base = base_of(model);
    struct PeftAdapter *a = base_alloc(sizeof *a);
    int err = peft_adapter_open(a, dir, &base, e);
    if (err) {
        close_source(a);
        return err;
    }
    *out = (struct ImportSource){
        .adapters = true, .dtype = NDTYPE, .read = read_range, .close = close_source, .context = a};
    return 0;
}

// ---- the sink ----

struct PeftExport {
    char *path;
    struct PeftBase base;
    struct PeftConfig config;
    size_t count, *index; // tensors; of each by layer, target and matrix
    char **name;
    struct HfWriter writer;
    bool laid_out;
};

static size_t *index_of(const struct PeftExport *x, const struct PeftName *n) {
    return &x->index[(n->layer * NLORA + n->target) * 2 + n->matrix];
}

static int list_param(void *export, int layer, const char *param, struct Error *e) {
    struct PeftExport *x = export;
    struct PeftName name = name_of(layer, param);
    (void)e;
    x->name = base_realloc(x->name, (x->count + 1) * sizeof *x->name, "names of tensors");
    x->name[x->count] = peft_name(&name, x->base.gpt2);
    *index_of(x, &name) = x->count++;
    x->config.targets |= 1u << name.target;
    return 0;
}

static void lay_out(struct PeftExport *x) {
    struct HfOut *out = base_alloc_zeroed(x->count * sizeof *out);
    if (!x->laid_out) {
        for (size_t i = 0; i < x->count; i++) {
            struct PeftName name;
            CHECK(peft_name_read(&name, x->name[i], x->base.gpt2), "%s", x->name[i]);
            out[i] = (struct HfOut){.name = x->name[i], .ndim = 2};
            peft_shape(&name, x->base.gpt2, &x->base.sizes, x->config.rank, out[i].shape);
        }
        hf_writer_init(&x->writer, x->path, PEFT_STEM, out, x->count, F32, HF_SHARD_BYTES);
    }
    x->laid_out = true;
    free(out);
}

static int check_room(void *export, struct Error *e) {
    struct PeftExport *x = export;
    lay_out(x);
    return file_check_room(x->path, "--export-adapter ", hf_writer_bytes(&x->writer), e);
}

static int make_files(void *export, struct Error *e) {
    struct PeftExport *x = export;
    char *config;
    lay_out(x);
    int err = hf_writer_make(&x->writer, e);
    if (err)
        return err;
    peft_config_write(&x->config, x->base.gpt2, &config);
    err = hf_writer_put(&x->writer, "adapter_config.json", config, strlen(config), e);
    free(config);
    if (err)
        hf_writer_abandon(&x->writer);
    return err;
}

static int join_files(void *export, struct Error *e) {
    lay_out(export);
    return hf_writer_join(&((struct PeftExport *)export)->writer, e);
}

static int write_range(void *export, int layer, const char *param, const struct WeightsRange *range,
                       const float *values, struct Error *e) {
    const struct PeftExport *x = export;
    struct PeftName name = name_of(layer, param);
    int err = 0;
    for (size_t n, i = 0; i < range->n && !err; i += n) {
        n = weights_beside(range, i);
        err =
            hf_write_range(&x->writer, *index_of(x, &name), weights_at(range, i), n, values + i, e);
    }
    return err;
}

static int sync_files(void *export, struct Error *e) {
    return hf_writer_sync(&((struct PeftExport *)export)->writer, e);
}

static int commit_folder(void *export, struct Error *e) {
    struct PeftExport *x = export;
    int err = hf_writer_commit(&x->writer, e);
    if (!err)
        log_line(LOG_NORMAL, "exported the adapter %s", x->path);
    return err;
}

static void abandon_folder(void *export) {
    hf_writer_abandon(&((struct PeftExport *)export)->writer);
}

static void close_sink(void *export) {
    struct PeftExport *x = export;
    if (x->laid_out)
        hf_writer_free(&x->writer);
    for (size_t i = 0; i < x->count; i++)
        free(x->name[i]);
    free(x->name);
    free(x->index);
    free(x->path);
    free(x);
}

int peft_sink_open(const char *dir, const char *model, const struct PeftSettings *s,
                   struct ExportSink *out, struct Error *e) {
    int length = (int)strlen(dir);
    while (length > 1 && dir[length - 1] == '/') // DIR.writing is beside it
        length--;
    if (!length)
        return error_set(e, -EINVAL, E_EXPORT_NAME,
                         "--export-adapter: expected a new folder's name");
    struct PeftExport *x = base_alloc_zeroed(sizeof *x);
    x->path = base_format("%.*s", length, dir);
    x->base = base_of(model);
    x->index = base_alloc_zeroed((x->base.layers * NLORA * 2 + 1) * sizeof *x->index);
    x->config = (struct PeftConfig){.rank = s->rank, .alpha = s->alpha, .dropout = s->dropout};
    char *whole = s->base ? realpath(s->base, NULL) : NULL;
    snprintf(x->config.base, sizeof x->config.base, "%s", whole ? whole : "");
    free(whole);
    int err = hf_writer_check(x->path, "--export-adapter", e);
    if (err) {
        close_sink(x);
        return err;
    }
    *out = (struct ExportSink){.adapters = true,
                               .write = write_range,
                               .list = list_param,
                               .room = check_room,
                               .make = make_files,
                               .join = join_files,
                               .sync = sync_files,
                               .commit = commit_folder,
                               .abandon = abandon_folder,
                               .context = x,
                               .close = close_sink};
    return 0;
}
