// Handles checkpoints on several disks: each node's ranks have their files on their own disk.
//
// Every such folder also holds a mark: a file apart-<word>, where the word is unique to that save,
// with the machine of each rank in it. Files of two folders belong together if their marks are the
// same; so a folder that one node's disk kept from an older try is not taken for a part of a newer
// one. And if files are missing, the mark says who has them.
//
// To load, ranks tell each other which files they see. A file that a rank needs and does not see
// comes, in pieces, from the lowest rank that sees it, into a file without a name that goes when it
// is closed: so a checkpoint of any nodes loads on any others that have all of it between them. If
// all ranks see the same files, nothing of this happens.
//
// All ranks go through the files in order, and for each agree on who sends it: the lowest rank that
// sees it. Its head goes to all ranks that do not, the rest only if some rank needs it.
#include "zero/checkpoint/files.h"

#include "kernels/atomic_file.h"
#include "kernels/folder.h"
#include "kernels/hash.h"
#include "zero/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- marks ----

enum { LINE_BYTES = HOST_BYTES + 16, MARK_NAME_BYTES = 32 };

static void name_mark(char name[MARK_NAME_BYTES], uint64_t word) {
    snprintf(name, MARK_NAME_BYTES, "apart-%016llx", (unsigned long long)word);
}

static bool word_of(const char *name, uint64_t *word) {
    char again[MARK_NAME_BYTES];
    unsigned long long n = 0;
    bool parsed = sscanf(name, "apart-%16llx", &n) == 1;
    *word = n;
    name_mark(again, n);
    return parsed && n && strcmp(name, again) == 0;
}

bool checkpoint_is_mark(const char *name) {
    uint64_t ignored;
    return word_of(name, &ignored);
}

int checkpoint_mark(const char *folder, uint64_t word, const struct LocalDisk *disk,
                    struct Error *e) {
    char name[MARK_NAME_BYTES], *text = base_alloc((size_t)disk->size * LINE_BYTES);
    size_t n = 0;
    for (int r = 0; r < disk->size; r++)
        n += (size_t)snprintf(text + n, LINE_BYTES, "%d %.*s\n", r, HOST_BYTES - 1, disk->host[r]);
    name_mark(name, word);
    char *path = base_format("%s/%s", folder, name);
    int err = file_put(AT_FDCWD, path, text, n);
    if (err)
        error_io(e, err, E_CHECKPOINT_WRITE, "cannot write checkpoint %s", path);
    free(path);
    free(text);
    return err;
}

// Copies the name of a folder's first mark to `found`.
static bool find_mark(int folder, const char *name, void *found) {
    char *to = found;
    if (!*to && checkpoint_is_mark(name) && folder_has_file(folder, name, NULL))
        snprintf(to, MARK_NAME_BYTES, "%s", name);
    return true;
}

// Returns the word of the mark in a folder; 0: none.
static uint64_t read_mark_word(int folder) {
    char name[MARK_NAME_BYTES] = "";
    uint64_t word = 0;
    folder_for_all(folder, find_mark, name);
    return word_of(name, &word) ? word : 0;
}

// Finds the machine on whose disk that rank's file was written, by the mark; false: not known.
static bool machine_of(int folder, int rank, char host[HOST_BYTES]) {
    char name[MARK_NAME_BYTES] = "", line[LINE_BYTES];
    int r = -1;
    folder_for_all(folder, find_mark, name);
    int fd = *name ? openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    FILE *in = fd >= 0 ? fdopen(fd, "r") : NULL;
    while (r != rank && in && fgets(line, sizeof line, in))
        if (sscanf(line, "%d %63s", &r, host) != 2)
            r = -1;
    if (in)
        fclose(in);
    else if (fd >= 0)
        close(fd);
    return r == rank;
}

enum { PIECE = 1 << 20, BITS = 64 };

struct Fetch {
    struct Zero *z;
    struct CheckpointFiles *f;
    const char *path;
    int *owner;          // (files): the lowest rank that sees it; -1: none
    bool *sees, *shared; // (files): this rank sees it; all do
    uint64_t end;        // bytes of fetched_fd so far
};

// ---- do they see the same? ----

