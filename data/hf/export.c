// Writes a model's folder: see export.h. config_write.c makes config.json.
#include "data/hf/export.h"

#include "data/file.h"
#include "data/hf/config.h"
#include "data/hf/pieces.h"
#include "kernels/folder.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPIED_BYTES_MAX = 1 << 28 };

// ---- copies of the imported folder's files ----

struct Copying {
    struct HfExport *x;
    bool checks; // only check that files can be read
    struct Error *e;
    int err;
};

// True if a file is copied: the run's text does not replace it (and has no other tokenizer).
static bool is_copied(const struct HfText *text, const char *name) {
    static const char *const begins[] = {
        "tokenizer", "special_tokens_map", "chat_template", "generation_config.json",
        "LICENSE",   "vocab.json",         "merges.txt",    "added_tokens.json"};
    static const char LICENCE[] = "LICENSE";
    size_t n = strlen(name);
    if (hf_text_has(text, name))
        return false;
    if (text->other)
        return strncmp(name, LICENCE, sizeof LICENCE - 1) == 0;
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0)
            return true;
    return n > 6 && strcmp(name + n - 6, ".model") == 0;
}

static int check_file(const char *path, struct Error *e) {
    struct stat st;
    int fd, err = file_open(path, "cannot read", &fd, &st, e);
    if (err)
        return err;
    close(fd);
    if (st.st_size <= COPIED_BYTES_MAX)
        return 0;
    return error_set(e, -EFBIG, E_FILE_TOO_LARGE,
                     "cannot read %s: it is larger than %d bytes, the most that is read of such a "
                     "file; check that it is the right file",
                     path, COPIED_BYTES_MAX);
}

static int copy_file(const struct Copying *c, const char *path, const char *name) {
    char *text = NULL;
    size_t n;
    int err = file_read(path, COPIED_BYTES_MAX, &text, &n, c->e);
    if (!err)
        err = hf_writer_put(&c->x->writer, name, text, n, c->e);
    free(text);
    return err;
}

// Copies or checks a file. Folders are not copied; a link may lead to a file.
static bool copy_one(int folder, const char *name, void *copying) {
    struct Copying *c = copying;
    struct stat st;
    if (!is_copied(&c->x->text, name) || (!fstatat(folder, name, &st, 0) && S_ISDIR(st.st_mode)))
        return true;
    char *path = base_format("%s/%s", c->x->from->folder.path, name);
    c->err = c->checks ? check_file(path, c->e) : copy_file(c, path, name);
    free(path);
    return !c->err;
}

