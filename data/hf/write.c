// Writes a model's folder: see write.h for the order of calls. write_layout.c decides where tensors
// lie.
//
// PATH.writing has a file MARKER until it is renamed, and is locked while its maker lives. A folder
// of that name with a marker and without a lock is a dead run's, and is removed; any other is kept.
// Whatever a power cut leaves of the folder has its marker, or nothing.
#include "data/hf/write.h"

#include "data/file.h"
#include "data/range.h"
#include "kernels/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MARKER[] = ".writing";
static const char KIND[] = "a folder"; // an export is one

// ---- PATH.writing -------------------------------------------------------------------------------

static bool remove_unless_marker(int folder, const char *name, void *context) {
    (void)context;
    if (strcmp(name, MARKER) && folder_has_file(folder, name, NULL))
        unlinkat(folder, name, 0);
    return true;
}

// Sets *any, and stops at the first file.
static bool find_any_file(int folder, const char *name, void *any) {
    (void)folder, (void)name;
    return !(*(bool *)any = true);
}

// Removes PATH.writing, the marker last, so that the next run can complete an interrupted removal.
static void remove_tmp(const char *path, int folder) {
    folder_for_all(folder, remove_unless_marker, NULL);
    fsync(folder);
    unlinkat(folder, MARKER, 0);
    rmdir(path);
}

static bool is_torso(int folder) {
    bool any = false;
    folder_for_all(folder, find_any_file, &any);
    return !any || folder_has_file(folder, MARKER, NULL);
}

static const struct Torso torso = {O_DIRECTORY, is_torso, remove_tmp};

int hf_writer_check(const char *path, const char *flag, struct Error *e) {
    char *before = base_format("%s ", flag), *tmp_path = base_format("%s.writing", path);
    int code = file_check_new(path, before, KIND, e);
    if (!code)
        code = file_check_place(path, flag, e);
    if (!code)
        code = file_check_torso(tmp_path, &torso, false, e);
    free(tmp_path);
    free(before);
    return code;
}

