// See steps.h.
//
// ByteLevel's alphabet has 256 letters, one for each byte: those that can be printed in Latin-1
// stand for themselves, the rest for U+0100 on, in their order.
#include "data/bpe/steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_printed(unsigned byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
}

int letter_to_byte(uint32_t letter) {
    if (letter < 256)
        return is_printed(letter) ? (int)letter : -1;
    unsigned left = letter - 256;
    for (unsigned byte = 0; left < 68 && byte < 256; byte++) // 68 bytes are not printed
        if (!is_printed(byte) && left-- == 0)
            return (int)byte;
    return -1;
}

uint32_t byte_to_letter(uint8_t byte) {
    uint32_t letter = 256;
    if (is_printed(byte))
        return byte;
    for (unsigned b = 0; b < byte; b++)
        letter += !is_printed(b);
    return letter;
}

void step_close(struct Step *s) {
    free(s->text);
    pattern_close(&s->pattern);
    regex_close(s->regex);
    *s = (struct Step){0};
}

void steps_work_close(struct StepsWork *w) {
    for (size_t i = 0; i <= STEPS_MAX; i++)
        free(w->room[i].data);
    regex_work_close(w->regex);
    *w = (struct StepsWork){0};
}

// ---- steps that rewrite ----

static void write_letters(struct Bytes *out, const uint8_t *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint8_t b[4];
        bytes_append(out, b, unicode_put(b, byte_to_letter(text[i])));
    }
}

static void write_marks(struct Bytes *out, const struct Step *p, const uint8_t *text, size_t n) {
    for (size_t i = 0, end; i < n; i = end + 1) {
        const uint8_t *space = memchr(text + i, ' ', n - i);
        end = space ? (size_t)(space - text) : n;
        bytes_append(out, text + i, end - i);
        if (space)
            bytes_append(out, p->text, p->bytes);
    }
}

// Whether Metaspace writes its replacement (usually U+2581) before the stretch: prepend_scheme asks
// for it, and the stretch begins neither inside a word nor with a space or the replacement.
static bool prepends_replacement(const struct Step *p, struct Stretch s) {
    bool has = s.n && (*s.text == ' ' || (s.n >= p->bytes && !memcmp(s.text, p->text, p->bytes)));
    return !has && !s.middle &&
           (p->prepend == PREPEND_ALWAYS || (p->prepend == PREPEND_FIRST && s.begins));
}

static void write_part(struct Bytes *out, const struct Step *p, const uint8_t *text, size_t n) {
    if (p->kind == STEP_LETTERS)
        write_letters(out, text, n);
    else if (p->kind == STEP_MARK)
        write_marks(out, p, text, n);
    else
        bytes_append(out, text, n);
}

static int rewrite_stretch(const struct StepsRun *r, size_t k, struct Stretch s) {
    const struct Step *p = &r->steps->step[k];
    struct Bytes *out = &r->work->room[k];
    if (p->kind == STEP_PREFIX && (s.middle || *s.text == ' '))
        return steps_run(r, k + 1, s);
    out->count = 0;
    if (p->kind == STEP_PREFIX)
        bytes_append(out, " ", 1);
    if (p->kind == STEP_MARK && prepends_replacement(p, s))
        bytes_append(out, p->text, p->bytes);
    size_t front = size_min(s.n, s.cut);
    write_part(out, p, s.text, front);
    if (s.cut <= s.n)
        s.cut = out->count;
    write_part(out, p, s.text + front, s.n - front);
    s.text = out->data;
    s.n = out->count;
    s.in_letters = s.in_letters || p->kind == STEP_LETTERS;
    return steps_run(r, k + 1, s);
}

// ---- words ----

// Passes a word to `take`, as bytes. -EAGAIN: it crosses the cut, or more text could lengthen it.
static int emit_word(const struct StepsRun *r, struct Stretch s) {
    if (s.cut < s.n || (s.open && s.cut == s.n))
        return -EAGAIN;
    if (s.in_letters) {
        struct Bytes *out = &r->work->room[STEPS_MAX];
        out->count = 0;
        for (size_t i = 0, w; i < s.n; i += w) {
            uint8_t byte = (uint8_t)letter_to_byte(unicode_at(s.text + i, &w));
            bytes_append(out, &byte, 1);
        }
        s.text = out->data;
        s.n = out->count;
    }
    r->take(r->context, s.text, s.n);
    return 0;
}

int steps_run(const struct StepsRun *r, size_t k, struct Stretch s) {
    if (!s.n)
        return 0;
    if (k == r->steps->count)
        return emit_word(r, s);
    return r->steps->step[k].kind >= STEP_PREFIX ? rewrite_stretch(r, k, s) : steps_split(r, k, s);
}
