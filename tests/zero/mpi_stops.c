// A rank of an MPI job that trains on and on, for tests/zero/test_mpi_faults.sh, which starts it
// with mpirun:
//
//   mpi_stops EXCHANGE stop|kill RANK   in its second step that rank stops, or is killed, inside of
//                                       that exchange: the others end, and name it
//   mpi_stops list                      the exchanges; each wants four ranks
//
// The rank says where and when it ends: "rank R: in KIND of AXIS at SECONDS". It does so between
// two of the messages of which a collective is made (zero/comm/mpi_end.h): ranks have compared
// their calls by then, and of an all_reduce the sums are made, and not yet gathered.
#include "tests/lib/grids.h"
#include "tests/lib/tiny.h"

#include "zero/comm/mpi.h"
#include "zero/comm/mpi_end.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS = 4 };

// ---- what ranks exchange ----

static struct Comm *places(struct Rank *r) {
    return r->tp.comm;
}
static struct Comm *sharers(struct Rank *r) {
    return r->shard_group;
}
static struct Comm *replicas(struct Rank *r) {
    return r->parallel.replicas;
}
static struct Comm *near_ones(struct Rank *r) {
    return r->hpz_group;
}
static struct Comm *first_hop(struct Rank *r) {
    return r->wire.intra_node;
}
static struct Comm *second_hop(struct Rank *r) {
    return r->wire.inter_node;
}

static struct Comm *stage_before(struct Rank *r) {
    return r->pipe.prev;
}
static struct Comm *stage_behind(struct Rank *r) {
    return r->pipe.next;
}
static struct Comm *both_ends(struct Rank *r) {
    return r->pipe.tied;
}

static void eight_bits(struct RankSettings *s) {
    s->quantized_weights = true;
}
static void four_bits(struct RankSettings *s) {
    s->quantized_gradients = true;
    s->node_size = 2;
}

static void four_in_stages(struct RankSettings *s) {
    grid_stages(s);
    s->nmicro = 4;
}

static void tied_stages(struct RankSettings *s) {
    four_in_stages(s);
    s->model.untied = false;
}

// The nth call of that kind in the group's step, from 1, and which of its exchanges, from 0.
static const struct Case {
    const char *name;
    void (*set)(struct RankSettings *s);
    struct Comm *(*group)(struct Rank *r);
    enum Collective kind;
    int nth, exchange;
} cases[] = {
    {"sums-of-places", grid_parts, places, COMM_ALL_REDUCE, 2, 1},
    {"losses-of-places", grid_parts, places, COMM_ALL_GATHER, 1, 0},
    {"shards-of-a-place", grid_parts, sharers, COMM_REDUCE_SCATTER, 2, 0},
    {"rows-gathered", grid_rows_in_parts, places, COMM_ALL_GATHER, 2, 0},
    {"rows-scattered", grid_rows_in_parts, places, COMM_REDUCE_SCATTER, 2, 0},
    {"gradients-of-rows", grid_rows_in_parts, places, COMM_ALL_REDUCE, 1, 0},
    {"kept-activations", grid_kept_in_parts, places, COMM_ALL_GATHER, 2, 0},
    {"replicas", grid_replicas, replicas, COMM_ALL_REDUCE, 1, 1},
    {"second-partition", grid_second_partition, near_ones, COMM_ALL_GATHER, 1, 0},
    {"weights-in-8-bits", eight_bits, sharers, COMM_ALL_GATHER, 2, 0},
    {"gradients-in-4-bits-near", four_bits, first_hop, COMM_ALL_TO_ALL, 1, 0},
    {"gradients-in-4-bits-far", four_bits, second_hop, COMM_ALL_TO_ALL, 2, 0},
    {"stage-before", four_in_stages, stage_before, COMM_SWAP, 2, 0},
    {"tied-ends", tied_stages, both_ends, COMM_ALL_REDUCE, 1, 0},
    {"stage-behind", four_in_stages, stage_behind, COMM_SWAP, 2, 0},
};
enum { NCASE = sizeof cases / sizeof cases[0] };

// ---- ending in it ----

static struct Comm *chosen;
static struct CommOps true_ops;
static struct DeviceOps true_device;
static enum Collective chosen_kind;
static int until_call, at_exchange, until_exchange = -1; // the last: once its call is at hand
static int word;                                         // the signal

