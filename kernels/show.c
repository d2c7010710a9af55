// Escapes and masks: see show.h.
#include "kernels/show.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char MASK[] = "***";

// ---- URLs ----

// The part of a text to mask: [begin, end). Empty: none.
struct TextSpan {
    const char *begin, *end;
};

static const char *end_of_word(const char *p) {
    while (*p && !isspace((unsigned char)*p) && !strchr("\"'<>", *p))
        p++;
    return p;
}

// Finds user and password, which end at the last "@" of the host part. If they contain "/" or a
// space, what looks like the port is not a number: then they end at the next "@", even beyond
// `end`, the word's, since the line that refuses the URL must hide them, too.
static struct TextSpan find_user(const char *host, const char *end) {
    size_t n = strcspn(host, "/?#");
    const char *stop = host + n < end ? host + n : end;
    const char *at = memrchr(host, '@', (size_t)(stop - host));
    const char *colon = at ? NULL : memchr(host, ':', (size_t)(stop - host));
    if (colon && colon + 1 < stop && !isdigit((unsigned char)colon[1]))
        at = strchr(colon, '@');
    return (struct TextSpan){host, at ? at : host};
}

// Finds the query or fragment after "?" or "#", without punctuation that closes the sentence.
static struct TextSpan find_query(const char *from, const char *end) {
    const char *begin = from + strcspn(from, "?#");
    begin = begin < end ? begin + 1 : end;
    while (end > begin && strchr(":;,.)", end[-1]))
        end--;
    return (struct TextSpan){begin, end};
}

// ---- characters ----

// Returns the bytes of the character at p; 0 if it must not be shown.
static size_t length_at(const char *p) {
    const unsigned char *c = (const unsigned char *)p;
    if (*c < 0x80)
        return (*c >= ' ' && *c != 0x7f) || *c == '\n' || *c == '\t';
    size_t n = *c >= 0xf0 ? 4 : *c >= 0xe0 ? 3 : *c >= 0xc2 ? 2 : 0;
    for (size_t i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    return n == 2 && *c == 0xc2 && c[1] < 0xa0 ? 0 : n; // U+0080 to U+009F are control characters
}

// ---- URLs and characters ----

struct Shown {
    char *to;
    size_t at, size;
    bool escape, full;
};

// Writes all n bytes or, if they do not fit, none; after that nothing more is written.
static void write_whole(struct Shown *s, const char *text, size_t n) {
    s->full |= s->at + n >= s->size;
    if (s->full)
        return;
    memcpy(s->to + s->at, text, n);
    s->at += n;
}

static void write_text(struct Shown *s, const char *from, const char *end) {
    while (from < end) {
        size_t n = s->escape ? length_at(from) : 1;
        char escaped[5];
        if (!n)
            snprintf(escaped, sizeof escaped, "\\x%02x", (unsigned char)*from);
        write_whole(s, n ? from : escaped, n ? n : 4);
        from += n ? n : 1;
    }
}

static void write_masked(struct Shown *s, struct TextSpan span) {
    if (span.begin < span.end)
        write_whole(s, MASK, sizeof MASK - 1);
}

// Writes `from` with its URLs masked, and with s.escape characters escaped. Returns the length.
static size_t mask_and_escape(struct Shown s, const char *from) {
    for (const char *scheme; (scheme = strstr(from, "://"));) {
        const char *host = scheme + 3, *end = end_of_word(host);
        struct TextSpan user = find_user(host, end);
        struct TextSpan query = find_query(user.end, end_of_word(user.end));
        write_text(&s, from, host);
        write_masked(&s, user);
        write_text(&s, user.end, query.begin);
        write_masked(&s, query);
        from = query.end;
    }
    write_text(&s, from, from + strlen(from));
    s.to[s.at] = 0;
    return s.at;
}

size_t show_text(char *to, size_t size, const char *from) {
    return mask_and_escape((struct Shown){.to = to, .size = size, .escape = true}, from);
}

size_t show_line(char *to, size_t size, const char *from) {
    size_t n = show_text(to, size, from);
    for (char *p = to; *p; p++)
        if (*p == '\n')
            *p = ' ';
    return n;
}

size_t show_masked(char *to, size_t size, const char *from) {
    return mask_and_escape((struct Shown){.to = to, .size = size}, from);
}

bool show_is_masked(const char *url) {
    return strstr(url, "://***@") || strstr(url, "?***") || strstr(url, "#***");
}

void show_words(FILE *out, const char *text, int column) {
    enum { WIDTH = 100 };
    int at = column;
    while (*(text += strspn(text, " "))) {
        int length = (int)strcspn(text, " ");
        if (at > column && at + 1 + length > WIDTH) {
            fprintf(out, "\n%*s", column, "");
            at = column;
        }
        at += fprintf(out, at > column ? " %.*s" : "%.*s", length, text);
        text += length;
    }
    fputc('\n', out);
}

void show_word(FILE *out, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_./:=,+@%";
    if (*word && !word[strspn(word, plain)]) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", out);
        else
            fputc(*word, out);
    fputc('\'', out);
}
