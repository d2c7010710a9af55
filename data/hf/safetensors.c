// Reads a safetensors file: see safetensors.h for the format and the checks.
#include "data/hf/safetensors.h"

#include "data/file.h"
#include "data/json.h"
#include "data/range.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH_BYTES = 8 };

// All dtypes whose elements are whole bytes. The size of another dtype is unknown, so its tensors'
// offsets are not compared with their shapes.
static const struct KnownDtype {
    const char *name;
    size_t bytes;
    bool is_float;
    enum Dtype dtype;
} known_dtypes[] = {
    {"F32", 4, true, F32},    {"BF16", 2, true, BF16},  {"F16", 2, true, F16},
    {"F64", 8, false, 0},     {"I64", 8, false, 0},     {"U64", 8, false, 0},
    {"I32", 4, false, 0},     {"U32", 4, false, 0},     {"I16", 2, false, 0},
    {"U16", 2, false, 0},     {"I8", 1, false, 0},      {"U8", 1, false, 0},
    {"BOOL", 1, false, 0},    {"F8_E4M3", 1, false, 0}, {"F8_E5M2", 1, false, 0},
    {"F8_E8M0", 1, false, 0}, {"C64", 8, false, 0},
};
enum { NKNOWN = sizeof known_dtypes / sizeof *known_dtypes };

static const struct KnownDtype *find_dtype(const char *name) {
    for (size_t i = 0; i < NKNOWN; i++)
        if (!strcmp(known_dtypes[i].name, name))
            return &known_dtypes[i];
    return NULL;
}

struct TensorShape tensor_shape(const struct Tensor *t) {
    struct TensorShape shape = {"["};
    size_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n += (size_t)snprintf(shape.text + n, sizeof shape.text - n, "%s%llu", i ? ", " : "",
                              (unsigned long long)t->shape[i]);
    memcpy(shape.text + n, "]", 2);
    return shape;
}

// ---- one tensor of the header -------------------------------------------------------------------

static int read_shape(const cJSON *list, struct Tensor *t, const char *path, struct Error *e) {
    const char *name = t->name;
    int n = cJSON_GetArraySize(list);
    if (!cJSON_IsArray(list) || n > TENSOR_MAX_DIM)
        return error_set(e, -EINVAL, E_SAFETENSORS_TENSOR,
                         "%s: tensor %s: its shape is not a list of at most %d sizes", path,
                         json_shown(name).text, TENSOR_MAX_DIM);
    const cJSON *item;
    t->count = 1;
    cJSON_ArrayForEach(item, list) {
        uint64_t *size = &t->shape[t->ndim++];
        if (!json_is_count(item, size))
            return error_set(e, -EINVAL, E_SAFETENSORS_TENSOR,
                             "%s: tensor %s: a size is not a whole number from 0 to 2^53", path,
                             json_shown(name).text);
        if (__builtin_mul_overflow(t->count, *size, &t->count))
            return error_set(e, -EINVAL, E_SAFETENSORS_TENSOR,
                             "%s: tensor %s: its shape has more than 2^64 elements", path,
                             json_shown(name).text);
    }
    return 0;
}

// Reads offsets that count from the header's end, as offsets from the file's beginning.
static int read_offsets(const cJSON *list, struct Tensor *t, uint64_t header_end,
                        uint64_t file_bytes, const char *path, struct Error *e) {
    uint64_t begin, end;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != 2 ||
        !json_is_count(cJSON_GetArrayItem(list, 0), &begin) ||
        !json_is_count(cJSON_GetArrayItem(list, 1), &end) || begin > end)
        return error_set(e, -EINVAL, E_SAFETENSORS_OFFSETS,
                         "%s: tensor %s: its data_offsets are not [BEGIN, END] with BEGIN <= END",
                         path, json_shown(t->name).text);
    if (end > file_bytes - header_end)
        return error_set(
            e, -EINVAL, E_SAFETENSORS_OFFSETS,
            "%s: tensor %s ends at byte %llu of %llu after the header: the file is truncated", path,
            json_shown(t->name).text, (unsigned long long)end,
            (unsigned long long)(file_bytes - header_end));
    t->begin = header_end + begin;
    t->end = header_end + end;
    return 0;
}

