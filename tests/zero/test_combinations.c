// Combinations of flags that nobody thought of: families, shapes, tensor parallelism, shards,
// stages, tiers, wires, windows, formats, drawn at random (tests/lib/combination.h). What runs
// takes and sends to the byte what its plan says of each rank, and is what was asked for. What is
// refused names a flag; where it says which value would do, that one is not refused for the same.
//
// COMBINATIONS=200 SEED=7 runs as many others.
#include "tests/lib/combination.h"
#include "tests/lib/planned.h"
#include "tests/lib/test.h"

enum { USUALLY = 60 };

static uint64_t number_in(const char *variable, uint64_t otherwise) {
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

// Trains it, beside its plan.
static void train(struct Combination *c) {
    const char *altered = combination_altered(c);
    if (altered)
        fail_msg("--%s is not what was asked for: %s", altered, combination_text(c));
    planned_is_measured(&c->rank, combination_text(c));
}

// Whether the refusal says which value would do; that must be right.
static bool follows(struct Combination *c) {
    struct Error why = c->refused;
    if (!combination_follow(c))
        return false;
    if (combination_read(c) && c->refused.id == why.id && strstr(c->refused.text, " would do"))
        fail_msg("what is said to do does not: %s, but %s (%s)", why.text, c->refused.text,
                 combination_text(c));
    return true;
}

TEST(plan_is_measured_of_random_combinations) {
    uint64_t n = number_in("COMBINATIONS", USUALLY), seed = number_in("SEED", 1), accepted = 0, i;
    int followed = 0;
    bool show = getenv("SHOW_COMBINATIONS");
    const char *folder = tiny_has_disk() ? disk_folder : NULL;
    for (i = 0; accepted < n; i++) {
        struct Combination c;
        combination_draw(&c, rng_bits(seed, i), folder);
        int err = combination_read(&c);
        if (show)
            print_message("%llu %s\n  %s\n", (unsigned long long)i, combination_text(&c),
                          c.refused.text);
        if (err && !combination_names_flag(&c))
            fail_msg("combination %llu: the refusal names no flag: %s (%s)", (unsigned long long)i,
                     c.refused.text, combination_text(&c));
        accepted += !err;
        if (!err)
            train(&c);
        else
            followed += follows(&c);
        combination_free(&c);
    }
    print_message("%llu combinations of seed %llu: %llu trained, %d of the others followed\n",
                  (unsigned long long)i, (unsigned long long)seed, (unsigned long long)accepted,
                  followed);
    assert_true(followed > 0);
}

AROUND_ALL(disk_open, disk_close);