// Makes PATH.writing, takes its lock, and marks it.
static int make_tmp(struct HfWriter *w, struct Error *e) {
    int failed = mkdir(w->tmp_path, 0777), code = 0;
    if (failed && errno == EEXIST) {
        code = file_check_torso(w->tmp_path, &torso, true, e);
        if (code)
            return code;
        failed = mkdir(w->tmp_path, 0777);
    }
    if (failed)
        return error_io(e, -errno, E_FILE_WRITE, "cannot make the folder %s", w->tmp_path);
    w->folder = open(w->tmp_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (w->folder < 0) {
        code = error_io(e, -errno, E_FILE_WRITE, "cannot open the folder %s", w->tmp_path);
        rmdir(w->tmp_path);
        return code;
    }
    if (!file_hold(w->folder)) { // another run has taken it for a dead run's since mkdir
        close(w->folder);
        w->folder = -1; // it may be the other run's, which alone may remove it
        return error_set(e, -EEXIST, E_EXPORT_BUSY, "%s: another run writes there; wait for it",
                         w->tmp_path);
    }
    code = hf_writer_put(w, MARKER, "", 0, e);
    return code ? code : folder_sync(w->tmp_path, e);
}

// ---- files --------------------------------------------------------------------------------------

static int make_file(const struct HfWriter *w, struct HfShard *file, struct Error *e) {
    file->fd = openat(w->folder, file->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                      (mode_t)0666);
    if (file->fd < 0)
        return error_io(e, -errno, E_FILE_WRITE, "cannot make %s", file->path);
    int code = range_reserve(file->fd, file->path, file->bytes, e);
    if (code)
        return code;
    return range_write_bytes(file->fd, file->path, 0, file->header, file->header_bytes, e);
}

int hf_writer_make(struct HfWriter *w, struct Error *e) {
    int code = file_check_new(w->path, "", KIND, e);
    if (code)
        return code;
    code = make_tmp(w, e);
    for (size_t i = 0; i < w->nfile && !code; i++)
        code = make_file(w, &w->file[i], e);
    if (!code && w->index) {
        char *name = base_format("%s.safetensors.index.json", w->stem);
        code = hf_writer_put(w, name, w->index, strlen(w->index), e);
        free(name);
    }
    if (code)
        hf_writer_abandon(w);
    return code;
}

int hf_writer_join(struct HfWriter *w, struct Error *e) {
    for (size_t i = 0; i < w->nfile; i++) {
        struct HfShard *file = &w->file[i];
        file->fd = open(file->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        if (file->fd < 0)
            return error_io(e, -errno, E_FILE_WRITE, "cannot open %s", file->path);
    }
    return 0;
}

int hf_writer_put(struct HfWriter *w, const char *name, const void *bytes, size_t n,
                  struct Error *e) {
    int err = file_put(w->folder, name, bytes, n);
    return err ? error_io(e, err, E_FILE_WRITE, "cannot write %s/%s", w->tmp_path, name) : 0;
}

// ---- elements -----------------------------------------------------------------------------------

int hf_write_range(const struct HfWriter *w, size_t tensor, uint64_t first, size_t n,
                   const float *values, struct Error *e) {
    CHECK(tensor < w->ntensor, "tensor %zu of %zu", tensor, w->ntensor);
    const struct HfEntry *p = &w->entry[tensor];
    const struct HfShard *file = &w->file[p->file];
    CHECK(first <= p->count && n <= p->count - first, "%s: %zu elements from %llu of %llu", p->name,
          n, (unsigned long long)first, (unsigned long long)p->count);
    CHECK(file->fd >= 0, "%s is not open", file->name);
    size_t over = range_overflow(w->dtype, values, n);
    if (over < n && !isfinite(values[over]))
        return error_set(e, -ERANGE, E_EXPORT_VALUE,
                         "%s: %s has %g, which is not finite; export an earlier checkpoint",
                         w->path, p->name, (double)values[over]);
    if (over < n)
        return error_set(e, -ERANGE, E_EXPORT_VALUE,
                         "%s: %s has %.9g, which %s cannot hold; use --export-dtype bf16 or fp32",
                         w->path, p->name, (double)values[over], dtype_name(w->dtype));
    return range_write(file->fd, file->path, w->dtype, p->begin + first * dtype_size(w->dtype), n,
                       values, e);
}

int hf_writer_sync(const struct HfWriter *w, struct Error *e) {
    for (size_t i = 0; i < w->nfile; i++)
        if (fsync(w->file[i].fd))
            return error_io(e, -errno, E_FILE_WRITE, "cannot write %s", w->file[i].path);
    return 0;
}

// ---- the end ------------------------------------------------------------------------------------

int hf_writer_commit(struct HfWriter *w, struct Error *e) {
    int code = folder_sync(w->tmp_path, e);
    if (!code)
        code = file_rename_new(w->tmp_path, w->path, KIND, e);
    if (code)
        return code;
    code = folder_sync_above(w->path, e); // before the marker goes: the new name has none
    // The export is complete: a failed removal of the marker is tried once more, then logged.
    if (!code && unlinkat(w->folder, MARKER, 0) && unlinkat(w->folder, MARKER, 0) &&
        errno != ENOENT)
        log_line(LOG_NORMAL, "cannot remove %s/%s: %s; remove it: it is not part of the export",
                 w->path, MARKER, strerror(errno));
    close(w->folder);
    w->folder = -1; // from here on nothing of that name is a torso
    return code ? code : folder_sync(w->path, e);
}

void hf_writer_abandon(struct HfWriter *w) {
    if (w->folder >= 0)
        remove_tmp(w->tmp_path, w->folder);
    for (size_t i = 0; i < w->nfile; i++) {
        if (w->file[i].fd >= 0)
            close(w->file[i].fd);
        w->file[i].fd = -1;
    }
    if (w->folder >= 0)
        close(w->folder);
    w->folder = -1;
}
