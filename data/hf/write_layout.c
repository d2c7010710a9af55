// Lays out a writer's tensors: shards, headers, index. See write.h.
//
// Tensors keep their order. A new shard begins when the next tensor would exceed the limit. A
// header is padded with spaces, so that the tensors begin at a multiple of 8 bytes, as with other
// writers. transformers refuses files whose header lacks "format": "pt".
#include "data/hf/write.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADER_MULTIPLE = 8, LENGTH_BYTES = 8 };

static uint64_t count_elements(const struct HfOut *t) {
    uint64_t count = 1;
    for (int i = 0; i < t->ndim; i++)
        count *= t->shape[i];
    return count;
}

// Sets entry[].begin, counted from the header's end, and the shard entry[].file.
static void lay_tensors(struct HfWriter *w, const struct HfOut *tensor, uint64_t shard_bytes) {
    uint64_t used = 0;
    w->nfile = 1;
    for (size_t i = 0; i < w->ntensor; i++) {
        uint64_t count = count_elements(&tensor[i]), bytes = count * dtype_size(w->dtype);
        if (used && used + bytes > shard_bytes) {
            w->nfile++;
            used = 0;
        }
        w->entry[i] =
            (struct HfEntry){base_format("%s", tensor[i].name), w->nfile - 1, used, count};
        used += bytes;
    }
}

// Returns the JSON header of shard `file`; *bytes: those of its tensors.
static char *header_text(const struct HfWriter *w, const struct HfOut *tensor, size_t file,
                         uint64_t *bytes) {
    static const char *const names[NDTYPE] = {"F32", "BF16", "F16"};
    char *text = base_format("{\"__metadata__\":{\"format\":\"pt\"}");
    *bytes = 0;
    for (size_t i = 0; i < w->ntensor; i++) {
        if (w->entry[i].file != file)
            continue;
        base_append(&text, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", tensor[i].name,
                    names[w->dtype]);
        for (int d = 0; d < tensor[i].ndim; d++)
            base_append(&text, "%s%llu", d ? "," : "", (unsigned long long)tensor[i].shape[d]);
        unsigned long long begin = w->entry[i].begin;
        *bytes = begin + w->entry[i].count * dtype_size(w->dtype);
        base_append(&text, "],\"data_offsets\":[%llu,%llu]}", begin, (unsigned long long)*bytes);
    }
    base_append(&text, "}");
    return text;
}

static void init_shard(struct HfWriter *w, const struct HfOut *tensor, size_t file) {
    struct HfShard *shard = &w->file[file];
    uint64_t bytes;
    char *text = header_text(w, tensor, file, &bytes);
    size_t n = strlen(text), padded = round_up(n, HEADER_MULTIPLE);
    shard->header_bytes = LENGTH_BYTES + padded;
    shard->header = base_alloc(shard->header_bytes);
    for (int i = 0; i < LENGTH_BYTES; i++)
        shard->header[i] = (char)(padded >> 8 * i & 0xff);
    memset(shard->header + LENGTH_BYTES, ' ', padded);
    memcpy(shard->header + LENGTH_BYTES, text, n);
    shard->bytes = shard->header_bytes + bytes;
    shard->name = w->nfile == 1
                      ? base_format("%s.safetensors", w->stem)
                      : base_format("%s-%05zu-of-%05zu.safetensors", w->stem, file + 1, w->nfile);
    shard->path = base_format("%s/%s", w->tmp_path, shard->name);
    shard->fd = -1;
    free(text);
}

static char *index_text(const struct HfWriter *w) {
    unsigned long long parameters = 0;
    for (size_t i = 0; i < w->ntensor; i++)
        parameters += w->entry[i].count;
    char *text = base_format("{\n  \"metadata\": {\n    \"total_parameters\": %llu,\n    "
                             "\"total_size\": %llu\n  },\n  \"weight_map\": {",
                             parameters, parameters * dtype_size(w->dtype));
    for (size_t i = 0; i < w->ntensor; i++)
        base_append(&text, "%s\n    \"%s\": \"%s\"", i ? "," : "", w->entry[i].name,
                    w->file[w->entry[i].file].name);
    base_append(&text, "\n  }\n}\n");
    return text;
}

void hf_writer_init(struct HfWriter *w, const char *path, const char *stem,
                    const struct HfOut *tensor, size_t n, enum Dtype dtype, uint64_t shard_bytes) {
    *w = (struct HfWriter){
        .path = base_format("%s", path), .stem = stem, .dtype = dtype, .ntensor = n, .folder = -1};
    w->tmp_path = base_format("%s.writing", path);
    w->entry = base_alloc_zeroed((n + 1) * sizeof *w->entry);
    lay_tensors(w, tensor, shard_bytes);
    w->file = base_alloc_zeroed(w->nfile * sizeof *w->file);
    for (size_t i = 0; i < w->nfile; i++)
        init_shard(w, tensor, i);
    for (size_t i = 0; i < n; i++)
        w->entry[i].begin += w->file[w->entry[i].file].header_bytes;
    if (w->nfile > 1)
        w->index = index_text(w);
}

void hf_writer_free(struct HfWriter *w) {
    for (size_t i = 0; i < w->ntensor; i++)
        free(w->entry[i].name);
    for (size_t i = 0; i < w->nfile; i++) {
        if (w->file[i].fd >= 0)
            close(w->file[i].fd);
        free(w->file[i].name);
        free(w->file[i].path);
        free(w->file[i].header);
    }
    if (w->folder >= 0)
        close(w->folder);
    free(w->entry);
    free(w->file);
    free(w->index);
    free(w->path);
    free(w->tmp_path);
    *w = (struct HfWriter){.folder = -1};
}

uint64_t hf_writer_bytes(const struct HfWriter *w) {
    uint64_t bytes = w->index ? strlen(w->index) : 0;
    for (size_t i = 0; i < w->nfile; i++)
        bytes += w->file[i].bytes;
    return bytes;
}
