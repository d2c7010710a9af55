// What is settled before a run on a GPU has opened it: whether CUDA loads all kernels at once, as
// ranks with a card each need, by cards that are counted without CUDA; and how much of its memory
// CUDA and its libraries take.
//
// CUDA reads its environment once a process, so each case is a child of its own; the parent never
// calls CUDA. In the simulator alone.
#include "kernels/cards.h"
#include "tests/lib/child.h"
#include "tests/lib/gpu_runs.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "zero/state.h"

// ---- how kernels are loaded ----

static char *folder; // in place of the driver's

// cards: that the driver lists, -1: it lists none; split: the first is, into two.
struct Start {
    int cards;
    bool split;
    const char *visible;      // CUDA_VISIBLE_DEVICES
    int ranks, node_ranks;    // node_ranks: of a launcher's processes; 0: they are threads
    const char *said, *found; // CUDA_MODULE_LOADING before, and when CUDA started
};

static void make_cards(const struct Start *s) {
    char *command = base_format("cd '%s' && mkdir gpus && cd gpus && seq -f 0000:0%%g:00.0 %d | "
                                "xargs -r mkdir",
                                folder, s->cards);
    char *split = base_format("mkdir -p '%s'/capabilities/gpu0/mig/gi1", folder);
    CHECK(s->cards < 0 || system(command) == 0, "%s", command);
    CHECK(!s->split || system(split) == 0, "%s", split);
    free(command);
    free(split);
}

static void set(const char *name, const char *value) {
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static void start(const void *start) {
    const struct Start *x = start;
    struct RankSettings s = tiny_settings(BF16);
    struct Error e = {0};
    make_cards(x);
    cards_folder = folder;
    set("CUDA_VISIBLE_DEVICES", x->visible);
    set("CUDA_MODULE_LOADING", x->said);
    sim_set_gpus(x->ranks);
    s.device = DEVICE_CUDA;
    s.ranks = x->ranks;
    s.processes = x->node_ranks > 0;
    s.node_ranks = x->node_ranks;
    CHECK(!sim_module_loading(), "CUDA was called already");
    CHECK(!rank_device_check(&s, &e), "%s", e.text);
    CHECK(strcmp(sim_module_loading(), x->found) == 0, "\"%s\", expected \"%s\"",
          sim_module_loading(), x->found);
}

static void expect_all(const struct Start *all, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int status;
        folder = scratch_make();
        char *said = child_said(start, &all[i], &status);
        if (status)
            fail_msg("case %zu: %d cards%s, CUDA_VISIBLE_DEVICES %s, %d ranks, %d processes: %s", i,
                     all[i].cards, all[i].split ? ", split" : "", all[i].visible, all[i].ranks,
                     all[i].node_ranks, said);
        free(said);
        scratch_remove(folder);
    }
}

TEST(threads_load_at_once_if_they_may_have_a_card_each) {
    static const struct Start all[] = {
        {2, false, NULL, 2, 0, NULL, "EAGER"},
        {1, false, NULL, 2, 0, NULL, ""},
        {2, false, "1", 2, 0, NULL, ""},
        {3, false, "2,0", 2, 0, NULL, "EAGER"},
        {2, false, "GPU-8932f937,GPU-18", 2, 0, NULL, "EAGER"},
        {1, false, "GPU-8932f937,GPU-18", 2, 0, NULL, ""}, // one of them is not here
        {2, false, "0,-1,1", 2, 0, NULL, ""},              // the list ends where one is not valid
        {2, false, "1,2,0", 2, 0, NULL, ""},
        {2, false, "0,none,1", 2, 0, NULL, ""},
        {2, false, "", 2, 0, NULL, ""},
    };
    expect_all(all, sizeof all / sizeof all[0]);
}

