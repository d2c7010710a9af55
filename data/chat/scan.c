// Reads JSON from left to right: see scan.h.
#include "data/chat/scan.h"

#include "data/utf8.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

enum { DEPTH_MAX = 200 };

struct Scan scan_line(char *line, size_t bytes) {
    return (struct Scan){line, line + bytes, NULL};
}

bool scan_fail(struct Scan *s, const char *wrong) {
    if (!s->wrong)
        s->wrong = wrong;
    return false;
}

static void pass_space(struct Scan *s) {
    while (s->at < s->end && strchr(" \t\r\n", *s->at) && *s->at)
        s->at++;
}

bool slice_is(const struct JsonSlice *slice, const char *text) {
    return slice->bytes == strlen(text) && !memcmp(slice->text, text, slice->bytes);
}

bool scan_consume(struct Scan *s, char c) {
    pass_space(s);
    if (s->wrong || s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

bool scan_expect(struct Scan *s, char c, const char *wrong) {
    return scan_consume(s, c) || scan_fail(s, wrong);
}

// Reads four hexadecimal digits; -1: there are other characters.
static int32_t read_hex(struct Scan *s) {
    int32_t value = 0;
    if (s->end - s->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        unsigned char c = (unsigned char)*s->at++;
        if (!isxdigit(c))
            return -1;
        value = 16 * value + (isdigit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return value;
}

// Reads a character after "\u", or a pair of surrogates. Returns -1, with a fault, for others.
static int32_t read_unicode_escape(struct Scan *s) {
    int32_t c = read_hex(s), low = -1;
    if (c >= 0xd800 && c < 0xdc00 && s->end - s->at >= 6 && s->at[0] == '\\' && s->at[1] == 'u') {
        s->at += 2;
        low = read_hex(s);
        c = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00) : -1;
    }
    if (c == 0)
        scan_fail(s, "a text holds a zero byte (\\u0000); remove it");
    else if (c < 0 || (c >= 0xd800 && c < 0xe000))
        scan_fail(s, "a \\u escape is not a character; expected \\uXXXX, or two that make a pair");
    return s->wrong ? -1 : c;
}

// Reads what follows a backslash. Returns the end of what it has written to `out`.
static char *read_escape(struct Scan *s, char *out) {
    static const char named[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char c = s->at < s->end ? *s->at++ : 0;
    const char *found = c ? strchr(named, c) : NULL;
    if (found) {
        *out++ = meant[found - named];
    } else if (c == 'u') {
        int32_t letter = read_unicode_escape(s); // in UTF-8 never longer than the escape was
        out += letter < 0 ? 0 : unicode_put((uint8_t *)out, (uint32_t)letter);
    } else {
        scan_fail(s, "a backslash begins no escape of JSON; write \\\\ for a backslash");
    }
    return out;
}

bool scan_text(struct Scan *s, struct JsonSlice *text, const char *wrong) {
    if (!scan_expect(s, '"', wrong))
        return false;
    char *begin = s->at, *out = begin;
    while (!s->wrong && s->at < s->end && *s->at != '"') {
        char c = *s->at++;
        if (c == '\\')
            out = read_escape(s, out);
        else if ((unsigned char)c < 0x20)
            scan_fail(s, "a control character in a text; write it as \\n, \\t or \\u001b");
        else
            *out++ = c;
    }
    if (!s->wrong && s->at == s->end)
        scan_fail(s, "the line ends inside a text; close it by a quote");
    if (s->wrong)
        return false;
    s->at++;
    *out = 0;
    *text = (struct JsonSlice){begin, (size_t)(out - begin)};
    return true;
}

// Passes the comma before the next item, or the closing bracket. True: an item follows.
static bool begin_item(struct Scan *s, bool *first, char close, const char *wrong) {
    if (s->wrong || scan_consume(s, close) || (!*first && !scan_expect(s, ',', wrong)))
        return false;
    *first = false;
    return true;
}

bool scan_member(struct Scan *s, bool *first, struct JsonSlice *name) {
    return begin_item(s, first, '}', "expected , or } after a member") &&
           scan_text(s, name, "expected a member's name in quotes") &&
           scan_expect(s, ':', "expected : after a member's name");
}

bool scan_value(struct Scan *s, bool *first) {
    return begin_item(s, first, ']', "expected , or ] after a value");
}

static bool pass_word(struct Scan *s, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
        return scan_fail(s, "expected a JSON value");
    s->at += n;
    return true;
}

static size_t pass_digits(struct Scan *s) {
    char *from = s->at;
    while (s->at < s->end && isdigit((unsigned char)*s->at))
        s->at++;
    return (size_t)(s->at - from);
}

static bool pass_number(struct Scan *s) {
    s->at += *s->at == '-';
    bool leading_zero = s->at < s->end && *s->at == '0';
    size_t digits = pass_digits(s);
    bool fine = digits && (!leading_zero || digits == 1);
    if (fine && s->at < s->end && *s->at == '.') {
        s->at++;
        fine = pass_digits(s) > 0;
    }
    if (fine && s->at < s->end && (*s->at | 0x20) == 'e') {
        s->at++;
        s->at += s->at < s->end && (*s->at == '+' || *s->at == '-');
        fine = pass_digits(s) > 0;
    }
    return fine || scan_fail(s, "expected a JSON value");
}

static bool skip_value(struct Scan *s, bool *null, int depth) {
    struct JsonSlice name;
    bool first = true;
    *null = false;
    if (depth == DEPTH_MAX)
        return scan_fail(s,
                         "lists and objects are nested more than 200 deep; expected fewer levels");
    if (scan_consume(s, '{')) {
        while (scan_member(s, &first, &name) && skip_value(s, null, depth + 1))
            ;
        *null = false;
    } else if (scan_consume(s, '[')) {
        while (scan_value(s, &first) && skip_value(s, null, depth + 1))
            ;
        *null = false;
    } else if (s->wrong || s->at == s->end) {
        scan_fail(s, "the line ends where a value should be; add the value");
    } else if (*s->at == '"') {
        scan_text(s, &name, "");
    } else if (*s->at == 't') {
        pass_word(s, "true");
    } else if (*s->at == 'f') {
        pass_word(s, "false");
    } else if (*s->at == 'n') {
        *null = pass_word(s, "null");
    } else {
        pass_number(s);
    }
    return !s->wrong;
}

bool scan_skip(struct Scan *s, bool *null) {
    bool ignored;
    return skip_value(s, null ? null : &ignored, 0);
}

const char *scan_other_type(struct Scan *s) {
    static const struct {
        const char *begins, *what;
    } kinds[] = {{"n", "null"},
                 {"[", "a list"},
                 {"{", "an object"},
                 {"tf", "true or false"},
                 {"-0123456789", "a number"}};
    pass_space(s);
    for (size_t i = 0; !s->wrong && s->at < s->end && i < sizeof kinds / sizeof kinds[0]; i++)
        if (*s->at && strchr(kinds[i].begins, *s->at))
            return kinds[i].what;
    return NULL;
}

bool scan_done(struct Scan *s) {
    pass_space(s);
    if (!s->wrong && s->at < s->end)
        scan_fail(s, "there is more after the object; expected one object: remove the rest, or "
                     "put it on a line of its own in JSONL");
    return !s->wrong;
}
