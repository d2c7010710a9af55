// What is known of the machine: see machine.h. Sources are /proc and sched_getaffinity.
#include "data/log/machine.h"

#include "data/cache.h"
#include "data/file.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The number behind `key` in a file of "key   value ..." lines, or 0.
static size_t number_in(const char *path, const char *key) {
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

size_t machine_resident_bytes(void) {
    return number_in("/proc/self/status", "VmRSS:") * 1024;
}

size_t machine_peak_bytes(void) {
    return number_in("/proc/self/status", "VmHWM:") * 1024;
}

void machine_peak_reset(void) {
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f)
        return;
    fputs("5", f); // proc(5): the peak becomes what is resident now
    fclose(f);
}

size_t machine_free_bytes(void) {
    size_t room = number_in("/proc/meminfo", "MemAvailable:") * 1024;
    size_t most = number_in("/sys/fs/cgroup/memory.max", ""); // 0 for "max", or without cgroups
    size_t used = number_in("/sys/fs/cgroup/memory.current", "");
    return most > used ? size_min(room, most - used) : room;
}

size_t machine_cores(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    return size_max(1, (size_t)CPU_COUNT(&set));
}

static void cpu_model(char *out, size_t bytes) {
    snprintf(out, bytes, "unknown CPU");
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(out, bytes, "%s", colon + 2);
            break;
        }
    }
    if (f)
        fclose(f);
}

// A line of the file is "name|cpu model|value".
static double find(const char *text, const char *key) {
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, strlen(key)) == 0)
            return strtod(line + strlen(key), NULL);
    }
    return 0;
}

double machine_measured(const char *cache_dir, const char *name, double (*measure)(void *context),
                        void *context) {
    char model[128], key[256];
    cpu_model(model, sizeof model);
    snprintf(key, sizeof key, "%s|%s|", name, model);
    char *path = base_format("%s/machine.txt", cache_dir), *text = NULL;
    size_t bytes;
    struct Error ignored;
    if (file_read(path, 1 << 20, &text, &bytes, &ignored) != 0)
        text = base_format("%s", "");
    double value = find(text, key);
    if (!(value > 0)) {
        value = measure(context);
        char *longer = base_format("%s%s%.6g\n", text, key, value);
        if (cache_make_folder(cache_dir, &ignored) == 0)
            file_replace(path, longer, strlen(longer), &ignored);
        free(longer);
    }
    free(text);
    free(path);
    return value;
}
