// A model file of llm.c as a sink of weights, for --export llmc:FILE: see kind.h.
//
// Each rank writes its own ranges of FILE.writing, which one of them has made at its full size. The
// file begins with a marker until all are done; then rank 0 replaces that by the header, and
// renames the file: FILE is complete or absent. The next run removes a dead run's FILE.writing,
// which has the marker and no lock. Padding rows after the vocabulary are zeros. model.c reads the
// file; data/hf/write.h writes folders of Hugging Face in the same way.
#include "data/file.h"
#include "data/json.h"
#include "data/llmc/format.h"
#include "data/llmc/kind.h"
#include "data/range.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct LlmcExport {
    char *path, *tmp_path;
    struct LlmcShape shape;
    int fd;
    bool owns_tmp_file; // this process has made it, and not yet renamed it
};

static const char MARKER[LLMC_HEADER_BYTES] = "zero.c has not written all of this model\n";
static const char KIND[] = "a file"; // an export is one

// ---- models that llm.c has ----------------------------------------------------------------------

// Refuses flags that differ from llm.c's GPT-2, where they are constants.
static int check_model(const cJSON *flags, struct Error *e) {
    double heads = json_number(flags, "heads"), channels = json_number(flags, "channels");
    const struct {
        const char *flag;
        double right;
    } fixed[] = {{"kv-heads", heads},
                 {"head-size", channels / heads},
                 {"ffn", 4 * channels},
                 {"attention-window", 0},
                 {"norm-eps", 1e-5}};
    const char *sparse = json_text(flags, "sparse-attention");
    if (strcmp(json_text(flags, "family"), "gpt2") != 0)
        return error_set(e, -EINVAL, E_EXPORT_MODEL,
                         "--export: a file of llm.c holds only a gpt2, not --family %s; use hf:DIR",
                         json_text(flags, "family"));
    if (strcmp(json_text(flags, "tie"), "off") == 0)
        return error_set(
            e, -EINVAL, E_EXPORT_MODEL,
            "--export: a file of llm.c holds no head of its own, as --tie off makes; use hf:DIR");
    if (*sparse && strcmp(sparse, "dense") != 0)
        return error_set(e, -EINVAL, E_EXPORT_MODEL,
                         "--export: a file of llm.c holds only dense attention, not "
                         "--sparse-attention %s; train it dense",
                         sparse);
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        if (json_number(flags, fixed[i].flag) != fixed[i].right)
            return error_set(e, -EINVAL, E_EXPORT_MODEL,
                             "--export: a file of llm.c cannot hold --%s %g, only %g; train with "
                             "that, or leave out --export",
                             fixed[i].flag, json_number(flags, fixed[i].flag), fixed[i].right);
    return 0;
}

static int check_dtype(enum Dtype dtype, struct Error *e) {
    if (dtype == F32 || dtype == BF16)
        return 0;
    return error_set(
        e, -EINVAL, E_EXPORT_DTYPE,
        "--export: a file of llm.c cannot hold %s; expected --export-dtype fp32 or bf16",
        dtype_name(dtype));
}

static int read_shape(struct LlmcShape *s, const struct ExportModel *model, struct Error *e) {
    cJSON *flags = cJSON_Parse(model->flags);
    CHECK(flags, "flags that are no JSON: %s", model->flags);
    *s = (struct LlmcShape){.dtype = model->dtype,
                            .positions = (size_t)json_number(flags, "positions"),
                            .vocab = (size_t)json_number(flags, "vocab"),
                            .layers = (size_t)json_number(flags, "layers"),
                            .heads = (size_t)json_number(flags, "heads"),
                            .channels = (size_t)json_number(flags, "channels")};
    s->vocab_padded = round_up(s->vocab, LLMC_VOCAB_MULTIPLE);
    int err = check_model(flags, e);
    cJSON_Delete(flags);
    return err ? err : check_dtype(model->dtype, e);
}

static bool is_torso(int fd) {
    char begin[sizeof MARKER];
    struct stat st;
    ssize_t got =
        fstat(fd, &st) || !S_ISREG(st.st_mode) ? -1 : file_pread(fd, begin, sizeof begin, 0);
    return got == 0 || (got == sizeof begin && memcmp(begin, MARKER, sizeof begin) == 0);
}

static const struct Torso torso = {.matches = is_torso};

// ---- PATH.writing -------------------------------------------------------------------------------

static int open_tmp(struct LlmcExport *x, int create_flags, struct Error *e) {
    x->fd = open(x->tmp_path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | create_flags, (mode_t)0666);
    return x->fd < 0 ? error_io(e, -errno, E_FILE_WRITE, "cannot %s %s",
                                create_flags ? "make" : "open", x->tmp_path)
                     : 0;
}

static void abandon_file(void *export) {
    struct LlmcExport *x = export;
    if (x->owns_tmp_file)
        unlink(x->tmp_path);
    x->owns_tmp_file = false;
}

