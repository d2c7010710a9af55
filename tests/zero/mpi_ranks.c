// A rank of an MPI job, for tests/zero/test_mpi*.sh, which start it with mpirun:
//
//   mpi_ranks collectives      every collective in sizes around those of a piece, against sums that
//                              are made here; prints "rank R: N comparisons"
//   mpi_ranks staged           the same on a device whose memory MPI cannot see
//   mpi_ranks stop KIND        rank 1 is stopped before a collective of that kind: the others end
//   mpi_ranks skip STAGE NTH   trains, and rank 1 leaves out the NTH collective of its second step:
//                              the ranks' calls no longer fit; the job must end and say so
#include "tests/lib/tiny.h"

#include "zero/comm/mpi.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 128, GUARD = 64, MOST_SUMS = 64, MOST_RANKS = 8 };

struct Test {
    struct Device *device;
    struct Comm *comm;
    size_t n;
    enum Dtype dtype;
    int comparisons;
};

// Element i of rank r's buffer: of both signs and many sizes, so that the order of a sum shows.
static float value(int r, size_t i) {
    uint64_t bits = rng_bits((uint64_t)r + 1, i);
    float x = (float)(bits % 20001) - 10000;
    return bits & (1 << 20) ? x : x * 1e-4f;
}

// A GPU's kernels look at src when they are queued, the CPU's when they run.
static const struct Kernels *true_kernels;
static void *operands[MOST_SUMS][MOST_RANKS];
static int nsum;

static void queued_sum(struct Stream *s, const struct RankSum *a) {
    struct RankSum queued = *a;
    CHECK(nsum < MOST_SUMS && a->ranks <= MOST_RANKS, "sum %d of %zu ranks", nsum, a->ranks);
    queued.src = memcpy(operands[nsum++], a->src, a->ranks * sizeof *a->src);
    true_kernels->rank_sum(s, &queued);
}

static char *buffer(const struct Test *t, size_t n) {
    return memset(base_alloc(n * dtype_size(t->dtype) + GUARD), 0xee,
                  n * dtype_size(t->dtype) + GUARD);
}

static void fill(const struct Test *t, void *mem, int r, size_t first, size_t n) {
    for (size_t i = 0; i < n; i++)
        dtype_store(mem, t->dtype, i, value(r, first + i));
}

static void settle(struct Test *t, const char *what, const char *got, const char *want, size_t n) {
    size_t bytes = n * dtype_size(t->dtype);
    device_sync_queue(t->device, QUEUE_COMM);
    nsum = 0;
    CHECK(memcmp(got, want, bytes) == 0, "%s of %zu x %s", what, t->n, dtype_name(t->dtype));
    for (int i = 0; i < GUARD; i++)
        CHECK((unsigned char)got[bytes + (size_t)i] == 0xee, "%s wrote past its end", what);
    t->comparisons++;
}

// This rank's shard of the sum over ranks, in their order, or all of it.
static void sum(const struct Test *t, char *out, size_t first, size_t n, const char *old) {
    char *term = buffer(t, n);
    for (size_t i = 0; i < n; i++) {
        float s = 0;
        for (int r = 0; r < t->comm->size; r++) {
            dtype_store(term, t->dtype, 0, value(r, first + i));
            s = r ? s + dtype_load(term, t->dtype, 0) : dtype_load(term, t->dtype, 0);
            if (r == 0 && old)
                s = dtype_load(old, t->dtype, i) + s;
        }
        dtype_store(out, t->dtype, i, s);
    }
    free(term);
}

