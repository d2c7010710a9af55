// See import_run.h. Next: zero/checkpoint/load.c.
#include "zero/weights/import_run.h"
#include "zero/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

// Reads the identity in the checkpoint's first file.
static int read_identity(const char *folder, char **identity, struct Error *e) {
    struct CheckpointHead head;
    int err = checkpoint_file_look(folder, &head, e);
    if (err)
        return err;
    *identity = base_format("%s", head.identity);
    checkpoint_head_free(&head);
    return 0;
}

// Finds the newest checkpoint below an --out whose head can be read.
static int find_in_out_folder(const char *path, char **folder, char **identity, struct Error *e) {
    char *checkpoints = base_format("%s/checkpoints", path), *candidate;
    uint64_t step = UINT64_MAX;
    struct Error cause;
    int found, err = 0;
    while ((found = checkpoint_find(checkpoints, step, &candidate, &step, &cause)) == 1) {
        err = read_identity(candidate, identity, &cause);
        if (!err) {
            *folder = candidate;
            break;
        }
        free(candidate);
    }
    if (found < 0)
        err = found;
    if (step == UINT64_MAX && (!err || err == -ENOTDIR)) // PATH may be a file
        err = error_set(e, -ENOENT, E_CHECKPOINT_MISSING,
                        "this folder holds no checkpoint; expected the --out of another run, or a "
                        "folder like %s/step-00000100",
                        checkpoints);
    else if (err)
        *e = cause;
    free(checkpoints);
    return err;
}

int import_run_peek(const char *path, char **folder, char **identity, struct Error *e) {
    int err = read_identity(path, identity, e);
    if (err == -ENOENT || err == -ENOTDIR)
        return find_in_out_folder(path, folder, identity, e);
    if (!err)
        *folder = base_format("%s", path);
    return err;
}

// Loads PATH, if that is a checkpoint, else the newest intact one of the --out PATH, which may be
// an older one than import_run_peek has found. *loaded: its folder, free() it.
static int load_run_weights(struct Zero *z, const char *path, const char *identity, char **loaded,
                            struct Error *e) {
    char *checkpoints = base_format("%s/checkpoints", path);
    char *rank0_file = checkpoint_rank_path(path, 0);
    const char *const folders[] = {checkpoints, NULL};
    int err;
    bool is_out = zero_agree(z, access(rank0_file, F_OK) ? -ENOENT : 0) != 0; // as all ranks see it
    free(rank0_file);
    *loaded = NULL;
    if (is_out) {
        err = checkpoint_resume_weights(z, folders, identity, loaded, e);
    } else {
        err = checkpoint_load_weights(z, path, identity, e);
        *loaded = base_format("%s", path);
    }
    free(checkpoints);
    return err;
}

static int load_run(void *context, struct Zero *z, struct Error *e) {
    const char *path = context;
    char *folder = NULL, *identity = NULL, *loaded = NULL;
    struct Error cause = {0};
    int err = zero_agree(z, import_run_peek(path, &folder, &identity, &cause));
    if (err && cause.text[0])
        error_set(e, err, cause.id, "--init run:%s: %s", path, cause.text);
    if (!err)
        err = load_run_weights(z, path, identity, &loaded, e);
    if (!err && z->all->rank == 0)
        log_line(LOG_NORMAL, "--init: the weights are those of %s", loaded);
    free(folder);
    free(identity);
    free(loaded);
    return err;
}

int import_run_open(const char *path, struct ImportSource *out, struct Error *e) {
    (void)e;
    *out = (struct ImportSource){.dtype = NDTYPE, .load = load_run, .context = (void *)path};
    return 0;
}
