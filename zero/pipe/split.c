// Cutting the units into stages: see split.h. Next: pipe.h.
#include "zero/pipe/split.h"

#include "model/params.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

// Twice a product's operations going backward, and five of attention's products after two: what
// zero/run/rank_work.c counts. The embedding only looks up.
double split_cost(const struct ModelConfig *c, int unit) {
    double C = (double)c->channels, t = (double)c->seq_len;
    double width = (double)model_attention_width(c);
    double products =
        C * (double)model_qkv_width(c) + C * width + C * (double)(model_fc_width(c) + c->ffn);
    if (unit == 0)
        return 0;
    if (unit == (int)c->layers + 1)
        return 6 * C * (double)c->vocab;
    return 6 * products + 7 * width * t;
}

// Whether stages of at most this cost are enough; each of those to come has a unit left.
static bool fits(const double *cost, int units, int stages, double most, struct SplitPart *out) {
    int u = 0;
    for (int s = 0; s < stages; s++) {
        double sum = cost[u];
        int first = u++;
        while (u < units - (stages - 1 - s) && sum + cost[u] <= most)
            sum += cost[u++];
        if (sum > most)
            return false;
        out[s] = (struct SplitPart){first, u - first};
    }
    return u == units;
}

// The largest cost of a stage is that of some run of units: the least with which it works.
void split_by_cost(const double *cost, int units, int stages, struct SplitPart *out) {
    double best = HUGE_VAL;
    for (int first = 0; first < units; first++) {
        double sum = 0;
        for (int u = first; u < units; u++) {
            sum += cost[u];
            if (sum < best && fits(cost, units, stages, sum, out))
                best = sum;
        }
    }
    CHECK(fits(cost, units, stages, best, out), "%d units in %d stages", units, stages);
}

static int refuse(const char *said, int stages, size_t layers, struct Error *e) {
    return error_set(e, -EINVAL,
                     "--pp-split %s: expected the layers of each of --pp %d stages, N,N,..., %zu "
                     "in all, and none without one but the first and the last",
                     said, stages, layers);
}

static int take_said(const struct ModelConfig *c, int stages, const char *said,
                     struct SplitPart *out, struct Error *e) {
    const char *at = said;
    size_t sum = 0;
    for (int s = 0; s < stages; s++) {
        bool ends = s == 0 || s + 1 == stages;
        char *end;
        if (*at < '0' || *at > '9')
            return refuse(said, stages, c->layers, e);
        unsigned long n = strtoul(at, &end, 10);
        if (n > c->layers || (!n && !ends) || *end != (s + 1 < stages ? ',' : 0))
            return refuse(said, stages, c->layers, e);
        out[s].first = s ? (int)sum + 1 : 0;
        sum += n;
        out[s].count = (int)sum + 1 + (s + 1 == stages) - out[s].first;
        at = end + 1;
    }
    return sum == c->layers ? 0 : refuse(said, stages, c->layers, e);
}

int split_stages(const struct ModelConfig *c, int stages, const char *said, struct SplitPart *out,
                 struct Error *e) {
    int units = (int)c->layers + 2;
    if (stages > units)
        return error_set(e, -EINVAL,
                         "--pp %d: expected at most %d, as many as the model has layers, with the "
                         "embedding and the head",
                         stages, units);
    if (said)
        return take_said(c, stages, said, out, e);
    double *cost = base_alloc((size_t)units * sizeof *cost);
    for (int u = 0; u < units; u++)
        cost[u] = split_cost(c, u);
    split_by_cost(cost, units, stages, out);
    free(cost);
    return 0;
}
