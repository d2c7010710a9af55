// Writes a rank's file of a checkpoint: at once, or from a snapshot while training goes on. See
// checkpoint.h.
//
// A snapshot is a copy in host memory of what the file will hold; a thread then writes it as
// checkpoint.c would, and nobody waits for the disk. It is no checkpoint before all ranks' files
// are whole and rank 0 has given their folder its name.
#include "zero/state.h"
#include "zero/checkpoint/checkpoint.h"
#include "zero/process/request.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

// Fills in the head of this rank's file; call checkpoint_head_free.
static void make_head(const struct Zero *z, const char *identity, struct CheckpointHead *h) {
    *h = (struct CheckpointHead){.step = z->step,
                                 .updates = z->updates,
                                 .loss_scale = z->loss_scale,
                                 .best = z->best,
                                 .base_hash = z->base_hash,
                                 .rank = (uint32_t)z->all->rank,
                                 .size = (uint32_t)z->all->size,
                                 .grid = z->parallel->grid,
                                 .ngroup = (uint32_t)z->params->all_groups,
                                 .narray = zero_is_late(z) ? NSTATE_LATE : NSTATE,
                                 .identity = base_format("%s", identity)};
    h->choices_bytes = (uint32_t)device_get_choices(z->device, NULL, 0);
    h->choices = h->choices_bytes ? base_alloc(h->choices_bytes) : NULL;
    if (h->choices)
        device_get_choices(z->device, h->choices, h->choices_bytes);
    h->group = base_alloc_zeroed(h->ngroup * sizeof *h->group);
    for (int g = 0; g < z->params->ngroup; g++) {
        size_t n = zero_shard_numel(z, g), numel = z->params->group[g].numel;
        size_t begin =
            zero_reports_group(z, g) ? size_min(n * (size_t)z->shard_group->rank, numel) : numel;
        bool saved = params_saves(z->params, g);
        h->group[z->params->group[g].number] =
            (struct CheckpointGroup){.numel = numel,
                                     .begin = begin,
                                     .count = saved ? size_min(n, numel - begin) : 0,
                                     .narray = saved ? zero_narray(z, g, h->narray) : h->narray};
    }
}

uint64_t checkpoint_bytes(const struct Zero *z, const char *identity) {
    struct CheckpointHead head;
    make_head(z, identity, &head);
    uint64_t bytes = checkpoint_file_bytes(&head);
    checkpoint_head_free(&head);
    return bytes;
}

// Takes n bytes of values: appends them to a file, or to memory.
typedef int Put(void *to, const void *bytes, size_t n, struct Error *e);

// Writes elements [begin, begin + n) of an array, counted from the first that this rank owns.
static int write_array(struct Zero *z, int g, enum State what, size_t begin, size_t n, float *chunk,
                       Put *put, void *to, struct Error *e) {
    int err = 0;
    for (size_t i = 0; i < n && !err; i += STATE_CHUNK) {
        size_t count = size_min(STATE_CHUNK, n - i);
        zero_read_state(z, g, what, begin + i, count, chunk);
        err = put(to, chunk, count * sizeof *chunk, e);
    }
    return err;
}

// Writes all values of this rank's file, in its order.
static int write_groups(struct Zero *z, const struct CheckpointHead *head, Put *put, void *to,
                        struct Error *e) {
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    int err = 0;
    for (int g = 0; g < z->params->ngroup && !err; g++) {
        const struct CheckpointGroup *part = &head->group[z->params->group[g].number];
        size_t skip = part->count ? part->begin - zero_owned_begin(z, g) : 0;
        for (enum State what = 0; what < part->narray && !err; what++)
            err = write_array(z, g, what, skip, part->count, chunk, put, to, e);
    }
    device_free_host(z->device, chunk);
    return err;
}

// ---- at once ----

static int write_to_file(void *writer, const void *bytes, size_t n, struct Error *e) {
    return checkpoint_file_append(writer, bytes, n, e);
}

