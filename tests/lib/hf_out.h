// An export of a small model, for the tests of data/hf/write.c: where it goes, and what is in it.
#ifndef TESTS_LIB_HF_OUT_H
#define TESTS_LIB_HF_OUT_H
#include "data/hf/write.h"
#include "tests/lib/scratch.h"

#include <sys/stat.h>

static char *folder, *out, *aside; // aside: where OUT is written before it has its name

static inline int set_up(void **state) {
    (void)state;
    folder = scratch_make();
    out = base_format("%s/out", folder);
    aside = base_format("%s/out.writing", folder);
    return 0;
}

static inline int tear_down(void **state) {
    (void)state;
    scratch_remove(folder);
    free(out);
    free(aside);
    return 0;
}

static inline bool is_there(const char *path) {
    struct stat st;
    return !lstat(path, &st);
}

// A tensor of 10 elements and one of 2 by 3.
static const struct HfOut two[] = {{"first.weight", 1, {10}}, {"second.weight", 2, {2, 3}}};
static const float counted[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

#endif
