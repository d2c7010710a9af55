// Stands in for data/text/download.c where libcurl is not installed. Chosen by the Makefile.
#include "data/text/download.h"

#include <errno.h>

int download_file(const struct Download *d, struct Error *e) {
    return error_set(e, -ENOTSUP, E_BUILD_LACKS,
                     "--data %s: this program was built without libcurl: install "
                     "libcurl4-openssl-dev and build again, or give a local file",
                     d->url);
}
