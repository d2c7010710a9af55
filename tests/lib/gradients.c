// One step's gradients: see gradients.h. They are read from the first moment of an update that
// moves no weight, as in test_packed.c, and put where they belong in the whole model.
#include "tests/lib/gradients.h"

#include "zero/state.h"

#include <math.h>

struct StepState gradients_still(const struct Rank *r) {
    struct LrSchedule schedule = {.kind = SCHEDULE_CONSTANT, .lr = 0, .steps = 10};
    struct AdamSettings adam = {0.5, 0.95, 1e-8, 0, 0};
    return schedule_step(&schedule, &adam, r->zero.step, r->zero.updates);
}

// Fresh weights are so small that a token's loss hardly knows what it attends to, and biases are 0,
// which hides who adds them.
static void enlarge_weights(struct Rank *r) {
    struct Zero *z = &r->zero;
    float *part = device_alloc_host(r->device, STATE_CHUNK * sizeof *part);
    for (int g = 0; g < r->params.ngroup; g++) {
        struct Piece piece[MAX_PIECES];
        size_t n = zero_owned_numel(z, g), begin = zero_owned_begin(z, g);
        int pieces = params_pieces(&r->params.group[g], begin, begin + n, piece);
        zero_read_state(z, g, STATE_MASTER, 0, n, part);
        for (int k = 0; k < pieces; k++)
            for (size_t i = 0; i < piece[k].range.n; i++) {
                float *w = &part[piece[k].begin + i - begin];
                uint64_t at = piece[k].param->index + weights_at(&piece[k].range, i);
                if (*w == 0)
                    *w = 0.2f * (rng_uniform(9, at) - 0.5f);
                else
                    *w *= fabsf(*w) < 0.5f ? 8 : 1; // norms' stay
            }
        zero_write_state(z, g, STATE_MASTER, 0, n, part);
    }
    zero_store_params(z, false);
    device_free_host(r->device, part);
}

// This rank's part of the gradients, to where it is in the whole.
static void keep_gradients(struct Gradients *s, struct Rank *r) {
    struct Zero *z = &r->zero;
    float *part = device_alloc_host(r->device, STATE_CHUNK * sizeof *part);
    for (int g = 0; g < r->params.ngroup; g++) {
        struct Piece piece[MAX_PIECES];
        size_t n = zero_owned_numel(z, g), begin = zero_owned_begin(z, g);
        if (r->params.group[g].copy || (!z->plan.optimizer.shard_group && z->shard_group->rank))
            continue; // another rank tells the same
        if (!zero_trains(z, g))
            continue;
        zero_read_state(z, g, STATE_M, 0, n, part);
        int pieces = params_pieces(&r->params.group[g], begin, begin + n, piece);
        for (int k = 0; k < pieces; k++)
            for (size_t i = 0; i < piece[k].range.n && params_counts(&r->params, piece[k].param);
                 i++)
                s->gradient[piece[k].param->index + weights_at(&piece[k].range, i)] =
                    2 * part[piece[k].begin + i - begin];
    }
    device_free_host(r->device, part);
}

static void make_step(void *context, struct Rank *r) {
    struct Gradients *s = context;
    struct Error e;
    uint64_t hash = zero_weights_hash(&r->zero);
    enlarge_weights(r);
    struct StepState settings = gradients_still(r);
    struct BatchSource from = tiny_source(r);
    CHECK(!rank_queue_step(r, &from, &settings, &e), "%s", e.text);
    struct StepResult result = zero_step_wait(&r->zero);
    float validation = tiny_validate(r, OUTCOME_VALIDATED);
    if (tiny_is_first(r)) {
        s->hash = hash;
        s->loss = rank_mean_loss(r, &result);
        s->norm = result.grad_norm;
        s->validation = (double)validation;
    }
    keep_gradients(s, r);
}

struct Gradients gradients_of(const struct RankSettings *s) {
    struct Gradients all = {0};
    struct Params p;
    params_layout(&s->model, 1, 0, 1, &p);
    all.n = p.real;
    all.gradient = base_alloc_zeroed(all.n * sizeof *all.gradient);
    for (int g = 0; g < p.ngroup; g++)
        for (int i = 0; i < p.group[g].nparam && !p.group[g].frozen; i++)
            for (uint64_t k = 0; k < p.group[g].param[i].real; k++)
                all.gradient[p.group[g].param[i].index + k] = NAN; // nobody has told it
    params_free(&p);
    tiny_ranks(s, make_step, &all);
    return all;
}

void gradients_expect_near(const struct Gradients *want, const struct Gradients *is,
                           const struct RankSettings *s, double near, const char *what) {
    double most = 0, largest = 0;
    for (uint64_t i = 0; i < want->n; i++) {
        double d = fabs((double)is->gradient[i] - (double)want->gradient[i]);
        if (!(d <= most) && !isnan(most)) // a NaN is kept
            most = d;
        largest = fmax(largest, fabs((double)want->gradient[i]));
    }
    if (is->hash != want->hash)
        fail_msg("%s, %s: initial weights depend on the grid", what, settings_text(s));
    if (!(fabs(is->loss - want->loss) <= 1e-6 * want->loss) ||
        !(fabs(is->validation - want->validation) <= 1e-6 * want->validation))
        fail_msg("%s, %s: losses %.9g and %.9g, of one rank %.9g and %.9g", what, settings_text(s),
                 is->loss, is->validation, want->loss, want->validation);
    if (!(fabs((double)(is->norm - want->norm)) <= 1e-5 * (double)want->norm))
        fail_msg("%s, %s: norm %.9g, of one rank %.9g", what, settings_text(s), (double)is->norm,
                 (double)want->norm);
    if (!(most <= near * largest))
        fail_msg("%s, %s: a gradient differs by %g of the largest", what, settings_text(s),
                 most / largest);
    print_message("%s, %s: gradients differ by at most %.2g of the largest\n", what,
                  settings_text(s), most / largest);
}
