// See left_out.h.
#include "tests/lib/left_out.h"

#include "zero/offload/offload.h"

#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_SYNCS = 4096, NAME = LEFT_OUT_NAME };

// The name that an event was opened with, by this rank's device or its host.
static const char *event_name(const struct Rank *r, const void *event) {
    const char *name = device_event_name(r->device, event);
    if (!name && r->host)
        name = device_event_name(r->host, event);
    return name ? name : "ranks met"; // each rank opens the group's, which are no device's
}

// ---- one run ----

struct Drop {
    RankBody *body;     // what is run
    size_t nth;         // of the records, waits and synchronisations of one step is left out
    size_t count;       // of all of them
    char (*name)[NAME]; // (MAX_SYNCS): each one's; not the first rank's: empty. NULL: not asked for
    uint64_t hash;
};

static void name_syncs(struct Drop *d, const struct Rank *r, size_t count) {
    static const char *const kinds[] = {"record", "wait", "sync"};
    static const char *const queues[] = {"host", "compute", "comm", "in", "out"};
    CHECK(count <= MAX_SYNCS, "%zu synchronisations", count);
    for (size_t i = 0; i < count; i++) {
        struct SimSync s = sim_sync(i);
        if (s.first_host)
            snprintf(d->name[i], NAME, "%s by %s%s: %s", kinds[s.kind],
                     s.cpu_queue ? "the CPU's " : "", queues[s.queue + 1],
                     s.event ? event_name(r, s.event) : "the queue");
    }
}

static size_t last_count(struct Drop *d, const struct Rank *r) {
    if (d->name)
        for (size_t i = 0; i < MAX_SYNCS; i++)
            d->name[i][0] = '\0';
    size_t count = sim_syncs();
    if (d->name)
        name_syncs(d, r, count);
    sim_drop(SIZE_MAX);
    return count;
}

// A delayed update waits for one before it, and is seen one step later. Two steps are watched, the
// second queued before the result of the first is taken: the host begins with the first one's
// update at its end.
static void drop_one(void *context, struct Rank *r) {
    struct Drop *d = context;
    for (int before = 0; before <= offload_is_delayed(&r->zero); before++)
        tiny_step(r);
    if (tiny_is_first(r))
        sim_drop(d->nth);
    tiny_queue_step(r);
    tiny_queue_step(r);
    tiny_take_step(r);
    if (tiny_is_first(r))
        d->count = last_count(d, r);
    for (int after = 0; after <= offload_is_delayed(&r->zero); after++) {
        tiny_queue_step(r);
        tiny_take_step(r);
    }
    tiny_take_step(r);
    uint64_t hash = zero_weights_hash(&r->zero);
    if (tiny_is_first(r))
        d->hash = hash;
}

// A batch of validation, between two steps.
static void drop_one_of_validation(void *context, struct Rank *r) {
    struct Drop *d = context;
    tiny_step(r);
    if (tiny_is_first(r))
        sim_drop(d->nth);
    tiny_validate(r, 4);
    if (tiny_is_first(r))
        d->count = last_count(d, r);
    tiny_step(r);
    uint64_t hash = zero_weights_hash(&r->zero);
    if (tiny_is_first(r))
        d->hash = hash;
}

// A wait that never ends is noticed, too. It may use the processor, or sleep.
static void limit_time(void) {
    struct itimerval used = {.it_value.tv_sec = 20};
    setitimer(ITIMER_PROF, &used, NULL);
    alarm(300);
}

// In a process of its own, since what is left out may end it.
static enum Missed run_without(const struct RankSettings *s, const struct Drop *run, size_t nth) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct Drop d = {.body = run->body, .nth = nth};
        if (!freopen("/dev/null", "w", stderr))
            _exit(NMISSED);
        limit_time();
        sim_tell_places(false);
        sim_set_schedule(SIM_EAGER, 0);
        tiny_ranks(s, d.body, &d);
        _exit(sim_races() ? MISSED_RACE : d.hash != run->hash ? MISSED_HASH : MISSED_NOT);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    bool to_its_end = WIFEXITED(status) && WEXITSTATUS(status) < MISSED_ENDED;
    return to_its_end ? (enum Missed)WEXITSTATUS(status) : MISSED_ENDED;
}

static enum Missed any_is_missed(const struct RankSettings *s, const struct Drop *run, size_t first,
                                 size_t *tried) {
    for (size_t i = first; i < run->count; i++)
        if (strcmp(run->name[i], run->name[first]) == 0) {
            ++*tried;
            enum Missed missed = run_without(s, run, i);
            if (missed)
                return missed;
        }
    return MISSED_NOT;
}

