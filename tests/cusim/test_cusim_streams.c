// The CUDA simulator's streams and events (tests/cusim): a right program shows no
// race in any schedule and computes the same; the same program without one of its waits is caught
// in every schedule.
//
// The program is the core of a trainer's step: tokens are staged in pinned memory and copied to one
// of two buffers by one stream (in), used by another (compute), whose gradient a third (comm) adds
// up while the next is computed; the sum comes back to the host at the end. Faults 1 to 4 of real
// trainers (DeepSpeed issues 8061, 7965, 7371 and 5523) are made in it.
#include "tests/cusim/probes.h"
#include "tests/cusim/sim.h"
#include "tests/lib/cusim_help.h"
#include "tests/lib/test.h"

enum { N = 64, STEPS = 7, IN = 2, COMPUTE = 0, COMM = 1, NSTREAMS = 3 };

static size_t drop = SIZE_MAX, made; // the synchronisation left out; how many the last run made

// What is wrong with a run of the pipeline.
enum Wrong {
    RIGHT,
    WAITS_ON_WRONG_STREAM, // fault 1: the reduction waits for tokens, not for the gradient
    RECYCLED_EARLY,        // fault 2: the gradient's buffer is used again while it is reduced
    SWAPPED_EARLY,         // fault 3: the other buffer is refilled while it is used
    NO_WRONG
};

struct Pipeline {
    cudaStream_t stream[NSTREAMS];
    cudaEvent_t staged[2], arrived[2], used[2], ready[2], reduced[2];
    float *host[2], *tokens[2], *gradient[2], *sum, *out;
};

static void event_open(cudaEvent_t e[2]) {
    for (int i = 0; i < 2; i++)
        cudaEventCreateWithFlags(&e[i], cudaEventDisableTiming);
}

// Memory that holds something: a read that comes too early is a race, and not yet the end.
static float *gpu_zeros(struct Pipeline *p) {
    float *mem = NULL;
    cudaMalloc((void **)&mem, N * sizeof(float));
    cudaMemsetAsync(mem, 0, N * sizeof(float), p->stream[COMPUTE]);
    cudaStreamSynchronize(p->stream[COMPUTE]);
    return mem;
}

static void pipeline_open(struct Pipeline *p) {
    for (int i = 0; i < NSTREAMS; i++)
        cudaStreamCreateWithPriority(&p->stream[i], cudaStreamNonBlocking, 0);
    event_open(p->staged);
    event_open(p->arrived);
    event_open(p->used);
    event_open(p->ready);
    event_open(p->reduced);
    for (int i = 0; i < 2; i++) {
        cudaMallocHost((void **)&p->host[i], N * sizeof(float));
        p->tokens[i] = gpu_zeros(p);
        p->gradient[i] = gpu_zeros(p);
    }
    p->sum = gpu_zeros(p);
    cudaMallocHost((void **)&p->out, N * sizeof(float));
    memset(p->out, 0, N * sizeof(float));
}

static void pipeline_close(struct Pipeline *p) {
    made = sim_drop(SIZE_MAX);
    for (int i = 0; i < NSTREAMS; i++) {
        cudaStreamSynchronize(p->stream[i]);
        cudaStreamDestroy(p->stream[i]);
    }
    for (int i = 0; i < 2; i++) {
        cudaFreeHost(p->host[i]);
        cudaFree(p->tokens[i]);
        cudaFree(p->gradient[i]);
        cudaEventDestroy(p->staged[i]);
        cudaEventDestroy(p->arrived[i]);
        cudaEventDestroy(p->used[i]);
        cudaEventDestroy(p->ready[i]);
        cudaEventDestroy(p->reduced[i]);
    }
    cudaFree(p->sum);
    cudaFreeHost(p->out);
}