int checkpoint_write(struct Zero *z, const char *folder, const char *identity, struct Error *e) {
    char *path = checkpoint_rank_path(folder, z->all->rank);
    struct CheckpointHead head;
    make_head(z, identity, &head);
    struct CheckpointWriter *w;
    int err = checkpoint_file_create(&w, path, &head, e);
    if (!err && (err = write_groups(z, &head, write_to_file, w, e)))
        checkpoint_file_abandon(w);
    else if (!err)
        err = checkpoint_file_finish(w, e);
    checkpoint_head_free(&head);
    free(path);
    return err;
}

// ---- from a snapshot ----

struct Snapshot {
    struct CheckpointHead head;
    char *path, *values;
    size_t used, bytes; // of values
    int rank;
    pthread_t thread;
    atomic_uint *word; // seen by others
    int err;           // of the thread, once it is done
    struct Error error;
};

size_t checkpoint_snapshot_bytes(const struct Zero *z, bool late) {
    size_t elements = 0;
    for (int g = 0; g < z->params->ngroup; g++)
        elements += zero_shard_numel(z, g) * zero_narray(z, g, late ? NSTATE_LATE : NSTATE);
    return elements * sizeof(float);
}

static int write_to_memory(void *snapshot, const void *bytes, size_t n, struct Error *e) {
    struct Snapshot *s = snapshot;
    (void)e;
    CHECK(n <= s->bytes - s->used, "%zu bytes after %zu in a snapshot of %zu", n, s->used,
          s->bytes);
    memcpy(s->values + s->used, bytes, n);
    s->used += n;
    return 0;
}

// Writes in pieces that stay in the cache between the hash and the copy to the kernel.
static int write_values(struct Snapshot *s, struct CheckpointWriter *w) {
    enum { PIECE = 1 << 20 };
    int err = 0;
    for (size_t i = 0; i < s->used && !err; i += PIECE)
        err = checkpoint_file_append(w, s->values + i, size_min(PIECE, s->used - i), &s->error);
    return err;
}

static void *write_snapshot(void *snapshot) {
    struct Snapshot *s = snapshot;
    struct CheckpointWriter *w;
    base_set_rank(s->rank);
    s->err = checkpoint_file_create(&w, s->path, &s->head, &s->error);
    if (!s->err && (s->err = write_values(s, w)))
        checkpoint_file_abandon(w);
    else if (!s->err)
        s->err = checkpoint_file_finish(w, &s->error);
    atomic_store(s->word, s->err ? WORD_FAILED : 0);
    return NULL;
}

// Blocks signals, which are for the threads that train.
static int start_thread(struct Snapshot *s) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int err = -pthread_create(&s->thread, NULL, write_snapshot, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

static void snapshot_free(struct Snapshot *s) {
    checkpoint_head_free(&s->head);
    free(s->path);
    free(s);
}

int checkpoint_snapshot(struct Snapshot **out, struct Zero *z, const char *folder,
                        const char *identity, const struct Block *to, atomic_uint *word,
                        struct Error *e) {
    struct Snapshot *s = base_alloc_zeroed(sizeof *s);
    *s = (struct Snapshot){.path = checkpoint_rank_path(folder, z->all->rank),
                           .values = to->mem,
                           .bytes = to->bytes,
                           .rank = z->all->rank,
                           .word = word};
    make_head(z, identity, &s->head);
    int err = write_groups(z, &s->head, write_to_memory, s, e);
    atomic_store(word, WORD_WRITING);
    if (!err && (err = start_thread(s)))
        error_set(e, err, E_THREAD_REFUSED,
                  "cannot start a thread to write %s: %s; raise `ulimit -u` or `ulimit -v`",
                  s->path, strerror(-err));
    if (err) {
        atomic_store(word, 0);
        snapshot_free(s);
        s = NULL;
    }
    *out = s;
    return err;
}

int checkpoint_snapshot_close(struct Snapshot *s, struct Error *e) {
    if (!s)
        return 0;
    pthread_join(s->thread, NULL);
    int err = s->err;
    if (err)
        *e = s->error;
    snapshot_free(s);
    return err;
}
