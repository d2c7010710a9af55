// From logits to the next token.
#ifndef MODEL_SAMPLE_H
#define MODEL_SAMPLE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// All zero but for the temperature: every token may be drawn.
struct Sampling {
    double temperature;        // 0: always the likeliest token
    size_t top_k;              // only the k likeliest tokens; 0: all
    double top_p;              // the fewest likeliest tokens with this probability together; 0: all
    double min_p;              // a token's least probability, as a part of the likeliest's; 0: none
    double repetition_penalty; // on tokens that the text has; 0 or 1: none
    uint64_t seed;
    const int32_t *stops; // ids of tokens that end a text; may be NULL
    size_t stop_count;
};

// True if this token is one of the stops.
bool sample_stops(const struct Sampling *s, int32_t token);

// Turns logits (vocab) into the probabilities of the token after text[0 .. length), which add up to
// 1. The options are applied as generate() of transformers does, in its order: repetition penalty
// (Keskar et al. 2019, section 4.1), also at temperature 0; temperature; top-k (Fan et al. 2018);
// top-p (Holtzman et al. 2020); min-p (Nguyen et al. 2024). Tokens as likely as the k-th stay; of
// tokens as likely as the last of top-p, which transformers leaves to chance, the first ids stay.
void sample_probabilities(float *logits, size_t vocab, const struct Sampling *s,
                          const int32_t *text, size_t length);

// Draws the token after text[0 .. length) from logits (vocab), which become its probabilities. The
// result depends only on the logits, the options and the text. Returns -1 if a logit is not finite.
int32_t sample_token(float *logits, size_t vocab, const struct Sampling *s, const int32_t *text,
                     size_t length);

#endif