static void queue_step(struct Pipeline *p, int step, enum Wrong wrong) {
    int b = step % 2;
    bool used_again = step + 2 < STEPS;
    if (step >= 2)
        cudaEventSynchronize(p->staged[b]);
    for (int i = 0; i < N; i++)
        p->host[b][i] = (float)(step * N + i);
    if (step >= 2 && wrong != SWAPPED_EARLY)
        cudaStreamWaitEvent(p->stream[IN], p->used[b], 0);
    cudaMemcpyAsync(p->tokens[b], p->host[b], N * sizeof(float), cudaMemcpyDefault, p->stream[IN]);
    if (used_again)
        cudaEventRecord(p->staged[b], p->stream[IN]);
    cudaEventRecord(p->arrived[b], p->stream[IN]);
    cudaStreamWaitEvent(p->stream[COMPUTE], p->arrived[b], 0);
    if (step >= 2 && wrong != RECYCLED_EARLY)
        cudaStreamWaitEvent(p->stream[COMPUTE], p->reduced[b], 0);
    probe_add(p->stream[COMPUTE], p->gradient[b], p->tokens[b], 1, N);
    if (used_again)
        cudaEventRecord(p->used[b], p->stream[COMPUTE]);
    cudaEventRecord(p->ready[b], p->stream[COMPUTE]);
    cudaStreamWaitEvent(p->stream[COMM],
                        wrong == WAITS_ON_WRONG_STREAM ? p->arrived[b] : p->ready[b], 0);
    probe_accumulate(p->stream[COMM], p->sum, p->gradient[b], N);
    if (used_again)
        cudaEventRecord(p->reduced[b], p->stream[COMM]);
}

// Whether the result was right.
static bool run_pipeline(enum Wrong wrong, bool overlap) {
    struct Pipeline p;
    bool right = true;
    pipeline_open(&p);
    sim_drop(drop);
    cudaMemsetAsync(p.sum, 0, N * sizeof(float), p.stream[COMM]);
    for (int step = 0; step < STEPS; step++) {
        queue_step(&p, step, wrong);
        for (int i = 0; i < NSTREAMS && !overlap; i++)
            cudaStreamSynchronize(p.stream[i]);
    }
    cudaMemcpyAsync(p.out, p.sum, N * sizeof(float), cudaMemcpyDefault, p.stream[COMM]);
    cudaStreamSynchronize(p.stream[COMM]);
    for (int i = 0; i < N; i++)
        right &= p.out[i] == (float)(STEPS * (STEPS - 1) / 2 * N + STEPS * (i + 1));
    pipeline_close(&p);
    return right;
}

static size_t races_of(enum Wrong wrong) {
    be_silent(true);
    run_pipeline(wrong, true);
    be_silent(false);
    return sim_races();
}

TEST(test_right_program) {
    for (int i = 0; i < NSCHEDULES; i++)
        for (int overlap = 0; overlap < 2; overlap++) {
            use_schedule(i);
            assert_true(run_pipeline(RIGHT, overlap));
            assert_int_equal(sim_races(), 0);
        }
}

TEST(test_each_synchronisation_is_needed) {
    run_pipeline(RIGHT, true);
    size_t count = made;
    assert_true(count >= 40);
    for (int i = 0; i < NSCHEDULES; i++)
        for (size_t n = 0; n < count; n++) {
            use_schedule(i);
            drop = n;
            size_t races = races_of(RIGHT);
            drop = SIZE_MAX;
            if (races == 0)
                fail_msg("schedule %d: nothing was seen without synchronisation %zu of %zu", i, n,
                         count);
        }
}

TEST(test_faults_1_to_3) {
    for (int wrong = RIGHT + 1; wrong < NO_WRONG; wrong++)
        for (int i = 0; i < NSCHEDULES; i++) {
            use_schedule(i);
            if (races_of((enum Wrong)wrong) == 0)
                fail_msg("schedule %d does not see fault %d", i, wrong);
        }
}

// Fault 4, overlap that makes runs differ, shows in the numbers too, where a schedule is unkind.
TEST(test_fault_in_numbers) {
    int bad = 0;
    for (int i = 0; i < NSCHEDULES; i++) {
        use_schedule(i);
        be_silent(true);
        bad += !run_pipeline(SWAPPED_EARLY, true);
        be_silent(false);
        sim_races();
        assert_true(run_pipeline(SWAPPED_EARLY, false)); // without overlap nothing is wrong
        assert_int_equal(sim_races(), 0);
    }
    assert_true(bad > 0);
}

