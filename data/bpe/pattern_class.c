// Classes of a regular expression: see pattern.h.
#include "data/bpe/pattern.h"

#include <errno.h>
#include <string.h>

enum { DEPTH_MAX = 16 };

static char peek(const struct PatternReader *r, size_t ahead) {
    return r->at + ahead < r->n ? r->text[r->at + ahead] : 0;
}

// ---- escapes ----

// Reads \p{NAME}, \p{^NAME} or \P{NAME}.
static int read_property(struct PatternReader *r, struct PointSet *s) {
    size_t begin = r->at;
    bool negated = peek(r, 1) == 'P';
    const char *name = r->text + r->at + 3, *end = memchr(r->text + r->at, '}', r->n - r->at);
    if (peek(r, 2) != '{' || !end)
        return pattern_refuse(r, begin, "\\p without {NAME}");
    if (*name == '^') {
        negated = !negated;
        name++;
    }
    struct PointSet own = {0};
    if (name > end || !set_add_property(&own, name, (size_t)(end - name)))
        return pattern_refuse(r, begin, "this property");
    if (negated)
        set_negate(&own);
    set_add_all(s, &own);
    set_free(&own);
    r->at = (size_t)(end + 1 - r->text);
    return 0;
}

// Reads \xHH, \x{H...} or \uHHHH.
static int read_code_point(struct PatternReader *r, struct PointSet *s) {
    size_t begin = r->at, digits = peek(r, 1) == 'u' ? 4 : 2, have = 0;
    bool braces = peek(r, 1) == 'x' && peek(r, 2) == '{';
    uint32_t point = 0;
    r->at += braces ? 3 : 2;
    for (char c; have < (braces ? 6 : digits) && (c = peek(r, 0)); have++, r->at++) {
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                                : 16;
        if (digit == 16)
            break;
        point = 16 * point + digit;
    }
    bool ended = braces ? peek(r, 0) == '}' && have : have == digits;
    // Oniguruma takes \x80 to \xff for bytes.
    if (!ended || point >= UNICODE_POINTS || (!braces && digits == 2 && point >= 0x80))
        return pattern_refuse(r, begin, "this number of a character");
    r->at += braces;
    set_add(s, point, point);
    return 0;
}

int pattern_read_escape(struct PatternReader *r, struct PointSet *s, bool in_brackets,
                        bool *found) {
    static const char names[] = "nrtfvae", means[] = "\n\r\t\f\v\a\x1b";
    char c = peek(r, 1);
    const char *name = c ? strchr(names, c) : NULL;
    bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    *found = true;
    if (c == 'p' || c == 'P')
        return read_property(r, s);
    if (c == 'x' || c == 'u')
        return read_code_point(r, s);
    struct PointSet own = {0};
    char lower = c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
    if (name) {
        set_add(&own, (uint8_t)means[name - names], (uint8_t)means[name - names]);
    } else if (set_add_escape(&own, lower, in_brackets)) {
        if (lower != c)
            set_negate(&own);
    } else if (is_letter || !c) {
        *found = false;
        return in_brackets ? pattern_refuse(r, r->at, "this escape") : 0;
    }
    r->at++;
    if (own.count) {
        r->at++;
    } else { // the character itself
        uint32_t point = pattern_next(r);
        set_add(&own, point, point);
    }
    set_add_all(s, &own);
    set_free(&own);
    return 0;
}

// ---- in brackets ----

// Reads one character, or an escape for a set. *single: it is one character.
static int read_member(struct PatternReader *r, struct PointSet *s, bool *single) {
    if (peek(r, 0) == '\\') {
        bool found;
        int err = pattern_read_escape(r, s, true, &found);
        *single = !err && s->count == 1 && s->range[0].first == s->range[0].last;
        return err;
    }
    uint32_t point = pattern_next(r);
    set_add(s, point, point);
    *single = true;
    return 0;
}

// Reads a member, or the range that it begins.
static int read_range(struct PatternReader *r, struct PointSet *s) {
    struct PointSet low = {0}, high = {0};
    size_t begin = r->at;
    bool single, single_high = false;
    int err = read_member(r, &low, &single);
    bool is_range = !err && peek(r, 0) == '-' && peek(r, 1) != ']' && r->at + 1 < r->n;
    if (is_range) {
        r->at++;
        err = peek(r, 0) == '[' ? -EINVAL : read_member(r, &high, &single_high);
        if (!err && (!single || !single_high || high.range->first < low.range->first))
            err = -EINVAL;
        if (err)
            err = pattern_refuse(r, begin, "this range");
        else
            set_add(s, low.range->first, high.range->first);
    } else if (!err) {
        set_add_all(s, &low);
    }
    set_free(&low);
    set_free(&high);
    return err;
}

// Reads members up to "]" or "&&", neither of which is consumed.
static int read_union(struct PatternReader *r, struct PointSet *s, bool first, size_t depth) {
    int err = 0;
    for (; !err; first = false) {
        if (r->at >= r->n)
            return pattern_refuse(r, r->n, "a \"[\" without a \"]\"");
        char c = peek(r, 0);
        if ((c == ']' && !first) || (c == '&' && peek(r, 1) == '&')) // a first "]" is a member
            return 0;
        if (c == '[' && peek(r, 1) == ':')
            return pattern_refuse(r, r->at, "a class [:NAME:]");
        err = c == '[' ? pattern_read_class(r, s, depth + 1) : read_range(r, s);
    }
    return err;
}

int pattern_read_class(struct PatternReader *r, struct PointSet *s, size_t depth) {
    struct PointSet all = {0};
    size_t begin = r->at++;
    bool negated = peek(r, 0) == '^';
    r->at += negated;
    if (depth == DEPTH_MAX || (depth && r->any_case))
        return pattern_refuse(r, begin, "a class inside of another in (?i), or of 16 others,");
    int err = read_union(r, &all, true, depth);
    while (!err && peek(r, 0) == '&') {
        struct PointSet more = {0};
        r->at += 2;
        err = read_union(r, &more, false, depth);
        set_intersect(&all, &more);
        set_free(&more);
    }
    if (!err && r->any_case)
        err = pattern_fold(r, &all, begin);
    if (!err) {
        r->at++;
        if (negated)
            set_negate(&all);
        set_add_all(s, &all);
    }
    set_free(&all);
    return err;
}

// ---- (?i) ----

int pattern_fold(struct PatternReader *r, struct PointSet *s, size_t at) {
    static const uint32_t long_s = 0x17f, kelvin = 0x212a; // which fold to s and k
    struct PointSet cased = {0};
    for (uint32_t c = 'a'; c <= 'z'; c++)
        if (set_has(s, c) || set_has(s, c - 0x20)) {
            set_add(s, c, c);
            set_add(s, c - 0x20, c - 0x20);
        }
    set_add_cased(&cased);
    set_intersect(&cased, s);
    bool others = false;
    for (size_t i = 0; i < cased.count; i++)
        others = others || cased.range[i].last >= 0x80;
    set_free(&cased);
    if (others)
        return pattern_refuse(r, at, "(?i) of letters beyond ASCII");
    if (set_has(s, 's'))
        set_add(s, long_s, long_s);
    if (set_has(s, 'k'))
        set_add(s, kelvin, kelvin);
    return 0;
}