static bool is_first_of_its_name(const struct Drop *d, size_t i) {
    if (!d->name[i][0])
        return false;
    for (size_t j = 0; j < i; j++)
        if (strcmp(d->name[j], d->name[i]) == 0)
            return false;
    return true;
}

// ---- all setups ----

static size_t kind_of(struct LeftOut *l, const char *name) {
    size_t i = 0;
    while (i < l->count && strcmp(l->name[i], name) != 0)
        i++;
    if (i == l->count) {
        CHECK(l->count < LEFT_OUT_KINDS, "%zu kinds", l->count);
        snprintf(l->name[l->count++], NAME, "%.*s", NAME - 1, name);
    }
    return i;
}

// Hosts take their turns as they will when something is left out.
static struct Drop run_with_names(const struct RankSettings *s, RankBody *body) {
    static char names[MAX_SYNCS][NAME];
    struct Drop run = {.body = body, .nth = SIZE_MAX, .name = names};
    sim_set_schedule(SIM_EAGER, 0);
    tiny_ranks(s, body, &run);
    expect_no_race("nothing left out");
    return run;
}

void left_out_elsewhere(struct LeftOut *l, const struct RankSettings *s) {
    struct Drop run = run_with_names(s, drop_one);
    for (size_t i = 0; i < run.count; i++)
        if (run.name[i][0])
            left_out_kind_elsewhere(l, run.name[i]);
}

void left_out_kind_elsewhere(struct LeftOut *l, const char *name) {
    l->missed[kind_of(l, name)] = MISSED_ELSEWHERE;
}

static void try_each(struct LeftOut *l, const struct RankSettings *s, bool all, RankBody *body) {
    struct Drop run = run_with_names(s, body);
    for (size_t i = 0; i < run.count; i++) {
        size_t kind = run.name[i][0] ? kind_of(l, run.name[i]) : 0;
        if (!is_first_of_its_name(&run, i) || (l->missed[kind] && !all))
            continue;
        enum Missed missed = any_is_missed(s, &run, i, &l->tried);
        if (!l->missed[kind])
            l->missed[kind] = missed;
    }
}

void left_out_try(struct LeftOut *l, const struct RankSettings *s, bool all) {
    try_each(l, s, all, drop_one);
}

void left_out_try_validation(struct LeftOut *l, const struct RankSettings *s) {
    try_each(l, s, false, drop_one_of_validation);
}

enum Missed left_out_one(const struct RankSettings *s, const char *name) {
    struct Drop run = run_with_names(s, drop_one);
    size_t tried = 0;
    for (size_t i = 0; i < run.count; i++)
        if (strcmp(run.name[i], name) == 0)
            return any_is_missed(s, &run, i, &tried);
    fail_msg("no %s in a step", name);
    return MISSED_NOT;
}

size_t left_out_unneeded(const struct LeftOut *l) {
    size_t count[NMISSED] = {0};
    for (size_t i = 0; i < l->count; i++) {
        count[l->missed[i]]++;
        if (!l->missed[i])
            print_message("nowhere missed: the %s\n", l->name[i]);
    }
    print_message(
        "of %zu kinds, left out: %zu made a race, %zu another hash, %zu ended the run, %zu "
        "were not missed, %zu are another test's; %zu were tried\n",
        l->count, count[MISSED_RACE], count[MISSED_HASH], count[MISSED_ENDED], count[MISSED_NOT],
        count[MISSED_ELSEWHERE], l->tried);
    return count[MISSED_NOT];
}

// ---- the list of a test ----

// Of "wait by comm: word sent" the last part; NULL: a whole queue was waited for.
static const char *event_of(const char *kind) {
    const char *name = strstr(kind, ": ") + 2;
    return strcmp(name, "the queue") ? name : NULL;
}

static bool is_among(const char *name, const char *const names[], size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

void left_out_expect(const struct LeftOut *l, const char *const events[], size_t n) {
    size_t faults = 0;
    for (size_t i = 0; i < n; i++) {
        bool found = false;
        for (size_t k = 0; k < l->count && !found; k++)
            found = l->missed[k] != MISSED_NOT && l->missed[k] != MISSED_ELSEWHERE &&
                    event_of(l->name[k]) && !strcmp(event_of(l->name[k]), events[i]);
        if (!found)
            print_message("not left out here, or not missed: %s\n", events[i]);
        faults += !found;
    }
    for (size_t k = 0; k < l->count; k++) {
        const char *name = event_of(l->name[k]);
        if (l->missed[k] == MISSED_NOT || l->missed[k] == MISSED_ELSEWHERE || !name ||
            is_among(name, events, n))
            continue;
        print_message("left out here, and not in this test's list: %s\n", l->name[k]);
        faults++;
    }
    assert_int_equal(faults, 0);
}
