// Looks letters up in a table made from Python's: see case.h, scripts/gen/case_table.py.
#include "data/eval/case.h"

#include "data/eval/case_table.h"
#include "data/eval/utf8.h"

#include <string.h>

enum { SIGMA = 0x3a3, DOTTED_I = 0x130 };

static int32_t find(const struct CaseRange *table, size_t count, int32_t letter) {
    size_t low = 0;
    while (count > 1) { // the last range that begins at or before it
        size_t half = count / 2;
        low += table[low + half].first <= letter ? half : 0;
        count -= half;
    }
    const struct CaseRange *r = &table[low];
    bool in = letter >= r->first && letter <= r->last && (letter - r->first) % r->step == 0;
    return in ? letter + r->delta : letter;
}

#define FIND(table, letter) find(table, sizeof(table) / sizeof((table)[0]), letter)

static size_t write_title(int32_t letter, char *out) {
    if (letter < 128)
        return utf8_write(letter >= 'a' && letter <= 'z' ? letter - 32 : letter, out);
    for (size_t i = 0; i < sizeof case_title_many / sizeof case_title_many[0]; i++)
        if (case_title_many[i].letter == letter) {
            size_t n = strlen(case_title_many[i].text);
            memcpy(out, case_title_many[i].text, n);
            return n;
        }
    return utf8_write(FIND(case_title, letter), out);
}

static size_t write_lower(int32_t letter, char *out) {
    if (letter < 128)
        return utf8_write(letter >= 'A' && letter <= 'Z' ? letter + 32 : letter, out);
    if (letter != DOTTED_I)
        return utf8_write(FIND(case_small, letter), out);
    memcpy(out, "i\xcc\x87", 3);
    return 3;
}

long case_capitalize(const char *text, size_t n, char *out) {
    size_t at = 0, written = 0;
    while (at < n) {
        bool first = at == 0;
        int32_t letter = utf8_next(text, n, &at);
        if (!first && letter == SIGMA)
            return -1;
        written += first ? write_title(letter, out + written) : write_lower(letter, out + written);
    }
    out[written] = 0;
    return (long)written;
}
