// The cache folder: see cache.h.
#include "data/cache.h"

#include "data/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *cache_default_folder(void) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache)
        return base_format("%s/zero.c", cache);
    if (home && *home)
        return base_format("%s/.cache/zero.c", home);
    return base_format("/tmp/zero.c-%u", (unsigned)getuid());
}

int cache_make_folder(const char *path, struct Error *e) {
    return file_make_folder(path, "--cache", e);
}

void cache_remove_folder(const char *path) {
    DIR *folder = opendir(path);
    if (!folder)
        return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
    rmdir(path);
}
