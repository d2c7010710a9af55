// Host threads in the CUDA simulator (tests/cusim/host.cc): they take turns, a run can be replayed
// by its seed, locks order what they should, nobody really waits, and a deadlock is told.
#include "tests/cusim/probes.h"
#include "tests/lib/cusim_help.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

enum { N = 64 };

static cudaStream_t one;
static float *x;

static void open_all(void) {
    cudaStreamCreateWithPriority(&one, cudaStreamNonBlocking, 0);
    cudaMalloc((void **)&x, N * sizeof *x);
    cudaMemsetAsync(x, 0, N * sizeof *x, one);
    cudaStreamSynchronize(one);
}

static void close_all(void) {
    cudaStreamSynchronize(one);
    cudaStreamDestroy(one);
    cudaFree(x);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn, order[40], norder;
static bool locked;

// Adds on its own stream when it is its turn; the other one's event is behind the lock.
static void *add_by_turns(void *number) {
    int me = *(int *)number;
    cudaStream_t s;
    cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, 0);
    for (int i = 0; i < 10; i++) {
        if (locked)
            pthread_mutex_lock(&lock);
        while (locked && turn != me)
            pthread_cond_wait(&changed, &lock);
        order[norder++ % 40] = me;
        probe_add(s, x, x, 1, N);
        cudaStreamSynchronize(s);
        turn = 1 - me;
        if (locked) {
            pthread_cond_broadcast(&changed);
            pthread_mutex_unlock(&lock);
        }
    }
    cudaStreamDestroy(s);
    return NULL;
}

static void two_threads(void) {
    pthread_t thread[2];
    int number[2] = {0, 1};
    open_all();
    turn = norder = 0;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, add_by_turns, &number[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    float got;
    cudaMemcpyAsync(&got, x, sizeof got, cudaMemcpyDefault, one);
    assert_true(got == 20);
    close_all();
}

TEST(test_threads) {
    for (int i = 0; i < NSCHEDULES; i++)
        for (int with_lock = 0; with_lock < 2; with_lock++) {
            use_schedule(i);
            locked = with_lock;
            be_silent(!with_lock);
            two_threads();
            be_silent(false);
            assert_int_equal(sim_races() > 0, !with_lock);
        }
}

TEST(test_replay) {
    int first[40], different = 0;
    locked = false;
    be_silent(true);
    for (uint64_t seed = 1; seed < 6; seed++) {
        sim_set_schedule(SIM_RANDOM, seed);
        two_threads();
        memcpy(first, order, sizeof order);
        sim_set_schedule(SIM_RANDOM, seed);
        two_threads();
        assert_memory_equal(first, order, sizeof order);
        sim_set_schedule(SIM_RANDOM, seed + 10);
        two_threads();
        different += memcmp(first, order, sizeof order) != 0;
    }
    be_silent(false);
    assert_true(different > 0);
    sim_races();
}

static void call_cuda(void *p) {
    cudaMemsetAsync(p, 0, 4, one);
}
static void host_function_calls_cuda(void) {
    cudaStreamCreateWithPriority(&one, cudaStreamNonBlocking, 0);
    cudaMalloc((void **)&x, N * sizeof *x);
    cudaLaunchHostFunc(one, call_cuda, x);
    cudaStreamSynchronize(one);
}

static void wait_for_nobody(void) {
    pthread_mutex_lock(&lock);
    pthread_cond_wait(&changed, &lock);
}

// A deadline comes at once when nothing else can go on.
TEST(test_timed_wait) {
    struct timespec before, until, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    until = before;
    until.tv_sec += 3600;
    pthread_mutex_lock(&lock);
    assert_int_equal(pthread_cond_timedwait(&changed, &lock, &until), ETIMEDOUT);
    pthread_mutex_unlock(&lock);
    clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true(after.tv_sec - before.tv_sec >= 3600);
}

TEST(test_ends) {
    use_schedule(0);
    child_says(host_function_calls_cuda, "a host function of a stream calls CUDA");
    child_says(wait_for_nobody, "deadlock: the main thread waits for a condition variable");
}