static bool add_name(int folder, const char *name, void *sum) {
    if (folder_has_file(folder, name, NULL))
        *(uint64_t *)sum += hash64(name, strlen(name), 1) | 1;
    return true;
}

bool checkpoint_is_local(struct Zero *z, const char *path) {
    if (!comm_can_broadcast_host(z->all))
        return false;
    uint64_t names = 0;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        folder_for_all(folder, add_name, &names);
        close(folder);
    }
    const uint64_t *all = zero_share(z, names);
    bool same = true;
    for (int r = 1; r < z->all->size; r++)
        same = same && all[r] == all[0];
    return !same;
}

// ---- which rank has which files ----

// Agrees on how many files there are, and of which save, as the rank that sees the lowest file
// reports; or, if no rank can read one, the lowest rank that sees one. Sets *why if this rank's
// folder is open, and it cannot read a file there. Closes a folder of another save.
static int agree_on_save(struct Fetch *x, uint32_t *count, struct Error *why) {
    struct CheckpointFiles *f = x->f;
    struct CheckpointHead head = {0};
    int lowest = f->folder >= 0 ? checkpoint_lowest(f->folder) : -1, fd, reporter = 0;
    char *path = checkpoint_rank_path(x->path, lowest);
    bool reads = lowest >= 0 && !checkpoint_file_open(f->folder, path, &fd, &head, why);
    if (reads)
        close(fd);
    else if (lowest < 0 && f->folder >= 0)
        error_set(why, -ENOENT, E_CHECKPOINT_READ, "the folder holds no rank-*.state");
    free(path);
    *count = reads ? head.size : 0;
    checkpoint_head_free(&head);
    uint64_t place = lowest >= 0 ? UINT64_MAX - 1 : UINT64_MAX;
    const uint64_t *all = zero_share(x->z, *count ? (uint64_t)lowest : place);
    for (int r = 1; r < x->z->all->size; r++)
        if (all[r] < all[reporter])
            reporter = r;
    *count = (uint32_t)zero_share(x->z, *count)[reporter];
    uint64_t mark = f->folder >= 0 ? read_mark_word(f->folder) : 0;
    bool is_reporters = zero_share(x->z, mark)[reporter] == mark;
    if (f->folder >= 0 && !is_reporters) {
        close(f->folder);
        f->folder = -1;
    }
    return reporter;
}

// The reporter says what is wrong with the count of files; the others know that it does.
static int check_count(const struct Fetch *x, uint32_t count, int reporter, const struct Error *why,
                       struct Error *e) {
    if (count >= 1 && count <= CHECKPOINT_FILES_MAX)
        return 0;
    if (x->z->all->rank != reporter)
        return -EBADMSG;
    return count ? checkpoint_damaged(e, x->path, "its first file counts %u ranks", count)
                 : error_set(e, -EBADMSG, E_CHECKPOINT_DAMAGED,
                             "checkpoint %s: no node of the job can read any of its files (rank "
                             "%d: %s); run the job on the nodes that wrote it",
                             x->path, reporter, why->text);
}

static void name_files(struct Fetch *x, uint32_t count) {
    struct CheckpointFiles *f = x->f;
    free(f->file);
    f->file = base_alloc_zeroed(count * sizeof *f->file);
    for (f->count = 0; f->count < (int)count; f->count++)
        f->file[f->count].path = checkpoint_rank_path(x->path, f->count);
    x->owner = base_alloc(count * sizeof *x->owner);
    x->sees = base_alloc_zeroed(count);
    x->shared = base_alloc_zeroed(count);
}

// Finds which ranks see which files, 64 files at a time.
static void find_owners(struct Fetch *x) {
    struct CheckpointFiles *f = x->f;
    int size = x->z->all->size;
    for (int begin = 0; begin < f->count; begin += BITS) {
        int n = f->count - begin < BITS ? f->count - begin : BITS;
        uint64_t mine = 0;
        for (int i = 0; i < n; i++) {
            const char *name = strrchr(f->file[begin + i].path, '/') + 1;
            x->sees[begin + i] = f->folder >= 0 && folder_has_file(f->folder, name, NULL);
            mine |= (uint64_t)x->sees[begin + i] << i;
        }
        const uint64_t *all = zero_share(x->z, mine);
        for (int i = 0; i < n; i++) {
            x->owner[begin + i] = -1;
            x->shared[begin + i] = true;
            for (int r = size - 1; r >= 0; r--) {
                bool has = all[r] >> i & 1;
                x->owner[begin + i] = has ? r : x->owner[begin + i];
                x->shared[begin + i] = x->shared[begin + i] && has;
            }
        }
    }
}

