#!/usr/bin/env python3
"""Writes data/eval/case_table.h: the small and title-case forms of letters, as Python has them.

    python3 scripts/gen/case_table.py >data/eval/case_table.h && clang-format -i data/eval/case_table.h

lm-eval's protocol of HellaSwag capitalizes by Python's str.capitalize; data/eval/case.c does the
same by this table. It leaves out ASCII. Run it again only to take a newer Unicode.
"""

import unicodedata


def mapping(form):
    letters = (chr(c) for c in range(128, 0x110000) if not 0xD800 <= c < 0xE000)
    return {ord(c): form(c) for c in letters if form(c) != c}


def ranges(simple):
    """Runs (first, last, step, what to add) of letters at equal distances that move alike."""
    runs = []
    for code, delta in simple:
        first, last, step, by = runs[-1] if runs else (0, 0, 0, 0)
        if by == delta and (code - last == step if step else code - last in (1, 2)):
            runs[-1] = (first, code, code - last, by)
        else:
            runs.append((code, code, 0, delta))
    return [(f, l, s or 1, d) for f, l, s, d in runs]


def table(name, form):
    whole = mapping(form)
    simple = [(c, ord(to) - c) for c, to in whole.items() if len(to) == 1]
    body = ", ".join("{%d, %d, %d, %d}" % run for run in ranges(simple))
    print(f"static const struct CaseRange {name}[] = {{{body}}};\n")
    return [(c, to) for c, to in whole.items() if len(to) > 1]


print(f"""// Made by scripts/gen/case_table.py of Unicode {unicodedata.unidata_version}:
// what letters become in small and in title case, where that is another letter, or several. Read by
// data/eval/case.c alone.
#ifndef DATA_EVAL_CASE_TABLE_H
#define DATA_EVAL_CASE_TABLE_H
#include <stdint.h>

// Letters first, first + step, ... last; each becomes itself + delta.
struct CaseRange {{
    int32_t first, last, step, delta;
}};

// A letter that becomes several.
struct CaseMany {{
    int32_t letter;
    const char *text;
}};
""")
small = table("case_small", str.lower)
title = table("case_title", str.title)
assert [c for c, _ in small] == [0x130]
rows = ", ".join('{%d, "%s"}' % (c, "".join("\\%03o" % b for b in to.encode())) for c, to in title)
print(f"static const struct CaseMany case_title_many[] = {{{rows}}};\n")
print("#endif")
