// Progress: plain lines in a file, one redrawn line on a terminal, and messages that do not garble
// it.
//
// The terminal is a pseudo-terminal pair; what the program writes is played into a small model of a
// screen that knows carriage return, newline and "erase to the end of the line".
#include "data/log/progress.h"
#include "tests/lib/test.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static double now; // the clock that the tests turn

static double test_clock(void) {
    return now;
}

static void start(struct Progress *p, FILE *out, uint64_t done, uint64_t steps,
                  uint64_t log_every) {
    progress_open(p, out, done, steps, log_every);
    now = 0;
    p->clock = test_clock;
    p->time_shown = 0;
}

// One step that took `seconds`.
static void show(struct Progress *p, uint64_t step, double seconds) {
    now += seconds;
    struct LogStep s = {.step = step,
                        .loss = 4.12341f,
                        .grad_norm = 0.8712f,
                        .lr = 6e-4f,
                        .tokens_per_s = 12345.6,
                        .light = 0.714};
    progress_show(p, &s);
}

// ---- plain ----

TEST(plain_lines_are_the_first_every_nth_and_the_last) {
    char *text = NULL;
    size_t n;
    FILE *out = tmpfile();
    struct Progress p;
    start(&p, out, 0, 25, 10);
    for (uint64_t step = 1; step <= 25; step++) {
        show(&p, step, 2);
        if (step == 12)
            progress_message(&p, "saved %s", "here");
    }
    progress_close(&p);
    rewind(out);
    static const char *const expected[] = {
        "step  1/25  loss 4.1234  norm 0.871  lr 6.00e-04  12.3k tok/s  71% of speed of light  48s "
        "left\n",
        "step 10/25  loss 4.1234  norm 0.871  lr 6.00e-04  12.3k tok/s  71% of speed of light  30s "
        "left\n",
        "saved here\n",
        "step 20/25  loss 4.1234  norm 0.871  lr 6.00e-04  12.3k tok/s  71% of speed of light  10s "
        "left\n",
        "step 25/25  loss 4.1234  norm 0.871  lr 6.00e-04  12.3k tok/s  71% of speed of light\n",
    };
    for (int i = 0; i < 5; i++) {
        assert_true(getline(&text, &n, out) > 0);
        assert_string_equal(text, expected[i]);
    }
    assert_int_equal(getline(&text, &n, out), -1);
    free(text);
    fclose(out);
}

TEST(a_resumed_run_shows_its_first_step) {
    char *text = NULL;
    size_t n;
    FILE *out = tmpfile();
    struct Progress p;
    start(&p, out, 500, 1000, 0); // no lines but the first and the last
    for (uint64_t step = 501; step <= 1000; step++)
        show(&p, step, 10);
    rewind(out);
    assert_true(getline(&text, &n, out) > 0);
    assert_non_null(strstr(text, "step  501/1000 "));
    assert_non_null(strstr(text, "1h23m left")); // 499 steps of 10 s
    assert_true(getline(&text, &n, out) > 0);
    assert_non_null(strstr(text, "step 1000/1000 "));
    assert_int_equal(getline(&text, &n, out), -1);
    free(text);
    fclose(out);
}

TEST(the_rate_follows_a_change_and_forgets_a_slow_start) {
    FILE *out = tmpfile();
    struct Progress p;
    start(&p, out, 0, 100000, 0);
    show(&p, 1, 100);
    assert_true(p.step_s == 100);
    show(&p, 2, 3);
    assert_true(p.step_s == 3); // the first step is no measure for the others
    for (uint64_t step = 3; step <= 1000; step++)
        show(&p, step, 1);
    assert_true(p.step_s > 0.999 && p.step_s < 1.001);
    for (uint64_t step = 1001; step <= 1200; step++)
        show(&p, step, 3);
    assert_true(p.step_s > 2.9 && p.step_s <= 3);
    fclose(out);
}

// ---- terminal ----

enum { ROWS = 12, COLUMNS = 256 };

struct Terminal {
    int fd; // the screen's side
    FILE *out;
    int width;
    char screen[ROWS][COLUMNS];
    int row, column;
    size_t redraws;
};

static void terminal_open(struct Terminal *t, unsigned short width) {
    memset(t, 0, sizeof *t);
    t->width = width;
    t->fd = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(t->fd >= 0 && !grantpt(t->fd) && !unlockpt(t->fd));
    int program = open(ptsname(t->fd), O_RDWR | O_NOCTTY);
    struct winsize size = {.ws_row = ROWS, .ws_col = width};
    assert_true(program >= 0 && !ioctl(program, TIOCSWINSZ, &size));
    t->out = fdopen(program, "w");
    setenv("TERM", "xterm", 1);
}