TEST(they_do_where_nothing_tells) {
    static const struct Start all[] = {
        {-1, false, NULL, 2, 0, NULL, "EAGER"},
        {0, false, NULL, 2, 0, NULL, "EAGER"},
        {1, true, NULL, 2, 0, NULL, "EAGER"},
        {1, true, "MIG-GPU-8932f937/1/0,MIG-GPU-8932f937/2/0", 2, 0, NULL, "EAGER"},
        {-1, false, "7,5", 2, 0, NULL, "EAGER"},
        {-1, false, "7", 2, 0, NULL, ""}, // one is one
        {1, true, "MIG-GPU-8932f937/1/0", 2, 0, NULL, ""},
    };
    expect_all(all, sizeof all / sizeof all[0]);
}

// A process sees what its launcher shows it, and others another.
TEST(processes_share_the_one_card_of_a_machine) {
    static const struct Start all[] = {
        {1, false, NULL, 2, 2, NULL, ""},      {1, false, "0", 4, 2, NULL, ""},
        {1, false, NULL, 2, 1, NULL, "EAGER"}, // of two nodes
        {2, false, "0", 2, 2, NULL, "EAGER"},  {2, false, NULL, 2, 2, NULL, "EAGER"},
        {-1, false, "0", 2, 2, NULL, "EAGER"}, {1, true, NULL, 2, 2, NULL, "EAGER"},
    };
    expect_all(all, sizeof all / sizeof all[0]);
}

TEST(one_rank_does_not_and_a_users_word_is_kept) {
    static const struct Start all[] = {
        {2, false, NULL, 1, 0, NULL, ""},
        {2, false, NULL, 2, 0, "LAZY", "LAZY"},
        {1, false, NULL, 2, 0, "EAGER", "EAGER"},
        {1, false, NULL, 1, 0, "EAGER", "EAGER"},
    };
    expect_all(all, sizeof all / sizeof all[0]);
}

// ---- what CUDA takes of a GPU's memory ----

struct Run {
    enum Dtype dtype, grad_dtype;
    bool autotune, foreseen;
};

static void train(void *context, struct Rank *r) {
    (void)context;
    tiny_step(r);
    char *choices = device_describe_choices(r->device);
    fprintf(stderr, "%016llx\n%.2000s\n", (unsigned long long)zero_weights_hash(&r->zero), choices);
    free(choices);
}

// Of a run that has ended only what CUDA and its libraries take is left.
static void take(const void *run) {
    const struct Run *x = run;
    struct RankSettings s = wide_settings(x->dtype, 1, 0, 64);
    struct RankDeviceMemory host = {1, 1}, before, again;
    struct Error e = {0};
    s.grad_dtype = x->grad_dtype;
    s.autotune = x->autotune;
    if (x->foreseen) {
        CHECK(!rank_device_memory(&s, host, 1, &before, &e), "%s", e.text);
        CHECK(!rank_device_memory(&s, host, 1, &again, &e), "%s", e.text);
        CHECK(again.process_bytes == before.process_bytes, "%zu bytes, and then %zu",
              before.process_bytes, again.process_bytes);
    }
    tiny_ranks(&s, train, NULL);
    struct DeviceMemory now = device_memory_cuda(0);
    CHECK(!x->foreseen || (before.process_bytes > 0 && now.used_bytes == before.process_bytes &&
                           now.free_bytes == before.free_bytes),
          "foreseen: %zu bytes, taken: %zu", before.process_bytes, now.used_bytes);
}

// What the run says of its bits and choices; free() it.
static char *said_by(struct Run run) {
    int status;
    char *said = child_said(take, &run, &status);
    if (status)
        fail_msg("%s, gradients %s: %s", dtype_name(run.dtype), dtype_name(run.grad_dtype), said);
    return said;
}

TEST(what_cuda_takes_is_foreseen) {
    free(said_by((struct Run){F32, F32, false, true}));
    free(said_by((struct Run){F16, F16, true, true}));
}

TEST(looking_ahead_changes_no_bit_and_no_choice) {
    char *with = said_by((struct Run){BF16, F32, false, true});
    char *without = said_by((struct Run){BF16, F32, false, false});
    assert_string_equal(with, without);
    assert_non_null(strstr(with, "cuBLASLt"));
    free(with);
    free(without);
}
