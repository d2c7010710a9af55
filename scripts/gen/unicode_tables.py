#!/usr/bin/env python3
"""Asks the reference implementation what letters, numbers, white space and NFC are, and writes
data/bpe/unicode_tables.c.

    scripts/gen/unicode_tables.py >data/bpe/unicode_tables.c      needs PyPI's `tokenizers`

Python's own unicodedata is of another version of Unicode than the engines of `tokenizers` (and its
three engines are of three versions), so every code point is put to `tokenizers` itself: to its
regular expressions (\\p{L}, \\p{N}, \\s, and for data/bpe/sets.c each general category, \\w and
some scripts), its splitters Digits and Punctuation, and its NFD and NFC. Of unicodedata only the
numbers of combining classes are taken, which never change.

A table is a text: numbers of 5 bits a character, the lowest first, 32 added where more follow, in
the alphabet of base 64. Classes: for each range the gap in front of it and its length less 1.
Categories: for each range its category (its place in CATEGORIES) and its length less 1, without
gaps. Combining classes: gap, length less 1, class. Pairs: the gap to a character, how far its first
part lies away (twice, plus 1 where it lies above), the second part or 0, 1 where the pair composes
to it.
"""
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co "
              "Cn").split()
SCRIPTS = ["Han", "Hiragana", "Katakana", "Hangul"]
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def matched(pattern):
    splitter = pre_tokenizers.Split(Regex(pattern), "removed")
    found = set()
    for i in range(0, len(POINTS), 4096):
        chunk = POINTS[i:i + 4096]
        kept = {ord(c) for w, _ in splitter.pre_tokenize_str("".join(map(chr, chunk))) for c in w}
        found.update(c for c in chunk if c not in kept)
    return found


def digits():
    splitter = pre_tokenizers.Digits(individual_digits=True)
    found = set()
    for i in range(0, len(POINTS), 2048):
        text = "a" + "a".join(map(chr, POINTS[i:i + 2048])) + "a"
        found.update(ord(w) for w, _ in splitter.pre_tokenize_str(text) if len(w) == 1 and w != "a")
    return found


def punctuation():
    splitter = pre_tokenizers.Punctuation("isolated")
    found = set()
    for i in range(0, len(POINTS), 2048):
        text = "a" + "a".join(map(chr, POINTS[i:i + 2048])) + "a"
        found.update(ord(w) for w, _ in splitter.pre_tokenize_str(text) if len(w) == 1 and w != "a")
    return found


def categories():
    """The number of every point's category; surrogates count as unassigned."""
    found = {}
    for number, name in enumerate(CATEGORIES):
        for c in matched(rf"\p{{{name}}}"):
            assert c not in found
            found[c] = number
    assert len(found) == len(POINTS)
    return [found.get(c, len(CATEGORIES) - 1) for c in range(0x110000)]


def combining(nfd):
    """The combining class of every character that has one, as NFD puts them in order."""
    low, high = "\u0334", "\u0345"  # of the lowest class and the highest
    marks = [
        c for c in map(chr, POINTS)  # what is taken apart never lasts until it is put in order
        if nfd(c) == c and (nfd(c + low) != c + low or nfd(high + c) != high + c)
    ]
    number = {}
    for c in marks:
        number.setdefault(unicodedata.combining(c), c)
    known = sorted(number)
    found = {}
    for c in marks:
        below = [k for k in known if nfd(c + number[k]) != c + number[k]]
        above = [k for k in known if nfd(number[k] + c) != number[k] + c]
        same = [k for k in known if k not in below and k not in above]
        assert len(same) == 1 and below + same + above == known, hex(ord(c))
        found[ord(c)] = same[0]
    return found


def pairs(nfd, nfc):
    found = []
    taken = {c: nfd(c) for c in map(chr, POINTS) if nfd(c) != c and not "\uac00" <= c <= "\ud7a3"}
    whole_of = {whole: c for c, whole in taken.items()}
    for c, whole in taken.items():
        code = ord(c)
        composes = nfc(whole) == c and len(whole) > 1
        first = nfc(whole[:-1]) if len(whole) > 1 else whole
        second = whole[-1] if len(whole) > 1 else ""
        first = first if len(first) == 1 else whole_of[whole[:-1]]
        assert nfd(first) + second == whole
        found.append((code, ord(first), ord(second) if second else 0, int(composes)))
    return found


