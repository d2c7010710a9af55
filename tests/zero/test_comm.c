// Collectives between ranks that are threads: what they compute, what they count, and what happens
// when a rank does something else than the others, or nothing.
//
// Sums are compared bit by bit with a plain loop in rank order: that order is what makes ZeRO's
// stages agree. The bytes that a rank counts as sent are compared with those that the kernels
// really read from other ranks' buffers. Ranks out of step, and ranks that do not come, end the
// process with a line that names them: those cases run in a process of their own.
//
// All of it twice: with meetings in the queues, and with meetings of the hosts, as ranks that share
// a GPU hold them.
#include "tests/lib/child.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"

#include "zero/comm/grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 5, MOST_CALLS = 16 };

static bool hosts_meet;

// One rank's end of a group, on its own device.
struct End {
    struct Device *device;
    struct Comm *comm;
};

static void end_open(struct End *end, struct ThreadGroup *group, int rank, double timeout_s) {
    struct Error e;
    CHECK(!device_open_cpu(&end->device, 1, NULL, &e), "%s", e.text);
    end->device->calls_may_wait = !hosts_meet;
    device_set_delay(end->device, QUEUE_COMM, (struct QueueDelay){200, (uint64_t)rank});
    end->comm =
        group ? comm_open_thread(group, rank, end->device, timeout_s) : comm_open_self(end->device);
}

static void end_close(struct End *end) {
    device_sync_queue(end->device, QUEUE_COMM);
    end->comm->ops->close(end->comm);
    device_close(end->device);
}

// ---- what is computed ----

// Element i of rank r's buffer: far apart in size, so that the order of a sum shows.
static float value(int r, size_t i) {
    return ldexpf(rng_uniform(7, (uint64_t)r * 100003 + i) - 0.5f, (int)((r * 5 + i) % 23));
}

static void fill(void *p, enum Dtype d, int rank, size_t n) {
    for (size_t i = 0; i < n; i++)
        dtype_store(p, d, i, value(rank, i));
}

// The sum over ranks of element i, from `start`, rounded once.
static float sum_of(enum Dtype d, int ranks, size_t i, const float *start) {
    float sum = 0;
    for (int r = 0; r < ranks; r++) {
        float x = value(r, i);
        if (d == BF16)
            x = f32_from_bf16(bf16_from_f32(x));
        sum = r ? sum + x : start ? *start + x : x;
    }
    return d == BF16 ? f32_from_bf16(bf16_from_f32(sum)) : sum;
}

struct Case {
    enum Dtype dtype;
    size_t n; // elements of a shard
    int ranks;
    uint64_t foreign[MOST_RANKS]; // bytes read from others' buffers
    bool ok[MOST_RANKS];
};

static _Thread_local const struct Kernels *true_kernels;
static _Thread_local uint64_t *foreign_bytes;
static _Thread_local void *operands[MOST_CALLS][MOST_RANKS];
static _Thread_local int ncall;

// The CPU's kernels look at src when they run, a GPU's when they are queued.
static void *const *as_queued(void *const *src, size_t ranks) {
    if (!hosts_meet)
        return src;
    CHECK(ncall < MOST_CALLS && ranks <= MOST_RANKS, "call %d of %zu ranks", ncall, ranks);
    return memcpy(operands[ncall++], src, ranks * sizeof *src);
}

static void counting_sum(struct Stream *s, const struct RankSum *a) {
    struct RankSum queued = *a;
    queued.src = as_queued(a->src, a->ranks);
    *foreign_bytes += (a->ranks - 1) * a->n * dtype_size(a->dtype);
    true_kernels->rank_sum(s, &queued);
}

static void counting_gather(struct Stream *s, const struct RankGather *a) {
    struct RankGather queued = *a;
    queued.src = as_queued(a->src, a->ranks);
    *foreign_bytes += (a->skip < a->ranks ? a->ranks - 1 : a->ranks) * a->bytes;
    true_kernels->rank_gather(s, &queued);
}

static bool same_as_sums(const void *p, const struct Case *c, size_t begin, size_t n,
                         const float *start) {
    bool same = true;
    for (size_t i = 0; i < n; i++)
        same = same && dtype_load(p, c->dtype, i) == sum_of(c->dtype, c->ranks, begin + i, start);
    return same;
}

