// See library.h.
#include "kernels/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

int library_open(const char *const files[], const char *const symbol[], void *function[], size_t n,
                 const char *package, struct Error *e) {
    void *library = NULL;
    char why[256] = ""; // dlerror of the first file tried
    for (int i = 0; files[i] && !library; i++) {
        library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
        if (!library && i == 0)
            snprintf(why, sizeof why, "%s", dlerror());
    }
    if (!library)
        return error_set(e, -ENOTSUP, E_LIBRARY_MISSING,
                         "cannot open %s (%s): install %s, or set LD_LIBRARY_PATH to its folder",
                         files[0], why, package);
    for (size_t i = 0; i < n; i++) {
        function[i] = dlsym(library, symbol[i]);
        if (!function[i])
            return error_set(e, -ENOTSUP, E_LIBRARY_MISSING,
                             "%s lacks the function %s: install a newer %s", files[0], symbol[i],
                             package);
    }
    return 0;
}
