// What tokens are drawn from: the probabilities that transformers has for the same logits and
// options, alone and together, with ties (tests/fixtures/sample, by scripts/gen/sample_fixture.py);
// and that tokens are drawn as often as these say.
#include "kernels/dtype.h"
#include "model/sample.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, CASES = 345 };

struct Fixture {
    float logits[MOST];
    size_t vocab;
    int32_t text[MOST];
    size_t length;
};

static void read_logits(struct Fixture *x, char *at) {
    for (x->vocab = 0; *at && *at != '\n' && x->vocab < MOST; x->vocab++)
        x->logits[x->vocab] = strtof(at, &at);
}

static void read_text(struct Fixture *x, char *at) {
    for (x->length = 0; *at && *at != '\n' && x->length < MOST; x->length++)
        x->text[x->length] = (int32_t)strtol(at, &at, 10);
}

static void check_case(const struct Fixture *x, char *at) {
    char *name = at, *end = strchr(at, ':');
    double expected[MOST] = {0};
    float got[MOST];
    struct Sampling s = {.temperature = strtod(at, &at)};
    s.top_k = strtoul(at, &at, 10);
    s.top_p = strtod(at, &at);
    s.min_p = strtod(at, &at);
    s.repetition_penalty = strtod(at, &at);
    assert_true(end && at == end);
    while (*++at && *at != '\n') {
        size_t id = strtoul(at, &at, 10);
        assert_true(id < x->vocab && *at == '=');
        expected[id] = strtod(at + 1, &at);
    }
    memcpy(got, x->logits, sizeof got);
    sample_probabilities(got, x->vocab, &s, x->text, x->length);
    for (size_t i = 0; i < x->vocab; i++) // fp32 has few digits below 1e-37
        if (!(fabs((double)got[i] - expected[i]) <= 1e-6 * expected[i] + 1e-37))
            fail_msg("%.*s, %zu tokens: token %zu has probability %.9g, expected %.9g",
                     (int)(end - name), name, x->vocab, i, (double)got[i], expected[i]);
}

TEST(probabilities_are_those_of_transformers) {
    struct Fixture x = {.vocab = 0};
    FILE *file = fopen("tests/fixtures/sample/probabilities.txt", "r");
    char *line = NULL;
    size_t room = 0, cases = 0;
    assert_non_null(file);
    while (getline(&line, &room, file) > 0) {
        if (!strncmp(line, "logits", 6))
            read_logits(&x, line + 6);
        else if (!strncmp(line, "text", 4))
            read_text(&x, line + 4);
        else if (!strncmp(line, "case", 4)) {
            check_case(&x, line + 4);
            cases++;
        }
    }
    free(line);
    fclose(file);
    assert_int_equal(cases, CASES);
}

TEST(fields_of_zero_leave_all_tokens) {
    float logits[] = {0, logf(2), logf(5)};
    const float expected[] = {0.125f, 0.25f, 0.625f};
    int32_t text[] = {0, 2};
    sample_probabilities(logits, 3, &(struct Sampling){.temperature = 1}, text, 2);
    for (int i = 0; i < 3; i++)
        assert_float_equal(logits[i], expected[i], 1e-6f);
}

TEST(tokens_are_drawn_as_often_as_they_are_probable) {
    enum { TOKENS = 4, DRAWS = 20000 };
    static int32_t text[DRAWS + 1];
    struct Sampling s = {.temperature = 1, .top_k = 3, .seed = 4};
    const float logits[TOKENS] = {logf(3), 0, logf(6), logf(1.5f)};
    size_t drawn[TOKENS] = {0};
    for (size_t length = 1; length <= DRAWS; length++) {
        float x[TOKENS];
        memcpy(x, logits, sizeof x);
        drawn[sample_token(x, TOKENS, &s, text, length)]++;
    }
    const double expected[TOKENS] = {3 / 10.5, 0, 6 / 10.5, 1.5 / 10.5};
    for (int i = 0; i < TOKENS; i++) // 4 standard deviations
        assert_true(fabs((double)drawn[i] / DRAWS - expected[i]) <=
                    4 * sqrt(expected[i] * (1 - expected[i]) / DRAWS));
}

TEST(logits_that_are_not_finite_are_refused) {
    for (float logits[] = {NAN, INFINITY, -INFINITY}, *x = logits; x < logits + 3; x++) {
        float all[] = {0, *x, 1};
        assert_int_equal(sample_token(all, 3, &(struct Sampling){.temperature = 0}, NULL, 0), -1);
    }
}

static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

// What no fixture is large enough for: logits of a real vocabulary's size, beside those sorted.
TEST(a_large_vocabulary_keeps_its_likeliest_tokens) {
    enum { VOCAB = 50257 };
    static float logits[VOCAB], sorted[VOCAB];
    for (size_t k = 1; k < VOCAB; k = 7 * k + 1) {
        for (size_t i = 0; i < VOCAB; i++)
            logits[i] = 8 * (rng_uniform(k, i) - 0.75f);
        memcpy(sorted, logits, sizeof logits);
        qsort(sorted, VOCAB, sizeof *sorted, descending);
        float least = sorted[k - 1];
        double sum = 0, above = 0;
        for (size_t i = 0; i < VOCAB; i++)
            sum += exp((double)sorted[i]);
        for (size_t i = 0; i < k; i++)
            above += exp((double)sorted[i]) / sum;
        // The k likeliest, by count, and by what they have together.
        struct Sampling by_k = {.temperature = 1, .top_k = k},
                        by_p = {.temperature = 1, .top_p = above - 0.25 * exp(least) / sum};
        for (const struct Sampling *s = &by_k; s; s = s == &by_k ? &by_p : NULL) {
            static float x[VOCAB];
            memcpy(x, logits, sizeof x);
            sample_probabilities(x, VOCAB, s, NULL, 0);
            size_t wrong = 0;
            for (size_t i = 0; i < VOCAB; i++)
                wrong += (x[i] > 0) != (logits[i] >= least);
            if (wrong > (s == &by_p ? 1 : 0)) // of equal ones some stay
                fail_msg("%zu likeliest by %s: %zu tokens are wrongly kept or not", k,
                         s == &by_p ? "probability" : "count", wrong);
        }
    }
}
