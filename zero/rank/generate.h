// Generation: a rank continues texts, token by token, together with all others.
//
// Each text has a sequence of the cache (model/kv_cache.h). A prompt is read alone, some hundred
// tokens at a time; then a pass makes the next token of all texts, so that the weights are read, or
// gathered, once for all. All ranks call these functions with the same arguments and get the same
// tokens. On a CPU what a text becomes does not depend on up to 15 others beside it.
//
// Called by train.c. Read next: model/sample.h (from logits to a token), model/block_ops.c.
#ifndef ZERO_RANK_GENERATE_H
#define ZERO_RANK_GENERATE_H
#include "model/sample.h"
#include "zero/rank/rank.h"

// A text: its prompt, and the tokens that were made.
struct GenText {
    int32_t *ids;
    const struct Sampling *sampling;
    size_t count, prompt, full_at; // tokens so far; of the prompt; with which it is full
    bool active;                   // the next pass makes a token of it
    size_t first;                  // the first token that the model sees
    size_t cached;                 // tokens from there on that are in the cache
};

struct Generation {
    struct Rank *rank;
    struct GenText *text;
    size_t texts; // the cache's sequences
    float *logits;
    void *rows;      // the device's logits, on the host
    bool not_finite; // logits were: no token can be drawn of them
};

// The rank's cache decides how many texts there are: one if it has none, as with sparse attention.
void generation_open(struct Generation *g, struct Rank *r);
void generation_close(struct Generation *g);

// Begins text i anew: `count` tokens of a prompt, at least one, to which at most `most_new` are
// added, drawn as s says. Tokens it shares with the beginning of the text before are not run again.
void generation_begin(struct Generation *g, size_t i, const int32_t *prompt, size_t count,
                      size_t most_new, const struct Sampling *s);

// Adds a token to each active text, and returns how many are still active. A text no longer is
// after a token of its sampling's stops, which is then its last, if it is full, or if its logits
// are not finite.
//
// Of a prompt longer than seq_len the model sees the last seq_len tokens; a text that grows past
// that goes on with its last seq_len / 2.
size_t generation_step(struct Generation *g);

// Returns -EDOM if a text ended since logits are not finite, on all ranks alike; rank 0's has a
// line.
int generation_check(const struct Generation *g, struct Error *e);

// Gives rank 0's ids to all ranks: returns a copy, *count of them; free() it. The arguments of
// others mean nothing.
int32_t *generation_share(struct Rank *r, const int32_t *ids, size_t *count);

#endif