def spell(numbers):
    text = ""
    for n in numbers:
        while n >= 32:
            text += DIGITS[32 + n % 32]
            n //= 32
        text += DIGITS[n]
    return text


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def spell_class(points):
    numbers, at = [], 0
    for first, last in ranges(points):
        numbers += [first - at, last - first]
        at = last + 1
    return spell(numbers)


def spell_categories(category):
    numbers, at = [], 0
    while at < len(category):
        end = at
        while end < len(category) and category[end] == category[at]:
            end += 1
        numbers += [category[at], end - at - 1]
        at = end
    return spell(numbers)


def spell_combining(classes):
    numbers, at = [], 0
    for k in sorted(classes):
        if k < at:
            continue
        last = k
        while classes.get(last + 1) == classes[k]:
            last += 1
        numbers += [k - at, last - k, classes[k]]
        at = last + 1
    return spell(numbers)


def spell_pairs(found):
    numbers, at = [], 0
    for code, first, second, composes in found:
        away = first - code
        numbers += [code - at, 2 * abs(away) + (away > 0), second, composes]
        at = code
    return spell(numbers)


def show(name, comment, text):
    print(f"\n// {comment}\nconst char {name}[] =")
    lines = [text[i:i + 92] for i in range(0, len(text), 92)] or [""]
    for i, line in enumerate(lines):
        print(f'    "{line}"' + (";" if i == len(lines) - 1 else ""))


def main():
    nfd = normalizers.NFD().normalize_str
    nfc = normalizers.NFC().normalize_str
    letters, numbers, space = matched(r"\p{L}"), matched(r"\p{N}"), matched(r"\s")
    classes, found = combining(nfd), pairs(nfd, nfc)
    print(f"""// Tables of characters for data/bpe/unicode.c, which has their format. Written by
// scripts/gen/unicode_tables.py, from the answers of tokenizers {tokenizers.__version__} for each
// code point.
#include "data/bpe/unicode.h"

// clang-format off""")
    show("unicode_letters", f"\\p{{L}}: {len(letters)} characters.", spell_class(letters))
    show("unicode_numbers", f"\\p{{N}}: {len(numbers)} characters.", spell_class(numbers))
    show("unicode_space", f"\\s: {len(space)} characters.", spell_class(space))
    extra = digits()
    assert numbers <= extra
    show("unicode_digits", "More digits, of the Digits splitter alone, whose Unicode is newer.",
         spell_class(extra - numbers))
    category = categories()
    show("unicode_categories", "General categories; data/bpe/sets.c has their names.",
         spell_categories(category))
    word, like_word = matched(r"[\w]"), {c for c in POINTS if CATEGORIES[category[c]] in (
        "Lu Ll Lt Lm Lo Mn Mc Me Nd Pc").split()}
    assert like_word <= word
    show("unicode_word", "\\w in brackets, beside letters, marks, Nd and Pc.",
         spell_class(word - like_word))
    assert matched(r"\w") - word == {0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE}  # which sets.c knows
    assert matched(r"\d") == {c for c in POINTS if CATEGORIES[category[c]] == "Nd"}
    punctuated = punctuation()
    show("unicode_punctuation", f"Its Punctuation splitter's: {len(punctuated)} characters.",
         spell_class(punctuated))
    for script in SCRIPTS:
        show(f"unicode_{script.lower()}", f"\\p{{{script}}}.",
             spell_class(matched(rf"\p{{{script}}}")))
    show("unicode_combining", f"Combining classes: {len(classes)} characters.",
         spell_combining(classes))
    show("unicode_pairs",
         f"Decompositions: {len(found)}, {sum(f[3] for f in found)} of them compose.",
         spell_pairs(found))


if __name__ == "__main__":
    sys.exit(main())
