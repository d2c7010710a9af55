// XXH64: a fast 64-bit checksum that tells a damaged file from an intact one.
//
// It reads 32 bytes at a time into four independent sums, on which the processor works at once
// (several GB/s, faster than any disk). It detects accidents, not forgery. Checkpoints have it.
// Source: Yann Collet's specification, "XXH64 algorithm", doc/xxhash_spec.md of the xxHash project.
//
// Call hash64_init, then hash64_update for each piece in order, then hash64_final; the sizes of the
// pieces do not matter.
#ifndef KERNELS_HASH_H
#define KERNELS_HASH_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH64_P1 0x9e3779b185ebca87u
#define HASH64_P2 0xc2b2ae3d27d4eb4fu
#define HASH64_P3 0x165667b19e3779f9u
#define HASH64_P4 0x85ebca77c2b2ae63u
#define HASH64_P5 0x27d4eb2f165667c5u

enum { HASH64_STRIPE = 32 };

struct Hash64 {
    uint64_t lane[4];
    uint64_t seed, bytes;        // bytes so far
    uint8_t tail[HASH64_STRIPE]; // the last bytes % 32 of them
};

static inline uint64_t hash64_rotate(uint64_t x, int by) {
    return x << by | x >> (64 - by);
}

// Reads a little-endian word, as the specification demands; x86-64 and ARM have that order anyway.
static inline uint64_t hash64_word(const uint8_t *p) {
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline uint64_t hash64_round(uint64_t lane, uint64_t word) {
    return hash64_rotate(lane + word * HASH64_P2, 31) * HASH64_P1;
}

static inline void hash64_init(struct Hash64 *h, uint64_t seed) {
    *h = (struct Hash64){.seed = seed};
    h->lane[0] = seed + HASH64_P1 + HASH64_P2;
    h->lane[1] = seed + HASH64_P2;
    h->lane[2] = seed;
    h->lane[3] = seed - HASH64_P1;
}

// Consumes whole stripes and returns a pointer to the rest.
static inline const uint8_t *hash64_stripes(struct Hash64 *h, const uint8_t *p, size_t nstripe) {
    uint64_t a = h->lane[0], b = h->lane[1], c = h->lane[2], d = h->lane[3];
    for (size_t i = 0; i < nstripe; i++, p += HASH64_STRIPE) {
        a = hash64_round(a, hash64_word(p));
        b = hash64_round(b, hash64_word(p + 8));
        c = hash64_round(c, hash64_word(p + 16));
        d = hash64_round(d, hash64_word(p + 24));
    }
    h->lane[0] = a;
    h->lane[1] = b;
    h->lane[2] = c;
    h->lane[3] = d;
    return p;
}

static inline void hash64_update(struct Hash64 *h, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    size_t have = h->bytes % HASH64_STRIPE;
    if (!n)
        return; // memcpy must not see the NULL of an empty buffer
    h->bytes += n;
    if (have) {
        size_t take = n < HASH64_STRIPE - have ? n : HASH64_STRIPE - have;
        memcpy(h->tail + have, p, take);
        p += take;
        n -= take;
        if (have + take < HASH64_STRIPE)
            return;
        hash64_stripes(h, h->tail, 1);
    }
    p = hash64_stripes(h, p, n / HASH64_STRIPE);
    if (n % HASH64_STRIPE)
        memcpy(h->tail, p, n % HASH64_STRIPE);
}

// Folds in the tail: words of 8 bytes, then one of 4, then single bytes.
static inline uint64_t hash64_finish_tail(uint64_t sum, const uint8_t *p, size_t n) {
    for (; n >= 8; p += 8, n -= 8)
        sum = hash64_rotate(sum ^ hash64_round(0, hash64_word(p)), 27) * HASH64_P1 + HASH64_P4;
    if (n >= 4) {
        uint32_t word;
        memcpy(&word, p, sizeof word);
        sum = hash64_rotate(sum ^ word * HASH64_P1, 23) * HASH64_P2 + HASH64_P3;
        p += 4;
        n -= 4;
    }
    for (; n; p++, n--)
        sum = hash64_rotate(sum ^ *p * HASH64_P5, 11) * HASH64_P1;
    return sum;
}

// Returns the checksum of all bytes so far. Does not change `h`: more may follow.
static inline uint64_t hash64_final(const struct Hash64 *h) {
    uint64_t sum = h->seed + HASH64_P5;
    if (h->bytes >= HASH64_STRIPE) {
        sum = hash64_rotate(h->lane[0], 1) + hash64_rotate(h->lane[1], 7) +
              hash64_rotate(h->lane[2], 12) + hash64_rotate(h->lane[3], 18);
        for (int i = 0; i < 4; i++)
            sum = (sum ^ hash64_round(0, h->lane[i])) * HASH64_P1 + HASH64_P4;
    }
    sum = hash64_finish_tail(sum + h->bytes, h->tail, h->bytes % HASH64_STRIPE);
    sum = (sum ^ sum >> 33) * HASH64_P2;
    sum = (sum ^ sum >> 29) * HASH64_P3;
    return sum ^ sum >> 32;
}

// Returns the checksum of one buffer.
static inline uint64_t hash64(const void *bytes, size_t n, uint64_t seed) {
    struct Hash64 h;
    hash64_init(&h, seed);
    hash64_update(&h, bytes, n);
    return hash64_final(&h);
}

#endif