// All collectives, one behind the other without a wait: the queue orders them.
static bool check_all(struct End *end, const struct Case *c, int rank) {
    size_t n = c->n, all = n * (size_t)c->ranks, size = dtype_size(c->dtype);
    struct Comm *comm = end->comm;
    char *whole = base_alloc(all * size), *shard = base_alloc(n * size);
    char *summed = base_alloc(all * size), *gathered = base_alloc(all * size);
    char *turned = base_alloc(all * size);
    float start = 3;
    fill(whole, c->dtype, rank, all);
    fill(summed, c->dtype, rank, all);
    for (size_t i = 0; i < n; i++)
        dtype_store(shard, c->dtype, i, start);
    comm->ops->all_reduce(comm, summed, n, c->dtype);
    comm->ops->reduce_scatter(comm, shard, whole, n, c->dtype, true);
    comm->ops->all_gather(comm, gathered, whole + (size_t)rank * n * size, n * size);
    comm->ops->all_to_all(comm, turned, whole, n * size);
    comm->ops->reduce_scatter(comm, whole + (size_t)rank * n * size, whole, n, c->dtype, false);
    device_sync_queue(end->device, QUEUE_COMM);
    size_t mine = (size_t)rank * n;
    bool ok = same_as_sums(summed, c, 0, all, NULL) && same_as_sums(shard, c, mine, n, &start) &&
              same_as_sums(whole + mine * size, c, mine, n, NULL);
    for (size_t i = 0; ok && i < all; i++) {
        float x = value((int)(i / n), i);
        ok = dtype_load(gathered, c->dtype, i) ==
             (c->dtype == BF16 ? f32_from_bf16(bf16_from_f32(x)) : x);
    }
    for (size_t i = 0; ok && i < all; i++) { // rank i / n's for this one
        float x = value((int)(i / n), mine + i % n);
        ok = dtype_load(turned, c->dtype, i) ==
             (c->dtype == BF16 ? f32_from_bf16(bf16_from_f32(x)) : x);
    }
    free(whole);
    free(shard);
    free(summed);
    free(gathered);
    free(turned);
    return ok;
}

static bool counts_agree(const struct Comm *c, size_t shard_bytes, uint64_t foreign) {
    uint64_t others = (uint64_t)c->size - 1, once = others * shard_bytes;
    bool sent =
        c->sent.bytes[COMM_ALL_REDUCE] == 2 * once && c->sent.bytes[COMM_ALL_GATHER] == once &&
        c->sent.bytes[COMM_REDUCE_SCATTER] == 2 * once && c->sent.bytes[COMM_ALL_TO_ALL] == once;
    return sent && foreign == 6 * once;
}

static void run_case(void *context, int rank, struct ThreadGroup *group) {
    struct Case *c = context;
    struct End end;
    end_open(&end, group, rank, 60);
    struct Kernels counting = *end.device->kernels;
    true_kernels = end.device->kernels;
    foreign_bytes = &c->foreign[rank];
    ncall = 0;
    counting.rank_sum = counting_sum;
    counting.rank_gather = counting_gather;
    end.device->kernels = &counting;
    bool ok = check_all(&end, c, rank);
    end.device->kernels = true_kernels;
    c->ok[rank] = ok && (c->ranks == 1 ||
                         counts_agree(end.comm, c->n * dtype_size(c->dtype), c->foreign[rank]));
    end_close(&end);
}

TEST(collectives_are_right_and_counted) {
    static const size_t sizes[] = {1, 64, 1000, 20000};
    for (enum Dtype d = F32; d <= BF16; d++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
                struct Case c = {.dtype = d, .n = sizes[i], .ranks = ranks};
                struct World w = world_of_threads(ranks);
                world_run(&w, run_case, &c);
                for (int r = 0; r < ranks; r++)
                    if (!c.ok[r])
                        fail_msg("%s, %zu elements: wrong on rank %d of %d", dtype_name(d), c.n, r,
                                 ranks);
            }
}

// ---- the grid ----

