// Samples that end before their length: at a token that ends a text, on all ranks alike.
#include "model/sample.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"

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
