// See pattern.h.
//
// Sets become symbols; the rest is copied where both engines read it alike: groups, alternatives,
// lookahead and lookbehind, quantifiers. Capturing groups become non-capturing ones, as nothing
// reads captures. (?i) inside of a group holds to the group's end, over alternatives too.
#include "data/bpe/pattern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS_MAX = 64 };

// An open group: its first item, and the any_case to restore after it. implied: it ends with the
// group around it.
struct PatternGroup {
    size_t item;
    bool any_case, implied;
};

struct PatternReading {
    struct PatternReader r;
    struct PatternGroup group[GROUPS_MAX];
    size_t ngroup;
    size_t atom; // the item that a quantifier belongs to begins here; SIZE_MAX: there is none
    char letter; // the last atom, where it was one in (?i)
};

int pattern_refuse(struct PatternReader *r, size_t at, const char *what) {
    return error_set(r->e, -EINVAL, E_BPE_PATTERN, "%s (byte %zu of the pattern) is not supported",
                     what, at);
}

uint32_t pattern_next(struct PatternReader *r) {
    size_t w;
    uint32_t point = unicode_at((const uint8_t *)r->text + r->at, &w);
    r->at += w;
    return point;
}

static bool begins_with(const struct PatternReader *r, const char *with) {
    size_t n = strlen(with);
    return r->n - r->at >= n && !memcmp(r->text + r->at, with, n);
}

static struct PatternItem *add_item(struct PatternReader *r) {
    r->item = base_grow(r->item, r->nitem, &r->item_room, sizeof *r->item, "a pattern");
    struct PatternItem *item = &r->item[r->nitem++];
    *item = (struct PatternItem){{0}, 0};
    return item;
}

static void add_text(struct PatternReader *r, const char *text) {
    struct PatternItem *item = add_item(r);
    CHECK(strlen(text) < sizeof item->text, "%s", text);
    memcpy(item->text, text, strlen(text) + 1);
}

// Adds a set to the expression. The reader owns it from now on.
static void add_set(struct PatternReading *x, struct PointSet s) {
    struct PatternReader *r = &x->r;
    r->set = base_grow(r->set, r->nset, &r->set_room, sizeof *r->set, "a pattern");
    x->atom = r->nitem;
    r->set[r->nset] = s;
    add_item(r)->set = r->nset++;
}

// ---- groups ----

static int open_group(struct PatternReading *x, const char *text, bool implied) {
    if (x->ngroup == GROUPS_MAX)
        return pattern_refuse(&x->r, x->r.at, "a group inside of 64 others");
    x->group[x->ngroup++] = (struct PatternGroup){x->r.nitem, x->r.any_case, implied};
    add_text(&x->r, text);
    x->atom = SIZE_MAX;
    return 0;
}

static int read_open(struct PatternReading *x) {
    static const struct {
        const char *text, *becomes;
        bool looks_back, sets_case, any_case, implied;
    } rows[] = {
        {"(?:", "(?:", false, false, false, false},  {"(?=", "(?=", false, false, false, false},
        {"(?!", "(?!", false, false, false, false},  {"(?>", "(?>", false, false, false, false},
        {"(?<=", "(?<=", true, false, false, false}, {"(?<!", "(?<!", true, false, false, false},
        {"(?i:", "(?:", false, true, true, false},   {"(?-i:", "(?:", false, true, false, false},
        {"(?i)", "(?:", false, true, true, true},    {"(?-i)", "(?:", false, true, false, true},
    };
    struct PatternReader *r = &x->r;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (begins_with(r, rows[i].text)) {
            int err = open_group(x, rows[i].becomes, rows[i].implied);
            r->at += strlen(rows[i].text);
            r->looks_back = r->looks_back || rows[i].looks_back;
            if (rows[i].sets_case)
                r->any_case = rows[i].any_case;
            return err;
        }
    if (begins_with(r, "(?") || begins_with(r, "(*"))
        return pattern_refuse(r, r->at, "this kind of group");
    r->at++;
    return open_group(x, "(?:", false);
}

static void close_group(struct PatternReading *x) {
    struct PatternGroup g = x->group[--x->ngroup];
    add_text(&x->r, ")");
    x->r.any_case = g.any_case;
    x->atom = g.item;
}

