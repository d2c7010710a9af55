// The shuffle behind the order of samples: a bijection for every number of items and every key,
// that leaves nothing where it was.
#include "data/text/order.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

TEST(the_shuffle_is_a_bijection) {
    static bool seen[5000];
    static const uint64_t sizes[] = {1,  2,  3,  4,   5,   7,   8,    9,    15,   16,  17,
                                     63, 64, 65, 255, 256, 257, 1000, 4095, 4096, 4097};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (uint64_t key = 0; key < 20; key++) {
            memset(seen, 0, sizeof seen);
            for (uint64_t i = 0; i < sizes[k]; i++) {
                uint64_t p = order_permute(sizes[k], key, i);
                assert_true(p < sizes[k]);
                assert_false(seen[p]);
                seen[p] = true;
            }
        }
}

// Each place is hit by item 0 equally often over many keys, and neighbours do not stay neighbours.
TEST(the_shuffle_mixes) {
    enum { N = 100, KEYS = 100000 };
    int hits[N] = {0}, neighbours = 0;
    for (uint64_t key = 0; key < KEYS; key++) {
        uint64_t a = order_permute(N, key, 0), b = order_permute(N, key, 1);
        hits[a]++;
        neighbours += b == a + 1;
    }
    for (int i = 0; i < N; i++)
        assert_in_range(hits[i], 800, 1200); // 1000 expected, standard deviation 31.5
    assert_in_range(neighbours, 800, 1200);  // 990 expected
}

TEST(a_large_shuffle_stays_inside) {
    const uint64_t n = 100000000003; // past 2^32
    uint64_t largest = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        uint64_t p = order_permute(n, 7, n - 1 - i);
        assert_true(p < n);
        largest = p > largest ? p : largest;
    }
    assert_true(largest > n / 100 * 99);
}
