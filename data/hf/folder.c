// Opens a model's folder, and finds its tensors: see folder.h.
#include "data/hf/folder.h"

#include "data/json.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CONFIG_BYTES_MAX = 1 << 20, INDEX_BYTES_MAX = 64 << 20 };

static const char SINGLE[] = "model.safetensors", INDEX[] = "model.safetensors.index.json";

// ---- files --------------------------------------------------------------------------------------

static int open_tensors(struct HfFolder *f, const char *name, struct Error *e) {
    char *path = base_format("%s/%s", f->path, name);
    int code = safetensors_open(path, &f->file[f->nfile], e);
    f->nfile += !code;
    free(path);
    return code;
}

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// True if the name is that of a file in the folder itself.
static bool is_plain_name(const char *name) {
    return name && *name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

// Opens each file that weight_map names, once.
static int open_listed_files(struct HfFolder *f, const cJSON *map, const char *path,
                             struct Error *e) {
    size_t n = 0, room = (size_t)cJSON_GetArraySize(map);
    const char **names = base_alloc((room + 1) * sizeof *names);
    const cJSON *item;
    int code = 0;
    cJSON_ArrayForEach(item, map) {
        const char *name = cJSON_GetStringValue(item);
        if (!code && !is_plain_name(name))
            code =
                error_set(e, -EINVAL, E_HF_INDEX,
                          "%s: tensor %s is listed in \"%s\"; expected a file of the same folder",
                          path, json_shown(item->string).text, json_shown(name ? name : "").text);
        names[n++] = name;
    }
    if (!code)
        qsort(names, n, sizeof *names, compare_texts);
    f->file = base_alloc_zeroed((n + 1) * sizeof *f->file);
    for (size_t i = 0; i < n && !code; i++)
        if (!i || strcmp(names[i - 1], names[i]))
            code = open_tensors(f, names[i], e);
    free(names);
    return code;
}

static const struct Safetensors *find_file(const struct HfFolder *f, const char *name) {
    size_t prefix_bytes = strlen(f->path) + 1;
    for (size_t i = 0; i < f->nfile; i++)
        if (!strcmp(f->file[i].path + prefix_bytes, name))
            return &f->file[i];
    return NULL;
}

// Checks that each tensor is where the index says. Tensors that the index lacks are found, too, and
// refused later if they are not used.
static int check_map(const struct HfFolder *f, const cJSON *map, const char *path,
                     struct Error *e) {
    const cJSON *item;
    const struct Safetensors *file = NULL;
    const char *name = "";
    cJSON_ArrayForEach(item, map) {
        if (strcmp(name, item->valuestring)) // consecutive tensors are mostly in one file
            file = find_file(f, name = item->valuestring);
        if (!file || !safetensors_find(file, item->string))
            return error_set(e, -EINVAL, E_HF_INDEX,
                             "%s: tensor %s is not in %s; download the folder again", path,
                             json_shown(item->string).text, json_shown(name).text);
    }
    return 0;
}

static int open_index(struct HfFolder *f, const char *path, struct Error *e) {
    cJSON *tree;
    int code = json_read_max(path, INDEX_BYTES_MAX, &tree, e);
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(tree, "weight_map");
    if (!code && (!cJSON_IsObject(map) || !cJSON_GetArraySize(map)))
        code = error_set(e, -EINVAL, E_HF_INDEX,
                         "%s: it has no \"weight_map\"; download the folder again", path);
    const char *twice = code ? NULL : json_repeated_key(map);
    if (twice)
        code = error_set(e, -EINVAL, E_HF_INDEX,
                         "%s: tensor %s is there twice; download the folder again", path,
                         json_shown(twice).text);
    if (!code)
        code = open_listed_files(f, map, path, e);
    if (!code)
        code = check_map(f, map, path, e);
    cJSON_Delete(tree);
    return code;
}

// True if there is nothing of that name. A broken link (into a cache without its blobs), or a file
// that cannot be examined, is not absent: opening it reports why.
static bool is_absent(const char *path) {
    struct stat st;
    return lstat(path, &st) && errno == ENOENT;
}

// Opens the weights. A single file takes precedence over an index, as in transformers.
static int open_weights(struct HfFolder *f, struct Error *e) {
    char *single = base_format("%s/%s", f->path, SINGLE);
    char *index = base_format("%s/%s", f->path, INDEX);
    int code;
    if (!is_absent(single)) {
        f->file = base_alloc_zeroed(sizeof *f->file);
        code = open_tensors(f, SINGLE, e);
    } else if (!is_absent(index)) {
        code = open_index(f, index, e);
    } else {
        code = error_set(e, -ENOENT, E_HF_WEIGHTS_MISSING,
                         "%s has neither %s nor %s; other formats are not read: save the model by "
                         "transformers' save_pretrained()",
                         f->path, SINGLE, INDEX);
    }
    free(single);
    free(index);
    return code;
}

// ---- tensors ------------------------------------------------------------------------------------

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct HfTensor *)a)->tensor->name,
                  ((const struct HfTensor *)b)->tensor->name);
}

