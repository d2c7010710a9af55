// Samples: that they end at a token that ends a text, on all ranks alike; and that a cache of keys
// and values, and a rank that only generates, change no token of them.
#include "tests/lib/child.h"
#include "tests/lib/generate.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"
#include "zero/process/request.h"
#include "zero/state.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

enum { PROMPT = 3, MADE = 20, RANKS = 3 };

// On whatever device there is; in the simulator few.
static enum Dtype dtypes_here(int family) {
    return !device_count_cuda() ? NDTYPE : family % 3 ? F32 : F32 + 1;
}
static struct RankSettings here(struct RankSettings s) {
    s.threads = 1;
    if (device_count_cuda())
        s.device = DEVICE_CUDA;
    return s;
}
static struct RankSettings family_here(int family, enum Dtype d) {
    return here(tiny_family(family, d));
}

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
    memcpy(x->text[rank], prompt, sizeof prompt);
    x->count[rank] = rank_generate(r, x->text[rank], PROMPT, MADE, &sampling);
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

// ---- stopped by a person ----

static void interrupt(const void *context) {
    const int *times = context;
    request_begin();
    request_answer_begin();
    for (int i = 0; i < *times; i++)
        raise(SIGINT);
    CHECK(request_to_stop(request_all()), "an answer goes on");
    request_answer_end();
    CHECK(!request_to_stop(request_all()), "the next answer is stopped, too");
    raise(SIGINT);
}

// INT stops the answer that is made; a second one, and one while none is made, ends the process.
TEST(an_interrupt_stops_an_answer) {
    if (tests_under_thread_sanitizer()) // which hands signals on late
        skip();
    for (int times = 1; times <= 2; times++) {
        int status;
        char *said = child_said(interrupt, &times, &status);
        if (times == 1 ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGINT
                       : !WIFEXITED(status) || WEXITSTATUS(status) != 128 + SIGINT)
            fail_msg("%d: status %#x: %s", times, (unsigned)status, said);
        free(said);
    }
}

// ---- with a cache ----

// LONG: with the prompt more than the model's sequence of 17 tokens. PROMPT_LONG: more than are
// read at a time.
enum { LONG = 40, PROMPT_LONG = 1100 };

// A rank that does not train takes nothing for it in any tier, and no more than it was planned to.
static void check_planned(const struct Rank *r, const struct RankSettings *s) {
    struct Rank planned;
    struct Error e;
    CHECK(!rank_open(&planned, s, true, &e), "%s", e.text);
    for (int tier = 0; tier < NTIER; tier++)
        for (int tag = 0; tag < NTAG; tag++) {
            size_t most = r->tier[tier].most[tag], trains = tag == TAG_GRAD || tag == TAG_OPTIMIZER;
            CHECK(most == planned.tier[tier].most[tag] && (!trains || !most),
                  "%s %s: %zu bytes, planned %zu", tier_name(tier), tag_name(tag), most,
                  planned.tier[tier].most[tag]);
        }
    rank_close(&planned);
}

