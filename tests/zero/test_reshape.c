// Checkpoints that change their shape: saved by some ranks at one stage, loaded by others at
// another.
//
// A chain of runs, 4 ranks -> 3 -> 7 -> 1 and back, goes on from each other's checkpoints through
// all stages. On loading every weight and both moments must be what was saved, bit by bit; the loss
// of the steps that follow must be that of a run that never changed its shape, to rounding; and
// where the shape stays, to the bit. The vocabularies and groups divide by none of these numbers.
//
// Faults 14 (states dropped on resume), 15 (padding misplaced when the ranks change) and 16 of real
// trainers are of this kind; 17 (data skipped) is in test_order.c too.
#include "zero/state.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"

#include "zero/checkpoint/checkpoint.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const char identity[] = "--lr 0.001\n";

// ---- one leg: load, train, save, on some ranks ----

enum { MOST_STEPS = 8 };

struct Leg {
    int ranks, stage, steps; // steps to train after loading
    enum Dtype dtype;
    size_t vocab;
    const char *folder; // where checkpoints lie
    bool loads, saves;
    // Results.
    int err;
    char text[ERROR_TEXT_BYTES];
    uint64_t loaded_state; // of weights and moments as loaded; does not depend on the shape
    uint64_t hash;         // of the weights at the end
    double loss[MOST_STEPS];
};

// A sum over all elements that this rank has the state of, each counted once over the ranks.
static uint64_t hash_state(struct Zero *z) {
    uint64_t sum = 0;
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    zero_sync(z);
    for (int g = 0; g < z->params->ngroup; g++) {
        size_t n = zero_shard_numel(z, g), begin = n * (size_t)z->shard_group->rank;
        size_t end = size_min(begin + n, z->params->group[g].numel);
        for (enum State what = 0; what < NSTATE && begin < end; what++) {
            zero_read_state(z, g, what, begin - zero_owned_begin(z, g), end - begin, chunk);
            for (size_t i = begin; i < end; i++) {
                uint64_t key = ((uint64_t)g * NSTATE + what) << 32 | i;
                sum += rng_mix(key * 0x9e3779b97f4a7c15u ^ f32_bits(chunk[i - begin]));
            }
        }
    }
    device_free_host(z->device, chunk);
    const uint64_t *all = zero_share(z, sum);
    sum = 0;
    for (int r = 0; r < z->shard_group->size; r++)
        sum += all[r];
    return sum;
}

static void run_leg(void *context, struct Rank *r) {
    struct Leg *shared = context, mine = *shared;
    struct Error e = {0};
    if (mine.loads)
        mine.err = checkpoint_resume(&r->zero, (const char *const[]){mine.folder, NULL}, "auto",
                                     identity, NULL, &e);
    mine.loaded_state = hash_state(&r->zero);
    for (int i = 0; i < mine.steps && !mine.err; i++)
        mine.loss[i] = tiny_step(r).loss;
    if (mine.saves && !mine.err)
        mine.err = checkpoint_save(&r->zero, mine.folder, identity, NULL, &e);
    mine.hash = zero_weights_hash(&r->zero);
    snprintf(mine.text, sizeof mine.text, "%s", e.text);
    if (r->shard_group->rank == 0)
        *shared = mine;
}

static void go(struct Leg *leg) {
    enum { GLOBAL_BATCH = 84 }; // of 1, 2, 3, 4, 7 and 12 ranks
    struct Error e;
    struct RankSettings s = tiny_settings(leg->dtype);
    s.model.vocab = leg->vocab;
    s.model.seq_len = 5;
    s.model.channels = 12;
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    s.ranks = leg->ranks;
    s.stage = leg->stage;
    s.batch = (size_t)(GLOBAL_BATCH / leg->ranks);
    s.nmicro = 1;
    s.grad_dtype = leg->dtype;
    s.threads = 1;
    tiny_ranks(&s, run_leg, leg);
    if (leg->err)
        fail_msg("%d ranks, stage %d: %s", leg->ranks, leg->stage, leg->text);
}

// ---- tests ----

