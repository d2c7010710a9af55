// See left_out.h.
#include "tests/lib/left_out.h"

#include "zero/offload/activations.h"
#include "zero/offload/offload.h"

#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_SYNCS = 4096, NAME = LEFT_OUT_NAME };

// ---- names of events ----

// A struct Event of CUDA's begins with the event that CUDA knows.
static const void *native(const struct Event *event) {
    return event ? *(void *const *)event : NULL;
}

struct NamedEvent {
    const struct Event *event;
    const char *name;
};

static const char *name_of_step(const struct Rank *r, const void *event) {
    const struct Zero *z = &r->zero;
    const struct NamedEvent events[] = {
        {z->word_sent, "word_sent"},
        {z->backward_done, "backward_done"},
        {z->computed, "computed"},
        {z->reported, "reported"},
        {z->clipped, "clipped"},
        {z->updated, "updated"},
        {offload_of(z) ? offload_of(z)->reduced : NULL, "reduced"},
        {z->host_end[0].received_all, "received_all"},
        {z->host_end[1].received_all, "received_all"},
        {z->host_end[2].received_all, "received_all"},
        {r->feed.slot[0].ready, "feed ready"},
        {r->feed.slot[1].ready, "feed ready"},
        {r->feed.slot[0].done, "feed done"},
        {r->feed.slot[1].done, "feed done"},
    };
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        if (native(events[i].event) == event)
            return events[i].name;
    return NULL;
}

struct NamedMark {
    const struct Mark *mark;
    const char *name;
};

// The name of the mark that one of its two events is of; NULL: of none of these.
static const char *name_among(const struct NamedMark *marks, size_t n, const void *event) {
    for (size_t i = 0; i < n; i++)
        if (native(marks[i].mark->event[0]) == event || marks[i].mark->event[1] == event)
            return marks[i].name;
    return NULL;
}
#define NAME_AMONG(marks, event) name_among(marks, sizeof(marks) / sizeof(marks)[0], event)

static const char *name_of_group(const struct Zero *z, int g, const void *event) {
    const struct GroupState *s = &z->state[g];
    const struct Offload *o = offload_of(z);
    const struct NamedMark marks[] = {{&s->updated, "group updated"},
                                      {&s->gathered, "group gathered"}};
    const char *name = NAME_AMONG(marks, event);
    if (name || !o)
        return name;
    const struct NamedMark more[] = {{&o->group[g].reduced[0], "group reduced"},
                                     {&o->group[g].reduced[1], "group reduced"},
                                     {&o->group[g].computed, "group computed"},
                                     {&o->group[g].kept, "group kept"}};
    return NAME_AMONG(more, event);
}

static const char *name_of_host(const struct Offload *o, const void *event) {
    const struct HostUpdate *h = &o->update;
    const char *name = NULL;
    for (int i = 0; i < HOST_ENDS && !name; i++) {
        const struct NamedMark told[] = {{&h->told[i], "told"}};
        name = NAME_AMONG(told, event);
    }
    for (int i = 0; i < HOST_BUFFERS && !name; i++) {
        const struct HostBuffer *b = &h->buffer[i];
        const struct NamedMark own[] = {{&b->read, "piece read"},
                                        {&b->computed, "piece computed"},
                                        {&b->written, "piece written"}};
        name = NAME_AMONG(own, event);
    }
    return name;
}

static const char *name_of_slot(const struct Slot *s, int kind, const void *event) {
    static const char *const names[][3] = {
        {"weights part", "weights arrived", "weights drained"},
        {"bucket part", "bucket arrived", "bucket drained"},
        {"shard part", "shard arrived", "shard drained"},
    };
    const struct NamedMark marks[] = {
        {&s->part, names[kind][0]},
        {&s->arrived, names[kind][1]},
        {&s->drained, names[kind][2]},
    };
    return NAME_AMONG(marks, event);
}

static const char *name_of_landing(const struct Landing *l, const void *event) {
    const struct NamedMark marks[] = {
        {&l->read, "landing read"},
        {&l->taken, "landing taken"},
        {&l->copied, "landing copied"},
        {&l->written, "landing written"},
    };
    return NAME_AMONG(marks, event);
}

