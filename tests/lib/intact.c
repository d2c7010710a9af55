// Prints the step of the newest checkpoint in OUT that is whole, with every byte as it was written,
// and 0 where there is none: intact OUT. Or the steps of all that are not, a line each: intact OUT
// damaged. scripts/faults/chaos_test.sh asks it.
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
    bool damaged = argc == 3 && strcmp(argv[2], "damaged") == 0;
    if (argc != 2 && !damaged)
        return 2;
    snprintf(folder, sizeof folder, "%s/checkpoints", argv[1]);
    DIR *dir = opendir(folder);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char path[8192];
        snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
        if (sscanf(d->d_name, "step-%llu", &step) != 1 || (!damaged && step <= newest))
            continue;
        bool intact = is_intact(path, step);
        if (intact && step > newest)
            newest = step;
        if (!intact && damaged)
            printf("%llu\n", step);
    }
    if (dir)
        closedir(dir);
    if (!damaged)
        printf("%llu\n", newest);
    return 0;
}