static void expect_losses(const struct Leg *one, int step, const struct Leg *other) {
    for (int i = 0; i < other->steps; i++)
        if (!(fabs(other->loss[i] - one->loss[step + i]) <= 1e-6 * one->loss[step + i]))
            fail_msg("%d ranks, stage %d: loss %.9g, not %.9g, %d steps after loading",
                     other->ranks, other->stage, other->loss[i], one->loss[step + i], i + 1);
}

TEST(fault_15_16_any_shape_resumes_any_other) {
    static const struct {
        int ranks, stage;
    } legs[] = {{4, 3}, {3, 2}, {7, 3}, {1, 0}, {7, 1}, {2, 3}, {3, 0}, {1, 3}};
    static const size_t vocabs[] = {61, 50257};
    for (int v = 0; v < 2; v++) {
        char *folder = scratch_make();
        struct Leg whole = {.ranks = 1, .steps = MOST_STEPS, .vocab = vocabs[v]};
        go(&whole);
        uint64_t saved = 0;
        for (int i = 0; i < MOST_STEPS; i++) {
            struct Leg leg = {.ranks = legs[i].ranks, .stage = legs[i].stage, .steps = 1};
            leg.vocab = vocabs[v];
            leg.folder = folder;
            leg.loads = i > 0;
            leg.saves = true;
            go(&leg);
            if (i && leg.loaded_state != saved)
                fail_msg("%d ranks, stage %d: other weights or moments than were saved", leg.ranks,
                         leg.stage);
            expect_losses(&whole, i, &leg);
            struct Leg again = leg; // what was saved, by the shape that saved it
            again.loads = true;
            again.saves = false;
            again.steps = 0;
            go(&again);
            saved = again.loaded_state;
            assert_true(again.hash == leg.hash);
        }
        scratch_remove(folder);
    }
}

TEST(fault_14_the_same_shape_resumes_bitwise) {
    for (int stage = 0; stage < 4; stage++)
        for (enum Dtype d = F32; d <= BF16; d++) {
            char *folder = scratch_make();
            struct Leg whole = {.ranks = 3, .stage = stage, .steps = 6, .dtype = d, .vocab = 61};
            struct Leg first = whole, second;
            go(&whole);
            first.folder = folder;
            first.saves = true;
            first.steps = 3;
            go(&first);
            second = first;
            second.loads = true;
            second.saves = false;
            go(&second);
            assert_true(second.hash == whole.hash && first.hash != whole.hash);
            for (int i = 0; i < 3; i++)
                assert_true(second.loss[i] == whole.loss[3 + i]);
            scratch_remove(folder);
        }
}

// More files than a process may have open.
TEST(many_ranks_need_few_descriptors) {
    enum { RANKS = 12 }; // 144 files, if each rank held all of them
    struct rlimit usual, few;
    char *folder = scratch_make();
    struct Leg leg = {.ranks = RANKS, .stage = 3, .steps = 1, .vocab = 61, .folder = folder};
    leg.saves = true;
    go(&leg);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    few = usual;
    few.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    leg.loads = true;
    go(&leg);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
    scratch_remove(folder);
}

// ---- damage that only one rank sees ----

static void damage(const char *folder, int step, int rank, bool removes) {
    char *path = base_format("%s/step-%08d/rank-%04d.state", folder, step, rank);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, -100, SEEK_END), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, -100, SEEK_END), 0);
    fputc(byte ^ 1, f);
    fclose(f);
    if (removes)
        assert_int_equal(remove(path), 0);
    free(path);
}

TEST(all_ranks_turn_to_the_checkpoint_before) {
    for (int removes = 0; removes < 2; removes++)
        for (int rank = 0; rank < 3; rank++) {
            char *folder = scratch_make();
            struct Leg first = {.ranks = 3, .stage = 3, .steps = 2, .vocab = 61};
            first.folder = folder;
            first.saves = true;
            go(&first);
            struct Leg second = first;
            second.loads = true;
            go(&second); // saves step 4
            damage(folder, 4, rank, removes);
            struct Leg third = second;
            third.ranks = 2;
            go(&third); // from step 2 again
            for (int i = 0; i < 2; i++)
                assert_true(fabs(third.loss[i] - second.loss[i]) <= 1e-6 * second.loss[i]);
            scratch_remove(folder);
        }
}
