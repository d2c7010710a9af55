// Lists the regular files of a folder, at any depth, for --data FOLDER.
//
// Links to files and folders are followed, as caches of downloads have them. A link that leads
// nowhere, or back to a folder above it, is refused, so that no run misses a part of its data.
// Hidden files and folders, pipes, sockets and devices are skipped, and counted. Called by
// data/text/sources.c and data/text/text.c.
#ifndef DATA_TEXT_WALK_H
#define DATA_TEXT_WALK_H
#include "kernels/base.h"

struct Walk {
    char **path; // in the order of names, at each depth
    size_t count;
    size_t hidden, other; // skipped: names that begin with a dot; anything but files and folders
};

// `flag` opens the error line. Errors: -errno of a folder or link that cannot be read, -ELOOP for a
// link that leads back. walk_free it, also after an error.
int walk_folder(struct Walk *w, const char *flag, const char *folder, struct Error *e);
void walk_free(struct Walk *w);

void walk_log(const struct Walk *w, const char *flag, const char *folder);

#endif
