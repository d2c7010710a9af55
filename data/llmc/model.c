// A model file of llm.c as a source of weights, for --init llmc:FILE: see kind.h.
//
// An open file is only read; threads may share it.
#include "data/file.h"
#include "data/llmc/format.h"
#include "data/llmc/kind.h"
#include "data/range.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

struct LlmcModel {
    char *path;
    int fd;
    struct LlmcShape shape;
};

static int read_header(struct LlmcModel *m, uint64_t file_bytes, struct Error *e) {
    uint8_t header[LLMC_HEADER_BYTES];
    ssize_t got = file_pread(m->fd, header, sizeof header, 0);
    if (got < 0)
        return error_io(e, (int)got, E_FILE_READ, "cannot read %s", m->path);
    if ((size_t)got < sizeof header)
        return error_set(
            e, -EINVAL, E_LLMC_SIZE,
            "%s: %zd bytes are not a model of llm.c, whose header takes %d; copy the file again",
            m->path, got, LLMC_HEADER_BYTES);
    return llmc_read_header(m->path, header, file_bytes, &m->shape, e);
}

// Opens a file and checks its header and its length. close_model is due also after an error.
static int open_model(struct LlmcModel *m, const char *path, struct Error *e) {
    struct stat st;
    *m = (struct LlmcModel){.path = base_format("%s", path), .fd = -1};
    int fd, err = file_open(path, "cannot read", &fd, &st, e);
    if (err)
        return err;
    m->fd = fd;
    return read_header(m, (uint64_t)st.st_size, e);
}

static void close_model(struct LlmcModel *m) {
    if (m->fd >= 0)
        close(m->fd);
    free(m->path);
}

static int read_flags(const char *path, char **text, char **where, struct Error *e) {
    struct LlmcModel m;
    const struct LlmcShape *s = &m.shape;
    int err = open_model(&m, path, e);
    if (!err) {
        *text = base_format("{\"family\":\"gpt2\",\"layers\":%zu,\"heads\":%zu,\"channels\":%zu,"
                            "\"vocab\":%zu,\"positions\":%zu,\"seq-len\":%zu,\"tie\":\"on\"}",
                            s->layers, s->heads, s->channels, s->vocab, s->positions, s->positions);
        *where = base_format("%s", path);
    }
    close_model(&m);
    return err;
}

// ---- the source ---------------------------------------------------------------------------------

// Reads elements first .. first + n - 1 of a parameter in one layer; -1: outside of the layers.
static int read_adjacent(const struct LlmcModel *m, int layer, const char *param, uint64_t first,
                         size_t n, float *out, struct Error *e) {
    uint64_t count, begin = llmc_find(&m->shape, layer, param, &count);
    CHECK(begin && first <= count && n <= count - first, "%s: %zu elements from %llu of %llu",
          param, n, (unsigned long long)first, (unsigned long long)count);
    enum Dtype dtype = m->shape.dtype;
    int err = range_read(m->fd, m->path, dtype, begin + first * dtype_size(dtype), n, out, e);
    size_t bad = err ? n : range_overflow(F32, out, n);
    if (bad < n)
        return error_set(e, -EINVAL, E_WEIGHT_NOT_FINITE,
                         "%s: %s of layer %d: element %llu is %s; copy the file again, or "
                         "give one of finite numbers",
                         m->path, param, layer, (unsigned long long)(first + bad),
                         isnan(out[bad]) ? "NaN" : "infinite");
    return err;
}

static int read_elements(void *model, int layer, const char *param,
                         const struct WeightsRange *range, float *out, struct Error *e) {
    int err = 0;
    for (size_t n, i = 0; i < range->n && !err; i += n) {
        n = weights_beside(range, i);
        err = read_adjacent(model, layer, param, weights_at(range, i), n, out + i, e);
    }
    return err;
}

static void close_source(void *model) {
    close_model(model);
    free(model);
}

static int open_source(const char *path, struct ImportSource *out, struct Error *e) {
    struct LlmcModel *m = base_alloc(sizeof *m);
    int err = open_model(m, path, e);
    if (err) {
        close_source(m);
        return err;
    }
    *out = (struct ImportSource){.kind = &llmc_weights,
                                 .dtype = m->shape.dtype,
                                 .read = read_elements,
                                 .close = close_source,
                                 .context = m};
    return 0;
}

const struct WeightsKind llmc_weights = {"llmc:", "FILE", read_flags, open_source, llmc_make_sink};
