// Sampling with temperature, top-k, top-p, min-p and a repetition penalty. See sample.h.
//
// Top-k and top-p sort nothing: select_least() finds the least value that stays by its bits, the
// high ones first, in three passes over the vocabulary.
#include "model/sample.h"

#include "kernels/base.h"
#include "kernels/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t likeliest(const float *x, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

// Returns a number that is greater where x is.
static uint32_t order_of(float x) {
    uint32_t bits;
    x += 0.0f; // -0 becomes 0
    memcpy(&bits, &x, sizeof bits);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}

struct Selected {
    uint32_t least; // the order of the least value that stays
    double above;   // the weight of greater ones
};

// Goes from the greatest value of x (n) down until the weight of all equal and greater ones comes
// to `enough`. A value's weight is 1 or, with by_mass, the value.
static struct Selected select_least(const float *x, size_t n, bool by_mass, double enough) {
    enum { DIGITS = 1 << 11 };
    struct Selected s = {0, 0};
    uint32_t known = 0; // the bits of s.least that are found
    for (int shift = 22; shift >= 0; shift -= 11) {
        double weight[DIGITS] = {0};
        for (size_t i = 0; i < n; i++) {
            uint32_t order = order_of(x[i]);
            double w = by_mass ? (double)x[i] : 1;
            if (w > 0 && (order & known) == s.least) // most weigh nothing behind top-k
                weight[order >> shift & (DIGITS - 1)] += w;
        }
        uint32_t digit = DIGITS - 1;
        while (digit && s.above + weight[digit] < enough)
            s.above += weight[digit--];
        s.least |= digit << shift;
        known |= (uint32_t)(DIGITS - 1) << shift;
    }
    return s;
}

// Makes each token of the text less likely, once.
static void penalize(float *logits, size_t vocab, float penalty, const int32_t *text,
                     size_t length) {
    bool *done = base_alloc_zeroed(vocab * sizeof *done);
    for (size_t i = 0; i < length; i++) {
        float *logit = &logits[text[i]];
        if (!done[text[i]])
            *logit = *logit < 0 ? *logit * penalty : *logit / penalty;
        done[text[i]] = true;
    }
    free(done);
}

static void keep_likeliest(float *logits, size_t vocab) {
    size_t best = likeliest(logits, vocab);
    memset(logits, 0, vocab * sizeof *logits);
    logits[best] = 1;
}

static void keep_top_k(float *logits, size_t vocab, size_t k) {
    uint32_t least = select_least(logits, vocab, false, (double)k).least;
    for (size_t i = 0; i < vocab; i++)
        if (order_of(logits[i]) < least)
            logits[i] = -INFINITY;
}

static double sum_of(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        if (x[i] > 0) // a sum waits for each addition: twice as fast where few tokens are left
            sum += (double)x[i];
    return sum;
}

// Turns logits into weights, e^((logit - max) / temperature): the likeliest token's is 1.
static void exponentials(float *x, size_t n, double temperature) {
    double max = (double)x[likeliest(x, n)];
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] == -INFINITY ? 0 : (float)exp(((double)x[i] - max) / temperature);
}

static void keep_top_p(float *weights, size_t vocab, double p) {
    double enough = p * sum_of(weights, vocab);
    struct Selected s = select_least(weights, vocab, true, enough);
    for (size_t i = 0; i < vocab; i++) {
        uint32_t order = order_of(weights[i]);
        if (order < s.least || (order == s.least && s.above >= enough))
            weights[i] = 0;
        else if (order == s.least)
            s.above += (double)weights[i];
    }
}

// The likeliest token's weight is 1, so p is a part of it.
static void keep_min_p(float *weights, size_t vocab, float p) {
    for (size_t i = 0; i < vocab; i++)
        if (weights[i] < p)
            weights[i] = 0;
}

void sample_probabilities(float *logits, size_t vocab, const struct Sampling *s,
                          const int32_t *text, size_t length) {
    if (s->repetition_penalty > 0 && s->repetition_penalty != 1)
        penalize(logits, vocab, (float)s->repetition_penalty, text, length);
    if (s->temperature == 0) {
        keep_likeliest(logits, vocab);
        return;
    }
    if (s->top_k && s->top_k < vocab)
        keep_top_k(logits, vocab, s->top_k);
    exponentials(logits, vocab, s->temperature);
    if (s->top_p > 0 && s->top_p < 1)
        keep_top_p(logits, vocab, s->top_p);
    if (s->min_p > 0)
        keep_min_p(logits, vocab, (float)s->min_p);
    float sum = (float)sum_of(logits, vocab);
    for (size_t i = 0; i < vocab; i++)
        logits[i] /= sum;
}

// Of logits that are NaN the first token would be drawn, for ever.
static bool are_finite(const float *logits, size_t vocab) {
    for (size_t i = 0; i < vocab; i++)
        if (!isfinite(logits[i]))
            return false;
    return true;
}

int32_t sample_token(float *logits, size_t vocab, const struct Sampling *s, const int32_t *text,
                     size_t length) {
    if (!are_finite(logits, vocab))
        return -1;
    sample_probabilities(logits, vocab, s, text, length);
    double left = (double)rng_uniform(s->seed, length);
    size_t drawn = 0;
    for (size_t i = 0; i < vocab && left >= 0; i++)
        if (logits[i] > 0) { // the last of these, if rounding ate the last bit of the sum
            left -= (double)logits[i];
            drawn = i;
        }
    return (int32_t)drawn;
}

bool sample_stops(const struct Sampling *s, int32_t token) {
    bool stops = false;
    for (size_t i = 0; i < s->stop_count; i++)
        stops |= s->stops[i] == token;
    return stops;
}
