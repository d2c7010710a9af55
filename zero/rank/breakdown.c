// Shares of a step's time: see breakdown.h.
#include "zero/state.h"
#include "zero/rank/breakdown.h"

#include "kernels/trace.h"

#include <string.h>

// Finds the reason by the beginning of an event's name (docs/events.md).
int breakdown_reason(const char *event) {
    static const struct {
        const char *begin;
        enum WaitReason reason;
    } row[] = {
        {"weights", WAIT_WEIGHTS},         {"group gathered", WAIT_WEIGHTS},
        {"staging", WAIT_WEIGHTS},         {"tokens", WAIT_DATA},
        {"layer", WAIT_ACTIVATIONS},       {"reported", WAIT_GRADIENTS},
        {"backward done", WAIT_GRADIENTS}, {"gradient", WAIT_GRADIENTS},
        {"bucket", WAIT_GRADIENTS},        {"shard", WAIT_GRADIENTS},
        {"group updated", WAIT_UPDATE},    {"received all", WAIT_UPDATE},
        {"settings used", WAIT_UPDATE},    {"word sent", WAIT_UPDATE},
        {"clipped", WAIT_UPDATE},          {"results received", WAIT_UPDATE},
        {"new weights made", WAIT_UPDATE}, {"piece", WAIT_UPDATE},
        {"state stored", WAIT_UPDATE},
    };
    for (size_t i = 0; event && i < sizeof row / sizeof row[0]; i++)
        if (strncmp(event, row[i].begin, strlen(row[i].begin)) == 0)
            return row[i].reason;
    return WAIT_OTHER;
}
_Static_assert((int)NWAITREASON <= (int)TALLY_REASONS, "a tally has space for all reasons");

// ---- names ----

static const char *const queue_names[2][NQUEUE] = {
    {"compute", "comm", "in", "out"}, {"host_compute", "host_comm", "host_in", "host_out"}};
static const char *const wait_names[NWAITREASON] = {
    "wait_weights", "wait_update", "wait_data", "wait_gradients", "wait_activations", "wait_other"};

// Returns the share of the time without a reason: compute had nothing to do.
static double idle_share(const struct BreakdownTimes *t) {
    double rest = t->all - t->busy[QUEUE_COMPUTE];
    for (int i = 0; i < NWAITREASON; i++)
        rest -= t->wait[i];
    return rest > 0 ? rest / t->all : 0;
}

int breakdown_shares(const struct BreakdownTimes *t, bool host, struct LogValue out[]) {
    int n = 0;
    for (int q = 0; q < NQUEUE; q++)
        out[n++] = (struct LogValue){queue_names[0][q], t->busy[q] / t->all};
    for (int q = 0; host && q < NQUEUE; q++)
        if (q != QUEUE_COMM) // the host takes part in no collective
            out[n++] = (struct LogValue){queue_names[1][q], t->host_busy[q] / t->all};
    for (int i = 0; i < NWAITREASON; i++)
        out[n++] = (struct LogValue){wait_names[i], t->wait[i] / t->all};
    out[n++] = (struct LogValue){"idle", idle_share(t)};
    return n;
}

int breakdown_waited(const struct BreakdownTimes *t, struct LogValue out[]) {
    for (int i = 0; i < NWAITREASON; i++)
        out[i] = (struct LogValue){wait_names[i] + strlen("wait_"), t->wait[i]};
    return NWAITREASON;
}

char *breakdown_text(const struct BreakdownTimes *t, bool host) {
    struct LogValue share[BREAKDOWN_VALUES];
    char *text = base_format("of rank 0's steps, queues were busy");
    int idle = breakdown_shares(t, host, share) - 1, waits = idle - NWAITREASON;
    for (int i = 0; i < idle; i++)
        base_append(&text, "%s  %s %.1f%%", i == waits ? "\ncompute waited for" : "",
                    share[i].name + (i >= waits ? strlen("wait_") : 0), 100 * share[i].value);
    base_append(&text, "  and was idle %.1f%%", 100 * share[idle].value);
    return text;
}

// ---- steps ----

static struct Tally *tally_of(const struct Trace *t) {
    return t ? t->tally : NULL;
}

void breakdown_open(struct Breakdown *b, struct Zero *z, struct Trace *trace, struct Trace *host) {
    *b = (struct Breakdown){.zero = tally_of(trace) ? z : NULL, .trace = trace, .host_trace = host};
    breakdown_pause(b);
}

// Ends the present span of both devices, and begins the next. Returns the number of the one ended.
static uint64_t cut_tallies(struct Breakdown *b, double now) {
    struct Tally *host = tally_of(b->host_trace);
    if (host)
        tally_cut(host, now); // both number their spans alike
    return tally_cut(tally_of(b->trace), now);
}

static void add_times(struct BreakdownTimes *to, const struct BreakdownTimes *t) {
    to->all += t->all;
    for (int q = 0; q < NQUEUE; q++) {
        to->busy[q] += t->busy[q];
        to->host_busy[q] += t->host_busy[q];
    }
    for (int i = 0; i < NWAITREASON; i++)
        to->wait[i] += t->wait[i];
}

// Sets b->last to the seconds of the pending step, adds them to b->sum, and returns the step's
// number; 0: there is none, or it took no time.
static uint64_t take_step_times(struct Breakdown *b) {
    uint64_t step = b->step;
    if (!step)
        return 0;
    struct Device *d = b->zero->device;
    if (d->ops->collect)
        d->ops->collect(d);
    struct TallySpan span = tally_span(tally_of(b->trace), b->span), host = {0};
    if (tally_of(b->host_trace))
        host = tally_span(tally_of(b->host_trace), b->span);
    b->last = (struct BreakdownTimes){.all = span.end - span.begin};
    memcpy(b->last.busy, span.busy, sizeof span.busy);
    memcpy(b->last.host_busy, host.busy, sizeof host.busy);
    memcpy(b->last.wait, span.wait, sizeof b->last.wait);
    add_times(&b->sum, &b->last);
    b->step = 0;
    return b->last.all > 0 ? step : 0;
}

uint64_t breakdown_step(struct Breakdown *b, uint64_t step) {
    if (!b->zero)
        return 0;
    uint64_t span = cut_tallies(b, base_seconds()), finished = take_step_times(b);
    b->step = step;
    b->span = span;
    return finished;
}

uint64_t breakdown_end(struct Breakdown *b) {
    if (b->zero)
        zero_sync(b->zero);
    return b->zero ? take_step_times(b) : 0;
}

void breakdown_pause(struct Breakdown *b) {
    if (b->zero)
        cut_tallies(b, base_seconds());
}
