// How long a step takes at least: see bound.h.
#include "zero/plan/bound.h"

#include <math.h>
#include <stdlib.h>

// ---- speeds ----

static double keep_disk(const struct RankSettings *s, const char *direction, KeepMeasured *keep,
                        const char *folder, double (*measure)(void *)) {
    struct NvmeSettings nvme = s->nvme;
    struct Error ignored;
    nvme_settle(&nvme, &ignored);
    char *full = realpath(nvme.folder, NULL); // "." is another disk elsewhere
    char *name = base_format("disk B/s, %s, %s, blocks of %zu, %zu at once", direction,
                             full ? full : nvme.folder, nvme.block_bytes, nvme.depth);
    free(full);
    double speed = keep(folder, name, measure, &nvme);
    free(name);
    return speed;
}

static double keep_update(const struct RankSettings *s, size_t n, bool host, KeepMeasured *keep,
                          const char *folder) {
    struct PlaceUpdate u = place_update_of(s, n, host);
    char *name = place_update_name(&u);
    double speed = n ? keep(folder, name, place_measure_update, &u) : 0;
    free(name);
    return speed;
}

static double keep_copy(const struct RankSettings *s, const char *direction, KeepMeasured *keep,
                        const char *folder, double (*measure)(void *)) {
    char *name = place_copy_name(s, direction);
    double speed = keep(folder, name, measure, (void *)s);
    free(name);
    return speed;
}

// What a rank updates in a step. It is opened dry for that: then a plan, too, knows what the
// process takes as a run does, with the code in memory that opens a rank.
static struct StepUpdates updates_of(const struct RankSettings *s) {
    struct RankSettings unbounded = *s;
    unbounded.device_bytes = unbounded.host_bytes = SIZE_MAX;
    struct Rank dry;
    struct Error ignored;
    struct StepUpdates n = {0, 0};
    if (rank_open(&dry, &unbounded, true, &ignored) == 0)
        n = rank_step_updates(&dry);
    rank_close(&dry);
    return n;
}

int speeds_find(const struct RankSettings *s, bool plan, KeepMeasured *keep, const char *folder,
                struct Speeds *out, struct Error *e) {
    bool bus = settings_offload(s);
    bool disk = settings_use_disk(s);
    bool here = s->device == DEVICE_CPU || device_count_cuda() > 0;
    struct Error ignored;
    *out = (struct Speeds){0};
    int err = disk && (!plan || s->nvme.folder) ? nvme_preflight(&s->nvme, 0, e) : 0;
    if (err && !plan)
        return err;
    disk = disk && !err && s->nvme.folder;
    struct StepUpdates n = plan || bus ? updates_of(s) : (struct StepUpdates){0, 0};
    if (plan && (!bus || (here && place_check(s, &ignored))))
        return 0;
    if (here) {
        char *name = place_speed_name(s);
        out->flops = keep(folder, name, place_measure_speed, (void *)s);
        free(name);
    }
    if (here && bus) {
        out->in = keep_copy(s, "to the device", keep, folder, place_measure_in);
        out->out = keep_copy(s, "from the device", keep, folder, place_measure_out);
        out->update = keep_update(s, n.device, false, keep, folder);
        out->host_update = keep_update(s, n.host, true, keep, folder);
    }
    if (disk) {
        out->read = keep_disk(s, "read", keep, folder, nvme_measure_read);
        out->written = keep_disk(s, "written", keep, folder, nvme_measure_write);
    }
    return 0;
}

void speed_doubt(const struct RankSettings *s, void (*doubt)(const char *folder, const char *name),
                 const char *folder) {
    char *name = place_speed_name(s);
    log_line(LOG_NORMAL, "training was faster than the measured speed of light; the next run "
                         "measures it again");
    doubt(folder, name);
    free(name);
}

// ---- times ----

// 0 where nothing is done, or the speed is not known.
static double seconds(double amount, double speed) {
    return speed > 0 ? amount / speed : 0;
}

// Both ways at once.
static double bus_seconds(const struct Moved *m, const struct Speeds *s) {
    return fmax(seconds((double)m->in, s->in), seconds((double)m->out, s->out));
}

static double disk_seconds(const struct StepWork *w, const struct Moved *m,
                           const struct Speeds *s) {
    double ranks = w->disk_ranks;
    return seconds(ranks * (double)m->read, s->read) +
           seconds(ranks * (double)m->written, s->written);
}

// A pass, with `share` of what is moved beside all such passes, and what else is moved beside it.
static double pass_seconds(const struct StepWork *w, const struct Speeds *s, double flops,
                           const struct Moved *moved, double share, const struct Moved *more) {
    double bus = share * bus_seconds(moved, s) + bus_seconds(more, s);
    double disk = share * disk_seconds(w, moved, s) + disk_seconds(w, more, s);
    return fmax(share * seconds(flops, s->flops), fmax(bus, disk));
}

static bool known(double seconds, double amount) {
    return seconds > 0 || amount == 0;
}

// The backward passes and the device's update, then the forward passes; beside the first of them
// what is still to do of the step before: the host's update, and what it moves. A delayed
// update has the whole step.
struct Bound bound_of(const struct StepWork *w, const struct Speeds *s) {
    const struct Moves *m = &w->moves;
    struct Moved all = m->forward, none = {0};
    double forward = w->flops.forward, backward = w->flops.backward, first = 1 / (double)w->nmicro;
    moved_add(&all, m->backward);
    moved_add(&all, m->update);
    double update = seconds(w->update, s->update);
    struct Bound b = {.compute = seconds(forward + backward, s->flops) + update,
                      .bus = bus_seconds(&all, s),
                      .disk = disk_seconds(w, &all, s),
                      .host = seconds(w->host_update, s->host_update)};
    if (!(s->flops > 0) || !known(update, w->update) || !known(b.host, w->host_update) ||
        !known(b.bus, (double)(all.in + all.out)) ||
        !known(b.disk, (double)(all.read + all.written)))
        return b;
    double late = fmax(fmax(b.compute, b.host), fmax(b.bus, b.disk));
    b.step = w->delayed
                 ? late
                 : pass_seconds(w, s, backward, &m->backward, 1, &none) + update +
                       pass_seconds(w, s, forward, &m->forward, 1 - first, &none) +
                       fmax(b.host, pass_seconds(w, s, forward, &m->forward, first, &m->update));
    return b;
}

const char *bound_longest(const struct Bound *b) {
    const struct {
        const char *name;
        double seconds;
    } link[] = {{"disk", b->disk}, {"bus", b->bus}, {"host", b->host}, {"compute", b->compute}};
    int longest = 0;
    for (int i = 1; i < 4; i++)
        if (link[i].seconds > link[longest].seconds)
            longest = i;
    return link[longest].name;
}
