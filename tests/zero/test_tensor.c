// Tensor parallelism: every gradient of a split model is the whole's up to rounding, for each
// family; a TP rank may have no token; stages, placements, recomputation and formats change no bit
// for the same number of TP ranks; initial weights do not depend on it; weights that all TP ranks
// have are equal on all; and the plan knows the bytes. Also with sequence parallelism, which
// changes no bit except in norms' gradients; and with --partition-activations, which changes no
// bit, and takes memory as the formula says.
#include "zero/state.h"
#include "tests/lib/gradients.h"
#include "tests/lib/planned.h"
#include "tests/lib/refused.h"
#include "tests/lib/test.h"
#include "zero/checkpoint/checkpoint.h"

#include <errno.h>
#include <math.h>

enum { BATCH = 4, STEPS = 3 };

// Heads for 2, 3 and 4 TP ranks, and a vocabulary split unevenly: with 4 the last rank has none.
static struct RankSettings settings_of(int family, enum Dtype dtype, int tp, int ranks) {
    struct RankSettings s = tiny_family(family, dtype);
    bool old = s.model.kind == FAMILY_GPT2;
    struct Error e;
    s.model.layers = 2;
    s.model.heads = 24;
    s.model.kv_heads = old ? 24 : 12;
    s.model.head_size = 4;
    s.model.channels = old ? 96 : 60;
    s.model.ffn = 84;
    s.model.vocab = 133;
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    s.threads = 1;
    s.ranks = ranks;
    s.tp = (size_t)tp;
    s.nmicro = 2;
    s.batch = BATCH / (size_t)(ranks / tp);
    return s;
}

// The same with rows in parts, of sequences that have as many for each.
static struct RankSettings with_rows(struct RankSettings s, bool rows) {
    if (rows)
        s.model.seq_len = s.model.positions = 24;
    s.sequence_parallel = rows && s.tp > 1;
    return s;
}

static const int tried[] = {0, 1, 3, 4, 5, 6};
enum { FAMILIES = sizeof tried / sizeof tried[0] };

// ---- against one TP rank ----

// Sums of up to 960 products (the head's, of the vocabulary) are rounded otherwise, and gradients
// that went through both layers. Of Qwen3's sequences of 24 tokens some gradients cancel so far
// that one TP rank with twice the ranks differs by 2.1e-6, and by 5e-6 with the kernels of another
// table.
static double near_of(const struct RankSettings *s) {
    return s->model.kind == FAMILY_QWEN3 && s->model.seq_len == 24 ? 6e-6 : 2e-6;
}

static void expect_parts_are_whole(int family, bool rows) {
    struct RankSettings alone = with_rows(settings_of(family, F32, 1, 1), rows);
    struct Gradients want = gradients_of(&alone);
    for (int tp = 2; tp <= 4; tp++)
        for (int dp = 1; dp <= 2; dp++) {
            struct RankSettings s = with_rows(settings_of(family, F32, tp, tp * dp), rows);
            s.stage = dp == 1 ? 0 : 3;
            struct Gradients is = gradients_of(&s);
            gradients_expect_near(&want, &is, &s, near_of(&s), tiny_family_name(family));
            free(is.gradient);
        }
    free(want.gradient);
}

TEST(parts_are_the_whole) {
    for (int f = 0; f < FAMILIES; f++)
        expect_parts_are_whole(tried[f], false);
}

TEST(parts_of_rows_are_the_whole) {
    for (int f = 0; f < FAMILIES; f++)
        expect_parts_are_whole(tried[f], true);
}

// ---- with the same TP ranks ----

// Of the gradients, those that a norm's weights and biases have.
static size_t differing(const struct Gradients *a, const struct Gradients *b,
                        const struct RankSettings *s, bool of_norms) {
    struct Params p;
    size_t n = 0;
    params_layout(&s->model, 1, 0, 1, &p);
    for (int g = 0; g < p.ngroup; g++)
        for (int i = 0; i < p.group[g].nparam; i++) {
            const struct Param *param = &p.group[g].param[i];
            const float *x = a->gradient + param->index, *y = b->gradient + param->index;
            for (size_t k = 0; k < param->real && of_norms == (param->grad == GRAD_OF_ROWS); k++)
                n += f32_bits(x[k]) != f32_bits(y[k]);
        }
    params_free(&p);
    return n;
}

// A sum that is scattered, and gathered behind what rows do alone, is the sum.
TEST(rows_change_norms_gradients_alone) {
    for (int f = 0; f < FAMILIES; f++) {
        struct RankSettings s = with_rows(settings_of(tried[f], F32, 3, 3), true), whole = s;
        whole.sequence_parallel = false;
        struct Gradients is = gradients_of(&s), want = gradients_of(&whole);
        assert_true(is.loss == want.loss && is.validation == want.validation);
        assert_int_equal(differing(&is, &want, &s, false), 0);
        assert_int_not_equal(differing(&is, &want, &s, true), 0);
        free(is.gradient);
        free(want.gradient);
    }
}

TEST(stages_agree_bitwise) {
    for (int f = 0; f < FAMILIES; f++)
        for (int i = 0; i < 2 * NDTYPE; i++) {
            enum Dtype dtype = (enum Dtype)(i / 2);
            struct RankSettings s = with_rows(settings_of(tried[f], dtype, 2, 4), i % 2);
            s.nmicro = 1;
            s.grad_dtype = dtype;
            struct Outcome want = outcome_of(&s, STEPS, STEPS - 1);
            assert_true(isfinite(want.loss[STEPS - 1]) && want.loss[0] != want.loss[1]);
            for (int k = 0; k < 12; k++) {
                struct RankSettings other = tiny_changed(s, k);
                struct Outcome is = outcome_of(&other, STEPS, STEPS - 1);
                outcome_expect_same(&want, &is, &other, tiny_family_name(tried[f]));
            }
        }
}

