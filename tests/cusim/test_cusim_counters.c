// What the simulator counts of a kernel's memory (counters.cc), held against counts by hand.
#include "tests/cusim/probes.h"
#include "tests/cusim/sim.h"
#include "tests/lib/test.h"
#include "tests/lib/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FLOATS = 1024 };

static cudaStream_t stream;
static float *x, *y;

static struct SimCounts counts_of(const char *kernel) {
    cudaStreamSynchronize(stream);
    struct SimCounts c = sim_counts(kernel);
    assert_string_equal(sim_counted(0), kernel);
    assert_null(sim_counted(1));
    return c;
}

static void expect_sectors(const char *what, struct SimCounts c, unsigned asked, unsigned moved,
                           unsigned touched) {
    if (c.asked != asked || c.moved != moved || c.touched != touched)
        fail_msg("%s: %u asked, %u moved, %u touched; not %u, %u, %u", what, (unsigned)c.asked,
                 (unsigned)c.moved, (unsigned)c.touched, asked, moved, touched);
}

static void expect_passes(const char *what, struct SimCounts c, unsigned passes, unsigned ideal) {
    if (c.passes != passes || c.ideal != ideal)
        fail_msg("%s: %u passes, %u at best; not %u, %u", what, (unsigned)c.passes,
                 (unsigned)c.ideal, passes, ideal);
}

// ---- sectors ----

// Of the random floats: distinct sectors of each warp, and of both.
static void count_random(unsigned *each, unsigned *both) {
    bool seen[2][FLOATS / 8] = {{false}};
    *each = *both = 0;
    for (unsigned i = 0; i < 64; i++) {
        unsigned sector = probe_random(i) / 8;
        *both += !seen[0][sector] && !seen[1][sector];
        *each += !seen[i / 32][sector];
        seen[i / 32][sector] = true;
    }
}

TEST(sectors_are_those_of_a_gpu) {
    // Loads; the stores are 8 more: of 64 floats, side by side.
    static const struct {
        const char *name;
        unsigned asked, moved, touched;
    } loads[NPROBEMOVE] = {
        [MOVE_PACKS] = {"packs", 32 + 24, 32 + 24, 32 + 24}, // as many stores
        [MOVE_HALVES] = {"halves of packs", 32 + 24, 32 + 24, 32 + 24},
        [MOVE_SECOND] = {"every second float", 16, 16, 16},
        [MOVE_SECTORS] = {"every eighth float", 64, 64, 64},
        [MOVE_SHIFTED] = {"shifted", 10, 9, 9}, // L1 has the sector that both warps touch
        [MOVE_ONE] = {"one", 2, 1, 1},
        [MOVE_LOOP] = {"a loop", 24, 24, 24},
        [MOVE_UNEQUAL] = {"an unequal loop", 32, 24,
                          24}, // the lanes' second turns: a GPU asks for 24
        [MOVE_MET] = {"an unequal loop with meetings", 24, 24, 24},
        [MOVE_AGAIN] = {"one row again", 24, 8, 8},
    };
    for (int order = 0; order < NSIMORDER; order++) {
        sim_set_order((enum SimOrder)order, 3);
        for (int m = 0; m < NPROBEMOVE; m++) {
            unsigned asked = loads[m].asked, moved = loads[m].moved, touched = loads[m].touched;
            if (m == MOVE_RANDOM) {
                count_random(&asked, &touched);
                moved = touched;
            }
            sim_count(true);
            probe_move(stream, (enum ProbeMove)m, y, x);
            expect_sectors(loads[m].name ? loads[m].name : "random", counts_of("move_kernel"),
                           asked + 8, moved + 8, touched + 8);
        }
    }
    sim_set_order(SIM_FORWARD, 1);
}

// What is called small is counted apart from its second time on; L1 is each block's own.
TEST(small_operands_are_apart) {
    for (int small = 0; small < 2; small++) {
        sim_count(true);
        if (small)
            sim_count_small(x, 64 * sizeof *x);
        probe_add(stream, y, x, 1, 64);
        probe_add(stream, y, x, 1, 64);
        struct SimCounts c = counts_of("add_kernel");
        assert_int_equal(c.launches, 2);
        expect_sectors("two launches", c, 32, 32, 32);
        assert_int_equal(c.again, 0);
    }
    for (int small = 0; small < 2; small++) {
        unsigned zero = 0;
        cudaMemcpyAsync(y, &zero, sizeof zero, cudaMemcpyDefault, stream);
        sim_count(true);
        if (small)
            sim_count_small(x, sizeof *x);
        probe_first(stream, y, x, 5);
        struct SimCounts c = counts_of("first_kernel");
        expect_sectors("five blocks", c, 10, small ? 6 : 10, 2);
        assert_int_equal(c.again, small ? 4 : 0);
    }
}

TEST(nothing_is_counted_unasked) {
    sim_count(false);
    probe_add(stream, y, x, 1, 64);
    cudaStreamSynchronize(stream);
    assert_null(sim_counted(0));
}

// ---- banks ----

TEST(passes_are_those_of_a_gpu) {
    static const struct {
        const char *name;
        unsigned written, read, ideal; // ideal: of both
    } passes[NPROBEBANK] = {
        [BANK_ROW] = {"a row", 1, 1, 2},
        [BANK_COLUMN] = {"a column", 32, 32, 2},
        [BANK_PADDED] = {"a column of 33", 1, 1, 2},
        [BANK_ONE] = {"one float", 1, 1, 2},
        [BANK_PAIRS] = {"pairs", 2, 2, 4},
        [BANK_PACKS] = {"packs", 4, 4, 8},
        [BANK_PACKROWS] = {"packs of rows", 32, 32, 8},
    };
    for (int b = 0; b < NPROBEBANK; b++) {
        sim_count(true);
        probe_bank(stream, (enum ProbeBank)b, y);
        expect_passes(passes[b].name, counts_of("bank_kernel"), passes[b].written + passes[b].read,
                      passes[b].ideal);
    }
    // cp.async writes as packs are written; ldmatrix reads 8 rows at a time.
    static const unsigned stride[] = {16, 128, 144, 32}, each[] = {4, 32, 4, 8};
    for (int i = 0; i < 4; i++) {
        sim_count(true);
        probe_matrix(stream, (unsigned *)y, x, (int)stride[i]);
        struct SimCounts c = counts_of("matrix_kernel");
        expect_passes("a matrix", c, 2 * each[i], 8);
        expect_sectors("a matrix", c, 16 + 4, 16 + 4, 16 + 4);
    }
}

// One pass for each lane that changes the same word.
TEST(atomics_take_turns) {
    sim_count(true);
    probe_count_shared(stream, (unsigned *)y);
    expect_passes("atomics", counts_of("count_shared_kernel"), 1 + 32 + 1, 3);
}

static int open_stream(void **state) {
    float values[FLOATS] = {0};
    (void)state;
    cudaMalloc((void **)&x, sizeof values);
    cudaMalloc((void **)&y, sizeof values);
    if (cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0) != cudaSuccess)
        return -1;
    cudaMemcpyAsync(x, values, sizeof values, cudaMemcpyDefault, stream);
    cudaStreamSynchronize(stream);
    return 0;
}

AROUND_ALL(open_stream, NULL);
