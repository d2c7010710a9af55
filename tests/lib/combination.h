// Runs whose flags were drawn at random: families, shapes, ranks and how they are laid out, stages,
// tiers, wires, formats. A seed names each. Flags are read, resolved and refused as ./train does it
// (zero/settings/settings.h); half of the draws are no run, since nothing keeps them from it.
#ifndef TESTS_LIB_COMBINATION_H
#define TESTS_LIB_COMBINATION_H
#include "data/flags/flags.h"
#include "zero/settings/settings.h"

enum { COMBINATION_WORDS = 128 };

struct Combination {
    char *word[COMBINATION_WORDS]; // as of the line, word[0] the program; NULL behind the last
    int words;
    size_t vocab;       // of the text
    const char *folder; // on a disk; NULL: nothing goes to nvme
    struct Settings said, resolved;
    struct Flags flags;
    struct RankSettings rank; // what ranks are opened with, but for their number
    struct Error refused;
};

// The flags that the seed stands for.
void combination_draw(struct Combination *c, uint64_t seed, const char *folder);
void combination_free(struct Combination *c);

// Reads the flags. Errors: the line's, in c->refused.
int combination_read(struct Combination *c);

// Whether a refusal begins with one of the flags.
bool combination_names_flag(const struct Combination *c);

// Writes the first value of those that "would do", by a refusal, behind the flags. False: it lists
// none.
bool combination_follow(struct Combination *c);

// The first flag whose value is another than what was written for it; NULL: none is.
const char *combination_altered(struct Combination *c);

// The flags as one line. Overwritten by the next call.
const char *combination_text(const struct Combination *c);

#endif
