// The folder for what can be made or fetched again: downloads, trained tokenizers, token shards.
//
// It belongs to the user who runs the program, and what is made has mode 0700: whoever can write to
// it decides what is trained on. So a folder of somebody else's is refused, even if it was asked
// for. Without HOME the folder lies in /tmp, where anybody can have made it first, as a link too.
//
// What takes long to make is made in a folder aside, NAME.XXXXXX, and renamed when it is whole.
// While its maker lives, the folder aside is locked; the next run removes what dead ones have left.
#ifndef DATA_CACHE_H
#define DATA_CACHE_H
#include "kernels/atomic_file.h"

// Returns the default of --cache: $XDG_CACHE_HOME/zero.c, else $HOME/.cache/zero.c, else
// /tmp/zero.c-UID. free() it.
char *cache_default_folder(void);

// Checks that the folder, if it exists, is one that the user can trust. The default one loses its
// permissions for the group, which the umask may have given. Errors: -EPERM for a folder of another
// user, a default one that everybody can write to, and a link in /tmp; -ENOTDIR; -errno.
int cache_check(const char *path, struct Error *e);

// Makes a folder and those above it, and checks it. Errors: those of cache_check; -errno, with a
// line that names --cache.
int cache_make_folder(const char *path, struct Error *e);

// Does the same for the folder NAME in the cache. *path: its path, to free() also after an error.
// Errors: as above; -EPERM for a link, through which nothing of the cache is written.
int cache_make_inside(const char *cache_dir, const char *name, char **path, struct Error *e);

// Makes and locks the file CACHE/lock, so that no other run makes or fetches what belongs into the
// cache while *fd is open. Waits for a run that holds it, and logs that. Where the disk has no
// locks *fd is -1: others may make the same meanwhile, so each must write what is its own alone.
// Errors: -errno, with a line that names --cache.
int cache_lock(const char *cache_dir, int *fd, struct Error *e);
void cache_unlock(const char *cache_dir, int fd);

// Makes a folder aside, a->tmp_path, to become `folder`. After a successful open exactly one close
// must follow, which removes what is left of it: all of the files in `own` (names, NULL behind the
// last). Errors: -errno, with a line that names --cache.
int cache_aside_open(struct AtomicFile *a, const char *folder, struct Error *e);
void cache_aside_close(struct AtomicFile *a, const char *const own[]);

// Renames it to `folder`. What is there already changes places with it, so that the name always
// leads to a folder.
int cache_aside_commit(struct AtomicFile *a, const char *folder, struct Error *e);

// Removes the folders that dead makers of PREFIX-0123456789abcdef have left aside. Only those that
// are the user's and hold nothing but files of the names in `own`, and never through a link.
void cache_sweep(const char *cache_dir, const char *prefix, const char *const own[]);

#endif
