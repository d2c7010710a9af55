// Counting GPUs without CUDA. See cards.h.
//
// Source: NVIDIA, "CUDA C++ Programming Guide", section on CUDA_VISIBLE_DEVICES: a list of indices
// or of identifiers (GPU-..., MIG-...), maybe abbreviated; it ends at the first invalid one.
// Identifiers are not looked up here, so fewer GPUs may be visible than it lists, never more.
#include "kernels/cards.h"

#include "kernels/base.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

const char *cards_folder = "/proc/driver/nvidia";

static int count_files(const char *pattern) {
    glob_t found = {0};
    char *path = base_format("%s/%s", cards_folder, pattern);
    int count = glob(path, 0, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
    globfree(&found);
    free(path);
    return count;
}

// Returns how many GPUs the driver lists. A GPU split by MIG has a folder per instance: unknown.
static int count_machine(void) {
    int count = count_files("gpus/*");
    return count && !count_files("capabilities/gpu*/mig/gi*") ? count : CARDS_UNKNOWN;
}

// True if the list's first entry is a GPU's identifier, or an index below `gpus`.
static bool is_visible_gpu(const char *entry, int gpus) {
    char *end;
    long index = strtol(entry, &end, 10);
    return end == entry ? !strncmp(entry, "GPU-", 4) || !strncmp(entry, "MIG-", 4)
                        : index >= 0 && index < gpus;
}

struct Cards cards_count(void) {
    const char *entry = getenv("CUDA_VISIBLE_DEVICES");
    struct Cards c = {count_machine(), 0};
    if (!entry)
        c.shown = c.machine;
    while (entry && is_visible_gpu(entry, c.machine)) {
        c.shown++;
        entry = strchr(entry, ',');
        entry = entry ? entry + 1 : NULL;
    }
    c.shown = c.shown < c.machine ? c.shown : c.machine;
    return c;
}
