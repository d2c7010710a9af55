// Sets of characters, as ranges: the classes of regular expressions as the engine of the reference
// implementation (Oniguruma, Unicode 16) defines them.
//
// Used by pattern.c. Next: pattern.h.
#ifndef DATA_BPE_SETS_H
#define DATA_BPE_SETS_H
#include "data/bpe/unicode.h"

struct PointRange {
    uint32_t first, last;
};

// The ranges are sorted and disjoint after each of the functions below.
struct PointSet {
    struct PointRange *range;
    size_t count, room;
};

void set_add(struct PointSet *s, uint32_t first, uint32_t last);
void set_add_all(struct PointSet *s, const struct PointSet *more);
void set_negate(struct PointSet *s);
void set_intersect(struct PointSet *s, const struct PointSet *with);
bool set_has(const struct PointSet *s, uint32_t point);
void set_free(struct PointSet *s); // leaves an empty set

// Adds \d, \s, \w or \h, named by their letter; a \w in brackets lacks six characters that it has
// outside. false: it is none of these.
bool set_add_escape(struct PointSet *s, char letter, bool in_brackets);

// Adds \p{NAME}: a general category ("Lu", "L") or a script that the tables have ("Han"). false:
// they have none of that name.
bool set_add_property(struct PointSet *s, const char *name, size_t n);

// Adds the characters that have an upper, lower or title case, or fold to one that has.
void set_add_cased(struct PointSet *s);

#endif
