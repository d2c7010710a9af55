// What a refused line could be instead: see settings.h.
//
// A refusal says which flag, which value, and what would be right for it; whether the line as a
// whole is accepted then, nothing but trying tells. So lines are tried that differ from the refused
// one in one flag that the refusal names, then in two and more, and the first that is accepted is
// told: "; nearest that works: --tp 2".
//
// Flags that hold numbers go up and down from what was said, the others through their words. How
// many ranks there are is changed where nothing else helps; what is trained, and on what, never.
#include "zero/settings/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALL_WAYS = 3, // changes that are looked for in all ways; beyond, flags may be dropped
    MOST_CHANGES = 8,
    MOST_TRIES = 20000,
    MOST_NAMED = 12,
    FARTHEST = 512,       // of a number
    FARTHEST_SPARSE = 16, // each try then looks through the pattern
    MOST_DEEPER = 6       // alternatives of a flag that leave another fault, which is mended then
};

struct Change {
    const struct Flag *flag;
    bool without; // as if nobody had said it
    size_t value; // of a number, a switch, or the place of a word
};

struct Search {
    const struct Settings *line;
    const struct SettingsUse *use;
    SettingsTry *accepts;
    bool ranks; // may be changed
    bool drops; // what was said and stands in the way is taken away
    struct Change change[MOST_CHANGES];
    int n, tries;
};

// ---- trying ----

static enum FlagSource source_of(const void *search, const char *name) {
    const struct Search *s = search;
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->change[i].flag->name, name))
            return s->change[i].without ? FLAG_FROM_DEFAULT : FLAG_FROM_LINE;
    return s->use->said.source(s->use->said.flags, name);
}

// A number of the table: in powers of 1024, if at all.
static double number_of(const char *text) {
    char *end;
    double value = strtod(text ? text : "0", &end);
    return *end == 'K' ? value * 0x1p10 : *end == 'M' ? value * 0x1p20 : value;
}

static size_t word_of(const struct Flag *f, const char *text) {
    for (size_t i = 0; text && f->words[i]; i++)
        if (!strcmp(f->words[i], text))
            return i;
    return 0;
}

static void put_number(const struct Flag *f, void *at, size_t value) {
    if (f->type == FLAG_BOOL)
        *(bool *)at = value;
    else if (f->type == FLAG_SIZE)
        *(size_t *)at = value;
    else
        *(int *)at = (int)value;
}

static void put_default(const struct Flag *f, void *at) {
    const char *text = f->value_default;
    if (f->type == FLAG_STRING)
        *(const char **)at = text;
    else if (f->type == FLAG_FLOAT)
        *(double *)at = number_of(text);
    else if (f->type == FLAG_POWER)
        *(float *)at = (float)number_of(text);
    else if (f->type == FLAG_BOOL)
        *(bool *)at = text && !strcmp(text, "true");
    else
        put_number(f, at, f->type == FLAG_CHOICE ? word_of(f, text) : (size_t)number_of(text));
}

static int try_changes(const struct Search *s, struct Error *e) {
    struct Settings line = *s->line;
    struct SettingsUse use = *s->use;
    use.said = (struct FlagsSaid){source_of, s};
    for (int i = 0; i < s->n; i++) {
        const struct Change *c = &s->change[i];
        void *at = (char *)&line + c->flag->offset;
        if (c->without)
            put_default(c->flag, at);
        else
            put_number(c->flag, at, c->value);
    }
    return s->accepts(&line, &use, e);
}

// ---- what may be changed ----

// Where a run computes, and what it is a run of, are the user's.
static bool stays(const struct Flag *f) {
    static const char *const names[] = {"device", "model", "family", "fit", "threads"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(f->name, names[i]))
            return true;
    return f->type == FLAG_EVERY || f->type == FLAG_TIME || f->type == FLAG_INT64;
}

static const struct Flag *flag_named(const char *name, size_t length) {
    for (size_t i = 0; i < settings_count; i++)
        if (!strncmp(settings_table[i].name, name, length) && !settings_table[i].name[length])
            return &settings_table[i];
    return NULL;
}

static bool may_change(const struct Search *s, const struct Flag *f) {
    for (int i = 0; i < s->n; i++)
        if (s->change[i].flag == f)
            return false;
    return !stays(f) && (s->ranks || strcmp(f->name, "ranks"));
}

