// "hf:DIR" as a source of weights: see model.h and kind.h.
#include "data/hf/model.h"
#include "data/file.h"
#include "data/hf/config.h"
#include "data/hf/kind.h"
#include "data/hf/pieces.h"
#include "data/json.h"
#include "kernels/folder.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONFIG_BYTES_MAX = 1 << 20 };

// Returns the path of a file NAME.gguf in the folder; NULL: there is none. free() it.
static char *find_gguf(const char *folder) {
    DIR *dir = opendir(folder);
    char *path = NULL;
    int err;
    for (const char *name; dir && !path && (name = folder_next(dir, &err));)
        if (file_ends_in(name, strlen(name), ".gguf"))
            path = base_format("%s/%s", folder, name);
    if (dir)
        closedir(dir);
    return path;
}

// Refuses a folder without config.json. The line in *e becomes another if the folder has an adapter
// of PEFT's or a GGUF file. Returns -ENOENT.
static int refuse_folder(const char *folder, struct Error *e) {
    char *adapter = base_format("%s/adapter_config.json", folder), *gguf = find_gguf(folder);
    int err = -ENOENT;
    if (!access(adapter, F_OK))
        error_set(e, err, E_HF_ADAPTER,
                  "%s has adapter_config.json and no config.json: it is an adapter of PEFT's "
                  "(LoRA), not a model; give --init hf:DIR with the folder of its base, and "
                  "--init-adapter with this one",
                  folder);
    else if (gguf)
        error_set(e, err, E_HF_WEIGHTS_MISSING,
                  "%s is GGUF, which is not read; load it by transformers' from_pretrained(DIR, "
                  "gguf_file=NAME), save it by save_pretrained(), and name that folder",
                  gguf);
    free(adapter);
    free(gguf);
    return err;
}

int hf_model_flags(const char *folder, char **text, struct Error *e) {
    char *path = base_format("%s/config.json", folder);
    cJSON *config;
    int err = json_read_max(path, CONFIG_BYTES_MAX, &config, e);
    if (err == -ENOENT)
        err = refuse_folder(folder, e);
    if (!err)
        err = hf_config_flags(config, path, text, e);
    cJSON_Delete(config);
    free(path);
    return err;
}

int hf_model_open(struct HfModel *m, const char *folder, struct Error *e) {
    *m = (struct HfModel){0};
    int err = hf_folder_open(&m->folder, folder, e);
    if (err)
        return err;
    char *path = base_format("%s/config.json", folder), *text = NULL;
    err = hf_config_flags(m->folder.config, path, &text, e);
    cJSON *flags = err ? NULL : cJSON_Parse(text);
    if (flags) {
        hf_config_sizes(flags, &m->sizes);
        m->seq_len = (size_t)json_number(m->folder.config, "max_position_embeddings");
        m->family = base_format("%s", cJSON_GetObjectItem(flags, "family")->valuestring);
        m->tied = strcmp(json_text(flags, "tie"), "on") == 0;
        m->remarks = hf_config_remarks(m->folder.config, path);
    }
    cJSON_Delete(flags);
    free(text);
    free(path);
    return err;
}

void hf_model_close(struct HfModel *m) {
    if (!m->folder.path)
        return;
    hf_folder_close(&m->folder);
    free(m->family);
    free(m->remarks);
    *m = (struct HfModel){0};
}

// Returns the dtype of the folder's first matrix; F32: it has none.
static enum Dtype first_matrix_dtype(const struct HfModel *m) {
    for (size_t i = 0; i < m->folder.ntensor; i++)
        if (m->folder.tensor[i].tensor->ndim > 1 && m->folder.tensor[i].tensor->is_float)
            return m->folder.tensor[i].tensor->dtype;
    return F32;
}

static const char HEAD[] = "lm_head.weight";

// Writes the pieces of a parameter; returns their number. A tied matrix may have the embedding's
// name or the head's.
static size_t fill_pieces(const struct HfModel *m, int layer, const char *param,
                          struct HfPiece pieces[HF_PIECES_MAX]) {
    size_t n = hf_pieces(m->family, param, layer, &m->sizes, pieces);
    bool tied = m->tied && strcmp(param, "wte") == 0;
    if (tied && !hf_folder_find(&m->folder, pieces->name) && hf_folder_find(&m->folder, HEAD))
        snprintf(pieces->name, sizeof pieces->name, "%s", HEAD);
    return n;
}

static int ask_for_param(void *model, int layer, const char *param, struct Error *e) {
    struct HfModel *m = model;
    struct HfPiece pieces[HF_PIECES_MAX];
    size_t n = fill_pieces(m, layer, param, pieces);
    CHECK(n, "no name in %s for %s", m->family, param);
    return hf_pieces_ask(&m->folder, pieces, n, e);
}

// Checks a tied head that transformers has saved a second time.
static int check_tied_head(struct HfModel *m, struct Error *e) {
    struct HfPiece tokens[HF_PIECES_MAX];
    const struct HfTensor *head = hf_folder_find(&m->folder, HEAD);
    if (!head || head->asked)
        return 0;
    fill_pieces(m, -1, "wte", tokens);
    bool same = false;
    int err = hf_folder_compare(head, hf_folder_find(&m->folder, tokens->name), &same, e);
    if (!err && !same)
        err = error_set(e, -EINVAL, E_HF_TIED_HEAD,
                        "%s: tensor %s is not %s, although config.json has tie_word_embeddings "
                        "true; set it to false",
                        head->file->path, head->tensor->name, tokens->name);
    hf_folder_ask(&m->folder, HEAD);
    return err;
}

static int refuse_unknown_tensors(void *model, struct Error *e) {
    struct HfModel *m = model;
    size_t count;
    int err = check_tied_head(m, e);
    if (err)
        return err;
    const char *first = hf_folder_unasked(&m->folder, &count);
    if (!first)
        return 0;
    return error_set(
        e, -EINVAL, E_HF_TENSOR_EXTRA,
        "--init hf:%s: tensor %s%s: a %s model has no such tensor; check model_type in config.json",
        m->folder.path, json_shown(first).text, count > 1 ? ", and others" : "", m->family);
}

static int read_elements(void *model, int layer, const char *param,
                         const struct WeightsRange *range, float *out, struct Error *e) {
    const struct HfModel *m = model;
    struct HfPiece pieces[HF_PIECES_MAX];
    size_t npiece = fill_pieces(m, layer, param, pieces);
    return hf_pieces_read(&m->folder, pieces, npiece, range, out, e);
}

struct ImportSource hf_model_source(struct HfModel *m) {
    return (struct ImportSource){.dtype = first_matrix_dtype(m),
                                 .seq_len = m->seq_len,
                                 .remarks = m->remarks,
                                 .read = read_elements,
                                 .ask = ask_for_param,
                                 .check_all_asked = refuse_unknown_tensors,
                                 .context = m};
}

// ---- the row ----

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
