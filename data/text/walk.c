// Lists the files of a folder: see walk.h. Next: sources.c.
#include "data/text/walk.h"

#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int by_name(const FTSENT **a, const FTSENT **b) {
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static void add_path(struct Walk *w, const char *path) {
    w->path = base_realloc(w->path, (w->count + 1) * sizeof *w->path, "a list of files");
    w->path[w->count++] = base_format("%s", path);
}

// Refuses a broken link. fts does not report why it is broken.
static int refuse_link(const char *flag, const char *path, struct Error *e) {
    struct stat st;
    int err = stat(path, &st) ? errno : ENOENT;
    return error_set(e, -err, E_DATA_LINK,
                     "%s %s: it is a link that leads to nothing: %s; remove or mend it", flag, path,
                     strerror(err));
}

static int refuse_folder(const char *flag, const char *path, int err, struct Error *e) {
    return error_io(e, -err, E_FILE_READ, "%s %s: cannot read the folder", flag, path);
}

static int add_entry(struct Walk *w, const char *flag, FTS *walk, FTSENT *entry, struct Error *e) {
    if (entry->fts_level > 0 && entry->fts_name[0] == '.') {
        w->hidden += entry->fts_info != FTS_DP; // a folder comes a second time, after its files
        if (entry->fts_info == FTS_D)
            fts_set(walk, entry, FTS_SKIP);
        return 0;
    }
    switch (entry->fts_info) {
    case FTS_D:
    case FTS_DP:
        return 0;
    case FTS_F:
        add_path(w, entry->fts_path);
        return 0;
    case FTS_SLNONE:
        return refuse_link(flag, entry->fts_path, e);
    case FTS_DC:
        // The path of the cycle's folder is a prefix of this path.
        return error_set(e, -ELOOP, E_DATA_LINK,
                         "%s %s: the link leads back to %.*s, without an end; remove it", flag,
                         entry->fts_path, (int)entry->fts_cycle->fts_pathlen, entry->fts_path);
    case FTS_DNR:
        return refuse_folder(flag, entry->fts_path, entry->fts_errno, e);
    case FTS_ERR:
    case FTS_NS:
        return error_io(e, -entry->fts_errno, E_FILE_READ, "%s %s: cannot read it", flag,
                        entry->fts_path);
    default:
        w->other++;
        return 0;
    }
}

int walk_folder(struct Walk *w, const char *flag, const char *folder, struct Error *e) {
    char *root = base_format("%s", folder), *roots[] = {root, NULL};
    *w = (struct Walk){0};
    FTS *walk = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, by_name);
    int code = walk ? 0 : refuse_folder(flag, folder, errno, e);
    errno = 0;
    for (FTSENT *entry; walk && !code && (entry = fts_read(walk)); errno = 0)
        code = add_entry(w, flag, walk, entry, e);
    if (!code && errno)
        code = refuse_folder(flag, folder, errno, e);
    if (walk)
        fts_close(walk);
    free(root);
    return code;
}

void walk_free(struct Walk *w) {
    for (size_t i = 0; i < w->count; i++)
        free(w->path[i]);
    free(w->path);
    *w = (struct Walk){0};
}

void walk_log(const struct Walk *w, const char *flag, const char *folder) {
    if (w->hidden + w->other)
        log_line(LOG_NORMAL,
                 "%s %s: passed over: %zu hidden, %zu that %s a pipe, a socket or a device", flag,
                 folder, w->hidden, w->other, w->other == 1 ? "is" : "are");
}
