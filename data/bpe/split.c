// Scanners of words: see split.h. Each takes the first alternative of its expression that matches,
// greedily, and backtracks as the engine would.
#include "data/bpe/split.h"

const char *const split_patterns[NSPLIT] = {
    [SPLIT_GPT2] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                   "\\s+(?!\\S)|\\s+",
    [SPLIT_LLAMA3] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
                     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    [SPLIT_QWEN2] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
                    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
};
const char *const split_names[NSPLIT] = {"GPT-2", "Llama-3", "Qwen2", "SmolLM2"};

static inline unsigned kind_at(const struct Unicode *u, const uint8_t *p, size_t *n) {
    return u->kind[unicode_at(p, n)];
}

// Returns the end of the run of characters of a class at p; at most `most` characters.
static const uint8_t *run_end(const struct Unicode *u, unsigned class, const uint8_t *p,
                              const uint8_t *end, size_t most) {
    for (size_t n; p < end && most; p += n, most--)
        if ((kind_at(u, p, &n) & UNICODE_CLASS) != class)
            break;
    return p;
}

static bool is_break(uint8_t c) {
    return c == '\r' || c == '\n';
}

// Returns the bytes of 's 't 're 've 'm 'll or 'd at p, or 0. any_case: capitals do, too, and the
// long s (U+017F) counts as an s.
static size_t contraction_bytes(const uint8_t *p, size_t left, bool any_case) {
    if (p[0] != '\'' || left < 2)
        return 0;
    if (any_case && left >= 3 && p[1] == 0xc5 && p[2] == 0xbf)
        return 3;
    uint8_t fold = any_case ? 0x20 : 0, a = p[1] | fold, b = left >= 3 ? p[2] | fold : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    bool two = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
    return two ? 3 : 0;
}

// Returns the end of \s+(?!\S)|\s+ at p: all the white space; but if text follows and there are
// several characters of it, without the last one.
static const uint8_t *space_end(const struct Unicode *u, const uint8_t *p, const uint8_t *end) {
    const uint8_t *last = p, *q = p;
    for (size_t n; q < end; q += n) {
        if ((kind_at(u, q, &n) & UNICODE_CLASS) != UNICODE_SPACE)
            break;
        last = q;
    }
    return q == end || last == p ? q : last;
}

// Returns the end of the word at p, by GPT-2's pattern.
static const uint8_t *scan_gpt2(const struct Unicode *u, const uint8_t *p, const uint8_t *end) {
    size_t n = contraction_bytes(p, (size_t)(end - p), false);
    if (n)
        return p + n;
    const uint8_t *q = *p == ' ' && end - p > 1 ? p + 1 : p;
    unsigned class = kind_at(u, q, &n) & UNICODE_CLASS;
    return class == UNICODE_SPACE ? space_end(u, p, end) : run_end(u, class, q + n, end, SIZE_MAX);
}

// \s*[\r\n]+ of white space: up to its last line break; NULL: it has none.
static const uint8_t *breaks_end(const struct Unicode *u, const uint8_t *p, const uint8_t *end) {
    const uint8_t *found = NULL;
    for (size_t n; p < end && (kind_at(u, p, &n) & UNICODE_CLASS) == UNICODE_SPACE; p += n)
        if (is_break(*p))
            found = p + 1;
    return found;
}

// Returns the end of the word at p, by Llama 3's pattern with \p{N}{1,digits}: Qwen2's has 1.
static const uint8_t *scan_llama(const struct Unicode *u, const uint8_t *p, const uint8_t *end,
                                 size_t digits) {
    size_t n = contraction_bytes(p, (size_t)(end - p), true), m;
    if (n)
        return p + n;
    unsigned class = kind_at(u, p, &n) & UNICODE_CLASS;
    if (class == UNICODE_LETTER)
        return run_end(u, UNICODE_LETTER, p + n, end, SIZE_MAX);
    if (class == UNICODE_NUMBER)
        return run_end(u, UNICODE_NUMBER, p + n, end, digits - 1);
    unsigned next = p + n < end ? kind_at(u, p + n, &m) & UNICODE_CLASS : UNICODE_SPACE;
    if (next == UNICODE_LETTER && !is_break(*p))
        return run_end(u, UNICODE_LETTER, p + n + m, end, SIZE_MAX);
    if (class == UNICODE_OTHER || (*p == ' ' && next == UNICODE_OTHER)) {
        p = run_end(u, UNICODE_OTHER, p + n, end, SIZE_MAX);
        while (p < end && is_break(*p))
            p++;
        return p;
    }
    const uint8_t *broken = breaks_end(u, p, end);
    return broken ? broken : space_end(u, p, end);
}

// Scans each digit alone, and the text between two digits by GPT-2's pattern as if it were whole.
static const uint8_t *scan_smollm(struct Split *s) {
    const struct Unicode *u = s->unicode;
    size_t n;
    if (s->at >= s->stretch) {
        if (kind_at(u, s->at, &n) & UNICODE_DIGIT)
            return s->at + n;
        for (s->stretch = s->at; s->stretch < s->end; s->stretch += n)
            if (kind_at(u, s->stretch, &n) & UNICODE_DIGIT)
                break;
    }
    return scan_gpt2(u, s->at, s->stretch);
}

struct Split split_begin(const struct Unicode *u, enum SplitKind kind, const uint8_t *text,
                         size_t n) {
    return (struct Split){u, kind, text, text + n, text};
}

const uint8_t *split_next(struct Split *s, size_t *n) {
    const uint8_t *word = s->at;
    if (word == s->end)
        return NULL;
    if (s->kind == SPLIT_GPT2)
        s->at = scan_gpt2(s->unicode, word, s->end);
    else if (s->kind == SPLIT_SMOLLM)
        s->at = scan_smollm(s);
    else
        s->at = scan_llama(s->unicode, word, s->end, s->kind == SPLIT_LLAMA3 ? 3 : 1);
    *n = (size_t)(s->at - word);
    return word;
}

// ---- where a text may be cut ----

static bool is_space(const struct Unicode *u, const uint8_t *p) {
    size_t n;
    return (kind_at(u, p, &n) & UNICODE_CLASS) == UNICODE_SPACE;
}

static const uint8_t *previous(const uint8_t *p) {
    do
        p--;
    while ((*p & 0xc0) == 0x80);
    return p;
}

static bool may_cut(const struct Unicode *u, const uint8_t *text, const uint8_t *at) {
    if (*at == ' ')
        return !is_space(u, previous(at));
    return at[-1] == '\n' && at - text > 1 && !is_space(u, at) && !is_space(u, previous(at - 1));
}

size_t split_cut(const struct Unicode *u, const uint8_t *text, size_t n, size_t wanted) {
    if (wanted >= n)
        return n;
    for (size_t i = wanted; i > 0; i--)
        if ((text[i] == ' ' || text[i - 1] == '\n') && may_cut(u, text, text + i))
            return i;
    for (size_t i = wanted + 1; i < n; i++)
        if ((text[i] == ' ' || text[i - 1] == '\n') && may_cut(u, text, text + i))
            return i;
    return n;
}
