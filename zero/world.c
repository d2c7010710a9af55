// Starting the ranks of this process: see world.h.
#include "zero/world.h"

#include <pthread.h>
#include <stdlib.h>

struct Seat {
    RankMain *main;
    void *context;
    int rank;
    struct ThreadGroup *group;
    pthread_t thread;
};

static void *sit(void *seat) {
    struct Seat *s = seat;
    base_set_rank(s->rank);
    s->main(s->context, s->rank, s->group);
    return NULL;
}

void world_run(int ranks, RankMain *main, void *context) {
    struct ThreadGroup *group = ranks > 1 ? thread_group_open(ranks) : NULL;
    struct Seat *seats = base_alloc_zeroed((size_t)ranks * sizeof *seats);
    for (int r = ranks - 1; r >= 0; r--) {
        seats[r] = (struct Seat){main, context, r, group, 0};
        if (r > 0)
            CHECK(!pthread_create(&seats[r].thread, NULL, sit, &seats[r]), "no thread for rank %d",
                  r);
    }
    sit(&seats[0]);
    for (int r = 1; r < ranks; r++)
        pthread_join(seats[r].thread, NULL);
    if (group)
        thread_group_close(group);
    free(seats);
}