static void end_here(const void *exchange) {
    const struct Comm *c = &((const struct Exchange *)exchange)->comm->comm;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(stderr, "rank %d: in %s of %s at %ld.%03ld\n", comm_job_rank(c, c->rank),
            collective_name(chosen_kind), axis_name(c->axis), (long)now.tv_sec,
            now.tv_nsec / 1000000);
    raise(word);
}

static void call(struct Stream *s, DeviceCall *f, const void *args, size_t bytes) {
    const struct Exchange *x = args;
    if (f == mpi_exchange && &x->comm->comm == chosen && until_exchange >= 0 &&
        until_exchange-- == 0)
        true_device.call(s, end_here, args, bytes);
    true_device.call(s, f, args, bytes);
}

static void begin(void) {
    if (until_call > 0 && --until_call == 0)
        until_exchange = at_exchange;
}

static void all_gather(struct Comm *c, void *whole, const void *shard, size_t bytes) {
    begin();
    true_ops.all_gather(c, whole, shard, bytes);
}
static void reduce_scatter(struct Comm *c, void *shard, const void *whole, size_t n, enum Dtype d,
                           bool accumulate) {
    begin();
    true_ops.reduce_scatter(c, shard, whole, n, d, accumulate);
}
static void all_reduce(struct Comm *c, void *whole, size_t n, enum Dtype d) {
    begin();
    true_ops.all_reduce(c, whole, n, d);
}
static void all_to_all(struct Comm *c, void *to, const void *from, size_t bytes) {
    begin();
    true_ops.all_to_all(c, to, from, bytes);
}

static void swap(struct Comm *c, void *to, const void *from, size_t bytes) {
    begin();
    true_ops.sendrecv(c, to, from, bytes);
}

// The group's calls of that kind come by here, and the device's.
static void watch(struct Rank *r, const struct Case *at) {
    static struct CommOps ops;
    static struct DeviceOps device;
    chosen = at->group(r);
    chosen_kind = at->kind;
    CHECK(chosen, "no group for %s", at->name);
    ops = true_ops = *chosen->ops;
    device = true_device = *r->device->ops;
    device.call = call;
    r->device->ops = &device;
    if (at->kind == COMM_ALL_GATHER)
        ops.all_gather = all_gather;
    else if (at->kind == COMM_REDUCE_SCATTER)
        ops.reduce_scatter = reduce_scatter;
    else if (at->kind == COMM_ALL_REDUCE)
        ops.all_reduce = all_reduce;
    else if (at->kind == COMM_SWAP)
        ops.sendrecv = swap;
    else
        ops.all_to_all = all_to_all;
    chosen->ops = &ops;
}

static void train(const struct MpiRank *mpi, const struct Case *at, int victim) {
    struct RankSettings s = tiny_family(0, F32);
    struct Rank r;
    struct Error e;
    s.model.seq_len = 16; // for two places' rows
    s.stage = 3;
    s.threads = 1;
    s.rank = mpi->rank;
    s.ranks = mpi->size;
    s.processes = true;
    s.timeout_s = 2;
    s.comm_chunk = 65536;
    s.check_comm = true;
    at->set(&s);
    CHECK(!model_config_finish(&s.model, &e), "%s", e.text);
    tiny_open(&r, &s, 1);
    tiny_step(&r);
    if (mpi->rank == victim) {
        until_call = at->nth;
        at_exchange = at->exchange;
        watch(&r, at);
    }
    for (int step = 2;; step++) {
        tiny_step(&r);
        CHECK(step < 20 && (step < 4 || mpi->rank != victim), "rank %d: step %d has ended",
              mpi->rank, step);
    }
}

int main(int argc, char **argv) {
    struct MpiRank mpi;
    struct Error e;
    for (int i = 0; i < NCASE && argc == 2; i++)
        printf("%s\n", cases[i].name);
    if (argc < 4)
        return 0;
    CHECK(!mpi_start(&mpi, 0, 60, &e), "%s", e.text);
    CHECK(mpi.size == RANKS, "%d ranks: expected %d", mpi.size, RANKS);
    base_set_rank(mpi.rank);
    word = strcmp(argv[2], "kill") ? SIGSTOP : SIGKILL;
    for (int i = 0; i < NCASE; i++)
        if (strcmp(argv[1], cases[i].name) == 0)
            train(&mpi, &cases[i], atoi(argv[3]));
    CHECK(false, "no exchange %s", argv[1]);
}
