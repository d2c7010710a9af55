// From logits to the next token.
#ifndef MODEL_SAMPLE_H
#define MODEL_SAMPLE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct Sampling {
    float temperature; // 0: always the likeliest token
    size_t top_k;      // only the k likeliest tokens; 0: all
    uint64_t seed;
    const int32_t *stops; // ids of tokens that end a text; may be NULL
    size_t stop_count;
};

// True if this token is one of the stops.
bool sample_stops(const struct Sampling *s, int32_t token);

// Draws token number `index` of a text from logits (vocab), which it overwrites. The result depends
// only on the logits, the options and the index.
int32_t sample_token(float *logits, size_t vocab, const struct Sampling *s, uint64_t index);

#endif