static int copy_all(struct HfExport *x, bool checks, struct Error *e) {
    struct Copying c = {x, checks, e, 0};
    int fd = open(x->from->folder.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_io(e, -errno, E_FILE_READ, "cannot read %s", x->from->folder.path);
    bool all = folder_for_all(fd, copy_one, &c);
    int why = errno;
    close(fd);
    if (all || c.err)
        return c.err;
    return error_io(e, -why, E_FILE_READ, "cannot read %s", x->from->folder.path);
}

// ---- opening ----

// Checks that the config.json to copy describes the run's model: on a resume, --init may name
// another folder, or one that has changed.
static int check_config(const struct HfExport *x, const cJSON *run, struct Error *e) {
    static const char WINDOW[] = "attention-window", SPARSE[] = "sparse-attention";
    const char *folder = x->from->folder.path;
    char *where = base_format("--export hf:%s would copy %s/config.json, which", x->path, folder);
    char *path = base_format("%s/config.json", folder), *text = NULL;
    int err = hf_config_flags(x->from->folder.config, path, &text, e);
    cJSON *flags = err ? NULL : cJSON_Parse(text);
    if (flags && !cJSON_HasObjectItem(flags, WINDOW))
        cJSON_AddNumberToObject(flags, WINDOW, 0);
    if (flags) // a folder has dense attention only
        cJSON_AddStringToObject(flags, SPARSE, "dense");
    if (flags)
        err = hf_config_check_same(flags, where, run, e);
    cJSON_Delete(flags);
    free(text);
    free(path);
    free(where);
    return err;
}

int hf_export_open(struct HfExport *x, const char *path, const struct ExportModel *model,
                   const struct HfModel *from, struct Error *e) {
    int length = (int)strlen(path);
    while (length > 1 && path[length - 1] == '/') // PATH.writing is beside it
        length--;
    *x = (struct HfExport){
        .path = base_format("%.*s", length, path), .from = from, .dtype = model->dtype};
    cJSON *object = cJSON_Parse(model->flags);
    CHECK(object, "flags that are no JSON: %s", model->flags);
    hf_config_sizes(object, &x->sizes);
    x->family = base_format("%s", cJSON_GetObjectItem(object, "family")->valuestring);
    int err = hf_writer_check(x->path, "--export", e);
    if (!err && from)
        err = check_config(x, object, e);
    if (!err)
        err = hf_text_make(&x->text, model, x->family, from ? &from->folder : NULL, e);
    if (!err && from)
        err = copy_all(x, true, e);
    const struct HfEnds ends = {x->text.begin, x->text.end};
    if (!err)
        err = from ? hf_config_with_dtype(from->folder.config, x->dtype, &x->config)
                   : hf_config_write(object, x->dtype, ends, &x->config, e);
    cJSON_Delete(object);
    return err;
}

void hf_export_close(struct HfExport *x) {
    if (x->laid_out)
        hf_writer_free(&x->writer);
    free(x->path);
    free(x->family);
    free(x->config);
    free(x->piece);
    hf_text_free(&x->text);
    *x = (struct HfExport){0};
}

static size_t pieces_of(const struct HfExport *x, int layer, const char *param,
                        struct HfPiece pieces[HF_PIECES_MAX]) {
    return hf_pieces(x->family, param, layer, &x->sizes, pieces);
}

static int list_param(void *export, int layer, const char *param, struct Error *e) {
    struct HfExport *x = export;
    struct HfPiece pieces[HF_PIECES_MAX];
    size_t n = pieces_of(x, layer, param, pieces);
    (void)e;
    CHECK(n, "no name in %s for %s", x->family, param);
    x->piece = base_realloc(x->piece, (x->npiece + n) * sizeof *x->piece, "names of tensors");
    memcpy(x->piece + x->npiece, pieces, n * sizeof *pieces);
    x->npiece += n;
    return 0;
}

static void lay_out(struct HfExport *x) {
    if (x->laid_out)
        return;
    struct HfOut *out = base_alloc(x->npiece * sizeof *out);
    for (size_t i = 0; i < x->npiece; i++)
        out[i] = hf_piece_out(&x->piece[i]);
    hf_writer_init(&x->writer, x->path, HF_MODEL_STEM, out, x->npiece, x->dtype, HF_SHARD_BYTES);
    free(out);
    x->laid_out = true;
}

// Checks the free space for weights and config.json. Copied files are small compared with weights.
static int check_room(void *export, struct Error *e) {
    struct HfExport *x = export;
    lay_out(x);
    uint64_t bytes = hf_writer_bytes(&x->writer) + strlen(x->config);
    return file_check_room(x->path, "--export ", bytes, e);
}

// ---- the steps ----

static int make_files(void *export, struct Error *e) {
    struct HfExport *x = export;
    lay_out(x);
    int err = hf_writer_make(&x->writer, e);
    if (err)
        return err;
    err = hf_writer_put(&x->writer, "config.json", x->config, strlen(x->config), e);
    if (!err && x->from)
        err = copy_all(x, false, e);
    for (size_t i = 0; i < x->text.count && !err; i++) {
        const struct HfTextFile *f = &x->text.file[i];
        err = hf_writer_put(&x->writer, f->name, f->text, f->bytes, e);
    }
    if (!err && x->text.told)
        log_line(LOG_NORMAL, "--export hf:%s: %s", x->path, x->text.told);
    if (err)
        hf_writer_abandon(&x->writer);
    return err;
}

static int join_files(void *export, struct Error *e) {
    struct HfExport *x = export;
    lay_out(x);
    return hf_writer_join(&x->writer, e);
}

static int write_range(void *export, int layer, const char *param, const struct WeightsRange *range,
                       const float *values, struct Error *e) {
    const struct HfExport *x = export;
    struct HfPiece pieces[HF_PIECES_MAX];
    size_t npiece = pieces_of(x, layer, param, pieces);
    return hf_pieces_write(&x->writer, pieces, npiece, range, values, e);
}

static int sync_files(void *export, struct Error *e) {
    const struct HfExport *x = export;
    return hf_writer_sync(&x->writer, e);
}

static int commit_folder(void *export, struct Error *e) {
    struct HfExport *x = export;
    int err = hf_writer_commit(&x->writer, e);
    if (!err)
        log_line(LOG_NORMAL, "exported hf:%s", x->writer.path);
    return err;
}

static void abandon_folder(void *export) {
    struct HfExport *x = export;
    hf_writer_abandon(&x->writer);
}

struct ExportSink hf_export_sink(struct HfExport *x) {
    return (struct ExportSink){.write = write_range,
                               .list = list_param,
                               .room = check_room,
                               .make = make_files,
                               .join = join_files,
                               .sync = sync_files,
                               .commit = commit_folder,
                               .abandon = abandon_folder,
                               .context = x};
}
