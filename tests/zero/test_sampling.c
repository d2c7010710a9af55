// Samples: that they end at a token that ends a text, on all ranks alike; and that a cache of keys
// and values, and a rank that only generates, change no token of them.
#include "model/sample.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"
#include "zero/state.h"

enum { PROMPT = 3, MADE = 20, RANKS = 3 };

struct Sampled {
    int32_t whole[PROMPT + MADE], text[RANKS][PROMPT + MADE];
    size_t made, count[RANKS];
};

static void generate(void *context, struct Rank *r) {
    struct Sampled *x = context;
    int32_t whole[PROMPT + MADE] = {1, 2, 3};
    struct Sampling sampling = {.temperature = 1, .seed = 9};
    size_t made = rank_generate(r, whole, PROMPT, MADE, &sampling);
    int32_t stops[] = {1000, whole[PROMPT + 6], whole[PROMPT + 9]};
    int rank = r->shard_group->rank;
    sampling.stops = stops;
    sampling.stop_count = 3;
    const int32_t prompt[] = {1, 2, 3};
    int32_t *text = rank_continue(r, prompt, PROMPT, MADE, &sampling, &x->count[rank]);
    memcpy(x->text[rank], text, (PROMPT + x->count[rank]) * sizeof *text);
    free(text);
    if (tiny_is_first(r)) {
        x->made = made;
        memcpy(x->whole, whole, sizeof whole);
    }
}

TEST(a_sample_stops_at_the_end_token_on_all_ranks) {
    for (int stage = 0; stage < 4; stage += 3) {
        struct RankSettings s = tiny_settings(F32);
        struct Sampled x = {.made = 0};
        s.ranks = RANKS;
        s.stage = stage;
        tiny_ranks(&s, generate, &x);
        assert_int_equal(x.made, MADE);
        size_t first = 0;
        while (x.whole[PROMPT + first] != x.whole[PROMPT + 6] &&
               x.whole[PROMPT + first] != x.whole[PROMPT + 9])
            first++;
        for (int rank = 0; rank < RANKS; rank++) {
            assert_int_equal(x.count[rank], first + 1);
            assert_memory_equal(x.text[rank], x.whole, (PROMPT + first + 1) * sizeof(int32_t));
        }
    }
}

// The prompt may end in such a token, as a conversation's does: something is drawn all the same.
static void ask_behind_an_end(void *context, struct Rank *r) {
    size_t *made = context;
    int32_t text[PROMPT + 1] = {1, 2, 3}, stop = 3;
    struct Sampling sampling = {.temperature = 1, .seed = 9, .stops = &stop, .stop_count = 1};
    *made = rank_generate(r, text, PROMPT, 1, &sampling);
}

TEST(a_prompt_does_not_end_the_sample) {
    struct RankSettings s = tiny_settings(F32);
    size_t made = 0;
    tiny_ranks(&s, ask_behind_an_end, &made);
    assert_int_equal(made, 1);
}

// ---- with a cache ----

// LONG: with the prompt more than the model's sequence of 17 tokens. PROMPT_LONG: more than are read
// at a time.
enum { LONG = 40, PROMPT_LONG = 1100 };

// A rank that does not train takes nothing for it in any tier, and no more than it was planned to.
static void check_memory(const struct Rank *r, const struct Rank *planned) {
    for (int tier = 0; tier < NTIER; tier++) {
        assert_int_equal(r->tier[tier].most[TAG_GRAD], 0);
        assert_int_equal(r->tier[tier].most[TAG_OPTIMIZER], 0);
        for (int tag = 0; tag < NTAG; tag++)
            assert_int_equal(r->tier[tier].most[tag], planned->tier[tier].most[tag]);
    }
}

// The initial weights of a rank that trains, for one that does not, which wants to read them.
static void draw_weights(struct Zero *z) {
    float *chunk = base_alloc(STATE_CHUNK * sizeof *chunk);
    zero_sync(z);
    for (int g = 0; g < z->params->ngroup; g++) {
        size_t begin = zero_owned_begin(z, g), n = zero_owned_numel(z, g);
        params_init(z->params, g, begin, begin + n, 1, z->device, chunk);
        device_sync_queue(z->device, QUEUE_COMPUTE);
        zero_write_state(z, g, STATE_MASTER, 0, n, chunk);
    }
    zero_store_params(z, false);
    free(chunk);
}

