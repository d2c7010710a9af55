// Steps that cut: see steps.h.
//
// Matches of a pattern and the texts between them are items, in their order. By its behavior a step
// joins items to parts, which it passes to the next step.
#include "data/bpe/steps.h"
#include "data/json.h"

#include <errno.h>
#include <string.h>

enum { DONE = 1 }; // the text before the cut has been taken

// A step's work on a stretch, with a part that may still grow.
struct Splitting {
    const struct StepsRun *run;
    size_t k;
    const struct Step *step;
    struct Stretch s;
    bool has_part, part_is_match;
    size_t begin, end;
};

// Passes bytes begin .. end - 1 of the stretch to the next step; after the last they are a word.
// DONE: they lie after the cut. -EAGAIN: they cross it, or more text could make them longer.
static inline int pass_part(const struct Splitting *x, size_t begin, size_t end, bool open) {
    const struct Stretch *s = &x->s;
    if (begin >= s->cut)
        return DONE;
    if (x->k + 1 == x->run->steps->count && !s->in_letters) { // the last step, and most words
        if (end > s->cut || (open && end == s->cut))
            return -EAGAIN;
        if (begin < end)
            x->run->take(x->run->context, s->text + begin, end - begin);
        return 0;
    }
    return steps_run(x->run, x->k + 1, stretch_part(s, begin, end, open));
}

// Passes on the part that grows, if there is one.
static int pass_growing_part(struct Splitting *x) {
    bool had_part = x->has_part;
    x->has_part = false;
    return had_part ? pass_part(x, x->begin, x->end, x->s.open && x->end == x->s.n) : 0;
}

// True if the behavior joins the next item, a match or not, to the part that grows.
static bool extends_part(const struct Splitting *x, bool match) {
    switch (x->step->behavior) {
    case MERGED_WITH_PREVIOUS:
        return match && !x->part_is_match;
    case MERGED_WITH_NEXT:
        return x->part_is_match && !match;
    case CONTIGUOUS:
        return match == x->part_is_match;
    default:
        return false;
    }
}

// Adds the next item. -EAGAIN: a match or a part crosses the cut, so that it would be different if
// the text were cut there.
static inline int add_item(struct Splitting *x, size_t begin, size_t end, bool match) {
    size_t cut = x->s.cut;
    if (match && begin < cut && cut < end)
        return -EAGAIN;
    if (x->step->behavior == ISOLATED) // no part grows
        return pass_part(x, begin, end, x->s.open && end == x->s.n);
    match = match != x->step->invert;
    if (x->step->behavior == REMOVED && match)
        return begin >= cut ? DONE : 0;
    if (x->has_part && extends_part(x, match)) {
        if (begin == cut)
            return -EAGAIN;
        x->end = end;
        x->part_is_match = match && x->step->behavior == CONTIGUOUS;
        if (x->step->behavior == MERGED_WITH_PREVIOUS)
            x->part_is_match = true; // the next match begins a part
        return 0;
    }
    int err = pass_growing_part(x);
    x->has_part = true;
    x->begin = begin;
    x->end = end;
    x->part_is_match = match;
    return err;
}

// Passes on the part that still grows, after a step. Returns the step's error; DONE is none.
static int finish(int err, struct Splitting *x) {
    if (!err || err == DONE)
        err = pass_growing_part(x);
    return err == DONE ? 0 : err;
}

// ---- what is found ----

// Adds the text from *prev to a match, and the match; *prev moves after it.
static inline int add_match(struct Splitting *x, size_t *prev, size_t begin, size_t end) {
    int err = *prev < begin ? add_item(x, *prev, begin, false) : 0;
    *prev = end;
    return err ? err : add_item(x, begin, end, true);
}

// Adds the text after the last match, unless there was an error.
static int add_rest(struct Splitting *x, size_t prev, int err) {
    return !err && prev < x->s.n ? add_item(x, prev, x->s.n, false) : err;
}

// Returns the offset of the next character of the step's classes, from byte i on, of *bytes bytes;
// s.n: there is none.
static size_t find_class(const struct Splitting *x, size_t i, size_t *bytes) {
    const uint8_t *kind = x->run->unicode->kind, *text = x->s.text;
    size_t n = x->s.n, w = 1;
    while (i < n && !(kind[unicode_at(text + i, &w)] & x->step->mask))
        i += w;
    *bytes = w;
    return i;
}

static int split_class(struct Splitting *x) {
    size_t prev = 0, at, w;
    int err = 0;
    while (!err && (at = find_class(x, prev, &w)) < x->s.n)
        err = add_match(x, &prev, at, at + w);
    return add_rest(x, prev, err);
}

static int split_string(struct Splitting *x) {
    size_t prev = 0, n = x->step->bytes;
    int err = 0;
    const uint8_t *text = x->s.text, *found;
    while (!err && (found = memmem(text + prev, x->s.n - prev, x->step->text, n))) {
        size_t at = (size_t)(found - text);
        err = add_match(x, &prev, at, at + n);
    }
    return add_rest(x, prev, err);
}