static void check_sums(struct Test *t) {
    size_t n = t->n, all = n * (size_t)t->comm->size, first = n * (size_t)t->comm->rank;
    size_t at = first * dtype_size(t->dtype);
    char *whole = buffer(t, all), *shard = buffer(t, n), *want = buffer(t, all);
    fill(t, whole, t->comm->rank, 0, all);
    sum(t, want, first, n, NULL);
    t->comm->ops->reduce_scatter(t->comm, shard, whole, n, t->dtype, false);
    settle(t, "reduce_scatter", shard, want, n);
    sum(t, want, first, n, shard);
    t->comm->ops->reduce_scatter(t->comm, shard, whole, n, t->dtype, true);
    settle(t, "reduce_scatter that adds", shard, want, n);
    fill(t, want, t->comm->rank, 0, all);
    sum(t, want + at, first, n, NULL);
    t->comm->ops->reduce_scatter(t->comm, whole + at, whole, n, t->dtype, false);
    settle(t, "reduce_scatter in place", whole, want, all);
    fill(t, whole, t->comm->rank, 0, all);
    sum(t, want, 0, all, NULL);
    t->comm->ops->all_reduce(t->comm, whole, n, t->dtype);
    settle(t, "all_reduce", whole, want, all);
    free(whole);
    free(shard);
    free(want);
}

static void check_copies(struct Test *t) {
    size_t n = t->n, all = n * (size_t)t->comm->size, size = dtype_size(t->dtype);
    char *whole = buffer(t, all), *shard = buffer(t, n), *want = buffer(t, all);
    for (int r = 0; r < t->comm->size; r++)
        fill(t, want + (size_t)r * n * size, r, 7, n);
    fill(t, shard, t->comm->rank, 7, n);
    t->comm->ops->all_gather(t->comm, whole, shard, n * size);
    settle(t, "all_gather", whole, want, all);
    memset(whole, 0, all * size);
    char *place = whole + (size_t)t->comm->rank * n * size;
    fill(t, place, t->comm->rank, 7, n);
    t->comm->ops->all_gather(t->comm, whole, place, n * size);
    settle(t, "all_gather in place", whole, want, all);
    for (int r = 0; r < t->comm->size; r++)
        fill(t, want + (size_t)r * n * size, r, n * (size_t)t->comm->rank, n);
    char *turned = buffer(t, all);
    fill(t, whole, t->comm->rank, 0, all);
    t->comm->ops->all_to_all(t->comm, turned, whole, n * size);
    settle(t, "all_to_all", turned, want, all);
    free(turned);
    free(whole);
    free(shard);
    free(want);
}

static void play_gpu(struct Device *d, struct Kernels *kernels) {
    true_kernels = d->kernels;
    *kernels = *d->kernels;
    kernels->rank_sum = queued_sum;
    d->kernels = kernels;
    d->calls_may_wait = false;
}

static void collectives(int size, bool staged) {
    struct Kernels kernels;
    static const size_t sizes[] = {0, 1, 5, 16, 31, 32, 33, 63, 64, 65, 128, 1000};
    struct Error e;
    struct Tier tier;
    struct Block staging;
    struct Test t = {0};
    CHECK(!device_open_cpu(&t.device, 1, NULL, &e), "%s", e.text);
    if (staged)
        play_gpu(t.device, &kernels);
    tier_init(&tier, TIER_DEVICE, t.device, SIZE_MAX);
    struct MpiSettings settings = {30, PIECE * (size_t)size, true};
    CHECK(!tier_alloc(&tier, TAG_COMM, "pieces", settings.chunk_bytes, &staging, &e), "%s", e.text);
    t.comm = comm_open_mpi(t.device, &settings, &staging);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int d = 0; d < 2; d++) {
            t.n = sizes[i];
            t.dtype = d ? BF16 : F32;
            check_sums(&t);
            check_copies(&t);
        }
    printf("rank %d: %d comparisons\n", t.comm->rank, t.comparisons);
    t.comm->ops->close(t.comm);
    tier_free(&staging);
    device_close(t.device);
}

// ---- a rank that is stopped ----

