// Asking Linux about a process: see process.h. comm/mpi.c watches the other ranks so.
#include "zero/comm/process.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// What /proc/PROCESS/NAME holds, as far as there is room. Returns its bytes, or -errno.
static long read_proc(pid_t process, const char *name, char *text, size_t room) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)process, name);
    FILE *f = fopen(path, "re");
    if (!f)
        return -errno;
    size_t n = fread(text, 1, room - 1, f);
    fclose(f);
    text[n] = '\0';
    return (long)n;
}

bool process_is_gone(pid_t process) {
    char text[256];
    long n = read_proc(process, "stat", text, sizeof text);
    if (n < 0)
        return n == -ENOENT;
    const char *name_end = strrchr(text, ')'); // the state follows: "123 (train) S ..."
    return n == 0 || (name_end && name_end[1] == ' ' && strchr("ZX", name_end[2]));
}

// The rank that its launcher gave it; -1: none.
static int rank_of(pid_t process) {
    static const char *const names[] = {
        "OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "PMIX_RANK=", "SLURM_PROCID="};
    enum { ROOM = 1 << 16 };
    char *text = malloc(ROOM);
    long n = text ? read_proc(process, "environ", text, ROOM) : 0;
    int rank = -1;
    for (size_t i = 0; i < sizeof names / sizeof *names && rank < 0; i++)
        for (const char *at = text; at && at < text + n; at += strlen(at) + 1)
            if (strncmp(at, names[i], strlen(names[i])) == 0)
                rank = atoi(at + strlen(names[i]));
    free(text);
    return rank;
}

static bool is_stopped_sibling(pid_t process) {
    char text[256], state = 0;
    int parent = 0;
    if (process == getpid() || read_proc(process, "stat", text, sizeof text) <= 0)
        return false;
    const char *name_end = strrchr(text, ')');
    return name_end && sscanf(name_end + 1, " %c %d", &state, &parent) == 2 && state == 'T' &&
           parent == (int)getppid();
}

int process_name_stopped(char *text, size_t bytes) {
    DIR *all = opendir("/proc");
    size_t n = 0;
    int count = 0;
    for (struct dirent *d; all && (d = readdir(all));) {
        pid_t process = (pid_t)atoi(d->d_name);
        int rank = process > 0 && is_stopped_sibling(process) ? rank_of(process) : -1;
        if (rank < 0)
            continue;
        count++;
        if (n + 64 < bytes)
            n += (size_t)snprintf(text + n, bytes - n, "%s rank %d (process %d is stopped)",
                                  n ? "," : "", rank, (int)process);
    }
    if (all)
        closedir(all);
    return count;
}
