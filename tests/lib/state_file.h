// A rank's file of a checkpoint (format: zero/checkpoint/file.c), read without any of the
// program's code but the hash, so that trials of that code believe nothing that it says.
#ifndef TESTS_LIB_STATE_FILE_H
#define TESTS_LIB_STATE_FILE_H
#include "kernels/hash.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct StateFile {
    uint64_t bytes, head_bytes; // of the file; of what stands before the arrays
    uint64_t step;
    uint32_t rank, size;
    bool intact; // its hash is that of all before it
};

// False: there is no such file, or it is shorter than any.
static inline bool state_file_read(const char *path, struct StateFile *f) {
    enum { MAGIC = 16, FIXED = 72, CHOICES = 52, GROUP = 24 };
    struct stat st;
    uint32_t numbers[4], choices;
    uint64_t hash;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *f = (struct StateFile){0};
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_size < MAGIC + FIXED + (off_t)sizeof hash) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    f->bytes = (uint64_t)st.st_size;
    char *all = malloc(f->bytes);
    bool read_all = all && pread(fd, all, f->bytes, 0) == st.st_size;
    close(fd);
    if (read_all) {
        memcpy(&f->step, all + MAGIC, sizeof f->step);
        memcpy(numbers, all + MAGIC + 8, sizeof numbers); // rank, size, groups, bytes of identity
        memcpy(&choices, all + MAGIC + CHOICES, sizeof choices);
        memcpy(&hash, all + f->bytes - sizeof hash, sizeof hash);
        f->rank = numbers[0];
        f->size = numbers[1];
        f->head_bytes =
            MAGIC + FIXED + (uint64_t)numbers[3] + choices + (uint64_t)numbers[2] * GROUP;
        f->intact = hash64(all, f->bytes - sizeof hash, 0) == hash;
    }
    free(all);
    return read_all;
}

#endif
