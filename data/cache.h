// The folder for what can be made or fetched again: downloads, trained tokenizers, token shards.
#ifndef DATA_CACHE_H
#define DATA_CACHE_H
#include "kernels/base.h"

// Where --cache points by default: $XDG_CACHE_HOME/zero.c, else $HOME/.cache/zero.c, else
// /tmp/zero.c-UID. free() it.
char *cache_default_folder(void);

// Makes a folder and those above it. Errors: -errno, with a line that names --cache.
int cache_make_folder(const char *path, struct Error *e);

// Removes a folder and the files in it (not folders within). For what was being made aside and
// failed.
void cache_remove_folder(const char *path);

#endif
