// A keyed bijection by a Feistel network: each round adds to one half of the bits a hash of the
// other, which can be undone whatever the hash is (Luby and Rackoff, "How to construct pseudorandom
// permutations from pseudorandom functions", SIAM J. Comput. 1988). Its domain is a power of 4, at
// most 4 times n for n above 1; a result past n is fed in again until one lies below n (cycle
// walking: Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002), which keeps it
// a bijection and takes 4 turns or fewer on average.
#include "data/text/order.h"
#include "kernels/base.h"
#include "kernels/dtype.h"

enum { ROUNDS = 6 };

uint64_t order_permute(uint64_t n, uint64_t key, uint64_t i) {
    CHECK(i < n && n <= UINT64_C(1) << 62, "item %llu of %llu", (unsigned long long)i,
          (unsigned long long)n);
    int half = 1; // bits of one half
    while (UINT64_C(1) << 2 * half < n)
        half++;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint64_t next = left ^ (rng_bits(key, right * ROUNDS + round) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}
