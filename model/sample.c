// Sampling with temperature and top-k (Fan et al. 2018). See sample.h.
#include "model/sample.h"

#include "kernels/base.h"
#include "kernels/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t likeliest(const float *logits, size_t vocab) {
    size_t best = 0;
    for (size_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

// Returns the k-th largest value: tokens below it are left out.
static float threshold_of(const float *logits, size_t vocab, size_t k) {
    if (k == 0 || k >= vocab)
        return -INFINITY;
    float *sorted = base_alloc(vocab * sizeof *sorted);
    memcpy(sorted, logits, vocab * sizeof *sorted);
    qsort(sorted, vocab, sizeof *sorted, descending);
    float threshold = sorted[k - 1];
    free(sorted);
    return threshold;
}

int32_t sample_token(float *logits, size_t vocab, const struct Sampling *s, uint64_t index) {
    size_t best = likeliest(logits, vocab);
    if (s->temperature == 0)
        return (int32_t)best;
    float threshold = threshold_of(logits, vocab, s->top_k), max = logits[best];
    double sum = 0;
    for (size_t i = 0; i < vocab; i++) {
        logits[i] = logits[i] < threshold ? 0 : expf((logits[i] - max) / s->temperature);
        sum += (double)logits[i];
    }
    double left = (double)rng_uniform(s->seed, index) * sum;
    for (size_t i = 0; i < vocab; i++) {
        left -= (double)logits[i];
        if (left < 0)
            return (int32_t)i;
    }
    return (int32_t)best; // rounding ate the last bit of the sum
}

bool sample_stops(const struct Sampling *s, int32_t token) {
    bool stops = false;
    for (size_t i = 0; i < s->stop_count; i++)
        stops |= s->stops[i] == token;
    return stops;
}