static void terminal_put(struct Terminal *t, char c) {
    if (c == '\r')
        t->column = 0;
    else if (c == '\n')
        t->row++;
    else
        t->screen[t->row][t->column++] = c;
    assert_true(t->column < t->width && t->row < ROWS); // never into the last column: it may wrap
}

// Plays what has been written so far onto the screen.
static void terminal_play(struct Terminal *t) {
    char text[4096];
    fflush(t->out);
    fcntl(t->fd, F_SETFL, O_NONBLOCK);
    for (ssize_t n; (n = read(t->fd, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < n; i++)
            if (text[i] != 27) {
                terminal_put(t, text[i]);
            } else {
                assert_true(i + 2 < n && text[i + 1] == '[' && text[i + 2] == 'K');
                char *row = t->screen[t->row];
                memset(row + t->column, 0, (size_t)(COLUMNS - t->column));
                t->redraws++;
                i += 2;
            }
}

static void terminal_close(struct Terminal *t) {
    fclose(t->out);
    close(t->fd);
}

TEST(a_terminal_has_one_line_and_messages_above) {
    struct Terminal t;
    struct Progress p;
    terminal_open(&t, 120);
    start(&p, t.out, 0, 1000, 10);
    progress_message(&p, "hello");
    show(&p, 1, 1);
    show(&p, 2, 1);
    progress_message(&p, "two\nlines");
    show(&p, 3, 1);
    terminal_play(&t);
    assert_string_equal(t.screen[0], "hello");
    assert_string_equal(t.screen[1], "two");
    assert_string_equal(t.screen[2], "lines");
    assert_string_equal(t.screen[3], "step    3/1000  loss 4.1234  norm 0.871  lr 6.00e-04  "
                                     "12.3k tok/s  71% of speed of light  16m37s left");
    show(&p, 1000, 997);
    progress_close(&p);
    progress_close(&p);
    progress_message(&p, "after");
    terminal_play(&t);
    assert_string_equal(t.screen[3], "step 1000/1000  loss 4.1234  norm 0.871  lr 6.00e-04  "
                                     "12.3k tok/s  71% of speed of light");
    assert_string_equal(t.screen[4], "after");
    assert_string_equal(t.screen[5], "");
    terminal_close(&t);
}

TEST(fast_steps_are_not_all_drawn) {
    struct Terminal t;
    struct Progress p;
    terminal_open(&t, 120);
    start(&p, t.out, 0, 1000, 1);
    for (uint64_t step = 1; step <= 1000; step++)
        show(&p, step, 0.001); // one second in all
    terminal_play(&t);
    assert_true(t.redraws >= 5 && t.redraws <= 12);
    assert_non_null(strstr(t.screen[0], "step 1000/1000"));
    terminal_close(&t);
}

TEST(a_message_draws_the_newest_step) {
    struct Terminal t;
    struct Progress p;
    terminal_open(&t, 120);
    start(&p, t.out, 0, 1000, 1);
    show(&p, 1, 1);
    show(&p, 2, 0.001); // too soon to be drawn
    terminal_play(&t);
    assert_non_null(strstr(t.screen[0], "step    1/1000"));
    progress_message(&p, "saved");
    terminal_play(&t);
    assert_string_equal(t.screen[0], "saved");
    assert_non_null(strstr(t.screen[1], "step    2/1000"));
    terminal_close(&t);
}

TEST(a_narrow_window_keeps_what_matters) {
    static const struct {
        unsigned short width;
        const char *line;
    } expected[] = {
        {100, "step 1/9  loss 4.1234  norm 0.871  lr 6.00e-04  12.3k tok/s  71% of speed of light  "
              "8s left"},
        {85, "step 1/9  loss 4.1234  norm 0.871  12.3k tok/s  71% of speed of light  8s left"},
        {75, "step 1/9  loss 4.1234  12.3k tok/s  71% of speed of light  8s left"},
        {50, "step 1/9  loss 4.1234  12.3k tok/s  8s left"},
        {40, "step 1/9  loss 4.1234  8s left"},
        {24, "step 1/9  loss 4.1234"},
        {12, "step 1/9"},
        {6, "step "},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct Terminal t;
        struct Progress p;
        terminal_open(&t, expected[i].width);
        start(&p, t.out, 0, 9, 1);
        show(&p, 1, 1);
        terminal_play(&t);
        assert_string_equal(t.screen[0], expected[i].line);
        terminal_close(&t);
    }
}

TEST(a_terminal_that_cannot_erase_gets_plain_lines) {
    struct Terminal t;
    struct Progress p;
    terminal_open(&t, 120);
    setenv("TERM", "dumb", 1);
    start(&p, t.out, 0, 3, 0);
    for (uint64_t step = 1; step <= 3; step++)
        show(&p, step, 1);
    terminal_play(&t);
    assert_int_equal(t.redraws, 0);
    assert_non_null(strstr(t.screen[0], "step 1/3"));
    assert_non_null(strstr(t.screen[1], "step 3/3"));
    terminal_close(&t);
}

TEST(nothing_is_faster_than_light) {
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    struct Progress p;
    start(&p, out, 0, 9, 1);
    show(&p, 1, 1);
    assert_false(p.exceeded);
    struct LogStep s = {.step = 2, .light = 1.004};
    progress_show(&p, &s);
    s = (struct LogStep){.step = 3, .light = 1.43};
    progress_show(&p, &s);
    assert_true(p.exceeded);
    fclose(out);
    assert_non_null(strstr(text, "71% of speed of light"));
    assert_non_null(strstr(text, "step 3/9"));
    assert_non_null(strstr(text, "100% of speed of light"));
    assert_null(strstr(text, "143%"));
    free(text);
}

// A host that throttles: by turns a step at the speed of light, and one at a twelfth of it.
TEST(one_step_does_not_make_the_speed) {
    char text[256];
    FILE *out = tmpfile();
    struct Progress p;
    start(&p, out, 0, 60, 1);
    for (uint64_t step = 1; step <= 60; step++) {
        double share = step % 2 ? 1.0 / 12 : 1;
        struct LogStep s = {.step = step, .tokens_per_s = 1200 * share, .light = share};
        progress_show(&p, &s);
    }
    rewind(out);
    for (int step = 1; fgets(text, sizeof text, out); step++) {
        if (step > 20 && !strstr(text, "  15% of speed") && !strstr(text, "  16% of speed"))
            fail_msg("%s", text);
    }
    fclose(out);
}

TEST(numbers_that_are_not_finite_have_their_usual_names) {
    char text[256];
    FILE *out = tmpfile();
    struct Progress p;
    start(&p, out, 0, 1, 0);
    float nan = copysignf(NAN, -1);
    struct LogStep s = {.step = 1, .loss = nan, .grad_norm = nan, .tokens_per_s = 1};
    progress_show(&p, &s);
    start(&p, out, 0, 1, 0);
    s.loss = -INFINITY;
    s.grad_norm = INFINITY;
    progress_show(&p, &s);
    rewind(out);
    assert_non_null(fgets(text, sizeof text, out));
    assert_non_null(strstr(text, "loss nan  norm nan  "));
    assert_non_null(fgets(text, sizeof text, out));
    assert_non_null(strstr(text, "loss -inf  norm inf  "));
    fclose(out);
}

// MFU stands behind the share of the measured speed; without a peak there is none.
TEST(utilisation_is_told_where_the_peak_is_known) {
    char text[256];
    FILE *out = tmpfile();
    struct Progress p;
    start(&p, out, 0, 1, 0);
    struct LogStep s = {.step = 1, .tokens_per_s = 1, .light = 0.714, .mfu = 0.40161};
    progress_show(&p, &s);
    rewind(out);
    assert_non_null(fgets(text, sizeof text, out));
    assert_non_null(strstr(text, "  71% of speed of light  40.2% MFU\n"));
    fclose(out);
}

TEST(norms_have_three_digits) {
    static const struct {
        float norm;
        const char *text;
    } cases[] = {{2, "norm 2.00  "},  {1.2f, "norm 1.20  "},      {0.5f, "norm 0.500  "},
                 {100, "norm 100  "}, {99.96f, "norm 100  "},     {12.34f, "norm 12.3  "},
                 {0, "norm 0.00  "},  {1e-5f, "norm 1.00e-05  "}, {1e4f, "norm 1.00e+04  "}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        FILE *out = tmpfile();
        struct Progress p;
        start(&p, out, 0, 1, 0);
        struct LogStep s = {.step = 1, .grad_norm = cases[i].norm, .tokens_per_s = 1};
        progress_show(&p, &s);
        rewind(out);
        assert_non_null(fgets(text, sizeof text, out));
        if (!strstr(text, cases[i].text))
            fail_msg("expected '%s' in '%s'", cases[i].text, text);
        fclose(out);
    }
}