// Names the first file that is on no disk, and the machine that wrote it.
static int check_all_there(const struct Fetch *x, int reporter, struct Error *e) {
    const struct CheckpointFiles *f = x->f;
    char host[HOST_BYTES] = "";
    int missing = 0;
    while (missing < f->count && x->owner[missing] >= 0)
        missing++;
    if (missing == f->count)
        return 0;
    if (x->z->all->rank != reporter)
        return -ENOENT;
    const char *name = strrchr(f->file[missing].path, '/') + 1;
    if (machine_of(f->folder, missing, host))
        return error_set(e, -ENOENT, E_CHECKPOINT_NODES,
                         "checkpoint %s lacks %s, which node %s wrote to its own disk; run the job "
                         "on that node too, or copy the file to a node of the job",
                         x->path, name, host);
    return error_set(e, -ENOENT, E_CHECKPOINT_NODES,
                     "checkpoint %s lacks %s: no node of the job has this file; copy it to one of "
                     "them, or use the checkpoint of another step",
                     x->path, name);
}

// ---- sending a file ----

// Returns the `mine` of the rank that owns file i. All ranks call it.
static uint64_t owner_value(struct Fetch *x, int i, uint64_t mine) {
    return zero_share(x->z, mine)[x->owner[i]];
}

// True if a file's part of a group has elements that this rank keeps.
static bool overlaps(const struct Zero *z, int g, const struct CheckpointGroup *part) {
    uint64_t begin = zero_owned_begin(z, g), end = begin + zero_owned_numel(z, g);
    return part->count && part->begin < end && part->begin + part->count > begin;
}

// True if this rank may need the file's elements. TP rank 0's file has what all TP ranks hold.
static bool needs_file(const struct Zero *z, const struct CheckpointHead *h, int file) {
    size_t tp_rank = (size_t)grid_coord(&h->grid, file, AXIS_TP);
    bool needed = false;
    if ((size_t)h->grid.size[AXIS_TP] != z->params->tp_size ||
        (int)h->ngroup != z->params->all_groups)
        return true;
    for (int g = 0; g < z->params->ngroup && (tp_rank == z->params->tp_rank || !tp_rank); g++)
        needed = needed || overlaps(z, g, &h->group[z->params->group[g].number]);
    return needed;
}

// Sends bytes [at, at + n) of file i from its owner (fd; others: -1) to all. keeps: stores them in
// what this rank fetches. An error is kept in *err, since the others go on.
static void broadcast_range(struct Fetch *x, int i, int fd, uint64_t at, uint64_t n, bool keeps,
                            char *buffer, int *err, struct Error *e) {
    const char *path = x->f->file[i].path;
    for (uint64_t end = at + n; at < end; at += PIECE) {
        size_t bytes = end - at < PIECE ? (size_t)(end - at) : PIECE;
        if (fd >= 0 && !*err && pread(fd, buffer, bytes, (off_t)at) != (ssize_t)bytes)
            *err = error_set(e, -EIO, E_CHECKPOINT_READ,
                             "rank %d cannot read checkpoint %s: a read failed or ended too early; "
                             "check the disk of that rank's node",
                             x->owner[i], path);
        comm_broadcast_host(x->z->all, buffer, bytes, x->owner[i]);
        if (keeps && !*err &&
            (*err = base_write(x->f->fetched_fd, buffer, bytes, (off_t)(x->end + at))))
            error_io(e, *err, E_CHECKPOINT_WRITE,
                     "cannot store another node's part of checkpoint %s on this node", path);
    }
}

