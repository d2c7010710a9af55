// Memory that there is beside memory that is needed: see room.h. Next: candidates.c.
#include "zero/plan/room.h"

#include <stdio.h>

// Whose memory it is, and who says how much there is.
static const struct {
    const char *memory, *limit;
} shortages[NSHORTAGE] = {[SHORT_DEVICE] = {"device", "--device-mem allows each rank"},
                          [SHORT_HOST] = {"CPU", "--host-mem allows each rank"},
                          [SHORT_PLACE] = {"device", "the machine has for each rank"},
                          [SHORT_MEMORY] = {"CPU", "the machine has for each rank"}};

struct Room room_of(const struct RankSettings *s, const struct PlaceMemory *place, size_t host,
                    int ranks_here, int processes, bool plan) {
    size_t ranks = (size_t)ranks_here, here = ranks * (size_t)processes;
    return (struct Room){{[SHORT_DEVICE] = s->device_bytes ? s->device_bytes : SIZE_MAX,
                          [SHORT_HOST] = s->host_bytes ? s->host_bytes : SIZE_MAX,
                          [SHORT_PLACE] = plan ? SIZE_MAX : place->free_bytes / ranks,
                          [SHORT_MEMORY] = plan ? SIZE_MAX : host / here}};
}

// Each rank has a place of its own: a GPU (zero/run/place.c).
static bool places_apart(const struct RankSettings *s) {
    return s->device == DEVICE_CUDA && !s->processes && device_count_cuda() >= s->ranks;
}

// All ranks of this process have one such place, which then has what they take together.
static bool is_shared(const struct Forecast *f, enum Shortage of) {
    return of == SHORT_MEMORY || (of == SHORT_PLACE && !places_apart(&f->settings));
}

size_t room_need(const struct Forecast *f, enum Shortage of) {
    const struct Demand *d = &f->demand;
    enum TierKind kind = of == SHORT_HOST ? TIER_CPU : TIER_DEVICE;
    size_t memory = f->settings.device == DEVICE_CPU ? d->place_bytes : d->host_bytes;
    size_t here = of == SHORT_MEMORY ? memory : d->of[TIER_DEVICE].here;
    return is_shared(f, of) ? here / (size_t)f->ranks_here : d->of[kind].is.tier[kind].peak;
}

enum Shortage room_shortage(const struct Forecast *f, const struct Room *room) {
    for (enum Shortage s = SHORT_DEVICE; s < NSHORTAGE; s++)
        if (room_need(f, s) > room->of[s])
            return s;
    return SHORT_NOT;
}

size_t room_excess(const struct Forecast *f, const struct Room *room) {
    size_t sum = 0;
    for (enum Shortage s = SHORT_DEVICE; s < NSHORTAGE; s++)
        sum += room_need(f, s) > room->of[s] ? room_need(f, s) - room->of[s] : 0;
    return sum;
}

static double mib(size_t bytes) {
    return (double)bytes / (1 << 20);
}

// In what tables count, and in what a user may have written: --device-mem 24G is 22888.2 MiB.
static double gb(size_t bytes) {
    return (double)bytes / 1e9;
}

struct Needs room_needs(const struct Forecast *f) {
    struct Needs needs = {{0}, {0}};
    for (enum Shortage s = SHORT_DEVICE; s < NSHORTAGE; s++) {
        needs.of[s] = room_need(f, s);
        bool mean = is_shared(f, s) && f->ranks_here > 1;
        needs.how[s] = !f->unlike ? "" : mean ? " on average" : " at the most";
    }
    return needs;
}

void room_tell(const struct Room *room, const struct Needs *needs, int ranks,
               char text[LACK_BYTES]) {
    size_t at = 0;
    for (enum Shortage s = SHORT_DEVICE; s < NSHORTAGE; s++) {
        size_t has = room->of[s], bytes = needs->of[s];
        if (bytes <= has || at >= LACK_BYTES)
            continue;
        at += (size_t)snprintf(
            text + at, LACK_BYTES - at,
            "%s%d x %.1f MiB (%.2f GB) of %s memory are needed%s, %s %.1f MiB (%.2f GB)",
            at ? ", and " : "", ranks, mib(bytes), gb(bytes), shortages[s].memory, needs->how[s],
            shortages[s].limit, mib(has), gb(has));
    }
}
