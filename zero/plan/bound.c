// Computes the least time of a step: see bound.h.
#include "zero/plan/bound.h"

#include <math.h>
#include <stdlib.h>

// ---- speeds ----

// Returns the speed that is cached under `name`, else measures it. Frees the name.
static double cached_speed(KeepMeasured *keep, const char *folder, char *name,
                           double (*measure)(void *), const void *context) {
    double speed = keep(folder, name, measure, (void *)context);
    free(name);
    return speed;
}

static double cached_disk_speed(const struct RankSettings *s, const char *direction,
                                KeepMeasured *keep, const char *folder, double (*measure)(void *)) {
    struct NvmeSettings nvme = s->nvme;
    struct Error ignored;
    nvme_resolve(&nvme, &ignored);
    char *full = realpath(nvme.folder, NULL); // "." is another disk elsewhere
    char *name = base_format("disk B/s, %s, %s, blocks of %zu, %zu at once", direction,
                             full ? full : nvme.folder, nvme.block_bytes, nvme.depth);
    free(full);
    return cached_speed(keep, folder, name, measure, &nvme);
}

static double cached_update_speed(const struct RankSettings *s, size_t n, bool host,
                                  KeepMeasured *keep, const char *folder) {
    struct UpdateBenchmark u = rank_device_update_of(s, n, host);
    return n ? cached_speed(keep, folder, rank_device_update_name(&u), rank_device_measure_update,
                            &u)
             : 0;
}

// Returns what a rank updates in a step. Opens a dry rank for it, so that a plan has the same code
// in memory as a run, and measures the same size of the process.
static struct StepUpdates updates_of(const struct RankSettings *s) {
    struct RankSettings unbounded = settings_unbounded(s);
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
    bool offloads = settings_needs_offload(s);
    bool uses_disk = settings_uses_disk(s);
    bool device_is_here = s->device == DEVICE_CPU || device_count_cuda() > 0;
    struct Error ignored;
    *out = (struct Speeds){0};
    int err = uses_disk && (!plan || s->nvme.folder) ? nvme_preflight(&s->nvme, 0, e) : 0;
    if (err && !plan)
        return err;
    uses_disk = uses_disk && !err && s->nvme.folder;
    struct StepUpdates n = plan || offloads ? updates_of(s) : (struct StepUpdates){0, 0};
    if (plan && (!offloads || (device_is_here && rank_device_check(s, &ignored))))
        return 0;
    if (device_is_here)
        out->flops =
            cached_speed(keep, folder, rank_device_speed_name(s), rank_device_measure_speed, s);
    if (device_is_here && offloads) {
        out->in = cached_speed(keep, folder, rank_device_copy_name(s, "to the device"),
                               rank_device_measure_in, s);
        out->out = cached_speed(keep, folder, rank_device_copy_name(s, "from the device"),
                                rank_device_measure_out, s);
        out->update = cached_update_speed(s, n.device, false, keep, folder);
        out->host_update = cached_update_speed(s, n.host, true, keep, folder);
    }
    if (uses_disk) {
        out->read = cached_disk_speed(s, "read", keep, folder, nvme_measure_read);
        out->written = cached_disk_speed(s, "written", keep, folder, nvme_measure_write);
    }
    return 0;
}

// ---- times ----

// Returns the seconds of an amount of FLOP or bytes; 0 where the speed is not known.
static double seconds_at_speed(double amount, double speed) {
    return speed > 0 ? amount / speed : 0;
}

// Returns the seconds of both directions: at once, or in turn where the same cores copy.
static double bus_seconds(const struct StepWork *w, const struct Moved *m, const struct Speeds *s) {
    double in = seconds_at_speed((double)m->in, s->in),
           out = seconds_at_speed((double)m->out, s->out);
    return w->together ? in + out : fmax(in, out);
}

static double disk_seconds(const struct StepWork *w, const struct Moved *m,
                           const struct Speeds *s) {
    double ranks = w->disk_ranks;
    return seconds_at_speed(ranks * (double)m->read, s->read) +
           seconds_at_speed(ranks * (double)m->written, s->written);
}

// Returns the seconds of two works that overlap where the device allows it.
static double overlap_seconds(const struct StepWork *w, double a, double b) {
    return w->together ? a + b : fmax(a, b);
}

// A share of passes that compute so long, with as much of the collectives and of what is moved
// beside them all; and what is made or moved beside this share alone: other collectives, the host's
// update, and moves.
struct PassTime {
    double compute, sent, share, more_sent, host;
    const struct Moved *moved, *more;
};

static double pass_seconds(const struct StepWork *w, const struct Speeds *s, struct PassTime p) {
    double bus = p.share * bus_seconds(w, p.moved, s) + bus_seconds(w, p.more, s);
    double disk = p.share * disk_seconds(w, p.moved, s) + disk_seconds(w, p.more, s);
    double sent = p.share * p.sent + p.more_sent;
    double here = overlap_seconds(w, p.share * p.compute,
                                  overlap_seconds(w, bus, overlap_seconds(w, sent, p.host)));
    return fmax(here, disk);
}

