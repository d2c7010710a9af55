// gzip in a build without zlib: see unpack.h.
#include "data/unpack.h"

const struct Unpack unpack_gz = {
    .ending = ".gz", .format = "gzip", .library = "zlib", .package = "zlib1g-dev"};