static const char *name_of_keep(const struct Keep *k, const void *event) {
    const char *name = native(k->made) == event ? "kept made" : NULL;
    for (int i = 0; i < k->nslot && !name; i++) {
        const struct KeepSlot *s = &k->slot[i];
        const struct NamedMark marks[] = {
            {&s->left, "kept left"},
            {&s->drained, "kept drained"},
            {&s->filled, "kept filled"},
            {&s->landing.read, "kept landing read"},
            {&s->landing.taken, "kept landing taken"},
            {&s->landing.copied, "kept landing copied"},
            {&s->landing.written, "kept landing written"},
        };
        name = NAME_AMONG(marks, event);
    }
    return name;
}

// Every event of a rank, by the name of its field; of one group for those that all groups have.
static const char *event_name(const struct Rank *r, const void *event) {
    const struct Zero *z = &r->zero;
    const char *name = name_of_step(r, event);
    for (int g = 0; g < z->params->ngroup && !name; g++)
        name = name_of_group(z, g, event);
    const struct Offload *o = offload_of(z);
    if (!name && o)
        name = name_of_host(o, event);
    if (!name && o && o->keep)
        name = name_of_keep(o->keep, event);
    for (int i = 0; o && i < o->landings && !name; i++)
        name = name_of_landing(&o->landing[i], event);
    const struct Slots *slots[] = {&z->weights, &z->buckets, o ? &o->shards : NULL};
    for (int k = 0; k < (o ? 3 : 2); k++)
        for (int i = 0; i < slots[k]->count && !name; i++)
            name = name_of_slot(&slots[k]->slot[i], k, event);
    return name ? name : "of a meeting, or another rank's";
}

// ---- one run ----

struct Drop {
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

// A late update waits for one before it, and is seen one step later. Two steps are watched, the
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

// A wait that never ends is noticed, too. It may use the processor, or sleep.
static void limit_time(void) {
    struct itimerval used = {.it_value.tv_sec = 20};
    setitimer(ITIMER_PROF, &used, NULL);
    alarm(300);
}

// In a process of its own, since what is left out may end it.
static enum Missed run_without(const struct RankSettings *s, size_t nth, uint64_t hash) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct Drop d = {.nth = nth};
        if (!freopen("/dev/null", "w", stderr))
            _exit(NMISSED);
        limit_time();
        sim_tell_places(false);
        sim_set_schedule(SIM_EAGER, 0);
        tiny_ranks(s, drop_one, &d);
        _exit(sim_races() ? MISSED_RACE : d.hash != hash ? MISSED_HASH : MISSED_NOT);
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
            enum Missed missed = run_without(s, i, run->hash);
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
static struct Drop run_with_names(const struct RankSettings *s) {
    static char names[MAX_SYNCS][NAME];
    struct Drop run = {.nth = SIZE_MAX, .name = names};
    sim_set_schedule(SIM_EAGER, 0);
    tiny_ranks(s, drop_one, &run);
    expect_no_race("nothing left out");
    return run;
}

void left_out_elsewhere(struct LeftOut *l, const struct RankSettings *s) {
    struct Drop run = run_with_names(s);
    for (size_t i = 0; i < run.count; i++)
        if (run.name[i][0])
            left_out_kind_elsewhere(l, run.name[i]);
}

void left_out_kind_elsewhere(struct LeftOut *l, const char *name) {
    l->missed[kind_of(l, name)] = MISSED_ELSEWHERE;
}

void left_out_try(struct LeftOut *l, const struct RankSettings *s, bool all) {
    struct Drop run = run_with_names(s);
    for (size_t i = 0; i < run.count; i++) {
        size_t kind = run.name[i][0] ? kind_of(l, run.name[i]) : 0;
        if (!is_first_of_its_name(&run, i) || (l->missed[kind] && !all))
            continue;
        enum Missed missed = any_is_missed(s, &run, i, &l->tried);
        if (!l->missed[kind])
            l->missed[kind] = missed;
    }
}

enum Missed left_out_one(const struct RankSettings *s, const char *name) {
    struct Drop run = run_with_names(s);
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