// Lists the tensors of all files, sorted by name.
static int list_tensors(struct HfFolder *f, struct Error *e) {
    size_t room = 1, n = 0;
    for (size_t i = 0; i < f->nfile; i++)
        room += f->file[i].ntensor;
    f->tensor = base_alloc_zeroed(room * sizeof *f->tensor);
    for (size_t i = 0; i < f->nfile; i++)
        for (size_t j = 0; j < f->file[i].ntensor; j++)
            f->tensor[n++] = (struct HfTensor){&f->file[i], &f->file[i].tensor[j], false};
    f->ntensor = n;
    qsort(f->tensor, n, sizeof *f->tensor, compare_names);
    for (size_t i = 1; i < n; i++)
        if (!compare_names(&f->tensor[i - 1], &f->tensor[i]))
            return error_set(e, -EINVAL, E_HF_TENSOR_TWICE,
                             "tensor %s is in %s and in %s; expected it in one file: download the "
                             "folder again, or save the model again by save_pretrained()",
                             json_shown(f->tensor[i].tensor->name).text,
                             f->tensor[i - 1].file->path, f->tensor[i].file->path);
    return 0;
}

int hf_folder_open(struct HfFolder *f, const char *path, struct Error *e) {
    *f = (struct HfFolder){.path = base_format("%s", path)};
    char *config = base_format("%s/config.json", path);
    int code = json_read_max(config, CONFIG_BYTES_MAX, &f->config, e);
    free(config);
    if (!code)
        code = open_weights(f, e);
    if (!code)
        code = list_tensors(f, e);
    if (code)
        hf_folder_close(f);
    return code;
}

void hf_folder_close(struct HfFolder *f) {
    for (size_t i = 0; i < f->nfile; i++)
        safetensors_close(&f->file[i]);
    free(f->file);
    free(f->tensor);
    cJSON_Delete(f->config);
    free(f->path);
    *f = (struct HfFolder){0};
}

// ---- finding ------------------------------------------------------------------------------------

static struct HfTensor *find_exactly(const struct HfFolder *f, const char *name) {
    const struct Tensor tensor = {.name = (char *)name};
    const struct HfTensor key = {.tensor = &tensor};
    return f->ntensor ? bsearch(&key, f->tensor, f->ntensor, sizeof key, compare_names) : NULL;
}

struct HfTensor *hf_folder_find(const struct HfFolder *f, const char *name) {
    static const char *const prefixes[] = {"transformer.", "model."};
    struct HfTensor *t = find_exactly(f, name);
    for (size_t i = 0; !t && i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
            t = find_exactly(f, name + strlen(prefixes[i]));
    return t;
}

const struct HfTensor *hf_folder_ask(struct HfFolder *f, const char *name) {
    struct HfTensor *t = hf_folder_find(f, name);
    if (t)
        t->asked = true;
    return t;
}

// True for a mask or table that old versions of transformers saved, and new ones ignore.
static bool is_mask(const char *name) {
    static const char *const ends[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && !strcmp(name + n - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

const char *hf_folder_unasked(const struct HfFolder *f, size_t *count) {
    const char *first = NULL;
    size_t n = 0;
    for (size_t i = 0; i < f->ntensor; i++) {
        const char *name = f->tensor[i].tensor->name;
        if (f->tensor[i].asked || is_mask(name))
            continue;
        first = first ? first : name;
        n++;
    }
    if (count)
        *count = n;
    return first;
}

int hf_folder_compare(const struct HfTensor *a, const struct HfTensor *b, bool *same,
                      struct Error *e) {
    enum { PART = 8192 };
    float x[PART], y[PART];
    const struct Tensor *s = a->tensor, *t = b->tensor;
    *same = s->ndim == t->ndim && !memcmp(s->shape, t->shape, sizeof s->shape);
    int code = 0;
    for (uint64_t at = 0; *same && !code && at < s->count; at += PART) {
        size_t n = s->count - at < PART ? (size_t)(s->count - at) : PART;
        code = safetensors_read(a->file, s, at, n, x, e);
        if (!code)
            code = safetensors_read(b->file, t, at, n, y, e);
        *same = !code && !memcmp(x, y, n * sizeof *x);
    }
    return code;
}