// Sends one file: its head to all ranks, its values to those that need them.
static int fetch_file(struct Fetch *x, int i, char *buffer, struct Error *e) {
    struct CheckpointFile *file = &x->f->file[i];
    bool owns = x->owner[i] == x->z->all->rank, sees = x->sees[i];
    struct stat st = {0};
    int fd = -1, err = 0;
    if (sees)
        err = checkpoint_file_open(x->f->folder, file->path, &fd, &file->head, e);
    if (!err && sees && fstat(fd, &st))
        err = checkpoint_unreadable(file->path, e);
    err = zero_agree(x->z, err);
    if (!err && !x->shared[i]) {
        int from = owns ? fd : -1;
        uint64_t bytes = owner_value(x, i, (uint64_t)st.st_size);
        uint64_t head = owner_value(x, i, owns ? checkpoint_values_at(&file->head) : 0);
        broadcast_range(x, i, from, 0, head, !sees, buffer, &err, e);
        if (!sees && !err)
            err = checkpoint_file_head(x->f->fetched_fd, file->path, x->end, bytes, &file->head, e);
        bool needed = !sees && !err && needs_file(x->z, &file->head, i);
        err = zero_agree(x->z, err);
        bool any_needs = zero_agree(x->z, needed ? -1 : 0);
        if (any_needs && !err)
            broadcast_range(x, i, from, head, bytes - head, needed, buffer, &err, e);
        file->fetched = needed;
        x->end += needed ? bytes : 0;
        err = zero_agree(x->z, err);
    }
    if (fd >= 0)
        close(fd);
    return err;
}

// Opens a file without a name: beside the checkpoint, above that, or where temporary files go.
static int open_unnamed(const char *path, struct Error *e) {
    char *above_checkpoints = base_format("%s/../..", path), *at = NULL;
    char *checkpoints = folder_of(path);
    const char *other = getenv("TMPDIR");
    const char *folders[] = {checkpoints, above_checkpoints, other ? other : "/tmp"};
    int fd = -1;
    for (int i = 0; i < 3 && fd < 0; i++) {
        at = base_format("%s/fetched-XXXXXX", folders[i]);
        fd = mkostemp(at, O_CLOEXEC);
        if (fd >= 0)
            unlink(at);
        free(at);
    }
    if (fd < 0)
        fd = error_io(e, -errno, E_CHECKPOINT_WRITE,
                      "cannot store another node's part of checkpoint %s beside it or in %s", path,
                      folders[2]);
    free(checkpoints);
    free(above_checkpoints);
    return fd;
}

// ---- all of it ----

// Checks the files that this rank sends.
static int check_own(const struct Fetch *x, struct Error *e) {
    int err = 0;
    for (int i = 0; i < x->f->count && !err; i++)
        if (x->owner[i] == x->z->all->rank)
            err = checkpoint_file_check(x->f->folder, x->f->file[i].path, e);
    return err;
}

static int fetch_all(struct Fetch *x, struct Error *e) {
    char *buffer = base_alloc(PIECE);
    int fd = open_unnamed(x->path, e), err = zero_agree(x->z, fd < 0 ? fd : 0);
    x->f->fetched_fd = fd < 0 ? -1 : fd;
    for (int i = 0; i < x->f->count && !err; i++)
        err = fetch_file(x, i, buffer, e);
    free(buffer);
    return err;
}

int checkpoint_fetch(struct Zero *z, const char *path, struct CheckpointFiles *f, struct Error *e) {
    struct Fetch x = {.z = z, .f = f, .path = path};
    struct Error why;
    uint32_t count;
    *f = (struct CheckpointFiles){.wants_model = f->wants_model,
                                  .held = -1,
                                  .fetched_fd = -1,
                                  .file = base_alloc_zeroed(sizeof *f->file)};
    f->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->folder >= 0)
        f->held = checkpoint_hold(f->folder);
    else
        checkpoint_unreadable(path, &why);
    int reporter = agree_on_save(&x, &count, &why), err = check_count(&x, count, reporter, &why, e);
    if (!err) {
        name_files(&x, count);
        find_owners(&x);
        err = check_all_there(&x, reporter, e);
    }
    if (!err)
        err = zero_agree(z, check_own(&x, e));
    if (!err)
        err = fetch_all(&x, e);
    free(x.owner);
    free(x.sees);
    free(x.shared);
    return err;
}
