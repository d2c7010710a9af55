// Measures the machine: see machine.h. Sources are /proc and sched_getaffinity.
#include "data/log/machine.h"

#include "data/cache.h"
#include "data/file.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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
            char *name = colon + 1 + strspn(colon + 1, " ");
            if (*name)
                snprintf(out, bytes, "%s", name);
            break;
        }
    }
    if (f)
        fclose(f);
}

// ---- other processes ----

bool machine_read_times(struct CpuTimes *t) {
    // proc(5): user nice system idle iowait irq softirq steal, of all CPUs together.
    unsigned long long n[8] = {0};
    FILE *f = fopen("/proc/stat", "r");
    int found = f ? fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &n[0], &n[1], &n[2],
                           &n[3], &n[4], &n[5], &n[6], &n[7])
                  : 0;
    struct timespec own;
    if (f)
        fclose(f);
    if (found < 5 || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own))
        return false;
    *t = (struct CpuTimes){.own = (double)own.tv_sec + 1e-9 * (double)own.tv_nsec};
    double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    for (int i = 0; i < 8; i++)
        *(i == 3 || i == 4 ? &t->idle : &t->busy) += tick * (double)n[i];
    return true;
}

double machine_share_of_others(const struct CpuTimes *from, const struct CpuTimes *to) {
    double busy = to->busy - from->busy, all = busy + to->idle - from->idle;
    double others = busy - (to->own - from->own);
    return all > 0 && others > 0 ? others / all : 0;
}

// ---- stored measurements ----

// A line of the file is "name|cpu model|value", followed by " again" if the value is in doubt.
static const char AGAIN[] = " again";
static const double BUSY_SHARE = 0.1; // a measurement is in doubt if others used more CPU time

struct Measurement {
    char *path, *others; // of the file; its lines of other names and CPU models
    char key[256];
    double value; // 0: none
    bool doubted;
};

static void measurement_read(struct Measurement *m, const char *cache_dir, const char *name) {
    char model[128], *text, *end;
    size_t bytes;
    struct Error ignored;
    *m = (struct Measurement){.path = base_format("%s/machine.txt", cache_dir),
                              .others = base_format("%s", "")};
    cpu_model(model, sizeof model);
    snprintf(m->key, sizeof m->key, "%s|%s|", name, model);
    file_read(m->path, 1 << 20, &text, &bytes, &ignored); // NULL: there are none yet
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        size_t n = strlen(m->key);
        if (*line && strncmp(line, m->key, n) != 0) {
            base_append(&m->others, "%s\n", line);
        } else if (*line && m->value == 0) { // of two lines the first counts
            m->value = strtod(line + n, &end);
            m->doubted = strncmp(end, AGAIN, strlen(AGAIN)) == 0;
        }
    }
    free(text);
}

static void measurement_free(struct Measurement *m) {
    free(m->path);
    free(m->others);
}

static void measurement_write(struct Measurement *m, const char *cache_dir, double value,
                              bool doubted) {
    struct Error ignored;
    char *text = base_format("%s%s%.6g%s\n", m->others, m->key, value, doubted ? AGAIN : "");
    if (cache_make_folder(cache_dir, &ignored) == 0)
        file_replace(m->path, text, strlen(text), &ignored);
    free(text);
}

// Logs the first wait: all measurements together take up to half a minute.
static void log_wait(const char *path) {
    static bool is_logged;
    if (!is_logged)
        log_line(LOG_NORMAL, "measuring this machine; the results are kept in %s", path);
    is_logged = true;
}

double machine_measured(const char *cache_dir, const char *name, double (*measure)(void *context),
                        void *context) {
    struct Measurement m;
    measurement_read(&m, cache_dir, name);
    double value = m.value;
    if (!(value > 0) || m.doubted) {
        struct CpuTimes from, to;
        bool known = machine_read_times(&from);
        log_wait(m.path);
        value = fmax(measure(context), value);
        known = known && machine_read_times(&to);
        measurement_write(&m, cache_dir, value,
                          known && machine_share_of_others(&from, &to) > BUSY_SHARE);
    }
    measurement_free(&m);
    return value;
}

void machine_doubt(const char *cache_dir, const char *name) {
    struct Measurement m;
    measurement_read(&m, cache_dir, name);
    if (m.value > 0 && !m.doubted)
        measurement_write(&m, cache_dir, m.value, true);
    measurement_free(&m);
}