// Every rank is at its own place of its group along every axis, all members of a group name the
// same members, and ranks of a group differ in that axis alone.
TEST(the_grid_has_lines_along_each_axis) {
    struct Grid g = {{2, 3, 4, 5}};
    for (int rank = 0; rank < 2 * 3 * 4 * 5; rank++)
        for (enum Axis axis = 0; axis < NAXIS; axis++) {
            assert_int_equal(grid_member(&g, rank, axis, grid_coord(&g, rank, axis)), rank);
            for (int i = 0; i < g.size[axis]; i++) {
                int other = grid_member(&g, rank, axis, i);
                assert_int_equal(grid_coord(&g, other, axis), i);
                for (enum Axis a = 0; a < NAXIS; a++)
                    if (a != axis)
                        assert_int_equal(grid_coord(&g, other, a), grid_coord(&g, rank, a));
            }
        }
    assert_int_equal(grid_member(&g, 0, AXIS_TP, 1), 1); // neighbours talk most
    struct Grid dp = grid_of(7, 1, 7, 1);
    for (int r = 0; r < 7; r++)
        assert_int_equal(grid_coord(&dp, r, AXIS_DP), r);
}

// ---- groups along the axes ----

struct Split {
    struct Grid grid;
    bool ok[MOST_RANKS + 1];
};

// Of a rank's group along an axis: the sum of their numbers in the job, and who they are.
static bool check_line(struct End *end, struct Comm *c, const struct Grid *g, int rank) {
    float mine[8], all[8 * 6], want = 0;
    uint64_t before = c->sent.bytes[COMM_ALL_GATHER];
    bool ok = c->size == g->size[c->axis] && c->rank == grid_coord(g, rank, c->axis) &&
              comm_job_rank(c, c->rank) == rank;
    for (int i = 0; i < 8; i++)
        mine[i] = (float)rank;
    for (int i = 0; i < c->size; i++)
        want += (float)grid_member(g, rank, c->axis, i);
    c->ops->all_gather(c, all, mine, sizeof mine);
    device_sync_queue(end->device, QUEUE_COMM);
    for (int i = 0; i < c->size; i++)
        ok = ok && all[8 * i] == (float)grid_member(g, rank, c->axis, i) &&
             all[8 * i + 7] == (float)comm_job_rank(c, i);
    for (int i = 0; i < 8 * c->size; i++)
        all[i] = (float)rank;
    c->ops->all_reduce(c, all, 8, F32);
    device_sync_queue(end->device, QUEUE_COMM);
    for (int i = 0; i < 8 * c->size; i++)
        ok = ok && all[i] == want;
    return ok && c->sent.bytes[COMM_ALL_GATHER] - before == (uint64_t)(c->size - 1) * sizeof mine;
}

static void split_and_check(void *context, int rank, struct ThreadGroup *group) {
    struct Split *s = context;
    struct End end;
    end_open(&end, group, rank, 60);
    struct Comm *dp = comm_split(end.comm, &s->grid, AXIS_DP, false);
    struct Comm *replicas = comm_split(end.comm, &s->grid, AXIS_REPLICA, false);
    bool ok = true;
    for (int i = 0; i < 3; i++) // by turns, in one queue
        ok = ok && check_line(&end, i % 2 ? dp : replicas, &s->grid, rank);
    s->ok[rank] = ok;
    device_sync_queue(end.device, QUEUE_COMM);
    replicas->ops->close(replicas);
    dp->ops->close(dp);
    end_close(&end);
}

TEST(groups_along_each_axis_know_their_members) {
    static const int shards[] = {1, 2, 3, 6};
    for (size_t i = 0; i < sizeof shards / sizeof shards[0]; i++) {
        struct Split s = {.grid = grid_of(6, 1, shards[i], 1)};
        struct World w = world_of_threads(6);
        world_run(&w, split_and_check, &s);
        for (int r = 0; r < 6; r++)
            if (!s.ok[r])
                fail_msg("shards over %d of 6 ranks: wrong on rank %d", shards[i], r);
    }
}

static void collective(struct Comm *c, enum Collective kind, float *mem, size_t n) {
    if (kind == COMM_ALL_GATHER)
        c->ops->all_gather(c, mem, mem, n * sizeof *mem);
    else if (kind == COMM_REDUCE_SCATTER)
        c->ops->reduce_scatter(c, mem, mem, n, F32, false);
    else if (kind == COMM_ALL_REDUCE)
        c->ops->all_reduce(c, mem, n, F32);
    else if (kind == COMM_ALL_TO_ALL)
        c->ops->all_to_all(c, mem, mem + n * (size_t)c->size, n * sizeof *mem);
    else
        c->ops->sendrecv(c, NULL, mem, n * sizeof *mem);
}

