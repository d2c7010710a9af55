// How a test checks an error: by its id, which stays when sentences change.
#ifndef TESTS_LIB_REFUSED_H
#define TESTS_LIB_REFUSED_H
#include "kernels/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

// The error has this id, and its one line this value, if any: "E_UTF8", or "E_UTF8 byte 7".
static inline bool error_is(const struct Error *e, const char *said) {
    const char *name = error_name(e->id), *value = strchr(said, ' ');
    size_t n = value ? (size_t)(value - said) : strlen(said);
    return strlen(name) == n && !strncmp(name, said, n) && !strchr(e->text, '\n') &&
           (!value || strstr(e->text, value + 1));
}

// The call failed with `want`, and its error is what is said.
static inline void assert_error(int code, int want, const struct Error *e, const char *said) {
    if (code != want || !error_is(e, said))
        fail_msg("code %d (wanted %d), line: %s [%s] (wanted: %s)", code, want, e->text,
                 error_name(e->id), said);
}

#endif
