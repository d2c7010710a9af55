// Which GPU each rank gets, and how collectives travel: every case of zero/rank/rank_device.h, and
// what is refused.
#include "zero/rank/rank_device.h"
#include "kernels/library.h"
#include "tests/lib/refused.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <string.h>

static void expect(struct GpuAssignment seats, enum RankDeviceComm kind, int gpu) {
    struct RankDeviceChoice c = {0};
    struct Error e = {0};
    int err = rank_device_assign(&seats, &c, &e);
    if (err || c.kind != kind || c.gpu != gpu)
        fail_msg("%d ranks, %d here, %d GPUs: error %d (%s), kind %d, GPU %d", seats.ranks,
                 seats.node_ranks, seats.gpus, err, e.text, c.kind, c.gpu);
}

static void expect_refused(struct GpuAssignment seats, int code, const char *text) {
    struct RankDeviceChoice c;
    struct Error e = {0};
    assert_error(rank_device_assign(&seats, &c, &e), code, &e, text);
}

TEST(the_cpu_needs_no_gpu) {
    expect((struct GpuAssignment){.ranks = 1, .node_ranks = 1}, RANK_DEVICE_SELF, 0);
    expect((struct GpuAssignment){.ranks = 4, .node_ranks = 4, .gpus = 2, .nccl = true},
           RANK_DEVICE_THREAD, 0);
    expect((struct GpuAssignment){.processes = true, .ranks = 4, .node_ranks = 2, .nccl = true},
           RANK_DEVICE_MPI, 0);
}

TEST(threads_share_one_gpu_or_have_one_each) {
    struct GpuAssignment s = {.cuda = true, .ranks = 1, .node_ranks = 1, .gpus = 8, .nccl = true};
    expect(s, RANK_DEVICE_SELF, 0);
    s.ranks = s.node_ranks = 4;
    s.gpus = 1;
    for (s.node_rank = 0; s.node_rank < 4; s.node_rank++)
        expect(s, RANK_DEVICE_THREAD, 0);
    for (s.gpus = 4; s.gpus <= 8; s.gpus += 4)
        for (s.node_rank = 0; s.node_rank < 4; s.node_rank++)
            expect(s, RANK_DEVICE_NCCL, s.node_rank);
    s.gpus = 0; // a plan on a laptop
    s.node_rank = 3;
    expect(s, RANK_DEVICE_NCCL, 3);
}

TEST(processes_take_their_own_or_go_by_mpi) {
    struct GpuAssignment s = {.cuda = true,
                              .processes = true,
                              .ranks = 16,
                              .node_rank = 5,
                              .node_ranks = 8,
                              .gpus = 8,
                              .nccl = true};
    expect(s, RANK_DEVICE_NCCL, 5);
    s.nccl = false;
    expect(s, RANK_DEVICE_MPI, 5);
    s.gpus = 1; // the launcher shows each process its own, or all share one
    expect(s, RANK_DEVICE_MPI, 0);
    s.nccl = true;
    expect(s, RANK_DEVICE_NCCL, 0);
}

TEST(what_is_between_is_refused) {
    struct GpuAssignment s = {.cuda = true, .ranks = 4, .node_ranks = 4, .gpus = 2, .nccl = true};
    expect_refused(s, -EINVAL, "E_GPU_RANKS 4 ranks on this machine's 2 GPUs");
    s.processes = true;
    expect_refused(s, -EINVAL, "E_GPU_RANKS CUDA_VISIBLE_DEVICES=0");
    s.processes = false;
    s.gpus = 4;
    s.nccl = false;
    expect_refused(s, -ENOTSUP, "E_NCCL");
}

TEST(a_gpu_is_shared_if_two_name_it) {
    assert_true(rank_device_gpus_apart((const uint64_t[]){7, 9, 8}, 3));
    assert_false(rank_device_gpus_apart((const uint64_t[]){7, 9, 7}, 3));
    assert_false(rank_device_gpus_apart((const uint64_t[]){7, 0, 9}, 3));
    assert_false(rank_device_gpus_apart((const uint64_t[]){0}, 1));
}

TEST(a_library_that_is_not_there_is_named) {
    const char *const symbols[] = {"none"};
    void *function[1];
    struct Error e;
    assert_error(library_open("libnone.so.1", symbols, function, 1, "none-dev", &e), -ENOTSUP, &e,
                 "E_LIBRARY_MISSING libnone.so.1");
    assert_non_null(strstr(e.text, "none-dev"));
}
