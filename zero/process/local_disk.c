// Finding out whose disk is whose: see local_disk.h. Next: lock.c.
#include "zero/process/local_disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

uint64_t local_disk_word(void) {
    uint64_t word = 0;
    struct timespec now;
    if (getrandom(&word, sizeof word, 0) != (ssize_t)sizeof word) {
        clock_gettime(CLOCK_REALTIME, &now);
        word = (uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 44;
    }
    return word | 1;
}

// Rank 0's process first, and then those that do not find its word.
static int take_locks(const struct World *w, struct RunLock *l, const char *folder,
                      const char *flag, uint64_t word, struct Error *e) {
    struct LockJob job = {w->launched ? word : 0, w->first};
    int err = w->first ? 0 : run_lock_take(l, folder, flag, job, e);
    err = world_agree(w, err, e);
    if (err || !w->first)
        return err;
    if (run_lock_holder(folder, word) >= 0)
        return 0;
    err = run_lock_take(l, folder, flag, job, e);
    if (err != -EBUSY)
        return err;
    e->text[0] = 0; // it may be one of ours, which run_lock_holder will say
    return 0;
}

// Where a disk knows no locks, more than one has taken it.
static int find_keeper(const struct World *w, struct RunLock *l, const char *folder,
                       const char *flag, uint64_t word, int *keeper, struct Error *e) {
    struct LockJob job = {word, w->first};
    *keeper = w->launched ? run_lock_holder(folder, word) : 0;
    if (*keeper < 0) { // another run's, which says so, or has just ended
        *keeper = w->first;
        return run_lock_take(l, folder, flag, job, e);
    }
    if (*keeper != w->first)
        run_lock_forget(l);
    return 0;
}

static void share_hosts(struct LocalDisk *d, const struct World *w) {
    uint64_t mine[HOST_BYTES / 8] = {0}, *all = base_alloc_zeroed((size_t)w->size * sizeof *all);
    gethostname((char *)mine, HOST_BYTES - 1);
    d->host = base_alloc_zeroed((size_t)w->size * sizeof *d->host);
    for (size_t i = 0; i < HOST_BYTES / 8; i++) {
        world_share(w, mine[i], all);
        for (int r = 0; r < w->size; r++)
            memcpy(d->host[r] + 8 * i, &all[r], 8);
    }
    free(all);
}

static void share_keepers(struct LocalDisk *d, const struct World *w, int keeper) {
    uint64_t *all = base_alloc_zeroed((size_t)w->size * sizeof *all);
    bool apart = false;
    world_share(w, (uint64_t)keeper, all);
    d->keeper = base_alloc_zeroed((size_t)w->size * sizeof *d->keeper);
    d->size = w->size;
    for (int r = 0; r < w->size; r++) {
        d->keeper[r] = (int)all[r];
        apart = apart || all[r];
    }
    free(all);
    if (apart)
        share_hosts(d, w);
    else
        local_disk_close(d);
}

int local_disk_claim(struct LocalDisk *d, const struct World *w, struct RunLock *l,
                     const char *folder, const char *flag, struct Error *e) {
    uint64_t word = world_of_first(w, local_disk_word());
    int keeper = 0, err = world_agree(w, take_locks(w, l, folder, flag, word, e), e);
    if (!err)
        err = world_agree(w, find_keeper(w, l, folder, flag, word, &keeper, e), e);
    if (!err && w->launched)
        share_keepers(d, w, keeper);
    return err;
}

void local_disk_close(struct LocalDisk *d) {
    free(d->keeper);
    free(d->host);
    *d = (struct LocalDisk){0};
}
