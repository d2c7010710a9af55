// A model's folder as a sink of weights, for --export hf:DIR: see kind.h and sink.h.
//
// config.json is the imported one with the new dtype, or made from the flags (config_write.c), in
// the spellings of transformers 4 and 5. The other files of an imported folder that belong to the
// model (tokenizer, chat template, licence) are copied; text.h adds or replaces those that depend
// on the run's text. A head that is tied to the token embedding is not written.
#include "data/file.h"
#include "data/hf/config.h"
#include "data/hf/kind.h"
#include "data/hf/model.h"
#include "data/hf/sink.h"
#include "data/hf/text.h"
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

struct HfExport {
    struct HfSink sink;
    char *family;
    const struct HfModel *imported; // NULL: the model was made here
    struct HfSizes sizes;
    char *config; // text of config.json
    struct HfText text;
};

// ---- copies of the imported folder's files ----

struct Copying {
    struct HfExport *x;
    bool checks; // only check that files can be read
    struct Error *e;
    int err;
};

// True if a file is copied: it belongs to the model, and the run's text has none of that name. If
// the run has another tokenizer, only the licence is.
static bool is_copied(const struct HfText *text, const char *name) {
    static const char *const begins[] = {
        "tokenizer", "special_tokens_map", "chat_template", "generation_config.json",
        "LICENSE",   "vocab.json",         "merges.txt",    "added_tokens.json"};
    static const char LICENCE[] = "LICENSE";
    size_t n = strlen(name);
    if (hf_text_has(text, name))
        return false;
    if (text->replaces_tokenizer)
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
        err = hf_writer_put(&c->x->sink.writer, name, text, n, c->e);
    free(text);
    return err;
}

// Copies or checks a file if it is to be copied. Folders are not copied; a link may lead to a file.
static bool copy_or_check_file(int folder, const char *name, void *copying) {
    struct Copying *c = copying;
    struct stat st;
    if (!is_copied(&c->x->text, name) || (!fstatat(folder, name, &st, 0) && S_ISDIR(st.st_mode)))
        return true;
    char *path = base_format("%s/%s", c->x->imported->folder.path, name);
    c->err = c->checks ? check_file(path, c->e) : copy_file(c, path, name);
    free(path);
    return !c->err;
}

static int copy_or_check_files(struct HfExport *x, bool checks, struct Error *e) {
    struct Copying c = {x, checks, e, 0};
    int fd = open(x->imported->folder.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_io(e, -errno, E_FILE_READ, "cannot read %s", x->imported->folder.path);
    bool all = folder_for_all(fd, copy_or_check_file, &c);
    int why = errno;
    close(fd);
    if (all || c.err)
        return c.err;
    return error_io(e, -why, E_FILE_READ, "cannot read %s", x->imported->folder.path);
}

// ---- opening ----

// Checks that the config.json to copy describes the run's model: on a resume, --init may name
// another folder, or one that has changed.
static int check_config(const struct HfExport *x, const cJSON *run, struct Error *e) {
    static const char WINDOW[] = "attention-window", SPARSE[] = "sparse-attention";
    const char *folder = x->imported->folder.path;
    char *where =
        base_format("--export hf:%s would copy %s/config.json, which", x->sink.path, folder);
    char *path = base_format("%s/config.json", folder), *text = NULL;
    int err = hf_config_flags(x->imported->folder.config, path, &text, e);
    cJSON *flags = err ? NULL : cJSON_Parse(text);
    if (flags && !cJSON_HasObjectItem(flags, WINDOW))
        cJSON_AddNumberToObject(flags, WINDOW, 0);
    if (flags) // a folder has dense attention only
        cJSON_AddStringToObject(flags, SPARSE, "dense");
    if (flags)
        err = hf_config_check_same(flags, where, run, "train with that, or leave out --export", e);
    cJSON_Delete(flags);
    free(text);
    free(path);
    free(where);
    return err;
}

// Makes all files' texts, and refuses what would fail later.
static int prepare_export(struct HfExport *x, const char *path, const struct ExportModel *model,
                          struct Error *e) {
    cJSON *object = cJSON_Parse(model->flags);
    CHECK(object, "flags that are no JSON: %s", model->flags);
    hf_config_sizes(object, &x->sizes);
    x->family = base_format("%s", cJSON_GetObjectItem(object, "family")->valuestring);
    int err = hf_sink_open(&x->sink, path, e);
    if (!err && x->imported)
        err = check_config(x, object, e);
    if (!err)
        err =
            hf_text_make(&x->text, model, x->family, x->imported ? &x->imported->folder : NULL, e);
    if (!err && x->imported)
        err = copy_or_check_files(x, true, e);
    if (!err && x->imported)
        x->config = hf_config_with_dtype(x->imported->folder.config, model->dtype);
    else if (!err)
        err = hf_config_write(object, model->dtype, x->text.begin, x->text.end, &x->config, e);
    cJSON_Delete(object);
    return err;
}

// ---- the sink ----

static size_t fill_pieces(const void *export, int layer, const char *param,
                          struct HfPiece pieces[HF_PIECES_MAX]) {
    const struct HfExport *x = export;
    return hf_pieces(x->family, param, layer, &x->sizes, pieces);
}

static int put_files(void *export, struct Error *e) {
    struct HfExport *x = export;
    struct HfWriter *w = &x->sink.writer;
    int err = hf_writer_put(w, "config.json", x->config, strlen(x->config), e);
    if (!err && x->imported)
        err = copy_or_check_files(x, false, e);
    for (size_t i = 0; i < x->text.count && !err; i++) {
        const struct HfTextFile *f = &x->text.file[i];
        err = hf_writer_put(w, f->name, f->text, f->bytes, e);
    }
    if (!err && x->text.remark)
        log_line(LOG_NORMAL, "--export hf:%s: %s", x->sink.path, x->text.remark);
    return err;
}

static void free_export(void *export) {
    struct HfExport *x = export;
    free(x->family);
    free(x->config);
    hf_text_free(&x->text);
    free(x);
}

int hf_make_sink(const char *path, const struct ExportModel *model, struct ExportSink *out,
                 struct Error *e) {
    struct HfExport *x = base_alloc(sizeof *x);
    const struct ImportSource *from = model->from;
    *x = (struct HfExport){.sink = {.flag = "--export",
                                    .prefix = "hf:",
                                    .stem = HF_MODEL_STEM,
                                    .dtype = model->dtype,
                                    .owner = x,
                                    .pieces = fill_pieces,
                                    .put = put_files,
                                    .free = free_export},
                           .imported = from && from->kind == &hf_weights ? from->context : NULL};
    int err = prepare_export(x, path, model, e);
    if (err)
        hf_sink_close(&x->sink);
    else
        *out = hf_sink(&x->sink);
    return err;
}
