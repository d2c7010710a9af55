// XXH64 against known values, and in pieces against the whole.
#include "kernels/hash.h"
#include "tests/lib/test.h"

#include <stdlib.h>

// The bytes that the algorithm's own project checks itself with: a multiplicative generator's upper
// byte.
static void fill(uint8_t *bytes, size_t n) {
    uint64_t x = 2654435761u;
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)(x >> 56);
        x *= 11400714785074694797u;
    }
}

TEST(known_values) {
    static const struct {
        size_t n;
        uint64_t seed, sum;
    } known[] = {
        {0, 0u, 0xef46db3751d8e999u},   {0, 2654435761u, 0xac75fda2929b17efu},
        {1, 0u, 0xe934a84adb052768u},   {1, 2654435761u, 0x5014607643a9b4c3u},
        {3, 0u, 0xff7e1959cb50794au},   {3, 2654435761u, 0xaa8584e83660f7d1u},
        {4, 0u, 0x9136a0dca57457eeu},   {4, 2654435761u, 0xcaab286bd8e9fdb5u},
        {7, 0u, 0x6c83909a9f01ed25u},   {7, 2654435761u, 0xf98d03b1ad6f9293u},
        {8, 0u, 0xcdbcf538e71d1348u},   {8, 2654435761u, 0xfe0c047a5353cdacu},
        {14, 0u, 0x8282dcc4994e35c8u},  {14, 2654435761u, 0xc3bd6bf63deb6df0u},
        {31, 0u, 0x299b39a290e6d783u},  {31, 2654435761u, 0xda673d5feb5c1d79u},
        {32, 0u, 0x18b216492bb44b70u},  {32, 2654435761u, 0xb3f33bdf93ade409u},
        {33, 0u, 0x55c8dc3e578f5b59u},  {33, 2654435761u, 0xe92c292f64bc3071u},
        {63, 0u, 0xa9efbe0fa0f3f4e7u},  {63, 2654435761u, 0x6c911fadb05b6fc2u},
        {64, 0u, 0xef558f8acac2b5cdu},  {64, 2654435761u, 0xb5eeba99264cc44fu},
        {222, 0u, 0xb641ae8cb691c174u}, {222, 2654435761u, 0x20cb8ab7ae10c14au},
    };
    uint8_t bytes[256];
    fill(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_true(hash64(bytes, known[i].n, known[i].seed) == known[i].sum);
    assert_true(hash64("a", 1, 0) == 0xd24ec4f1a98c6e5bu);
    assert_true(hash64("abc", 3, 0) == 0x44bc2cf5ad770999u);
    assert_true(hash64(NULL, 0, 0) == 0xef46db3751d8e999u);
}

TEST(pieces_give_the_sum_of_the_whole) {
    enum { N = 200 };
    uint8_t bytes[N];
    fill(bytes, N);
    for (size_t n = 0; n <= N; n++)
        for (size_t cut = 0; cut <= n; cut++) {
            struct Hash64 h;
            hash64_init(&h, 7);
            hash64_update(&h, bytes, cut / 2);
            hash64_update(&h, bytes + cut / 2, cut - cut / 2);
            hash64_final(&h); // asking early changes nothing
            hash64_update(&h, bytes + cut, n - cut);
            assert_true(hash64_final(&h) == hash64(bytes, n, 7));
        }
}

TEST(every_single_bit_counts) {
    enum { N = 100 };
    uint8_t bytes[N];
    fill(bytes, N);
    uint64_t whole = hash64(bytes, N, 0);
    for (int bit = 0; bit < N * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_true(hash64(bytes, N, 0) != whole);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_true(hash64(bytes, N - 1, 0) != whole);
}
