// library_open (kernels/library.h) in the simulator: cuBLASLt and NCCL are its own, and are found
// by the names of their files.
#include "kernels/library.h"

#include "tests/cusim/runtime.h"

#include <errno.h>
#include <string.h>

namespace cusim {

static std::vector<Library *> &libraries() {
    static std::vector<Library *> all; // made before the first Library that adds itself
    return all;
}

Library::Library(const char *file_prefix, std::initializer_list<Export> exports)
    : file_prefix(file_prefix), exports(exports) {
    libraries().push_back(this);
}

static const Library *find_library(const char *file) {
    for (const Library *l : libraries())
        if (strncmp(file, l->file_prefix, strlen(l->file_prefix)) == 0)
            return l;
    return nullptr;
}

static void *find_symbol(const Library *l, const char *symbol) {
    for (const Export &e : l->exports)
        if (strcmp(e.symbol, symbol) == 0)
            return e.function;
    return nullptr;
}

} // namespace cusim

int library_open(const char *file, const char *const symbol[], void *function[], size_t n,
                 const char *package, struct Error *e) {
    const cusim::Library *library = cusim::find_library(file);
    if (!library)
        return error_set(e, -ENOTSUP, E_LIBRARY_MISSING,
                         "cannot open %s (it is not simulated): install %s", file, package);
    for (size_t i = 0; i < n; i++) {
        function[i] = cusim::find_symbol(library, symbol[i]);
        if (!function[i])
            return error_set(e, -ENOTSUP, E_LIBRARY_MISSING, "%s has no %s in the simulator", file,
                             symbol[i]);
    }
    return 0;
}