static int add_named(const struct Search *s, const char *at, const struct Flag **named, int n) {
    const char *name = at + 2;
    const struct Flag *f = flag_named(name, strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-"));
    for (int i = 0; i < n; i++)
        if (named[i] == f)
            return n;
    if (!f || n == MOST_NAMED || !may_change(s, f))
        return n;
    named[n] = f;
    return n + 1;
}

// The flags that a refusal names; those that it expects are first.
static int list_named(const struct Search *s, const char *text, const struct Flag **named) {
    static const char expected[] = "expected --";
    int n = 0;
    for (const char *at = text; (at = strstr(at, expected)); at++)
        n = add_named(s, at + sizeof expected - 3, named, n);
    for (const char *at = text; (at = strstr(at, "--")); at += 2)
        n = add_named(s, at, named, n);
    return n;
}

// ---- alternatives, the nearest first ----

struct Alternatives {
    const struct Flag *flag;
    bool on_line, drops;                // the last: first of all without it
    size_t said, least, most, farthest; // the last: from what was said
    size_t i;                           // tried so far
};

static size_t said_of(const struct Settings *line, const struct Flag *f) {
    const void *at = (const char *)line + f->offset;
    if (f->type == FLAG_BOOL)
        return *(const bool *)at;
    return f->type == FLAG_SIZE ? *(const size_t *)at : (size_t) * (const int *)at;
}

static struct Alternatives alternatives_of(const struct Search *s, const struct Flag *f) {
    bool dense = !s->line->sparse_attention || !strcmp(s->line->sparse_attention, "dense");
    struct Alternatives a = {.flag = f, .on_line = source_of(s, f->name) != FLAG_FROM_DEFAULT};
    if (f->type == FLAG_BOOL || f->type == FLAG_CHOICE || f->type == FLAG_INT ||
        f->type == FLAG_SIZE) {
        a.said = said_of(s->line, f);
        a.most = SIZE_MAX;
        a.farthest = dense ? FARTHEST : FARTHEST_SPARSE;
    }
    a.drops = s->drops && a.on_line;
    if (s->drops && a.farthest)
        a.farthest = FARTHEST_SPARSE;
    const char *bound = f->argument ? strstr(f->argument, "<=") : NULL;
    if (bound && isdigit((unsigned char)f->argument[0])) {
        a.least = (size_t)number_of(f->argument);
        bound = strstr(bound + 2, "<=");
    }
    if (bound)
        a.most = (size_t)number_of(bound + 2);
    for (size_t n = 0; f->words && f->words[n]; n++)
        a.most = n;
    if (f->type == FLAG_BOOL)
        a.most = 1;
    return a;
}

// Whether 0 leaves a number to the program, and is near no other.
static bool is_left_open(const struct Flag *f) {
    return !f->words && f->value_default && !strcmp(f->value_default, "0");
}

// Less before more; at last what was said is taken away. False: that were all.
static bool next_alternative(struct Alternatives *a, struct Change *c) {
    bool numbers = a->flag->type != FLAG_BOOL && a->flag->type != FLAG_CHOICE;
    bool drops = a->drops;
    a->drops = false;
    if (drops) {
        *c = (struct Change){.flag = a->flag, .without = true};
        return true;
    }
    for (; a->i < 2 * a->farthest; a->i++) {
        size_t far = a->i / 2 + 1;
        bool less = a->i % 2 == 0;
        if (less ? a->said < far || a->said - far < a->least : far > a->most - a->said)
            continue;
        if (a->said == far && less && is_left_open(a->flag))
            continue;
        *c = (struct Change){a->flag, false, less ? a->said - far : a->said + far};
        a->i++;
        return true;
    }
    *c = (struct Change){.flag = a->flag, .without = true};
    return a->i++ == 2 * a->farthest && numbers && a->on_line;
}

// ---- the search ----

// Whether two refusals are of one fault: other numbers alone do not count.
static bool is_same_fault(const char *a, const char *b) {
    for (;; a++, b++) {
        a += strspn(a, "0123456789");
        b += strspn(b, "0123456789");
        if (*a != *b || !*a)
            return *a == *b;
    }
}

static bool mend(struct Search *s, const struct Error *why, int changes);

// One flag has another value, and the rest is mended with changes - 1 others.
static bool mend_by(struct Search *s, const struct Flag *f, const struct Error *why, int changes) {
    struct Alternatives a = alternatives_of(s, f);
    int deeper = 0;
    while (deeper < MOST_DEEPER && s->tries++ < MOST_TRIES &&
           next_alternative(&a, &s->change[s->n])) {
        struct Error e = {0};
        s->n++;
        int err = try_changes(s, &e);
        bool goes_on = err && changes > 1 && !is_same_fault(e.text, why->text);
        deeper += goes_on;
        if (!err || (goes_on && mend(s, &e, changes - 1)))
            return true;
        s->n--;
    }
    return false;
}

static bool mend(struct Search *s, const struct Error *why, int changes) {
    const struct Flag *named[MOST_NAMED];
    int n = list_named(s, why->text, named);
    for (int i = 0; i < n; i++)
        if (mend_by(s, named[i], why, changes))
            return true;
    return false;
}

static void tell(const struct Change *c, struct Error *e) {
    size_t length = strlen(e->text), room = sizeof e->text - length;
    char *at = e->text + length;
    const struct Flag *f = c->flag;
    if (c->without)
        snprintf(at, room, " without --%s", f->name);
    else if (f->type == FLAG_BOOL)
        snprintf(at, room, " --%s%s", c->value ? "" : "no-", f->name);
    else if (f->words)
        snprintf(at, room, " --%s %s", f->name, f->words[c->value]);
    else
        snprintf(at, room, " --%s %zu", f->name, c->value);
}

static bool search(struct Search *s, const struct Error *why) {
    bool launched = source_of(s, "ranks") == FLAG_FROM_DEFAULT; // or there is one
    for (int ranks = 0; ranks < (launched ? 1 : 2); ranks++)
        for (int changes = 1; changes <= ALL_WAYS + 1; changes++) {
            s->ranks = ranks;
            s->drops = changes > ALL_WAYS;
            s->n = s->tries = 0;
            if (mend(s, why, changes <= ALL_WAYS ? changes : MOST_CHANGES))
                return true;
        }
    return false;
}

void settings_tell_nearest(const struct Settings *line, const struct SettingsUse *use,
                           SettingsTry *accepts, struct Error *e) {
    struct Search s = {.line = line, .use = use, .accepts = accepts};
    const struct Error why = *e;
    size_t length = strlen(e->text);
    if (!search(&s, &why))
        return;
    snprintf(e->text + length, sizeof e->text - length, "; nearest that works:");
    for (int without = 0; without < 2; without++)
        for (int i = 0; i < s.n; i++)
            if (s.change[i].without == without)
                tell(&s.change[i], e);
}