static int read_dtype(const cJSON *item, struct Tensor *t, const char *path, struct Error *e) {
    const char *spelled = cJSON_GetStringValue(item);
    if (!spelled || !*spelled || strlen(spelled) >= sizeof t->spelled)
        return error_set(e, -EINVAL, E_SAFETENSORS_TENSOR,
                         "%s: tensor %s: its dtype is not a name such as F32", path,
                         json_shown(t->name).text);
    struct JsonShown shown = json_shown(spelled);
    snprintf(t->spelled, sizeof t->spelled, "%.15s", shown.text);
    const struct KnownDtype *known = find_dtype(spelled);
    uint64_t bytes;
    if (!known)
        return 0;
    t->is_float = known->is_float;
    t->dtype = known->dtype;
    if (__builtin_mul_overflow(t->count, known->bytes, &bytes) || bytes != t->end - t->begin)
        return error_set(e, -EINVAL, E_SAFETENSORS_TENSOR,
                         "%s: tensor %s has %llu bytes; %s of shape %s takes %zu an element", path,
                         json_shown(t->name).text, (unsigned long long)(t->end - t->begin),
                         t->spelled, tensor_shape(t).text, known->bytes);
    return 0;
}

static int read_tensor(const cJSON *item, struct Tensor *t, uint64_t header_end,
                       uint64_t file_bytes, const char *path, struct Error *e) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    const char *twice;
    t->name = base_format("%s", item->string);
    if (!cJSON_IsObject(item))
        return error_set(e, -EINVAL, E_SAFETENSORS_TENSOR,
                         "%s: tensor %s is not an object with dtype, shape and data_offsets", path,
                         json_shown(t->name).text);
    if ((twice = json_repeated_key(item)))
        return error_set(e, -EINVAL, E_SAFETENSORS_TENSOR, "%s: tensor %s has \"%s\" twice", path,
                         json_shown(t->name).text, json_shown(twice).text);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!cJSON_GetObjectItemCaseSensitive(item, keys[i]))
            return error_set(e, -EINVAL, E_SAFETENSORS_TENSOR, "%s: tensor %s lacks \"%s\"", path,
                             json_shown(t->name).text, keys[i]);
    int code = read_shape(cJSON_GetObjectItemCaseSensitive(item, "shape"), t, path, e);
    if (!code)
        code = read_offsets(cJSON_GetObjectItemCaseSensitive(item, "data_offsets"), t, header_end,
                            file_bytes, path, e);
    return code ? code : read_dtype(cJSON_GetObjectItemCaseSensitive(item, "dtype"), t, path, e);
}

// ---- all of them --------------------------------------------------------------------------------

static int compare_places(const void *a, const void *b) {
    const struct Tensor *s = a, *t = b;
    if (s->begin != t->begin)
        return s->begin < t->begin ? -1 : 1;
    return s->end < t->end ? -1 : s->end > t->end;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct Tensor *)a)->name, ((const struct Tensor *)b)->name);
}

// Sorts the tensors by offset, and checks that they fill the file without gaps or overlaps.
static int check_places(struct Safetensors *f, uint64_t header_end, uint64_t file_bytes,
                        struct Error *e) {
    uint64_t at = header_end;
    qsort(f->tensor, f->ntensor, sizeof *f->tensor, compare_places);
    for (size_t i = 0; i < f->ntensor; at = f->tensor[i++].end) {
        const struct Tensor *t = &f->tensor[i];
        if (t->begin < at)
            return error_set(e, -EINVAL, E_SAFETENSORS_OFFSETS, "%s: tensors %s and %s overlap",
                             f->path, json_shown(t[-1].name).text, json_shown(t->name).text);
        if (t->begin > at)
            return error_set(e, -EINVAL, E_SAFETENSORS_OFFSETS,
                             "%s: %llu bytes before tensor %s belong to no tensor", f->path,
                             (unsigned long long)(t->begin - at), json_shown(t->name).text);
    }
    if (at != file_bytes)
        return error_set(e, -EINVAL, E_SAFETENSORS_OFFSETS,
                         "%s: the last %llu bytes belong to no tensor", f->path,
                         (unsigned long long)(file_bytes - at));
    return 0;
}

static int read_tree(const cJSON *tree, struct Safetensors *f, uint64_t header_end,
                     uint64_t file_bytes, struct Error *e) {
    size_t room = (size_t)cJSON_GetArraySize(tree);
    f->tensor = base_alloc_zeroed((room + 1) * sizeof *f->tensor);
    const cJSON *item;
    cJSON_ArrayForEach(item, tree) {
        if (!strcmp(item->string, "__metadata__"))
            continue;
        int code = read_tensor(item, &f->tensor[f->ntensor++], header_end, file_bytes, f->path, e);
        if (code)
            return code;
    }
    int code = check_places(f, header_end, file_bytes, e);
    qsort(f->tensor, f->ntensor, sizeof *f->tensor, compare_names);
    return code;
}

