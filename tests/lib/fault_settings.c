// What the environment asks of libfault.so: see fault.c.
#include "tests/lib/fault_calls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AS_NAME(name, text) text,
const char *const fault_class_name[] = {FAULT_CLASSES(AS_NAME)};
enum {
    CLASSES_OF_FILES = ~(1 << CLASS_MMAP | 1 << CLASS_MALLOC | 1 << CLASS_URING | 1 << CLASS_MPI |
                         1 << CLASS_THREAD | 1 << CLASS_CUDA)
};

struct FaultSettings fault_set;

static int error_of(const char *name) {
    static const struct {
        const char *name;
        int error;
    } known[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO},         {"ENOMEM", ENOMEM}, {"EACCES", EACCES},
                 {"EINTR", EINTR},   {"EMFILE", EMFILE},   {"EROFS", EROFS},   {"EAGAIN", EAGAIN},
                 {"EINVAL", EINVAL}, {"ENOENT", ENOENT},   {"EXDEV", EXDEV},   {"EDQUOT", EDQUOT},
                 {"EPERM", EPERM},   {"ENOLCK", ENOLCK},   {"EFBIG", EFBIG},   {"EPIPE", EPIPE},
                 {"EEXIST", EEXIST}, {"ENOTDIR", ENOTDIR}, {"ELOOP", ELOOP},   {"ENODEV", ENODEV}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(name, known[i].name) == 0)
            return known[i].error;
    fprintf(stderr, "libfault: FAULT_DO=%s is not known\n", name);
    _exit(99);
}

static void read_do(const char *text) {
    static const char *const kills[] = {"kill", "kill-torn", "kill-after"};
    fault_set.text = text;
    for (int i = 0; i < 3; i++)
        if (strcmp(text, kills[i]) == 0) {
            fault_set.what = DO_KILL + (enum Do)i;
            return;
        }
    bool torn = strncmp(text, "torn:", 5) == 0;
    if (strncmp(text, "delay:", 6) == 0) {
        fault_set.what = DO_DELAY;
        fault_set.delay_ms = atol(text + 6);
    } else if (strcmp(text, "skip") == 0) {
        fault_set.what = DO_SKIP;
    } else if (strcmp(text, "tear") == 0) {
        fault_set.what = DO_TEAR;
    } else {
        fault_set.what = torn ? DO_TORN : DO_FAIL;
        fault_set.error = error_of(text + (torn ? 5 : 0));
    }
}

static unsigned classes_of(const char *list) {
    unsigned found = 0;
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',') {
        size_t n = strcspn(p, ",");
        unsigned before = found;
        if (strncmp(p, "file", n) == 0)
            found |= (unsigned)CLASSES_OF_FILES;
        for (int c = 0; c < NCLASS; c++)
            if (strlen(fault_class_name[c]) == n && strncmp(p, fault_class_name[c], n) == 0)
                found |= 1u << c;
        if (found == before) {
            fprintf(stderr, "libfault: FAULT_CLASS=%s is not known\n", list);
            _exit(99);
        }
    }
    return found;
}

static long number_of(const char *name, long usual) {
    const char *text = getenv(name);
    return text ? atol(text) : usual;
}

static bool is_the_rank(void) {
    const char *wanted = getenv("FAULT_RANK"), *here = getenv("OMPI_COMM_WORLD_RANK");
    if (!here)
        here = getenv("PMIX_RANK");
    return !wanted || (here && strcmp(wanted, here) == 0);
}

__attribute__((constructor)) static void begin(void) {
    const char *classes = getenv("FAULT_CLASS"), *what = getenv("FAULT_DO");
    fault_set.log = getenv("FAULT_LOG");
    fault_set.hurry = number_of("FAULT_HURRY", 1);
    fault_set.at = number_of("FAULT_AT", 0);
    fault_set.most = number_of("FAULT_FOR", 1);
    fault_set.classes = classes ? classes_of(classes) : ~0u;
    read_do(what ? what : "EIO");
    fault_record_open();
    fault_set.records = getenv("FAULT_RECORD") != NULL;
    fault_set.own = own_code();
    fault_set.counts = is_the_rank();
}
