// Prints the step of the newest checkpoint in OUT that is whole, with every byte as it was written,
// and 0 where there is none: intact OUT. scripts/swarm.sh asks it.
#include "tests/lib/state_file.h"

#include <dirent.h>

static bool is_intact(const char *folder, unsigned long long step) {
    struct StateFile f = {.size = 1};
    for (uint32_t rank = 0; rank < f.size; rank++) {
        char path[8192];
        int n = snprintf(path, sizeof path, "%s/rank-%04u.state", folder, rank);
        if (n >= (int)sizeof path || !state_file_read(path, &f) || !f.intact || f.step != step ||
            f.rank != rank)
            return false;
    }
    return true;
}

int main(int argc, char **argv) {
    char folder[4096];
    unsigned long long newest = 0, step;
    snprintf(folder, sizeof folder, "%s/checkpoints", argc == 2 ? argv[1] : "");
    DIR *dir = opendir(folder);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char path[8192];
        snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
        if (sscanf(d->d_name, "step-%llu", &step) == 1 && step > newest && is_intact(path, step))
            newest = step;
    }
    if (dir)
        closedir(dir);
    printf("%llu\n", newest);
    return argc == 2 ? 0 : 2;
}