static void stop(const struct MpiRank *mpi, enum Collective kind) {
    struct Error e;
    struct Tier tier;
    struct Block staging;
    struct Device *device;
    float mem[64 * 8] = {0};
    CHECK(!device_open_cpu(&device, 1, NULL, &e), "%s", e.text);
    tier_init(&tier, TIER_DEVICE, device, SIZE_MAX);
    struct MpiSettings settings = {2, PIECE * (size_t)mpi->size, true};
    CHECK(!tier_alloc(&tier, TAG_COMM, "pieces", settings.chunk_bytes, &staging, &e), "%s", e.text);
    struct Comm *c = comm_open_mpi(device, &settings, &staging);
    c->ops->all_gather(c, mem, mem, 64);
    device_sync_queue(device, QUEUE_COMM);
    if (mpi->rank == 1)
        raise(SIGSTOP);
    if (kind == COMM_ALL_GATHER)
        c->ops->all_gather(c, mem, mem, 64);
    else if (kind == COMM_REDUCE_SCATTER)
        c->ops->reduce_scatter(c, mem, mem, 16, F32, false);
    else if (kind == COMM_ALL_REDUCE)
        c->ops->all_reduce(c, mem, 16, F32);
    else if (kind == COMM_ALL_TO_ALL)
        c->ops->all_to_all(c, mem, mem + 64 * 4, 64);
    else
        c->ops->sendrecv(c, NULL, mem, 64);
    // Who only sends waits for nobody, but there is always a next collective.
    c->ops->all_gather(c, mem, mem, 64);
    device_sync_queue(device, QUEUE_COMM);
    fprintf(stderr, "rank %d: went on\n", mpi->rank);
}

// ---- a rank that skips a collective ----

static struct CommOps real_ops;
static int until_skip = -1;

static bool skipped(void) {
    return until_skip > 0 && --until_skip == 0;
}

static void all_gather(struct Comm *c, void *whole, const void *shard, size_t bytes) {
    if (!skipped())
        real_ops.all_gather(c, whole, shard, bytes);
}
static void reduce_scatter(struct Comm *c, void *shard, const void *whole, size_t n, enum Dtype d,
                           bool accumulate) {
    if (!skipped())
        real_ops.reduce_scatter(c, shard, whole, n, d, accumulate);
}
static void all_reduce(struct Comm *c, void *whole, size_t n, enum Dtype d) {
    if (!skipped())
        real_ops.all_reduce(c, whole, n, d);
}

static void skip(const struct MpiRank *mpi, int stage, int nth) {
    struct RankSettings s = tiny_settings(BF16);
    struct Rank r;
    s.stage = stage;
    s.rank = mpi->rank;
    s.ranks = mpi->size;
    s.processes = true;
    s.timeout_s = 20;
    s.comm_chunk = 65536;
    s.check_comm = true;
    tiny_open(&r, &s, 1);
    real_ops = *r.shard_group->ops;
    struct CommOps ops = real_ops;
    ops.all_gather = all_gather;
    ops.reduce_scatter = reduce_scatter;
    ops.all_reduce = all_reduce;
    r.shard_group->ops = &ops;
    for (int step = 1; step <= 5; step++) {
        if (mpi->rank == 1 && step == 2)
            until_skip = nth;
        tiny_step(&r);
        fprintf(stderr, "rank %d: step %d\n", mpi->rank, step);
    }
    rank_close(&r);
}

int main(int argc, char **argv) {
    struct MpiRank mpi;
    struct Error e;
    CHECK(argc > 1, "what to do is missing");
    CHECK(!mpi_start(&mpi, 0, 60, &e), "%s", e.text);
    base_set_rank(mpi.rank);
    if (strcmp(argv[1], "collectives") == 0)
        collectives(mpi.size, false);
    else if (strcmp(argv[1], "staged") == 0)
        collectives(mpi.size, true);
    else if (strcmp(argv[1], "stop") == 0)
        stop(&mpi, (enum Collective)atoi(argv[2]));
    else
        skip(&mpi, atoi(argv[2]), atoi(argv[3]));
    fflush(stdout);
    mpi_stop(mpi.rank, 60);
    return 0;
}
