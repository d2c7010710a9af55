// How long the stages of a pipeline wait for each other: as long as its order says (order.h).
//
// Ranks make a step as ever, as threads, with all their queues, swaps and collectives; but each of
// their kernels only waits for a set time, which takes no core: a block's forward pass so many
// milliseconds, its backward pass twice as many, the ends some, everything else nothing. The BUBBLE
// is read from the files that --trace writes: 1 - (what all ranks' kernels took) / (ranks x span),
// where the span goes from the beginning of the first stage's first pass to the end of its last
// one, with which a step of all stages begins and ends. order_bubble says the same of the
// simulation. It may differ by a twentieth, and every pass begins where the simulation has it.
//
// Other work on the machine can only make a step longer, so where one was too long it is made
// again: an order that takes longer takes longer each time.
#include "kernels/cpu/queue.h"
#include "kernels/kernels.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"
#include "zero/pipe/order.h"
#include "zero/pipe/split.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

enum { MOST_STAGES = 4, MOST_KERNELS = 256, TRIES = 8 };

static const double TOLERANCE = 0.05;

// ---- kernels that wait ----

// In milliseconds. A reduction's are spent in the comm queue, beside passes.
static struct Lengths { double embed, forward, backward, head, reduce; } lengths;

static double length_of(const char *kernel) {
    const struct {
        const char *name;
        double ms;
    } all[] = {{"embed_forward", lengths.embed},       {"embed_backward", lengths.embed},
               {"attention_forward", lengths.forward}, {"attention_backward", lengths.backward},
               {"classifier", lengths.head},           {"rank_sum", lengths.reduce}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!strcmp(kernel, all[i].name))
            return all[i].ms;
    return 0;
}