struct Text {
    const struct RankSettings *settings;
    size_t prompt, count; // tokens of the prompt, and to make
    int32_t ids[PROMPT_LONG + LONG];
};

static void write_text(void *context, struct Rank *r) {
    struct Text *x = context;
    int32_t text[PROMPT_LONG + LONG] = {0};
    // Low, so that a token follows from small differences of an untrained model's logits.
    struct Sampling sampling = {.temperature = 0.01f, .seed = 9};
    for (size_t i = 0; i < x->prompt; i++)
        text[i] = (int32_t)(1 + i * i % 60);
    if (x->settings->inference)
        draw_weights(&r->zero);
    size_t made = rank_generate(r, text, x->prompt, x->count, &sampling);
    if (r->all->rank != 0)
        return;
    assert_int_equal(made, x->count);
    memcpy(x->ids, text, sizeof text);
    if (x->settings->inference) {
        struct Rank dry;
        struct Error e;
        assert_int_equal(rank_open(&dry, x->settings, true, &e), 0);
        check_memory(r, &dry);
        rank_close(&dry);
    }
}

// The same text by whole passes, by a cache in a rank that trains, and in one that does not.
static void check_lengths(struct RankSettings s, size_t prompt, size_t count, const char *name) {
    struct Text whole = {&s, prompt, count, {0}}, cached = whole, alone = whole;
    tiny_ranks(&s, write_text, &whole);
    settings_set_cache(&s);
    tiny_ranks(&s, write_text, &cached);
    settings_set_inference(&s);
    settings_set_cache(&s);
    tiny_ranks(&s, write_text, &alone);
    for (size_t i = 0; i < prompt + count; i++)
        if (cached.ids[i] != whole.ids[i] || alone.ids[i] != whole.ids[i])
            fail_msg("%s, %s, stage %d, tp %zu, pp %zu: token %zu is %d by whole passes, %d with a "
                     "cache, %d without training",
                     name, dtype_name(s.model.dtype), s.stage, s.tp, s.pp, i, whole.ids[i],
                     cached.ids[i], alone.ids[i]);
}

static void check_texts(struct RankSettings s, const char *name) {
    check_lengths(s, PROMPT, LONG, name);
}

TEST(a_cache_changes_no_token) {
    for (int i = 0; i < TINY_FAMILIES; i++)
        for (enum Dtype d = F32; d < NDTYPE; d++) {
            struct RankSettings s = tiny_family(i, d);
            s.threads = 1;
            check_texts(s, tiny_family_name(i));
        }
}

TEST(a_cache_changes_no_token_on_any_grid) {
    for (int stage = 0; stage < 4; stage++) {
        struct RankSettings s = tiny_family(stage, stage % 2 ? BF16 : F32);
        s.threads = 1;
        s.stage = stage;
        s.ranks = 2;
        check_texts(s, "two ranks");
        s.param_tier = TIER_CPU;
        s.opt_tier = stage % 2 ? TIER_CPU : TIER_DEVICE;
        check_texts(s, "offloaded weights");
        s.param_tier = s.opt_tier = TIER_DEVICE;
        s.pp = 2;
        if (stage < 3)
            check_texts(s, "a pipeline");
    }
    struct RankSettings s = tiny_settings(F32);
    s.threads = 1;
    s.ranks = 3;
    s.tp = 3;
    check_texts(s, "tensor parallelism");
    s.model.seq_len = 18;
    s.sequence_parallel = true;
    check_texts(s, "sequence parallelism");
}

// What is read at a time goes into a window's ring whole.
TEST(a_long_prompt_changes_no_token) {
    int windows = 0;
    for (int i = 0; i < TINY_FAMILIES; i++) {
        struct RankSettings s = tiny_family(i, F32);
        windows += s.model.window > 0;
        s.threads = 1;
        s.model.seq_len = 2 * PROMPT_LONG;
        s.model.positions = s.model.positions ? s.model.seq_len : 0;
        struct Error e;
        CHECK(!model_config_finish(&s.model, &e), "%s", e.text);
        if (s.model.window || i == 0)
            check_lengths(s, PROMPT_LONG, 3, tiny_family_name(i));
    }
    assert_true(windows > 0);
}