// ---- parts of what blocks keep ----

enum { KEEPING_LAYERS = 5 };

// Compares s with and without parts, kept on the device or elsewhere: their memory and traffic. A
// slot of S bytes becomes its part's S / tp_size for all layers that leave, `slots` of them stay
// whole.
static void expect_kept(const struct Forecast *want, const struct Forecast *is,
                        const struct RankSettings *s, size_t slots) {
    const struct ModelConfig *c = &s->model;
    size_t whole = s->batch * c->seq_len * c->channels * dtype_size(c->dtype);
    size_t tp_size = s->tp, slot = round_up(whole, 64 * tp_size), left = KEEPING_LAYERS - slots;
    size_t before =
        want->is.tier[TIER_DEVICE].most[TAG_ACTIVATION] - KEEPING_LAYERS * round_up(whole, 64);
    bool here = s->act_tier == TIER_DEVICE;
    assert_int_equal(is->is.tier[TIER_DEVICE].most[TAG_ACTIVATION],
                     before + slots * slot + here * left * slot / tp_size);
    assert_int_equal(is->is.tier[TIER_CPU].most[TAG_ACTIVATION], !here * left * slot / tp_size);
    assert_int_equal(is->is.traffic.bytes[COMM_ALL_GATHER],
                     want->is.traffic.bytes[COMM_ALL_GATHER] +
                         s->nmicro * left * (tp_size - 1) * (slot / tp_size));
    assert_int_equal(is->is.moved.in, !here * s->nmicro * left * slot / tp_size);
    assert_int_equal(is->is.moved.out, is->is.moved.in);
}

TEST(parts_are_kept_bitwise) {
    for (int f = 0; f < FAMILIES; f++)
        for (int tp = 2; tp <= 4; tp++) {
            struct RankSettings s = settings_of(tried[f], BF16, tp, tp);
            const char *name = tiny_family_name(tried[f]);
            s.model.layers = KEEPING_LAYERS;
            s.recompute = RECOMPUTE_BLOCK;
            struct Outcome want = outcome_of(&s, STEPS, STEPS - 1);
            struct Forecast whole = planned_is_measured(&s, name);
            s.partition_activations = true;
            for (int i = 0; i < 6; i++) {
                s.prefetch = (size_t)i / 2;
                s.act_tier = i % 2 ? TIER_CPU : TIER_DEVICE;
                struct Outcome is = outcome_of(&s, STEPS, STEPS - 1);
                outcome_expect_same(&want, &is, &s, name);
                struct Forecast plan = planned_is_measured(&s, name);
                expect_kept(&whole, &plan, &s, s.prefetch == 2 ? 3 : 2);
            }
        }
}

// ---- weights that all TP ranks have ----

struct Shared {
    uint64_t hash[4];
    int before[4], after[4]; // another TP rank's norm was changed
    struct Error e[4];
};

// The bits of what this rank owns of it, behind some steps.
static void hash_shared(void *context, struct Rank *r) {
    struct Shared *shared = context;
    struct Zero *z = &r->zero;
    struct TinyStep steps[STEPS];
    float *part = device_alloc_host(r->device, STATE_CHUNK * sizeof *part);
    uint64_t hash = 0;
    tiny_steps(r, STEPS, steps);
    zero_finish(z);
    for (int g = 0; g < r->params.ngroup; g++) {
        size_t n = zero_owned_numel(z, g);
        zero_read_state(z, g, STATE_MASTER, 0, n, part);
        for (int i = 0; i < r->params.group[g].nparam; i++) {
            const struct Param *p = &r->params.group[g].param[i];
            for (size_t k = 0; k < p->rows * p->cols && p->split == SPLIT_NONE; k++)
                hash = hash * 31 + f32_bits(part[p->offset + k]);
        }
    }
    shared->hash[r->all->rank] = hash;
    shared->before[r->all->rank] = shared_check(z, &shared->e[r->all->rank]);
    if (r->all->rank == 2) {
        const struct Param *norm = &r->params.group[1].param[BLOCK_NORM1_W];
        float other = 2;
        zero_write_state(z, 1, STATE_MASTER, norm->offset, 1, &other);
    }
    shared->after[r->all->rank] = shared_check(z, &shared->e[r->all->rank]);
    device_free_host(r->device, part);
}

TEST(places_have_the_same) {
    for (int i = 0; i < 2 * FAMILIES; i++) {
        int f = i / 2;
        struct RankSettings s = with_rows(settings_of(tried[f], BF16, 4, 4), i % 2);
        struct Shared shared = {0};
        s.grad_dtype = F32;
        tiny_ranks(&s, hash_shared, &shared);
        for (int tp_rank = 1; tp_rank < 4; tp_rank++)
            if (shared.hash[tp_rank] != shared.hash[0])
                fail_msg("%s: TP rank %d has other norms or biases than rank 0",
                         tiny_family_name(tried[f]), tp_rank);
        for (int rank = 0; rank < 4; rank++) {
            assert_int_equal(shared.before[rank], 0);
            assert_int_equal(shared.after[rank], -EIO);
            assert_int_equal(!error_is(&shared.e[rank], "E_RANKS_DIFFER rank 2"), rank > 0);
        }
    }
}

// ---- the plan ----

TEST(plan_is_measured) {
    for (int f = 0; f < FAMILIES; f++)
        for (int i = 0; i < 24; i++) {
            struct RankSettings s =
                tiny_changed(settings_of(tried[f], BF16, 2 + 2 * (i % 2), 4), i % 12);
            s = with_rows(s, i >= 12);
            planned_is_measured(&s, tiny_family_name(tried[f]));
        }
}
