// Memory that there is beside memory that is needed: see capacity.h. Next: candidates.c.
#include "zero/plan/capacity.h"

#include <stdio.h>

// Whose memory it is, and who says how much there is.
static const struct {
    const char *memory, *limit;
} shortages[NSHORTAGE] = {[SHORT_DEVICE] = {"device", "--device-mem allows each rank"},
                          [SHORT_HOST] = {"CPU", "--host-mem-per-rank allows each"},
                          [SHORT_NODE] = {"CPU", "--host-mem allows"},
                          [SHORT_PLACE] = {"device", "the machine has for each rank"},
                          [SHORT_MEMORY] = {"CPU", "the machine has for each rank"}};

struct Capacity capacity_of(const struct RankSettings *s, const struct RankDeviceMemory *place,
                            size_t host, int ranks_here, int processes, bool plan) {
    size_t ranks = (size_t)ranks_here, here = ranks * (size_t)processes;
    return (struct Capacity){{[SHORT_DEVICE] = s->device_bytes ? s->device_bytes : SIZE_MAX,
                              [SHORT_HOST] = s->rank_host_bytes ? s->rank_host_bytes : SIZE_MAX,
                              [SHORT_NODE] = s->host_bytes ? s->host_bytes : SIZE_MAX,
                              [SHORT_PLACE] = plan ? SIZE_MAX : place->free_bytes / ranks,
                              [SHORT_MEMORY] = plan ? SIZE_MAX : host / here}};
}

// True if each rank has a place of its own: a GPU (zero/rank/rank_device.c).
static bool places_apart(const struct RankSettings *s) {
    return s->device == DEVICE_CUDA && !s->processes && device_count_cuda() >= s->ranks;
}

// True if all ranks of this process share that memory, which then has what they take together.
static bool is_shared(const struct Forecast *f, enum Shortage of) {
    return of == SHORT_MEMORY || (of == SHORT_PLACE && !places_apart(&f->settings));
}

// Returns the bytes that a rank, or a node, needs of a memory. Where ranks are unlike it is the
// most of any, for a limit that each has, and the mean of this process's, for memory that they
// share.
static size_t needed_bytes(const struct Forecast *f, enum Shortage of) {
    const struct Demand *d = &f->demand;
    enum TierKind kind = of == SHORT_HOST ? TIER_CPU : TIER_DEVICE;
    size_t memory = f->settings.device == DEVICE_CPU ? d->place_bytes : d->host_bytes;
    size_t here = of == SHORT_MEMORY ? memory : d->of[TIER_DEVICE].here;
    if (of == SHORT_NODE)
        return d->node_bytes;
    return is_shared(f, of) ? here / (size_t)f->ranks_here : d->of[kind].is.tier[kind].peak;
}

enum Shortage capacity_shortage(const struct Forecast *f, const struct Capacity *room) {
    for (enum Shortage s = SHORT_DEVICE; s < NSHORTAGE; s++)
        if (needed_bytes(f, s) > room->of[s])
            return s;
    return SHORT_NOT;
}

size_t capacity_excess(const struct Forecast *f, const struct Capacity *room) {
    size_t sum = 0, node = (size_t)footprint_node_ranks(&f->settings);
    for (enum Shortage s = SHORT_DEVICE; s < NSHORTAGE; s++) {
        size_t beyond = needed_bytes(f, s) > room->of[s] ? needed_bytes(f, s) - room->of[s] : 0;
        sum += s == SHORT_NODE ? ceil_div(beyond, node) : beyond;
    }
    return sum;
}

// Returns bytes in GB, in which a user may have written them: --device-mem 24G is 22888.2 MiB.
static double gb(size_t bytes) {
    return (double)bytes / 1e9;
}

struct Needs capacity_needs(const struct Forecast *f) {
    struct Needs needs = {.node_ranks = footprint_node_ranks(&f->settings),
                          .ranks = f->settings.ranks};
    for (enum Shortage s = SHORT_DEVICE; s < NSHORTAGE; s++) {
        needs.of[s] = needed_bytes(f, s);
        bool mean = is_shared(f, s) && f->ranks_here > 1;
        needs.how[s] = !f->unlike || s == SHORT_NODE ? "" : mean ? " on average" : " at most";
    }
    return needs;
}

// Writes "2 x 10.0 MiB (0.01 GB) of device memory", or what a node's ranks need together; then the
// verb, and whose it is: "by a node of 2 ranks", with the preposition.
static void describe_need(const struct Needs *needs, enum Shortage of, const char *verb,
                          const char *preposition, char text[LACK_BYTES]) {
    size_t bytes = needs->of[of];
    char times[24] = "", who[64];
    snprintf(who, sizeof who, "%s", needs->how[of]);
    if (of != SHORT_NODE)
        snprintf(times, sizeof times, "%d x ", needs->ranks);
    else if (needs->node_ranks > 1)
        snprintf(who, sizeof who, " %s a node of %d ranks", preposition, needs->node_ranks);
    snprintf(text, LACK_BYTES, "%s%.1f MiB (%.2f GB) of %s memory%s%s", times, mib(bytes),
             gb(bytes), shortages[of].memory, verb, who);
}

void capacity_describe_need(const struct Needs *needs, enum Shortage of, char text[LACK_BYTES]) {
    describe_need(needs, of, "", "on", text);
}

void capacity_describe(const struct Capacity *room, const struct Needs *needs,
                       char text[LACK_BYTES]) {
    char one[LACK_BYTES];
    size_t at = 0;
    for (enum Shortage s = SHORT_DEVICE; s < NSHORTAGE; s++) {
        size_t has = room->of[s];
        if (needs->of[s] <= has || at >= LACK_BYTES)
            continue;
        describe_need(needs, s, " are needed", "by", one);
        at += (size_t)snprintf(text + at, LACK_BYTES - at, "%s%s, %s %.1f MiB (%.2f GB)",
                               at ? ", and " : "", one, shortages[s].limit, mib(has), gb(has));
        if (s == SHORT_NODE && needs->node_ranks > 1 && at < LACK_BYTES)
            at += (size_t)snprintf(text + at, LACK_BYTES - at,
                                   " together (--host-mem-per-rank limits each rank)");
    }
}
