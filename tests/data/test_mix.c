// Several sources: each has its share of the first n samples, exact but for rounding, for every n,
// and all its samples in turn; and the names that --data may have.
#include "data/text/mix.h"
#include "data/text/named.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

#include <errno.h>

static void expect_shares(const size_t *weight, size_t sources, uint64_t n) {
    struct Mix m;
    uint64_t had[MIX_SOURCES_MAX] = {0}, number;
    size_t sum = 0;
    mix_open(&m, weight, sources);
    for (size_t s = 0; s < sources; s++)
        sum += weight[s];
    for (uint64_t i = 0; i < n; i++) {
        size_t s = mix_find(&m, i, &number);
        assert_true(s < sources);
        assert_int_equal(number, had[s]); // none left out, none twice
        had[s]++;
        for (size_t k = 0; k < sources; k++) {
            uint64_t whole = (i + 1) * weight[k] / sum;
            bool even = (i + 1) * weight[k] % sum == 0;
            if (had[k] != whole && (even || had[k] != whole + 1))
                fail_msg("source %zu has %llu of %llu samples", k, (unsigned long long)had[k],
                         (unsigned long long)i + 1);
        }
    }
    mix_close(&m);
}

TEST(shares_are_exact) {
    expect_shares((size_t[]){1}, 1, 10);
    expect_shares((size_t[]){3, 1}, 2, 1000);
    expect_shares((size_t[]){30, 10}, 2, 1000);
    expect_shares((size_t[]){1, 1, 1}, 3, 1000);
    expect_shares((size_t[]){10000, 1}, 2, 30000);
    expect_shares((size_t[]){2, 3, 5, 7, 11}, 5, 1000);
    expect_shares((size_t[]){997, 3, 41, 41}, 4, 5000);
    for (size_t k = 1; k < 60; k++) // a generated lot
        expect_shares((size_t[]){k, 1 + k * 7 % 13, 1 + k * 31 % 17, 1 + k * 5 % 101, 60 - k}, 5,
                      600);
}

static void expect_names(const char *data, const char *const *name, const size_t *weight,
                         size_t n) {
    struct NamedSources got;
    struct Error e;
    assert_ok(named_read(&got, data, &e), &e);
    assert_int_equal(got.count, n);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(got.source[i].name, name[i]);
        assert_int_equal(got.source[i].weight, weight[i]);
    }
    named_free(&got);
}

TEST(names_have_weights) {
    char *folder = scratch_make(), *path = scratch_write(folder, "a.txt:3", "x", 1);
    char *both = base_format("%s:2\nb", path);
#define NAMES(...) (const char *const[]){__VA_ARGS__}
    expect_names("a.jsonl", NAMES("a.jsonl"), (size_t[]){1}, 1);
    expect_names("a:3\nb:1\nc", NAMES("a", "b", "c"), (size_t[]){3, 1, 1}, 3);
    expect_names("http://host:80", NAMES("http://host:80"), (size_t[]){1}, 1);
    expect_names("http://host:80/a:7", NAMES("http://host:80/a"), (size_t[]){7}, 1);
    expect_names("http://host", NAMES("http://host"), (size_t[]){1}, 1);
    expect_names("a:b", NAMES("a:b"), (size_t[]){1}, 1);
    expect_names("x_*.bin:10000", NAMES("x_*.bin"), (size_t[]){10000}, 1);
    expect_names(path, NAMES(path), (size_t[]){1}, 1); // a file of that very name
    expect_names(both, NAMES(path, "b"), (size_t[]){2, 1}, 2);
    free(both);
    free(path);
    scratch_remove(folder);
}

TEST(weights_that_are_none_are_refused) {
    static const char *const wrong[] = {"a:0", "a:10001", "a:1.5", "a:-1", "a:99999999999999999999",
                                        "a:3x"};
    struct NamedSources n;
    struct Error e;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_error(named_read(&n, wrong[i], &e), -EINVAL, &e, "E_DATA_NAMES");
    assert_error(named_read(&n, "a\n\nb", &e), -EINVAL, &e, "E_DATA_NAMES");
    char many[2 * MIX_SOURCES_MAX + 2];
    for (size_t i = 0; i < sizeof many; i++)
        many[i] = i % 2 ? '\n' : 'a';
    many[sizeof many - 1] = 0;
    assert_error(named_read(&n, many, &e), -EINVAL, &e, "E_DATA_NAMES 64");
}