static void wait_ms(double ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    long long end_ns = t.tv_nsec + llround(ms * 1e6);
    t.tv_sec += (time_t)(end_ns / 1000000000);
    t.tv_nsec = (long)(end_ns % 1000000000);
    while (ms > 0 && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

#define X(op, Args)                                                                                \
    static void run_##op(struct Cpu *cpu, const void *args) {                                      \
        (void)cpu;                                                                                 \
        (void)args;                                                                                \
        wait_ms(length_of(#op));                                                                   \
    }                                                                                              \
    static void launch_##op(struct Stream *s, const struct Args *args) {                           \
        queue_push(s, #op, run_##op, args, sizeof *args);                                          \
    }
KERNEL_LIST(X)
#undef X

// What ranks tell each other is still copied.
static struct Kernels waiting(const struct Kernels *real) {
    struct Kernels k = *real;
#define X(op, Args) k.op = launch_##op;
    KERNEL_LIST(X)
#undef X
    k.rank_gather = real->rank_gather;
    return k;
}

// ---- a step ----

struct Case {
    int stages;
    size_t micros;
    const char *split; // layers of each stage
    struct Lengths lengths;
    int data_ranks, stage; // of ZeRO
};

// The first step opens what a step needs; the second one is traced. All ranks begin it together.
static void run_waiting(void *context, struct Rank *r) {
    struct Error e = {0};
    const struct Kernels *real = r->device->kernels;
    struct Kernels k = waiting(real);
    tiny_step(r);
    r->device->kernels = &k;
    tiny_step(r);
    CHECK(!rank_write_trace(r, context, &e), "%s", e.text);
    r->device->kernels = real;
}

static size_t count_layers(const char *split) {
    size_t sum = 0;
    for (const char *at = split; *at; at++)
        sum += *at == ',' ? 0 : (size_t)(*at - '0');
    return sum;
}

static struct RankSettings settings_of(const struct Case *c) {
    struct RankSettings s = tiny_settings(F32);
    s.model.layers = count_layers(c->split);
    s.model.untied = true;
    s.nmicro = c->micros;
    s.pp = (size_t)c->stages;
    s.pp_split = c->split;
    s.ranks = c->stages * c->data_ranks;
    s.stage = c->stage;
    s.threads = 1;
    s.traced = true;
    return s;
}

// ---- what its trace shows ----

struct Timeline {
    int count; // kernels of passes, in their order
    struct {
        double begin, end; // ms, by a clock of that rank's
        bool backward;
    } kernel[MOST_KERNELS];
    double busy;
};

static const char *text_of(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItem(object, key);
    return item ? item->valuestring : "";
}

static void add_event(struct Timeline *t, const cJSON *event) {
    const char *name = text_of(event, "name");
    if (strcmp(text_of(event, "ph"), "X") || strcmp(text_of(event, "cat"), "compute") ||
        length_of(name) <= 0)
        return;
    assert_true(t->count < MOST_KERNELS);
    double begin = cJSON_GetObjectItem(event, "ts")->valuedouble / 1e3;
    double ms = cJSON_GetObjectItem(event, "dur")->valuedouble / 1e3;
    t->kernel[t->count].begin = begin;
    t->kernel[t->count].end = begin + ms;
    t->kernel[t->count].backward = strstr(name, "backward") || !strcmp(name, "classifier");
    t->count++;
    t->busy += ms;
}

static void read_timeline(struct Timeline *t, const char *path) {
    enum { MOST_BYTES = 8 << 20 };
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *text = base_alloc_zeroed(MOST_BYTES);
    assert_true(fread(text, 1, MOST_BYTES - 1, f) > 0);
    fclose(f);
    cJSON *json = cJSON_Parse(text);
    const cJSON *event;
    assert_non_null(json);
    *t = (struct Timeline){0};
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(json, "traceEvents")) add_event(t, event);
    cJSON_Delete(json);
    free(text);
}

// ---- what it should show ----

struct Stage {
    int layers, forwards, backwards; // the latter: kernels of a pass
    struct OrderCost cost;           // ms
};

static void stages_of(const struct Case *c, struct Stage *stage) {
    for (int s = 0; s < c->stages; s++) {
        int layers = c->split[2 * s] - '0';
        double embed = s ? 0 : lengths.embed, head = s + 1 < c->stages ? 0 : lengths.head;
        stage[s] = (struct Stage){
            .layers = layers,
            .forwards = layers + (embed > 0),
            .backwards = layers + (embed > 0) + (head > 0),
            .cost = {layers * lengths.forward + embed, layers * lengths.backward + embed + head}};
    }
}

static void simulate(struct Order *o, const struct Case *c, const struct Stage *stage) {
    struct OrderCost cost[MOST_STAGES];
    for (int s = 0; s < c->stages; s++)
        cost[s] = stage[s].cost;
    order_make(o, c->stages, 0, c->micros, cost, 0);
}

// By how much of the span a pass of this stage begins elsewhere than in the simulation, both after
// the stage's first one.
static double farthest(const struct Timeline *t, const struct Order *o, int s,
                       const struct Stage *stage) {
    double most = 0, first = -1;
    int at = 0;
    for (size_t i = 0; i < o->count; i++) {
        const struct OrderEntry *e = &o->entry[i];
        bool backward = e->kind == ORDER_BACKWARD;
        int kernels = backward ? stage[s].backwards : stage[s].forwards;
        if (e->kind == ORDER_SENDRECV || e->stage != s || !kernels)
            continue;
        first = first < 0 ? e->begin : first;
        assert_true(at < t->count);
        assert_int_equal(t->kernel[at].backward, backward);
        double off = t->kernel[at].begin - t->kernel[0].begin - (e->begin - first);
        most = fmax(most, fabs(off));
        at += kernels;
    }
    assert_int_equal(at, t->count);
    return most / o->span;
}

struct Seen {
    double bubble, busy, late; // busy: of what the lengths say; late: see farthest
};

static struct Seen look(const struct Case *c, const struct Order *o, const struct Stage *stage,
                        const char *path) {
    int ranks = c->stages * c->data_ranks;
    struct Seen seen = {0};
    double busy = 0, want = 0, span = 0;
    for (int r = 0; r < ranks; r++) {
        struct Timeline t;
        char *file = r ? base_format("%s.%d", path, r) : base_format("%s", path);
        int s = r / c->data_ranks;
        read_timeline(&t, file);
        free(file);
        busy += t.busy;
        want += (double)c->micros * (stage[s].cost.forward + stage[s].cost.backward);
        seen.late = fmax(seen.late, farthest(&t, o, s, stage));
        if (r == 0)
            span = t.kernel[t.count - 1].end - t.kernel[0].begin;
    }
    seen.bubble = 1 - busy / (ranks * span);
    seen.busy = busy / want;
    return seen;
}

static bool is_right(const struct Seen *seen, double bubble) {
    return fabs(seen->bubble - bubble) <= TOLERANCE * bubble && fabs(seen->busy - 1) <= TOLERANCE &&
           seen->late <= TOLERANCE;
}

static void expect_simulated(const struct Case *c) {
    char *folder = scratch_make(), *path = base_format("%s/trace", folder);
    struct RankSettings s = settings_of(c);
    struct Stage stage[MOST_STAGES];
    struct Order o;
    struct Seen seen;
    int tries = 0;
    lengths = c->lengths;
    stages_of(c, stage);
    simulate(&o, c, stage);
    double bubble = order_bubble(&o);
    do {
        tiny_ranks(&s, run_waiting, path);
        seen = look(c, &o, stage, path);
        print_message("%d stages of %s layers, %zu micro-batches, %d ranks each: bubble %.4f, "
                      "simulated %.4f; %.3f of the time; passes at most %.3f of %.0f ms off\n",
                      c->stages, c->split, c->micros, c->data_ranks, seen.bubble, bubble, seen.busy,
                      seen.late, o.span);
    } while (!is_right(&seen, bubble) && ++tries < TRIES);
    if (tries == TRIES)
        fail_msg("%d stages, %zu micro-batches: the bubble is not the simulated one", c->stages,
                 c->micros);
    order_free(&o);
    free(path);
    scratch_remove(folder);
}

// ---- tests ----

static void expect_all(const struct Case *c, size_t n) {
    for (size_t i = 0; i < n; i++)
        expect_simulated(&c[i]);
}
#define EXPECT_ALL(...)                                                                            \
    expect_all((const struct Case[]){__VA_ARGS__},                                                 \
               sizeof((const struct Case[]){__VA_ARGS__}) / sizeof(struct Case))

static const struct Lengths blocks = {.forward = 30, .backward = 60};

TEST(stages_that_are_alike) {
    static const char *const split[] = {"1,1", "1,1,1", "1,1,1,1"};
    static const size_t micros[][3] = {{1, 2, 8}, {2, 3, 10}, {3, 4, 12}};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            EXPECT_ALL({2 + i, micros[i][j], split[i], blocks, 1, 0});
}

// With ends that take their time, and other counts of layers.
TEST(stages_that_are_not) {
    const struct Lengths ends = {20, 15, 30, 45, 0};
    EXPECT_ALL({2, 6, "1,3", ends, 1, 0}, {2, 1, "3,0", ends, 1, 0}, {3, 7, "2,1,1", ends, 1, 0},
               {3, 2, "1,2,1", ends, 1, 0}, {4, 9, "1,2,2,1", ends, 1, 0},
               {4, 4, "0,1,2,0", ends, 1, 0});
}

// What ranks of a stage sum takes a third of what they compute, and no time of theirs. At stage 3
// nor does it hold up the weights of the next pass, whatever unit that begins with.
TEST(stages_that_reduce_meanwhile) {
    const struct Lengths l = {0, 30, 60, 0, 25}, ends = {30, 30, 60, 30, 25};
    EXPECT_ALL({2, 5, "1,1", l, 2, 2}, {2, 4, "2,2", l, 2, 1}, {3, 5, "1,1,1", l, 2, 2},
               {2, 5, "2,1", l, 2, 0}, {2, 5, "1,1", ends, 2, 3}, {3, 5, "1,2,1", ends, 2, 3});
}

// For threads to come, too. Where the system refuses real-time priority, it takes a quiet machine.
static void wake_at_once(void) {
    prctl(PR_SET_TIMERSLACK, 1);
    if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){1}))
        print_message("no real-time priority: other work may lengthen waits\n");
}

int main(void) {
    wake_at_once();
    return run_all_tests();
}
