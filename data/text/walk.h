// The regular files of a folder, at any depth: what --data FOLDER reads.
//
// Links are followed, as one that is named itself is: a file, or a folder with all that is in it,
// as a cache of downloads has them. A link that leads nowhere, or back to a folder above it, is
// refused, so that nobody trains on less than there is. Hidden files and folders, pipes, sockets
// and devices are passed over, and counted. Called by data/text/sources.c and data/text/text.c.
#ifndef DATA_TEXT_WALK_H
#define DATA_TEXT_WALK_H
#include "kernels/base.h"

struct Walk {
    char **path; // folders in the order of their names, and so what is in them
    size_t count;
    size_t hidden, other; // passed over: names with a dot in front; what is no file
};

// `flag` opens the error line. Errors: -errno of a folder or link that cannot be read, -ELOOP for a
// link that leads back. walk_free it, also after an error.
int walk_folder(struct Walk *w, const char *flag, const char *folder, struct Error *e);
void walk_free(struct Walk *w);

// Logs one line that counts the files passed over, if there are any.
void walk_log(const struct Walk *w, const char *flag, const char *folder);

#endif