// The same weights on any device, whether the rank trains or not.
static void draw_weights(struct Zero *z) {
    float *chunk = base_alloc(STATE_CHUNK * sizeof *chunk);
    zero_sync(z);
    for (int g = 0; g < z->params->ngroup; g++) {
        size_t begin = zero_owned_begin(z, g), n = zero_owned_numel(z, g);
        for (size_t i = 0; i < n; i++)
            chunk[i] = 0.2f * rng_normal(100 + (uint64_t)g, begin + i);
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
    draw_weights(&r->zero);
    size_t made = rank_generate(r, text, x->prompt, x->count, &sampling);
    if (r->all->rank != 0)
        return;
    assert_int_equal(made, x->count);
    memcpy(x->ids, text, sizeof text);
    if (x->settings->inference)
        check_planned(r, x->settings);
}

// The same text by whole passes, by a cache in a rank that trains, and in one that does not.
static void check_lengths(struct RankSettings s, size_t prompt, size_t count, const char *name) {
    struct Text whole = {&s, prompt, count, {0}}, cached = whole, alone = whole;
    tiny_ranks(&s, write_text, &whole);
    settings_set_cache(&s, 1);
    tiny_ranks(&s, write_text, &cached);
    settings_set_inference(&s);
    settings_set_cache(&s, 1);
    tiny_ranks(&s, write_text, &alone);
    for (size_t i = 0; i < prompt + count; i++)
        if (cached.ids[i] != whole.ids[i] || alone.ids[i] != whole.ids[i])
            fail_msg("%s, %s, stage %d, tp %zu, pp %zu: token %zu is %d by whole passes, %d with a "
                     "cache, %d without training",
                     name, dtype_name(s.model.dtype), s.stage, s.tp, s.pp, i, whole.ids[i],
                     cached.ids[i], alone.ids[i]);
}

static void check_texts(struct RankSettings s, const char *name) {
    check_lengths(s, PROMPT, device_count_cuda() ? LONG / 4 : LONG, name);
}

TEST(a_cache_changes_no_token) {
    for (int i = 0; i < TINY_FAMILIES; i++)
        for (enum Dtype d = F32; d < dtypes_here(i); d++) {
            struct RankSettings s = family_here(i, d);
            check_texts(s, tiny_family_name(i));
        }
}

TEST(a_cache_changes_no_token_on_any_grid) {
    for (int stage = 0; stage < 4; stage++) {
        struct RankSettings s = family_here(stage, stage % 2 ? BF16 : F32);
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
    struct RankSettings s = here(tiny_settings(F32));
    s.ranks = 3;
    s.tp = 3;
    check_texts(s, "tensor parallelism");
    s.model.seq_len = 18;
    s.sequence_parallel = true;
    check_texts(s, "sequence parallelism");
}

// What is read at a time goes into a window's ring whole.
TEST(a_long_prompt_changes_no_token) {
    if (device_count_cuda())
        skip(); // the simulator takes minutes
    int windows = 0;
    for (int i = 0; i < TINY_FAMILIES; i++) {
        struct RankSettings s = family_here(i, F32);
        windows += s.model.window > 0;
        s.model.seq_len = 2 * PROMPT_LONG;
        s.model.positions = s.model.positions ? s.model.seq_len : 0;
        struct Error e;
        CHECK(!model_config_finish(&s.model, &e), "%s", e.text);
        if (s.model.window || i == 0)
            check_lengths(s, PROMPT_LONG, 3, tiny_family_name(i));
    }
    assert_true(windows > 0);
}

// ---- several texts together ----

// TEXTS are continued, BESIDE at a time; each has another length, so that they end one by one.
enum { TEXTS = 5, BESIDE = 3, LONGEST = 40 };

struct Texts {
    const struct RankSettings *settings;
    size_t beside; // 1: one after the other
    size_t count[TEXTS];
    int32_t ids[TEXTS][LONGEST];
};

static void begin_text(struct Generation *g, size_t place, size_t text) {
    static const struct Sampling sampling = {.temperature = 0.01, .seed = 9};
    int32_t prompt[LONGEST];
    size_t length = 1 + text * 4 % 11;
    for (size_t i = 0; i < length; i++)
        prompt[i] = (int32_t)(1 + (text + i * i) % 60);
    generation_begin(g, place, prompt, length, 5 + 6 * (text % 3), &sampling);
}

static void write_texts(void *context, struct Rank *r) {
    struct Texts *x = context;
    struct Generation g;
    size_t begun = 0, done = 0, text_at[BESIDE];
    draw_weights(&r->zero);
    generation_open(&g, r);
    CHECK(g.texts == x->beside, "%zu texts", g.texts);
    for (; begun < x->beside; begun++)
        begin_text(&g, begun, text_at[begun] = begun);
    while (done < TEXTS) {
        generation_step(&g);
        for (size_t i = 0; i < g.texts; i++) {
            struct GenText *text = &g.text[i];
            if (text->active || text_at[i] == TEXTS)
                continue;
            if (tiny_is_first(r)) {
                x->count[text_at[i]] = text->count;
                memcpy(x->ids[text_at[i]], text->ids, text->count * sizeof(int32_t));
            }
            done++;
            text_at[i] = begun < TEXTS ? begun++ : TEXTS;
            if (text_at[i] < TEXTS)
                begin_text(&g, i, text_at[i]);
        }
    }
    generation_close(&g);
    if (r->all->rank == 0)
        check_planned(r, x->settings);
}

static void check_beside(struct RankSettings s, const char *name) {
    struct Texts alone = {&s, 1, {0}, {{0}}}, together = {&s, BESIDE, {0}, {{0}}};
    settings_set_inference(&s);
    settings_set_cache(&s, alone.beside);
    tiny_ranks(&s, write_texts, &alone);
    settings_set_cache(&s, together.beside);
    tiny_ranks(&s, write_texts, &together);
    for (size_t i = 0; i < TEXTS; i++) {
        assert_true(alone.count[i] > 5);
        assert_int_equal(together.count[i], alone.count[i]);
        for (size_t j = 0; j < alone.count[i]; j++)
            if (alone.ids[i][j] != together.ids[i][j])
                fail_msg("%s, %s: token %zu of text %zu is %d alone, %d beside others", name,
                         dtype_name(s.model.dtype), j, i, alone.ids[i][j], together.ids[i][j]);
    }
}

TEST(a_text_does_not_depend_on_those_beside_it) {
    for (int i = 0; i < TINY_FAMILIES; i++)
        for (enum Dtype d = F32; d < dtypes_here(i); d++) {
            struct RankSettings s = family_here(i, d);
            if (s.model.sparse.mode == SPARSE_DENSE)
                check_beside(s, tiny_family_name(i));
        }
    struct RankSettings s = here(tiny_settings(F32));
    s.cache_dtype = BF16;
    check_beside(s, "a cache in bf16");
    s.cache_dtype = NDTYPE;
    s.stage = 3;
    s.ranks = 2;
    check_beside(s, "stage 3");
    s.pp = 2;
    s.stage = 1;
    check_beside(s, "a pipeline");
    s.pp = 1;
    s.ranks = s.tp = 3;
    s.model.vocab = 3 * 61; // each place has a part of it
    struct Error e;
    CHECK(!model_config_finish(&s.model, &e), "%s", e.text);
    check_beside(s, "tensor parallelism");
}

// A model that overflows ends the text on all ranks, each with its error.
static void overflow(void *context, struct Rank *r) {
    int *code = context;
    struct Sampling sampling = {.temperature = 1, .seed = 9};
    struct Generation g;
    struct Error e = {0};
    zero_sync(&r->zero);
    for (int group = 0; group < r->params.ngroup; group++) {
        size_t n = zero_owned_numel(&r->zero, group);
        float *huge = base_alloc((n + 1) * sizeof *huge);
        for (size_t i = 0; i < n; i++)
            huge[i] = 1e30f;
        zero_write_state(&r->zero, group, STATE_MASTER, 0, n, huge);
        free(huge);
    }
    zero_store_params(&r->zero, false);
    generation_open(&g, r);
    generation_begin(&g, 0, (const int32_t[]){1, 2, 3}, 3, 5, &sampling);
    assert_int_equal(generation_check(&g, &e), 0);
    assert_int_equal(generation_step(&g), 0);
    assert_int_equal(g.text[0].count, 3);
    code[r->all->rank] = generation_check(&g, &e);
    if (r->all->rank == 0)
        assert_true(error_is(&e, "E_LOGITS_NOT_FINITE"));
    generation_close(&g);
}

TEST(logits_that_are_not_finite_end_a_text) {
    for (int pp = 1; pp <= 2; pp++) {
        struct RankSettings s = tiny_settings(F32);
        int code[2] = {0};
        s.ranks = 2;
        s.threads = 1;
        s.pp = (size_t)pp;
        tiny_ranks(&s, overflow, code);
        assert_int_equal(code[0], -EDOM);
        assert_int_equal(code[1], -EDOM);
    }
}

// What a second prompt has in common with the text before it is not run again, to the same tokens.
static void talk(void *context, struct Rank *r) {
    const bool *anew = context;
    static int32_t said[2][LONGEST];
    struct Sampling sampling = {.temperature = 0.01f, .seed = 9};
    struct Generation g;
    draw_weights(&r->zero);
    generation_open(&g, r);
    int32_t prompt[LONGEST] = {5, 6, 7, 8};
    generation_begin(&g, 0, prompt, 4, 3, &sampling);
    while (generation_step(&g))
        ;
    memcpy(prompt, g.text[0].ids, 6 * sizeof *prompt); // without the last token that was made
    prompt[6] = 9;
    if (*anew) {
        generation_close(&g);
        generation_open(&g, r);
    }
    generation_begin(&g, 0, prompt, 7, 5, &sampling);
    assert_int_equal(g.text[0].cached, *anew ? 0 : 6);
    while (generation_step(&g))
        ;
    assert_int_equal(g.text[0].count, 12);
    memcpy(said[*anew], g.text[0].ids, 12 * sizeof(int32_t));
    generation_close(&g);
    if (*anew)
        assert_memory_equal(said[0], said[1], 12 * sizeof(int32_t));
}

TEST(a_conversation_goes_on_in_the_cache) {
    for (int anew = 0; anew < 2; anew++) {
        bool flag = anew;
        struct RankSettings s = here(tiny_settings(F32));
        settings_set_inference(&s);
        settings_set_cache(&s, 1);
        tiny_ranks(&s, talk, &flag);
    }
}