// True if the seconds of an amount are known: they are not 0, or the amount is 0.
static bool is_time_known(double seconds, double amount) {
    return seconds > 0 || amount == 0;
}

// Returns the seconds at both ends of a step that nothing hides: the first unit waits for its
// weights, and the update for the last one's gradient.
static double exposed_send_seconds(const struct StepWork *w, const struct Speeds *s) {
    const double *sent = w->sent;
    double micro = (sent[SEND_FORWARD] + sent[SEND_BACKWARD]) / (double)w->nmicro;
    return w->together ? 0 : seconds_at_speed(micro + sent[SEND_LAST] + sent[SEND_UPDATE], s->sent);
}

// Returns the seconds that the first unit waits for its update and weights, which nothing hides.
static double first_wait(const struct StepWork *w, const struct Speeds *s, const struct Bound *b) {
    struct Moved first = w->moves.update;
    moved_add(&first, w->moves.forward);
    first.out = first.written = 0;
    double bus = w->together ? 0 : bus_seconds(w, &first, s), host = w->together ? 0 : b->host;
    double waits = host + bus + disk_seconds(w, &first, s) + exposed_send_seconds(w, s);
    return w->units > 0 ? waits / w->units : 0;
}

static double sum_sent_bytes(const struct StepWork *w) {
    double bytes = 0;
    for (int i = 0; i < NSENDPHASE; i++)
        bytes += w->sent[i];
    return bytes;
}

// The backward passes, beside the last of them what is reduced once; the device's update; then the
// forward passes, beside the first of them what is still to do of the step before: the host's
// update, what it moves, and new weights that are gathered. A delayed update has the whole step.
struct Bound bound_of(const struct StepWork *w, const struct Speeds *s) {
    const struct Moves *m = &w->moves;
    struct Moved all = m->forward, none = {0};
    double forward = w->forward > 0 ? w->forward : seconds_at_speed(w->flops.forward, s->flops);
    double backward = w->backward > 0 ? w->backward : seconds_at_speed(w->flops.backward, s->flops);
    double first = 1 / (double)w->nmicro;
    forward += seconds_at_speed(w->sums[0], s->sent);
    backward += seconds_at_speed(w->sums[1], s->sent);
    moved_add(&all, m->backward);
    moved_add(&all, m->update);
    double update = seconds_at_speed(w->update, s->update);
    struct Bound b = {.compute = forward + backward + update,
                      .bus = bus_seconds(w, &all, s),
                      .disk = disk_seconds(w, &all, s),
                      .host = seconds_at_speed(w->host_update, s->host_update),
                      .sent = seconds_at_speed(sum_sent_bytes(w), s->sent)};
    if (!(forward > 0) || !(backward > 0) || !is_time_known(update, w->update) ||
        !is_time_known(b.host, w->host_update) ||
        !is_time_known(b.bus, (double)(all.in + all.out)) ||
        !is_time_known(b.disk, (double)(all.read + all.written)))
        return b;
    const double *sent = w->sent;
    double sent_forward = seconds_at_speed(sent[SEND_FORWARD], s->sent);
    double sent_backward = seconds_at_speed(sent[SEND_BACKWARD], s->sent);
    struct PassTime back = {backward, sent_backward, 1 - first, 0, 0, &m->backward, &none};
    struct PassTime last = {
        backward, sent_backward, first, seconds_at_speed(sent[SEND_LAST], s->sent),
        0,        &m->backward,  &none};
    struct PassTime rest = {forward, sent_forward, 1 - first, 0, 0, &m->forward, &none};
    struct PassTime begin = {
        forward, sent_forward, first,     seconds_at_speed(sent[SEND_UPDATE], s->sent),
        b.host,  &m->forward,  &m->update};
    double late = overlap_seconds(w, overlap_seconds(w, b.compute, b.sent),
                                  overlap_seconds(w, b.host, b.bus));
    b.step = w->delayed
                 ? fmax(late, b.disk)
                 : pass_seconds(w, s, back) + pass_seconds(w, s, last) + update +
                       pass_seconds(w, s, rest) + pass_seconds(w, s, begin) + first_wait(w, s, &b);
    return b;
}

const char *bound_longest(const struct Bound *b) {
    const struct {
        const char *name;
        double seconds;
    } link[] = {{"disk", b->disk},
                {"bus", b->bus},
                {"host", b->host},
                {"network", b->sent},
                {"compute", b->compute}};
    int longest = 0;
    for (int i = 1; i < 5; i++)
        if (link[i].seconds > link[longest].seconds)
            longest = i;
    return link[longest].name;
}
