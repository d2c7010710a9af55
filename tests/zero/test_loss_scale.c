// The loss scale's state machine, against sequences that were worked out by hand from its rules:
// initial scale, hysteresis, halving, the minimum, the window, and what each of them resets.
#include "zero/train/trainer.h"
#include "tests/lib/test.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// A sequence of steps, a letter each: '.' a good one, '!' an overflow; and the scale and what is
// left of the hysteresis after each of them.
struct Overflows {
    const char *what;
    struct LossScaleSettings settings;
    const char *steps;
    float scale[16];
    uint64_t hysteresis[16];
};

static const struct Overflows sequences[] = {
    {"the first overflow uses up the hysteresis, the next ones halve",
     {65536, 1, 1000, 2},
     "!!!.!",
     {65536, 32768, 16384, 16384, 8192},
     {1, 1, 1, 1, 1}},
    {"a hysteresis of 1 halves at once", {8, 1, 1000, 1}, "!!!", {4, 2, 1}, {1, 1, 1}},
    {"a hysteresis of 3 lets two pass, good steps between them or not",
     {8, 1, 1000, 3},
     "!..!.!!",
     {8, 8, 8, 8, 8, 4, 2},
     {2, 2, 2, 1, 1, 1, 1}},
    {"never below the minimum", {4, 2, 1000, 1}, "!!!.!", {2, 2, 2, 2, 2}, {1, 1, 1, 1, 1}},
    {"a minimum that no halving meets is met all the same",
     {8, 3, 1000, 1},
     "!!!",
     {4, 3, 3},
     {1, 1, 1}},
    {"each window of good steps doubles",
     {16, 1, 3, 2},
     "......",
     {16, 16, 32, 32, 32, 64},
     {2, 2, 2, 2, 2, 2}},
    {"an overflow begins the window anew",
     {16, 1, 3, 2},
     "..!...!!...",
     {16, 16, 16, 16, 16, 32, 32, 16, 16, 16, 32},
     {2, 2, 1, 1, 1, 2, 1, 1, 1, 1, 2}},
    {"good steps renew the hysteresis at the end of a window alone",
     {16, 1, 4, 2},
     "!...!....!",
     {16, 16, 16, 16, 8, 8, 8, 8, 16, 16},
     {1, 1, 1, 1, 1, 1, 1, 1, 2, 1}},
    {"a window of 1 doubles after each good step",
     {1, 1, 1, 2},
     "..!!.",
     {2, 4, 4, 2, 4},
     {2, 2, 1, 1, 2}},
    {"a window of 0 never grows",
     {16, 1, 0, 2},
     "....!!..",
     {16, 16, 16, 16, 16, 8, 8, 8},
     {2, 2, 2, 2, 1, 1, 1, 1}},
    {"growth ends before infinity",
     {0x1p99f, 1, 1, 2},
     "...!!",
     {0x1p100f, 0x1p100f, 0x1p100f, 0x1p100f, 0x1p99f},
     {2, 2, 2, 1, 1}},
    {"no scale: 1 for ever", {1, 1, 0, 1}, "..!!!..", {1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1}},
};

TEST(sequences_worked_out_by_hand) {
    for (size_t i = 0; i < sizeof sequences / sizeof sequences[0]; i++) {
        const struct Overflows *s = &sequences[i];
        struct LossScale got = loss_scale_start(&s->settings);
        assert_true(got.scale == s->settings.initial && got.hysteresis == s->settings.hysteresis);
        for (size_t k = 0; k < strlen(s->steps); k++) {
            loss_scale_update(&got, &s->settings, s->steps[k] == '!');
            if (got.scale != s->scale[k] || got.hysteresis != s->hysteresis[k])
                fail_msg("%s: after %zu steps of %s the scale is %g with %d left, should be %g, %d",
                         s->what, k + 1, s->steps, got.scale, (int)got.hysteresis, s->scale[k],
                         (int)s->hysteresis[k]);
        }
    }
}

// DeepSpeed's usual settings over a long run: the 1000th good step doubles, not the 999th.
TEST(the_usual_window) {
    const struct LossScaleSettings usual = {65536, 1, 1000, 2};
    struct LossScale s = loss_scale_start(&usual);
    for (int i = 0; i < 999; i++)
        loss_scale_update(&s, &usual, false);
    assert_true(s.scale == 65536);
    loss_scale_update(&s, &usual, false);
    assert_true(s.scale == 131072);
    for (int i = 0; i < 999; i++)
        loss_scale_update(&s, &usual, false);
    loss_scale_update(&s, &usual, true); // one step before the second window's end
    assert_true(s.scale == 131072 && s.hysteresis == 1);
    for (int i = 0; i < 1000; i++)
        loss_scale_update(&s, &usual, false);
    assert_true(s.scale == 262144 && s.hysteresis == 2);
}

TEST(no_scale_is_that_of_the_table) {
    struct LossScale s = loss_scale_start(&loss_scale_none);
    for (int i = 0; i < 3000; i++)
        loss_scale_update(&s, &loss_scale_none, i % 7 == 0);
    assert_true(s.scale == 1);
}

TEST(what_an_overflow_did_is_told) {
    static const char *const said[] = {
        ", the loss scale stays at 4 (of --loss-scale-hysteresis 2 left)",
        ", the loss scale stays at 4 (of --loss-scale-hysteresis 1 left)",
        ", the loss scale is halved to 2", ", the loss scale is halved to 1.5",
        ", the loss scale stays at 1.5, its minimum"};
    const struct LossScaleSettings settings = {4, 1.5f, 0, 3};
    struct LossScale now = loss_scale_start(&settings), before;
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        char text[128];
        before = now;
        loss_scale_update(&now, &settings, true);
        loss_scale_describe(&before, &now, text, sizeof text);
        assert_string_equal(text, said[i]);
    }
}