// Rank 3 stays away from its dp group, {2, 3}. Rank 2 waits for it there, and rank 0 for rank 2
// among the replicas: rank 3 is the one that is named, by its number in the job.
static void stay_away(void *context, int rank, struct ThreadGroup *group) {
    struct Grid grid = grid_of(4, 1, 2, 1);
    struct End end;
    float mem[64 * 4];
    (void)context;
    end_open(&end, group, rank, rank % 2 ? 30 : rank ? 1 : 0.5);
    struct Comm *dp = comm_split(end.comm, &grid, AXIS_DP, false);
    struct Comm *replicas = comm_split(end.comm, &grid, AXIS_REPLICA, false);
    if (rank == 3)
        sleep(30);
    if (rank == 2)
        collective(dp, COMM_ALL_GATHER, mem, 8);
    collective(replicas, COMM_ALL_GATHER, mem, 8);
    device_sync_queue(end.device, QUEUE_COMM);
    sleep(30);
}

static void run_away(const void *unused) {
    struct World w = world_of_threads(4);
    world_run(&w, stay_away, (void *)unused);
}

TEST(who_waits_for_another_is_not_named) {
    int status;
    char *said = child_said(run_away, NULL, &status);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 2 ||
        !line_is(said, "E_RANK_SILENT train: rank 2: collective 0, all_gather of 32 bytes") ||
        !strstr(said, "of rank 3 "))
        fail_msg("status %#x: \"%s\"", status, said);
    free(said);
}

// ---- ranks that go astray ----

enum Astray { OTHER_SIZE, OTHER_KIND, SKIPPED, ABSENT };

struct Way {
    enum Astray how;
    enum Collective kind; // what all but rank 1 do
};

static void go_astray(void *context, int rank, struct ThreadGroup *group) {
    const struct Way *way = context;
    struct End end;
    float mem[64 * 3];
    end_open(&end, group, rank, 0.5);
    collective(end.comm, COMM_ALL_GATHER, mem, 0); // so far they agree
    bool stray = rank == 1;
    if (stray && way->how == ABSENT)
        sleep(30);
    if (stray && way->how == SKIPPED)
        end.comm->calls++; // it thinks that it was there
    else if (stray && way->how == OTHER_KIND)
        collective(end.comm, (way->kind + 1) % COMM_BARRIER, mem, 8);
    else
        collective(end.comm, way->kind, mem, stray && way->how == OTHER_SIZE ? 16 : 8);
    collective(end.comm, COMM_ALL_GATHER, mem, 0);
    end_close(&end);
}

static void run_astray(const void *way) {
    struct World w = world_of_threads(3);
    world_run(&w, go_astray, (void *)way);
}

static void expect_said(enum Astray how, enum Collective kind, const char *wanted) {
    struct Way way = {how, kind};
    int status;
    char *said = child_said(run_astray, &way, &status);
    int lines = 0;
    for (const char *p = said; *p; p++)
        lines += *p == '\n';
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 2 || !line_is(said, wanted) || lines != 1)
        fail_msg("%s: status %#x, %d lines: \"%s\", wanted \"%s\"", collective_name(kind), status,
                 lines, said, wanted);
    free(said);
}

TEST(fault_10_ranks_out_of_step_are_named) {
    for (enum Collective kind = 0; kind < COMM_BARRIER; kind++) {
        expect_said(OTHER_SIZE, kind, "E_COLLECTIVES_DIFFER rank 1 at 1, ");
        expect_said(OTHER_KIND, kind, "E_COLLECTIVES_DIFFER rank 1 at 1, ");
        expect_said(SKIPPED, kind, "E_COLLECTIVES_DIFFER rank 1 at 2, ");
    }
}

TEST(fault_20_a_rank_that_does_not_come_is_named) {
    for (enum Collective kind = 0; kind < COMM_BARRIER; kind++) {
        char *wanted = base_format("E_RANK_SILENT %s of 32 bytes: no sign of rank 1 for 0.5 s",
                                   collective_name(kind));
        expect_said(ABSENT, kind, wanted);
        free(wanted);
    }
}

static int meet_in_queues(void **state) {
    (void)state;
    hosts_meet = false;
    return 0;
}

static int meet_on_hosts(void **state) {
    (void)state;
    hosts_meet = true;
    return 0;
}

int main(void) {
    around_all.before = meet_in_queues;
    int failed = run_all_tests();
    around_all.before = meet_on_hosts;
    return failed + run_all_tests();
}