// ---- events, copies, the host ----

static cudaStream_t one, two;
static float *x, *y, *pinned;

static void open_all(void) {
    be_silent(true);
    cudaStreamCreateWithPriority(&one, cudaStreamNonBlocking, 0);
    cudaStreamCreateWithPriority(&two, cudaStreamNonBlocking, 0);
    cudaMalloc((void **)&x, N * sizeof *x);
    cudaMalloc((void **)&y, N * sizeof *y);
    cudaMallocHost((void **)&pinned, N * sizeof *pinned);
    memset(pinned, 0, N * sizeof *pinned);
    cudaMemsetAsync(x, 0, N * sizeof *x, one);
    cudaStreamSynchronize(one);
}

static void close_all(void) {
    cudaStreamSynchronize(one);
    cudaStreamSynchronize(two);
    cudaStreamDestroy(one);
    cudaStreamDestroy(two);
    cudaFree(x);
    cudaFree(y);
    cudaFreeHost(pinned);
    be_silent(false);
}

// A wait is for the latest record at the time of the call, not for one made after it.
TEST(test_wait_is_for_latest_record) {
    use_schedule(0);
    for (int late = 0; late < 2; late++) {
        cudaEvent_t e;
        cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
        open_all();
        cudaEventRecord(e, one);
        if (late)
            cudaStreamWaitEvent(two, e, 0);
        probe_add(one, x, x, 1, N);
        cudaEventRecord(e, one);
        if (!late)
            cudaStreamWaitEvent(two, e, 0);
        probe_add(two, y, x, 1, N);
        close_all();
        assert_int_equal(sim_races() > 0, late);
        cudaEventDestroy(e);
    }
}

TEST(test_host_reads_pinned_early) {
    use_schedule(0);
    for (int early = 0; early < 2; early++) {
        open_all();
        cudaMemcpyAsync(pinned, x, N * sizeof *x, cudaMemcpyDefault, one);
        if (!early)
            cudaStreamSynchronize(one);
        volatile float seen = pinned[3];
        (void)seen;
        close_all();
        assert_int_equal(sim_races() > 0, early);
    }
}

TEST(test_free_while_used) {
    use_schedule(0);
    open_all();
    float *z;
    cudaMalloc((void **)&z, N * sizeof *z);
    cudaMemcpyAsync(z, x, N * sizeof *z, cudaMemcpyDefault, one);
    cudaFree(z);
    close_all();
    assert_true(sim_races() > 0);
}

static void add_on_host(void *p) {
    ((float *)p)[0] += 1;
}

TEST(test_host_function) {
    for (int i = 0; i < NSCHEDULES; i++) {
        use_schedule(i);
        open_all();
        cudaMemcpyAsync(pinned, x, N * sizeof *x, cudaMemcpyDefault, one);
        cudaLaunchHostFunc(one, add_on_host, pinned);
        cudaMemcpyAsync(x, pinned, N * sizeof *x, cudaMemcpyDefault, one);
        cudaLaunchHostFunc(one, add_on_host, pinned);
        cudaStreamSynchronize(one);
        assert_true(pinned[0] == 2);
        close_all();
        assert_int_equal(sim_races(), 0);
    }
}

TEST(test_copies_between_gpus) {
    sim_set_gpus(2);
    open_all();
    float *far, back = 1;
    cudaSetDevice(1);
    cudaMalloc((void **)&far, N * sizeof *far);
    cudaSetDevice(0);
    cudaMemcpyAsync(far, x, N * sizeof *far, cudaMemcpyDefault, one);
    cudaMemcpyAsync(&back, far, sizeof back, cudaMemcpyDefault, one);
    assert_true(back == 0); // plain memory: it is there when the call returns
    cudaFree(far);
    close_all();
    sim_set_gpus(1);
    assert_int_equal(sim_races(), 0);
}
