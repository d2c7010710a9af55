// See sets.h.
#include "data/bpe/sets.h"

#include <stdlib.h>
#include <string.h>

// General categories, in the order of scripts/gen/unicode_tables.py.
static const char categories[][3] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                     "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                     "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn"};
enum { CATEGORIES = sizeof categories / sizeof *categories };

static void push_range(struct PointSet *s, uint32_t first, uint32_t last) {
    s->range = base_grow(s->range, s->count, &s->room, sizeof *s->range, "a set of characters");
    s->range[s->count++] = (struct PointRange){first, last};
}

static int compare_first(const void *a, const void *b) {
    uint32_t x = ((const struct PointRange *)a)->first, y = ((const struct PointRange *)b)->first;
    return x < y ? -1 : x > y;
}

static void sort_ranges(struct PointSet *s) {
    size_t n = 0;
    if (s->count)
        qsort(s->range, s->count, sizeof *s->range, compare_first);
    for (size_t i = 0; i < s->count; i++) {
        struct PointRange r = s->range[i];
        if (n && r.first <= s->range[n - 1].last + 1) {
            if (r.last > s->range[n - 1].last)
                s->range[n - 1].last = r.last;
        } else {
            s->range[n++] = r;
        }
    }
    s->count = n;
}

void set_add(struct PointSet *s, uint32_t first, uint32_t last) {
    push_range(s, first, last);
    sort_ranges(s);
}

void set_add_all(struct PointSet *s, const struct PointSet *more) {
    for (size_t i = 0; i < more->count; i++)
        push_range(s, more->range[i].first, more->range[i].last);
    sort_ranges(s);
}

void set_negate(struct PointSet *s) {
    struct PointSet out = {0};
    uint32_t from = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (s->range[i].first > from)
            push_range(&out, from, s->range[i].first - 1);
        from = s->range[i].last + 1;
    }
    if (from < UNICODE_POINTS)
        push_range(&out, from, UNICODE_POINTS - 1);
    set_free(s);
    *s = out;
}

void set_intersect(struct PointSet *s, const struct PointSet *with) {
    struct PointSet other = {0};
    set_add_all(&other, with);
    set_negate(&other);
    set_negate(s);
    set_add_all(s, &other);
    set_negate(s);
    set_free(&other);
}

bool set_has(const struct PointSet *s, uint32_t point) {
    size_t lo = 0, hi = s->count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->range[mid].last < point)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < s->count && s->range[lo].first <= point;
}

void set_free(struct PointSet *s) {
    free(s->range);
    *s = (struct PointSet){0};
}

// ---- of the tables ----

static void add_table(struct PointSet *s, const char *table) {
    uint32_t point = 0;
    for (const char *at = table; *at;) {
        uint32_t first = point + unicode_number(&at); // the gap before a range
        point = first + unicode_number(&at) + 1;      // its length less 1
        push_range(s, first, point - 1);
    }
    sort_ranges(s);
}

// Adds the categories whose names begin with these n letters. false: there are none.
static bool add_categories(struct PointSet *s, const char *name, size_t n) {
    bool wanted[CATEGORIES], any = false;
    for (size_t i = 0; i < CATEGORIES; i++) {
        wanted[i] = n && n <= 2 && !memcmp(categories[i], name, n);
        any = any || wanted[i];
    }
    uint32_t point = 0;
    for (const char *at = unicode_categories; any && *at;) {
        uint32_t category = unicode_number(&at), last = point + unicode_number(&at);
        if (wanted[category])
            push_range(s, point, last);
        point = last + 1;
    }
    sort_ranges(s);
    return any;
}

bool set_add_property(struct PointSet *s, const char *name, size_t n) {
    static const struct {
        const char *name, *table;
    } scripts[] = {{"Han", unicode_han},
                   {"Hiragana", unicode_hiragana},
                   {"Katakana", unicode_katakana},
                   {"Hangul", unicode_hangul}};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (strlen(scripts[i].name) == n && !memcmp(scripts[i].name, name, n)) {
            add_table(s, scripts[i].table);
            return true;
        }
    return add_categories(s, name, n);
}

bool set_add_escape(struct PointSet *s, char letter, bool in_brackets) {
    static const uint32_t six[] = {0xb2, 0xb3, 0xb9, 0xbc, 0xbd, 0xbe};
    if (letter == 's') {
        add_table(s, unicode_space);
    } else if (letter == 'd') {
        add_categories(s, "Nd", 2);
    } else if (letter == 'h') {
        set_add(s, '0', '9');
        set_add(s, 'A', 'F');
        set_add(s, 'a', 'f');
    } else if (letter == 'w') {
        static const char *const parts[] = {"L", "M", "Nd", "Pc"};
        for (size_t i = 0; i < 4; i++)
            add_categories(s, parts[i], strlen(parts[i]));
        add_table(s, unicode_word);
        for (size_t i = 0; !in_brackets && i < 6; i++)
            set_add(s, six[i], six[i]);
    } else {
        return false;
    }
    return true;
}

void set_add_cased(struct PointSet *s) {
    add_categories(s, "Lu", 2);
    add_categories(s, "Ll", 2);
    add_categories(s, "Lt", 2);
    set_add(s, 0x345, 0x345);   // folds to a Greek letter
    set_add(s, 0x2160, 0x2188); // Roman numbers
    set_add(s, 0x24b6, 0x24e9); // letters in circles
}
