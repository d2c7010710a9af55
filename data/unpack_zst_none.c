// zstd in a build without libzstd: see unpack.h.
#include "data/unpack.h"

const struct Unpack unpack_zst = {
    .ending = ".zst", .format = "zstd", .library = "libzstd", .package = "libzstd-dev"};
