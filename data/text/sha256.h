// SHA-256 (FIPS 180-4): names a downloaded file's contents, and the cache entry of a prepared text.
#ifndef DATA_TEXT_SHA256_H
#define DATA_TEXT_SHA256_H
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_HEX_BYTES = 65 }; // digest; 64 lowercase digits and a zero byte

struct Sha256 {
    uint32_t state[8];
    uint64_t total_bytes;
    uint8_t block[64]; // its first total_bytes % 64 bytes are not hashed yet
};

void sha256_init(struct Sha256 *h);
void sha256_update(struct Sha256 *h, const void *data, size_t bytes);
// Either ends the use of h.
void sha256_final(struct Sha256 *h, uint8_t digest[SHA256_BYTES]);
void sha256_hex(struct Sha256 *h, char hex[SHA256_HEX_BYTES]);

// Hashes an open file from its beginning; the digest is text. Returns 0 or -errno of pread.
int sha256_file(int fd, char hex[SHA256_HEX_BYTES]);

#endif