static int read_close(struct PatternReading *x) {
    while (x->ngroup && x->group[x->ngroup - 1].implied)
        close_group(x);
    if (!x->ngroup)
        return pattern_refuse(&x->r, x->r.at, "a \")\" without a \"(\"");
    close_group(x);
    x->r.at++;
    return 0;
}

// ---- quantifiers ----

// Reads {2}, {2,}, {,3} or {2,3} at r->at. Returns its bytes; 0: the brace is itself. count: the
// least and the most, 65535 (PCRE2's largest) where there is no most. *exact: {2}.
static size_t read_braces(const struct PatternReader *r, unsigned count[2], bool *exact) {
    size_t at = r->at + 1;
    bool has_digits[2] = {false, false}, comma = false;
    count[0] = 0, count[1] = 65535;
    for (size_t k = 0; k < 2; k++) {
        unsigned value = 0;
        for (; at < r->n && r->text[at] >= '0' && r->text[at] <= '9' && value < 65536; at++) {
            value = 10 * value + (unsigned)(r->text[at] - '0');
            has_digits[k] = true;
        }
        if (has_digits[k])
            count[k] = value;
        if (k == 0 && at < r->n && r->text[at] == ',')
            comma = true, at++;
        else if (k == 0)
            break;
    }
    *exact = !comma;
    if (!comma)
        count[1] = count[0];
    bool closed = at < r->n && r->text[at] == '}' && (has_digits[0] || has_digits[1]);
    return closed ? at + 1 - r->at : 0;
}

// Puts "(?:" before the last atom and ")" after it.
static void wrap_atom(struct PatternReading *x) {
    struct PatternReader *r = &x->r;
    add_text(r, ")");
    add_text(r, "(?:");
    struct PatternItem open = r->item[r->nitem - 1];
    memmove(r->item + x->atom + 1, r->item + x->atom, (r->nitem - 1 - x->atom) * sizeof *r->item);
    r->item[x->atom] = open;
}

// Adds the quantifier at r->at. *found false: there is none.
static int read_quantifier(struct PatternReading *x, bool *found) {
    struct PatternReader *r = &x->r;
    char c = r->text[r->at], text[24] = {c, 0};
    size_t begin = r->at, bytes = 1;
    unsigned count[2];
    bool exact = false, braces = c == '{';
    *found = c == '*' || c == '+' || c == '?';
    if (braces) {
        bytes = read_braces(r, count, &exact);
        *found = bytes > 0;
    }
    if (!*found)
        return 0;
    if (x->atom == SIZE_MAX || (braces && (count[0] > count[1] || count[1] > 65535)))
        return pattern_refuse(r, begin, "this quantifier");
    if (braces && count[1] == 65535)
        snprintf(text, sizeof text, "{%u,}", count[0]);
    else if (braces)
        snprintf(text, sizeof text, "{%u,%u}", count[0], count[1]);
    r->at += bytes;
    char next = r->at < r->n ? r->text[r->at] : 0;
    if (next == '?' && !(braces && exact)) { // {2}? differs between the engines: refused below
        strcat(text, "?");
        r->at++;
    } else if (next == '+' && !braces) { // possessive
        strcat(text, "+");
        r->at++;
    }
    add_text(r, text);
    if (next == '+' && braces) { // {1,3}+ is a quantifier of a quantifier there
        wrap_atom(x);
        add_text(r, "+");
        r->at++;
    }
    next = r->at < r->n ? r->text[r->at] : 0;
    x->atom = SIZE_MAX;
    if (next == '*' || next == '+' || next == '?')
        return pattern_refuse(r, r->at, "a quantifier right after another");
    return 0;
}

// ---- all else ----

// Adds an assertion about the text around a place. `bytes`: how many it has in the pattern read.
static int add_assertion(struct PatternReading *x, size_t bytes, const char *assertion) {
    x->r.looks_back = true;
    x->atom = x->r.nitem;
    add_text(&x->r, assertion);
    x->r.at += bytes;
    return 0;
}

