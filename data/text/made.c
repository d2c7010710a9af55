// Finds or makes folders of the cache: see made.h.
#include "data/text/made.h"
#include "data/cache.h"
#include "data/text/sums.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { HASH_DIGITS = 16 };

uint64_t made_number(const char hex[SHA256_HEX_BYTES]) {
    char digits[HASH_DIGITS + 1] = "";
    return strtoull(memcpy(digits, hex, HASH_DIGITS), NULL, 16);
}

char *made_folder_path(const char *cache_dir, const char *prefix, uint64_t number) {
    return base_format("%s/%s-%016llx", cache_dir, prefix, (unsigned long long)number);
}

void made_hash(struct Sha256 *h, const void *bytes, size_t n) {
    uint64_t length = n;
    sha256_update(h, &length, sizeof length);
    sha256_update(h, bytes, n);
}

// Writes the checksums of a folder's files; or, if `state` is not NULL, compares them with the list
// that is there, and returns 0.
static int write_or_check_sums(const struct Made *m, const char *folder, enum SumsState *state,
                               struct Error *e) {
    char **path = base_alloc_zeroed(m->count * sizeof *path);
    char *list = base_format("%s/" SUMS_NAME, folder);
    int code = 0;
    for (size_t i = 0; i < m->count; i++)
        path[i] = base_format("%s/%s", folder, m->names[i]);
    if (state)
        *state = sums_check(list, (const char *const *)path, m->count, e);
    else
        code = sums_write(list, (const char *const *)path, m->count, e);
    for (size_t i = 0; i < m->count; i++)
        free(path[i]);
    free(path);
    free(list);
    return code;
}

// True if the folder exists with undamaged files. `logs_damage`: logs why not.
static bool is_whole(const struct Made *m, const char *folder, bool logs_damage) {
    enum SumsState state;
    struct Error why;
    struct stat st;
    if (stat(folder, &st))
        return false;
    write_or_check_sums(m, folder, &state, &why);
    if (logs_damage && state != SUMS_AGREE)
        log_line(LOG_NORMAL, "--cache: %s%s; preparing it again",
                 state == SUMS_DIFFER ? why.text : folder,
                 state == SUMS_DIFFER ? "" : " has no checksums");
    return state == SUMS_AGREE;
}

// Makes the folder under a temporary name, and renames it. It replaces a damaged one.
static int make_folder(const struct Made *m, const char *folder, struct Error *e) {
    struct AtomicFile tmp;
    int code = cache_aside_open(&tmp, folder, e);
    if (code)
        return code;
    code = m->fill(m->context, tmp.tmp_path, e);
    if (!code)
        code = write_or_check_sums(m, tmp.tmp_path, NULL, e);
    if (!code)
        code = cache_aside_commit(&tmp, folder, e);
    if (code && !strncmp(e->text, "cannot ", strlen("cannot "))) { // for example: the disk is full
        struct Error cause = *e;
        error_set(e, code, cause.id, "--cache %s: %s", m->cache_dir, cause.text);
    }
    cache_aside_close(&tmp, m->names);
    return code;
}

int made_once(const struct Made *m, bool *found, struct Error *e) {
    int lock, code = cache_make_folder(m->cache_dir, e);
    if (code)
        return code;
    char *folder = made_folder_path(m->cache_dir, m->prefix, m->number);
    cache_sweep(m->cache_dir, m->prefix, m->names);
    *found = is_whole(m, folder, false);
    if (!*found)
        code = cache_lock(m->cache_dir, &lock, e);
    if (!*found && !code) {
        *found = is_whole(m, folder, true); // another run may have made it meanwhile
        if (!*found)
            code = make_folder(m, folder, e);
        cache_unlock(m->cache_dir, lock);
    }
    free(folder);
    return code;
}
