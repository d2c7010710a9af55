// Prints the step of the newest checkpoint in OUT that is whole, with every byte as it was written,
// and 0 where there is none: intact OUT. scripts/swarm.sh asks it. It believes no reader's fallback
// but looks at every file itself.
#include "zero/run/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool is_intact(const char *folder, uint64_t step) {
    uint32_t size = 1;
    for (uint32_t rank = 0; rank < size; rank++) {
        struct CheckpointHead head;
        struct Error e;
        int fd;
        char *path = checkpoint_rank_path(folder, (int)rank);
        int err = checkpoint_file_open(path, true, &fd, &head, &e);
        free(path);
        if (err)
            return false;
        close(fd);
        size = head.size;
        bool right = head.step == step && head.rank == rank;
        checkpoint_head_free(&head);
        if (!right)
            return false;
    }
    return true;
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "expected OUT");
    char *all = base_format("%s/checkpoints", argv[1]), *folder;
    uint64_t step = UINT64_MAX, found = 0;
    struct Error e;
    while (!found && checkpoint_find(all, step, &folder, &step, &e) == 1) {
        found = is_intact(folder, step) ? step : 0;
        free(folder);
    }
    free(all);
    printf("%llu\n", (unsigned long long)found);
    return 0;
}