// Adds \b or \B, written with the sets of \w.
static int add_boundary(struct PatternReading *x, bool is_b) {
    struct PatternReader *r = &x->r;
    static const char *const looks[2][4] = {{"(?:(?<=", ")(?=", ")|(?<!", ")(?!"},
                                            {"(?:(?<=", ")(?!", ")|(?<!", ")(?="}};
    size_t begin = r->nitem;
    for (size_t i = 0; i < 4; i++) {
        struct PointSet word = {0};
        set_add_escape(&word, 'w', false);
        add_text(r, looks[is_b][i]);
        add_set(x, word);
    }
    add_text(r, "))");
    x->atom = begin;
    r->looks_back = true;
    r->at += 2;
    return 0;
}

// Refuses two letters that Oniguruma's (?i) also matches as one character: \xdf for ss.
static int check_pair(struct PatternReading *x, size_t at, uint32_t point) {
    static const char *const pairs[] = {"ss", "st", "ff", "fi", "fl"};
    char letter = x->r.any_case && point < 0x80 ? (char)(point | 0x20) : 0;
    for (size_t i = 0; letter && i < 5; i++)
        if (x->letter == pairs[i][0] && letter == pairs[i][1])
            return pattern_refuse(&x->r, at, "(?i) of \"ss\", \"st\", \"ff\", \"fi\" or \"fl\"");
    x->letter = letter;
    return 0;
}

static int read_character(struct PatternReading *x) {
    struct PatternReader *r = &x->r;
    struct PointSet s = {0};
    size_t begin = r->at;
    bool found = true;
    int err = 0;
    char c = r->text[r->at];
    if (c == '[') {
        err = pattern_read_class(r, &s, 0);
    } else if (c == '.') {
        r->at++;
        set_add(&s, '\n', '\n');
        set_negate(&s);
    } else if (c == '\\') {
        err = pattern_read_escape(r, &s, false, &found);
    } else {
        uint32_t point = pattern_next(r);
        set_add(&s, point, point);
    }
    if (!err && !found) {
        set_free(&s);
        char escape = begin + 1 < r->n ? r->text[begin + 1] : 0;
        if (escape == 'b' || escape == 'B')
            return add_boundary(x, escape == 'b');
        if (escape == 'A' || escape == 'z')
            return add_assertion(x, 2, escape == 'A' ? "\\A" : "\\z");
        return pattern_refuse(r, begin, "this escape");
    }
    bool single = !err && s.count == 1 && s.range[0].first == s.range[0].last;
    if (!err)
        err = single ? check_pair(x, begin, s.range[0].first) : (x->letter = 0, 0);
    if (!err && r->any_case && c != '[' && (single || c == '\\')) // a class has been folded
        err = pattern_fold(r, &s, begin);
    if (err)
        set_free(&s);
    else
        add_set(x, s);
    return err;
}

static int read_part(struct PatternReading *x) {
    struct PatternReader *r = &x->r;
    bool found;
    char c = r->text[r->at];
    int err = read_quantifier(x, &found);
    if (err || found)
        return err;
    if (c == '^') // not after a line break that ends the text
        return add_assertion(x, 1, "(?:\\A|(?<=\\n)(?!\\z))");
    if (c == '$')
        return add_assertion(x, 1, "(?=\\n|\\z)");
    if (c != '(' && c != ')' && c != '|')
        return read_character(x);
    x->letter = 0;
    if (c == '(')
        return read_open(x);
    if (c == ')')
        return read_close(x);
    add_text(r, "|");
    x->atom = SIZE_MAX;
    r->at++;
    return 0;
}

int pattern_open(struct Pattern *p, const char *text, size_t n, struct Error *e) {
    struct PatternReading *x = base_alloc_zeroed(sizeof *x);
    struct PatternReader *r = &x->r;
    *p = (struct Pattern){0};
    *r = (struct PatternReader){.text = text, .n = n, .e = e};
    x->atom = SIZE_MAX;
    int err = 0;
    while (!err && r->at < n)
        err = read_part(x);
    while (!err && x->ngroup && x->group[x->ngroup - 1].implied)
        close_group(x);
    if (!err && x->ngroup)
        err = pattern_refuse(r, n, "a \"(\" without a \")\"");
    if (!err)
        err = pattern_assign_symbols(p, r);
    p->looks_back = r->looks_back;
    for (size_t i = 0; i < r->nset; i++)
        set_free(&r->set[i]);
    free(r->set);
    free(r->item);
    free(x);
    if (err)
        pattern_close(p);
    return err;
}