static int read_length(const struct Safetensors *f, uint64_t file_bytes, uint64_t *length,
                       struct Error *e) {
    uint8_t bytes[LENGTH_BYTES];
    ssize_t got = file_pread(f->fd, bytes, LENGTH_BYTES, 0);
    if (got < 0)
        return error_io(e, (int)got, E_FILE_READ, "cannot read %s", f->path);
    if (got < LENGTH_BYTES || file_bytes < LENGTH_BYTES)
        return error_set(e, -EINVAL, E_SAFETENSORS_HEADER,
                         "%s: this is not a safetensors file: it has %zd bytes, and its first %d "
                         "must give the header's length",
                         f->path, got, LENGTH_BYTES);
    *length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        *length = *length << 8 | bytes[i];
    if (*length > SAFETENSORS_HEADER_MAX)
        return error_set(e, -EINVAL, E_SAFETENSORS_HEADER,
                         "%s: a header of %llu bytes, of which at most %d are read: this is not a "
                         "safetensors file",
                         f->path, (unsigned long long)*length, SAFETENSORS_HEADER_MAX);
    if (*length > file_bytes - LENGTH_BYTES)
        return error_set(e, -EINVAL, E_SAFETENSORS_HEADER,
                         "%s: a header of %llu bytes in a file of %llu: it is truncated, or not a "
                         "safetensors file",
                         f->path, (unsigned long long)*length, (unsigned long long)file_bytes);
    return 0;
}

static int read_header(struct Safetensors *f, uint64_t file_bytes, struct Error *e) {
    uint64_t length = 0;
    int code = read_length(f, file_bytes, &length, e);
    if (code)
        return code;
    char *text = base_alloc(length + 1);
    ssize_t got = file_pread(f->fd, text, length, LENGTH_BYTES);
    cJSON *tree = NULL;
    if (got != (ssize_t)length) {
        code = got < 0
                   ? error_io(e, (int)got, E_FILE_READ, "cannot read %s", f->path)
                   : error_set(e, -EIO, E_FILE_READ,
                               "cannot read %s: it became shorter while it was read; start again",
                               f->path);
    } else {
        text[length] = 0;
        tree = json_parse_object(text, length, f->path, e);
        code = tree ? read_tree(tree, f, LENGTH_BYTES + length, file_bytes, e) : -EINVAL;
    }
    cJSON_Delete(tree);
    free(text);
    return code;
}

int safetensors_open(const char *path, struct Safetensors *f, struct Error *e) {
    struct stat st;
    *f = (struct Safetensors){.fd = -1};
    int fd, code = file_open(path, "cannot read", &fd, &st, e);
    if (code)
        return code;
    f->fd = fd;
    f->path = base_format("%s", path);
    code = read_header(f, (uint64_t)st.st_size, e);
    struct Error why = *e;
    bool has_remedy =
        why.id == E_JSON_DUPLICATE_KEY || why.id == E_JSON_TOO_LARGE || why.id == E_ZERO_BYTE;
    if (code == -EINVAL && !has_remedy)
        error_set(e, code, why.id, "%s; download or save the file again", why.text);
    if (code)
        safetensors_close(f);
    return code;
}

void safetensors_close(struct Safetensors *f) {
    for (size_t i = 0; i < f->ntensor; i++)
        free(f->tensor[i].name);
    free(f->tensor);
    free(f->path);
    if (f->fd >= 0)
        close(f->fd);
    *f = (struct Safetensors){.fd = -1};
}

const struct Tensor *safetensors_find(const struct Safetensors *f, const char *name) {
    const struct Tensor key = {.name = (char *)name};
    return f->ntensor ? bsearch(&key, f->tensor, f->ntensor, sizeof key, compare_names) : NULL;
}

// ---- elements -----------------------------------------------------------------------------------

int safetensors_read(const struct Safetensors *f, const struct Tensor *t, uint64_t first, size_t n,
                     float *out, struct Error *e) {
    if (!t->is_float)
        return error_set(e, -EINVAL, E_HF_TENSOR_DTYPE,
                         "%s: tensor %s is %s; save the model as F32, BF16 or F16", f->path,
                         json_shown(t->name).text, t->spelled);
    CHECK(first <= t->count && n <= t->count - first, "tensor %s: %zu elements from %llu of %llu",
          t->name, n, (unsigned long long)first, (unsigned long long)t->count);
    return range_read(f->fd, f->path, t->dtype, t->begin + first * dtype_size(t->dtype), n, out, e);
}

int safetensors_read_finite(const struct Safetensors *f, const struct Tensor *t, uint64_t first,
                            size_t n, float *out, struct Error *e) {
    int err = safetensors_read(f, t, first, n, out, e);
    size_t bad = err ? n : range_overflow(F32, out, n);
    if (bad < n)
        return error_set(e, -EINVAL, E_WEIGHT_NOT_FINITE,
                         "%s: tensor %s: element %llu is %s; download the file again, or give one "
                         "of finite numbers",
                         f->path, json_shown(t->name).text, (unsigned long long)(first + bad),
                         isnan(out[bad]) ? "NaN" : "infinite");
    return err;
}
