// A machine that is short of something, for tests of ./train. LD_PRELOAD=scarce.so SCARCE=memory:9
// refuses the 9th allocation that the program itself makes (its libraries are not meant), counted
// over all threads. SCARCE=thread:N refuses the Nth thread, its libraries' too, and SCARCE=uring:N
// lets the Nth call of io_uring_submit_and_wait, and all that follow, fail: with ENOMEM, or with
// EIO as SCARCE=uring-io:N.
//
// N is 0 for none. In any case a run that ends by exit() writes how many calls there were into the
// file that SCARCE_COUNT names. Used by tests/zero/test_scarce.sh.
#include "tests/lib/own_code.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct io_uring;
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);

static struct {
    const char *what;
    long at;
    struct OwnCode own;
    atomic_long calls;
} scarce = {.what = ""};

__attribute__((constructor)) static void begin(void) {
    static char what[16]; // before the program may change its environment
    const char *asked = getenv("SCARCE"), *colon = asked ? strchr(asked, ':') : NULL;
    scarce.own = own_code();
    if (!colon || colon - asked >= (long)sizeof what)
        return;
    memcpy(what, asked, (size_t)(colon - asked));
    scarce.at = atol(colon + 1);
    scarce.what = what;
}

__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("SCARCE_COUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f)
        return;
    fprintf(f, "%ld\n", atomic_load(&scarce.calls));
    fclose(f);
}

// The number of this call, counted from 1; 0: it is of no interest.
static long number_of(const char *what, const void *caller) {
    bool own = !caller || own_code_has(&scarce.own, (uintptr_t)caller);
    if (!own || strcmp(scarce.what, what) != 0)
        return 0;
    return atomic_fetch_add(&scarce.calls, 1) + 1;
}

static bool refuses(const void *caller) {
    long number = number_of("memory", caller);
    if (!number || number != scarce.at)
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes) {
    return refuses(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes) {
    return refuses(__builtin_return_address(0)) ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *mem, size_t bytes) {
    return refuses(__builtin_return_address(0)) ? NULL : __libc_realloc(mem, bytes);
}

void *aligned_alloc(size_t align, size_t bytes) {
    return refuses(__builtin_return_address(0)) ? NULL : __libc_memalign(align, bytes);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *),
                   void *context) {
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    long number = number_of("thread", NULL);
    return number && number == scarce.at ? EAGAIN : real(thread, attr, body, context);
}

int io_uring_submit_and_wait(struct io_uring *ring, unsigned wait) {
    int (*real)(struct io_uring *, unsigned);
    *(void **)&real = dlsym(RTLD_NEXT, "io_uring_submit_and_wait");
    bool io = strcmp(scarce.what, "uring-io") == 0;
    long number = number_of(io ? "uring-io" : "uring", NULL);
    if (scarce.at && number >= scarce.at)
        return io ? -EIO : -ENOMEM;
    return real(ring, wait);
}