// Passes on each match of \w+|[^\w\s]+.
static int split_words(struct Splitting *x) {
    const uint8_t *kind = x->run->unicode->kind;
    int err = 0;
    for (size_t i = 0, end, w; !err && i < x->s.n; i = end) {
        uint8_t first = kind[unicode_at(x->s.text + i, &w)];
        end = i + w;
        if ((first & UNICODE_CLASS) == UNICODE_SPACE)
            continue;
        while (end < x->s.n) {
            uint8_t next = kind[unicode_at(x->s.text + end, &w)];
            if ((next & UNICODE_CLASS) == UNICODE_SPACE || ((next ^ first) & UNICODE_WORD))
                break;
            end += w;
        }
        err = pass_part(x, i, end, x->s.open && end == x->s.n);
    }
    return err;
}

static int split_scan(struct Splitting *x) {
    struct Split split = split_begin(x->run->unicode, x->step->scan, x->s.text, x->s.n);
    const uint8_t *word;
    size_t n;
    int err = 0;
    while (!err && (word = split_next(&split, &n))) {
        size_t begin = (size_t)(word - x->s.text);
        err = pass_part(x, begin, begin + n, x->s.open && begin + n == x->s.n);
    }
    return err;
}

// Passes on parts that end before each mark that follows no mark.
static int split_runs(struct Splitting *x) {
    const uint8_t *text = x->s.text;
    size_t n = x->step->bytes, begin = 0;
    int err = 0;
    for (size_t i = 0; !err && i + n <= x->s.n;) {
        const uint8_t *mark = memmem(text + i, x->s.n - i, x->step->text, n);
        if (!mark)
            break;
        size_t at = (size_t)(mark - text);
        bool follows = at >= n && !memcmp(mark - n, x->step->text, n);
        if (at > begin && !follows) {
            err = pass_part(x, begin, at, false);
            begin = at;
        }
        i = at + n;
    }
    return err ? err : pass_part(x, begin, x->s.n, x->s.open);
}

// ---- expressions ----

// Advances from character number *at, which lies at byte *byte, to number `to`. Returns its byte.
static size_t byte_at(const struct Splitting *x, bool ascii, size_t *at, size_t *byte, size_t to) {
    const uint8_t *p = x->s.text;
    if (ascii) // a character is a byte
        return to;
    for (; *at < to; ++*at)
        for (++*byte; *byte < x->s.n && (p[*byte] & 0xc0) == 0x80;)
            ++*byte;
    return *byte;
}

static int refuse_steps(const struct Splitting *x, size_t byte) {
    return error_set(x->run->e, -EINVAL, E_BPE_PATTERN_STEPS,
                     "the tokenizer's pattern %s takes too many steps at byte %zu of the text; "
                     "break the line there, or give token shards",
                     json_shown(x->step->text).text, x->s.at + byte);
}

// Passes on the text from `begin`, after the last match, to `end`, from where on more text could
// change the matches: a part that may go on. `end` is not before the cut.
static int pass_open_part(struct Splitting *x, size_t begin, size_t end) {
    bool has_text = begin < end;
    if (has_text && x->step->behavior == ISOLATED)
        return pass_part(x, begin, end, true);
    int err = has_text ? add_item(x, begin, end, false) : 0;
    bool part = !err && x->has_part;
    x->has_part = false;
    return part ? pass_part(x, x->begin, x->end, true) : err;
}

static int split_regex(struct Splitting *x) {
    struct Bytes *room = &x->run->work->room[x->k];
    struct RegexWork **work = &x->run->work->regex;
    if (!*work)
        *work = regex_work_open();
    if (room->room < x->s.n) {
        room->data = base_realloc(room->data, x->s.n + x->s.n / 2, "the symbols of a text");
        room->room = x->s.n + x->s.n / 2;
    }
    size_t n = pattern_symbols(&x->step->pattern, x->s.text, x->s.n, room->data);
    size_t from = 0, last_end = SIZE_MAX, at[2]; // offsets of symbols, one a character
    size_t prev = 0, character = 0, byte = 0;
    bool ascii = n == x->s.n;
    int err = 0;
    while (!err && from <= n) {
        enum RegexFound found =
            regex_find(x->step->regex, *work, room->data, n, from, x->s.open, at);
        if (found == REGEX_NONE)
            break;
        if (found == REGEX_LIMIT)
            return refuse_steps(x, byte_at(x, ascii, &character, &byte, from));
        if (found == REGEX_FOUND && at[0] == at[1] && at[1] == last_end) {
            from++; // no empty match right after a match
            continue;
        }
        size_t begin = byte_at(x, ascii, &character, &byte, at[0]);
        if (found == REGEX_OPEN && begin < x->s.cut)
            return -EAGAIN;
        if (found == REGEX_OPEN)
            return pass_open_part(x, prev, begin);
        from = last_end = at[1];
        err = add_match(x, &prev, begin, byte_at(x, ascii, &character, &byte, at[1]));
    }
    return add_rest(x, prev, err);
}

int steps_split(const struct StepsRun *r, size_t k, struct Stretch s) {
    struct Splitting x = {.run = r, .k = k, .step = &r->steps->step[k], .s = s};
    switch (x.step->kind) {
    case STEP_SCAN:
        return finish(split_scan(&x), &x);
    case STEP_CLASS:
        return finish(split_class(&x), &x);
    case STEP_STRING:
        return finish(split_string(&x), &x);
    case STEP_WORDS:
        return finish(split_words(&x), &x);
    case STEP_RUNS:
        return finish(split_runs(&x), &x);
    default:
        return finish(split_regex(&x), &x);
    }
}
