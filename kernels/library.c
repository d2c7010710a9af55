// See library.h.
#include "kernels/library.h"

#include <dlfcn.h>
#include <errno.h>

int library_open(const char *file, const char *const symbol[], void *function[], size_t n,
                 const char *package, struct Error *e) {
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return error_set(e, -ENOTSUP, E_LIBRARY_MISSING,
                         "cannot open %s (%s): install %s, or set LD_LIBRARY_PATH to its folder",
                         file, dlerror(), package);
    for (size_t i = 0; i < n; i++) {
        function[i] = dlsym(library, symbol[i]);
        if (!function[i])
            return error_set(e, -ENOTSUP, E_LIBRARY_MISSING,
                             "%s lacks the function %s: install a newer version of %s", file,
                             symbol[i], package);
    }
    return 0;
}
