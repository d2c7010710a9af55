// A folder in memory for fuzzers of readers that want a name and not a descriptor; and whole files
// in it. Tests have tests/lib/scratch.h, which needs cmocka.
#ifndef TESTS_FUZZ_MEMORY_FOLDER_H
#define TESTS_FUZZ_MEMORY_FOLDER_H
#include "kernels/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The same for all calls, removed at the end with all files in it. Nothing is logged from then on.
static char memory_folder[64];

static inline void memory_folder_remove(void) {
    char *command = base_format("rm -r '%s'", memory_folder);
    if (system(command))
        perror(memory_folder);
    free(command);
}

static inline const char *memory_folder_open(void) {
    if (memory_folder[0])
        return memory_folder;
    log_level = LOG_QUIET;
    snprintf(memory_folder, sizeof memory_folder, "%s/fuzz.XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    CHECK(mkdtemp(memory_folder), "mkdtemp %s", memory_folder);
    atexit(memory_folder_remove);
    return memory_folder;
}

static inline void memory_file_write(const char *path, const void *data, size_t size) {
    FILE *f = fopen(path, "w");
    CHECK(f && fwrite(data, 1, size, f) == size && !fclose(f), "%s", path);
}

// At most `most` bytes, and a zero byte behind them. free() it.
static inline char *memory_file_read(const char *path, size_t *size, size_t most) {
    char *text = base_alloc(most + 1);
    FILE *f = fopen(path, "r");
    CHECK(f, "%s", path);
    *size = fread(text, 1, most, f);
    text[*size] = 0;
    fclose(f);
    return text;
}

#endif
