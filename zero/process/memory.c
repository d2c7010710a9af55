// Asks the system for memory: see memory.h.
#include "zero/process/memory.h"

#include <stdlib.h>
#include <string.h>

// Returns the number after `key` in a file of "key   value ..." lines, or 0.
static size_t read_number(const char *path, const char *key) {
    FILE *f = fopen(path, "r");
    char line[256];
    size_t value = 0;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) {
            value = strtoull(line + strlen(key), NULL, 10);
            break;
        }
    if (f)
        fclose(f);
    return value;
}

size_t memory_resident_bytes(void) {
    return read_number("/proc/self/status", "VmRSS:") * 1024;
}

size_t memory_peak_bytes(void) {
    return read_number("/proc/self/status", "VmHWM:") * 1024;
}

void memory_peak_reset(void) {
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f)
        return;
    fputs("5", f); // proc(5): resets the peak to the present resident set
    fclose(f);
}

// What a cgroup's limit leaves, if there is one: the kernel gives up inactive files in its cache.
size_t memory_free_bytes(void) {
    size_t room = read_number("/proc/meminfo", "MemAvailable:") * 1024;
    size_t most = read_number("/sys/fs/cgroup/memory.max", ""); // 0 for "max", or without cgroups
    size_t used = read_number("/sys/fs/cgroup/memory.current", "");
    used -= size_min(used, read_number("/sys/fs/cgroup/memory.stat", "inactive_file "));
    return most ? size_min(room, most - size_min(most, used)) : room;
}