static int make_file(void *export, struct Error *e) {
    struct LlmcExport *x = export;
    int err = file_check_new(x->path, "", KIND, e);
    if (err)
        return err;
    err = open_tmp(x, O_CREAT | O_EXCL, e);
    if (err == -EEXIST) {
        err = file_check_torso(x->tmp_path, &torso, true, e);
        err = err ? err : open_tmp(x, O_CREAT | O_EXCL, e);
    }
    if (err)
        return err;
    if (!file_hold(x->fd)) // another run has taken it for a dead run's since it was made
        return error_set(e, -EEXIST, E_EXPORT_BUSY, "%s: another run writes it; wait for it",
                         x->tmp_path);
    x->owns_tmp_file = true; // only now: before, the file may be another run's
    err = range_write_bytes(x->fd, x->tmp_path, 0, MARKER, sizeof MARKER, e);
    if (!err)
        err = range_reserve(x->fd, x->tmp_path, llmc_bytes(&x->shape), e);
    if (err)
        abandon_file(x);
    return err;
}

static int join_file(void *export, struct Error *e) {
    return open_tmp(export, 0, e);
}

// ---- elements and the end -----------------------------------------------------------------------

static int check_room(void *export, struct Error *e) {
    const struct LlmcExport *x = export;
    return file_check_room(x->path, "--export ", llmc_bytes(&x->shape), e);
}

// Writes elements first .. first + n - 1 of a parameter in one layer; -1: outside of the layers.
static int write_adjacent(const struct LlmcExport *x, int layer, const char *param, uint64_t first,
                          size_t n, const float *values, struct Error *e) {
    uint64_t count, begin = llmc_find(&x->shape, layer, param, &count);
    CHECK(begin && first <= count && n <= count - first, "%s: %zu elements from %llu of %llu",
          param, n, (unsigned long long)first, (unsigned long long)count);
    enum Dtype dtype = x->shape.dtype;
    size_t over = range_overflow(dtype, values, n);
    if (over < n && !isfinite(values[over]))
        return error_set(
            e, -ERANGE, E_EXPORT_VALUE,
            "%s: %s of layer %d has %g, which is not finite; export an earlier checkpoint", x->path,
            param, layer, (double)values[over]);
    if (over < n)
        return error_set(
            e, -ERANGE, E_EXPORT_VALUE,
            "%s: %s of layer %d has %.9g, which %s cannot hold; use --export-dtype fp32", x->path,
            param, layer, (double)values[over], dtype_name(dtype));
    return range_write(x->fd, x->tmp_path, dtype, begin + first * dtype_size(dtype), n, values, e);
}

static int write_elements(void *export, int layer, const char *param,
                          const struct WeightsRange *range, const float *values, struct Error *e) {
    int err = 0;
    for (size_t n, i = 0; i < range->n && !err; i += n) {
        n = weights_beside(range, i);
        err = write_adjacent(export, layer, param, weights_at(range, i), n, values + i, e);
    }
    return err;
}

static int sync_file(void *export, struct Error *e) {
    const struct LlmcExport *x = export;
    return fsync(x->fd) ? error_io(e, -errno, E_FILE_WRITE, "cannot write %s", x->tmp_path) : 0;
}

static int commit_file(void *export, struct Error *e) {
    struct LlmcExport *x = export;
    uint8_t header[LLMC_HEADER_BYTES];
    llmc_write_header(&x->shape, header);
    int err = range_write_bytes(x->fd, x->tmp_path, 0, header, sizeof header, e);
    if (!err)
        err = sync_file(x, e);
    if (!err)
        err = file_rename_new(x->tmp_path, x->path, KIND, e);
    if (err)
        return err;
    x->owns_tmp_file = false; // the file is complete from here on
    log_line(LOG_NORMAL, "exported llmc:%s", x->path);
    return file_sync_name(x->path, e);
}

static void close_sink(void *export) {
    struct LlmcExport *x = export;
    if (x->fd >= 0)
        close(x->fd);
    free(x->path);
    free(x->tmp_path);
    free(x);
}

int llmc_make_sink(const char *path, const struct ExportModel *model, struct ExportSink *out,
                   struct Error *e) {
    struct LlmcExport *x = base_alloc(sizeof *x);
    *x = (struct LlmcExport){
        .path = base_format("%s", path), .tmp_path = base_format("%s.writing", path), .fd = -1};
    int err = read_shape(&x->shape, model, e);
    if (!err)
        err = file_check_new(path, "--export ", KIND, e);
    if (!err)
        err = file_check_place(path, "--export", e);
    if (!err)
        err = file_check_torso(x->tmp_path, &torso, false, e);
    if (err) {
        close_sink(x);
        return err;
    }
    *out = (struct ExportSink){.write = write_elements,
                               .check_room = check_room,
                               .make = make_file,
                               .join = join_file,
                               .sync = sync_file,
                               .commit = commit_file,
                               .abandon = abandon_file,
                               .context = x,
                               .close = close_sink};
    return 0;
}
