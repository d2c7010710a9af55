// Divides the units over the stages: see split.h. Next: pipe.h.
#include "zero/pipe/split.h"

#include "model/work.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

// ---- by cost ----

// Costs as whole numbers: their sums over units, and squares summed over stages, are exact.
struct Costs {
    int units, stages;
    uint64_t *before; // (units + 1) sum of the costs of the units before each
};

// Returns the cost of units first .. end - 1.
static uint64_t cost_between(const struct Costs *c, int first, int end) {
    return c->before[end] - c->before[first];
}

static void round_costs(struct Costs *c, const double *cost) {
    double all = 0;
    for (int u = 0; u < c->units; u++)
        all += cost[u];
    c->before[0] = 0;
    for (int u = 0; u < c->units; u++)
        c->before[u + 1] =
            c->before[u] + (all > 0 ? (uint64_t)floor(cost[u] / all * 0x1p24 + 0.5) : 0);
}

// True if stages of at most this cost are enough.
static bool stages_suffice(const struct Costs *c, uint64_t most) {
    int stages = 0;
    for (int first = 0, end = 0; first < c->units; first = end) {
        while (end < c->units && cost_between(c, first, end + 1) <= most)
            end++;
        if (end == first || ++stages > c->stages)
            return false;
    }
    return true;
}

// Returns the least cost of the most expensive stage in any split.
static uint64_t least_cost_limit(const struct Costs *c) {
    uint64_t low = 0, high = cost_between(c, 0, c->units);
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (stages_suffice(c, middle))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

// Finds the least sum of squares of units u .. in stages s .., for every u, from those of stages
// s + 1 .., where no stage costs more than `most`. square, count: (stages + 1, units + 1); count
// becomes how many of the units stage s has.
static void prepend_stage(const struct Costs *c, uint64_t most, int s, uint64_t *square,
                          int *count) {
    int rest = c->stages - 1 - s; // stages after it, with at least one unit each
    size_t row = (size_t)c->units + 1;
    for (int u = s; u < c->units - rest; u++) {
        uint64_t best = UINT64_MAX;
        for (int end = u + 1; end <= c->units - rest && cost_between(c, u, end) <= most; end++) {
            uint64_t after = square[((size_t)s + 1) * row + (size_t)end];
            uint64_t own = cost_between(c, u, end);
            if (after != UINT64_MAX && after + own * own < best) {
                best = after + own * own;
                count[(size_t)s * row + (size_t)u] = end - u;
            }
        }
        square[(size_t)s * row + (size_t)u] = best;
    }
}

void split_by_cost(const double *cost, int units, int stages, struct SplitPart *out) {
    struct Costs c = {units, stages, base_alloc(((size_t)units + 1) * sizeof *c.before)};
    size_t row = (size_t)units + 1, n = ((size_t)stages + 1) * row;
    uint64_t *square = base_alloc(n * sizeof *square); // UINT64_MAX: there is no such cut
    int *count = base_alloc_zeroed(n * sizeof *count);
    round_costs(&c, cost);
    uint64_t most = least_cost_limit(&c);
    for (size_t i = 0; i < n; i++)
        square[i] = UINT64_MAX;
    square[n - 1] = 0; // no units in no stages
    for (int s = stages - 1; s >= 0; s--)
        prepend_stage(&c, most, s, square, count);
    CHECK(square[0] != UINT64_MAX, "%d units in %d stages", units, stages);
    for (int s = 0, u = 0; s < stages; u += out[s++].count)
        out[s] = (struct SplitPart){u, count[(size_t)s * row + (size_t)u]};
    free(count);
    free(square);
    free(c.before);
}

static void split_by_work(const struct ModelConfig *c, enum Recompute level, int stages,
                          struct SplitPart *out) {
    int units = (int)c->layers + 2;
    double *cost = base_alloc((size_t)units * sizeof *cost);
    for (int u = 0; u < units; u++) {
        enum UnitKind kind = u == 0 ? UNIT_EMBEDDING : u + 1 == units ? UNIT_HEAD : UNIT_BLOCK;
        struct UnitWork w = model_unit_work(c, kind, level, model_unit_backward(c, u));
        cost[u] = w.forward + w.backward;
    }
    split_by_cost(cost, units, stages, out);
    free(cost);
}

// ---- by --pp-split ----

static int refuse_split(const char *given, int stages, size_t layers, struct Error *e) {
    return error_set(e, -EINVAL, E_PP_SPLIT,
                     "--pp-split %s: expected one number of layers for each of --pp %d stages, "
                     "N,N,..., with a sum of %zu; only the first and the last stage may have 0",
                     given, stages, layers);
}

static int parse_split(const struct ModelConfig *c, int stages, const char *given,
                       struct SplitPart *out, struct Error *e) {
    const char *at = given;
    size_t sum = 0;
    for (int s = 0; s < stages; s++) {
        bool is_end = s == 0 || s + 1 == stages;
        char *end;
        if (*at < '0' || *at > '9')
            return refuse_split(given, stages, c->layers, e);
        unsigned long n = strtoul(at, &end, 10);
        if (n > c->layers || (!n && !is_end) || *end != (s + 1 < stages ? ',' : 0))
            return refuse_split(given, stages, c->layers, e);
        out[s].first = s ? (int)sum + 1 : 0;
        sum += n;
        out[s].count = (int)sum + 1 + (s + 1 == stages) - out[s].first;
        at = end + 1;
    }
    return sum == c->layers ? 0 : refuse_split(given, stages, c->layers, e);
}

int split_stages(const struct ModelConfig *c, enum Recompute level, int stages, const char *given,
                 struct SplitPart *out, struct Error *e) {
    int units = (int)c->layers + 2;
    if (stages > units)
        return error_set(
            e, -EINVAL, E_PP_STAGES,
            "--pp %d: expected at most %d stages, one for each layer, the embedding and the head",
            stages, units);
    if (given)
        return parse_split(c, stages, given, out, e);
    split_by_work(c, level, stages, out);
    return 0;
}

int split_first_trained(const struct SplitPart *parts, int first_trained) {
    int stage = 0;
    while (parts[stage].first + parts[stage].count <= first_trained)
        stage++;
    return stage;
}
