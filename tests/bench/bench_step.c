// A training step whose optimizer state lies on NVMe, beside the same step without offload.
//
//   build/release/tests/bench_step [FOLDER [FIO_READ FIO_WRITE [PAIRS]]]
//
// FIO_READ and FIO_WRITE: the disk's bytes/s, as fio has them; by default as the tier's own
// measurement has them, in the program's folder. While the device runs the next
// forward pass the host reads, updates and writes the state of the step before, so that a step
// should take
//
//   backward + max(forward, bytes read / FIO_READ + bytes written / FIO_WRITE)
//
// and not much more. Forward and backward are those of the run without offload, as its trace has
// them. The batch changes from line to line, and with it the share of the disk: a forward pass of
// 0.3 to 3 times its time. A line: batch, ms of forward, backward, disk and bound, ms of the step
// (medians of PAIRS, by turns), step / bound.
#include "zero/offload/offload.h"
#include "kernels/trace.h"
#include "tests/bench/bench_time.h"
#include "zero/rank/rank.h"
#include "zero/settings/schedule.h"

#include <stdio.h>

enum { MOST_PAIRS = 31, LAYERS = 6, CHANNELS = 512, SEQ = 256, VOCAB = 4096 };

static struct RankSettings settings_of(size_t batch, const char *folder) {
    struct RankSettings s = {
        .model = {.layers = LAYERS,
                  .heads = 8,
                  .channels = CHANNELS,
                  .seq_len = SEQ,
                  .vocab = VOCAB,
                  .dtype = BF16},
        .batch = batch,
        .nmicro = 1,
        .grad_dtype = BF16,
        .threads = (int)sysconf(_SC_NPROCESSORS_ONLN),
        .prefetch = 1,
        .ranks = 1,
        .device_bytes = SIZE_MAX,
        .opt_tier = folder ? TIER_NVME : TIER_DEVICE,
        .nvme = {.folder = folder},
        .traced = !folder,
    };
    struct Error e;
    CHECK(!model_config_finish(&s.model, &e), "%s", e.text);
    return s;
}

static int read_tokens(void *unused, uint64_t first, size_t n, const struct Batch *batch,
                       struct Error *e) {
    (void)unused;
    (void)e;
    for (size_t i = 0; i < n * SEQ; i++) {
        batch->inputs[i] = (int32_t)(rng_bits(5, first * SEQ + i) % VOCAB);
        batch->targets[i] = (int32_t)(rng_bits(5, first * SEQ + i + 1) % VOCAB);
    }
    return 0;
}

// Seconds of one step, until its results are here: what an offloaded update adds shows in the next.
static double step(struct Rank *r) {
    struct LrSchedule schedule = {.kind = SCHEDULE_CONSTANT, .lr = 1e-4};
    struct AdamSettings adam = {0.9, 0.95, 1e-8, 0.1, 1};
    struct StepState state = schedule_step(&schedule, &adam, r->zero.step, r->zero.updates);
    struct BatchSource from = {read_tokens, NULL, NULL};
    struct Error e;
    double begin = base_seconds();
    CHECK(!rank_queue_step(r, &from, &state, &e), "%s", e.text);
    zero_step_wait(&r->zero);
    return base_seconds() - begin;
}

struct Parts {
    double forward, backward;
};

// The backward pass begins where the head's unit comes to its second operation: in training its
// forward pass is a norm alone.
static struct Parts parts_of(struct Rank *r) {
    const struct TraceRing *ring = &r->trace->ring[QUEUE_COMPUTE];
    double begin = INFINITY, turn = 0, end = 0;
    int head = 0;
    zero_sync(&r->zero);
    for (uint64_t i = 0; i < ring->count; i++) {
        const struct TraceRecord *t = &ring->record[i % TRACE_RING];
        if (t->label.step != r->zero.step || t->label.unit < 0)
            continue;
        begin = fmin(begin, t->begin);
        head += t->label.unit == LAYERS + 1 && !strcmp(t->name, "norm_forward");
        turn = head == 1 && turn == 0 ? t->end : turn;
        if (strcmp(t->name, "adamw") != 0)
            end = fmax(end, t->end);
    }
    CHECK(turn > begin && end > turn, "a trace without the head's norm");
    return (struct Parts){turn - begin, end - turn};
}

static void compare(size_t batch, const char *folder, double read, double write, int pairs) {
    struct RankSettings near = settings_of(batch, NULL), far = settings_of(batch, folder);
    struct Rank a, b;
    struct Error e;
    double forward[MOST_PAIRS], backward[MOST_PAIRS], steps[MOST_PAIRS];
    CHECK(!rank_open(&a, &near, false, &e) && !rank_open(&b, &far, false, &e), "%s", e.text);
    zero_init_weights(&a.zero, 1);
    zero_init_weights(&b.zero, 1);
    step(&a);
    step(&b);
    struct Moved before = {0};
    for (int i = 0; i < pairs; i++) {
        step(&a);
        struct Parts p = parts_of(&a);
        forward[i] = p.forward;
        backward[i] = p.backward;
        zero_finish(&b.zero);
        step(&b); // its update is that of the next one, which is timed
        before = offload_moved(&b.zero);
        steps[i] = step(&b);
    }
    struct Moved moved = moved_since(offload_moved(&b.zero), before);
    double disk = (double)moved.read / read + (double)moved.written / write;
    double f = bench_median(forward, (size_t)pairs), w = bench_median(backward, (size_t)pairs);
    double s = bench_median(steps, (size_t)pairs), bound = w + fmax(f, disk);
    printf("%zu %.1f %.1f %.1f %.1f %.1f %.3f\n", batch, f * 1e3, w * 1e3, disk * 1e3, bound * 1e3,
           s * 1e3, s / bound);
    rank_close(&a);
    rank_close(&b);
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : "build";
    struct NvmeSettings disk = {.folder = folder};
    struct Error e;
    CHECK(!nvme_resolve(&disk, &e), "%s", e.text);
    double read = argc > 2 ? atof(argv[2]) : nvme_measure_read(&disk);
    double write = argc > 3 ? atof(argv[3]) : nvme_measure_write(&disk);
    int pairs = argc > 4 ? atoi(argv[4]) : 5;
    if (!(read > 0 && write > 0) || pairs % 2 == 0 || pairs > MOST_PAIRS) {
        fprintf(stderr, "bench_step [FOLDER [FIO_READ FIO_WRITE [PAIRS, an odd number]]]\n");
        return 2;
    }
    printf("batch forward backward disk bound step step/bound (ms)\n");
    for (size_t batch = 1; batch <= 32; batch *= 2)
        compare(batch, folder, read, write, pairs);
    return 0;
}
