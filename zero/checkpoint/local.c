// Marks of checkpoints that lie on several disks: see local.h. Next: fetch.c.
#include "zero/checkpoint/local.h"

#include "kernels/atomic_file.h"
#include "kernels/folder.h"
#include "zero/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = HOST_BYTES + 16, MARK_NAME_BYTES = 32 };

static void name_mark(char name[MARK_NAME_BYTES], uint64_t word) {
    snprintf(name, MARK_NAME_BYTES, "apart-%016llx", (unsigned long long)word);
}

static bool word_of(const char *name, uint64_t *word) {
    char again[MARK_NAME_BYTES];
    unsigned long long n = 0;
    bool said = sscanf(name, "apart-%16llx", &n) == 1;
    *word = n;
    name_mark(again, n);
    return said && n && strcmp(name, again) == 0;
}

bool checkpoint_is_mark(const char *name) {
    uint64_t ignored;
    return word_of(name, &ignored);
}

uint64_t checkpoint_local_word(struct Zero *z) {
    uint64_t *all = base_alloc_zeroed((size_t)z->all->size * sizeof *all), word = 0;
    struct timespec now;
    if (getrandom(&word, sizeof word, 0) != (ssize_t)sizeof word) {
        clock_gettime(CLOCK_REALTIME, &now);
        word = (uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec;
    }
    zero_share(z, word | 1, all);
    word = all[0];
    free(all);
    return word;
}

// ---- writing ----

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
        error_set(e, err, E_CHECKPOINT_WRITE, "cannot write checkpoint %s: %s", path,
                  strerror(-err));
    free(path);
    free(text);
    return err;
}

// ---- reading ----

// The first mark in a folder.
static bool find_mark(int folder, const char *name, void *found) {
    char *to = found;
    if (!*to && checkpoint_is_mark(name) && folder_has_file(folder, name, NULL))
        snprintf(to, MARK_NAME_BYTES, "%s", name);
    return true;
}

uint64_t checkpoint_marked(int folder) {
    char name[MARK_NAME_BYTES] = "";
    uint64_t word = 0;
    folder_for_all(folder, find_mark, name);
    return word_of(name, &word) ? word : 0;
}

bool checkpoint_machine(int folder, int rank, char host[HOST_BYTES]) {
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

static bool find_rank(int folder, const char *name, void *lowest) {
    char again[32];
    int *least = lowest, rank;
    if (sscanf(name, "rank-%d.state", &rank) != 1 || rank < 0)
        return true;
    snprintf(again, sizeof again, "rank-%04d.state", rank);
    if (strcmp(name, again) == 0 && folder_has_file(folder, name, NULL) &&
        (*least < 0 || rank < *least))
        *least = rank;
    return true;
}

int checkpoint_lowest(int folder) {
    int least = -1;
    folder_for_all(folder, find_rank, &least);
    return least;
}
