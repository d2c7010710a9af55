// Rules on the values of flags: see flag.h.
#include "kernels/flag.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char ENDS[] = "| "; // characters that end a term

static const struct Flag *find_flag(const struct FlagValues *v, const char *name, size_t n) {
    for (size_t i = 0; i < v->n; i++)
        if (!strncmp(v->table[i].name, name, n) && !v->table[i].name[n])
            return &v->table[i];
    return NULL;
}

static bool fact_holds(const struct FlagValues *v, const char *name, size_t n) {
    for (const struct FlagFact *f = v->facts; f && f->name; f++)
        if (!strncmp(f->name, name, n) && !f->name[n])
            return f->holds;
    CHECK(false, "no flag or fact %.*s", (int)n, name);
}

// Returns the text of a text flag ("" for none) or the word of a choice; NULL: a number. `at`, here
// and in number_of and is_one_of: the address of the flag's value.
static const char *text_of(const struct Flag *f, const void *at) {
    const char *text = f->type == FLAG_CHOICE ? f->words[*(const int *)at] : NULL;
    if (f->type == FLAG_STRING || f->type == FLAG_LIST || f->type == FLAG_OPTIONAL)
        text = *(const char *const *)at ? *(const char *const *)at : "";
    return text;
}

// Returns the value for comparisons: of a choice its index, of a text 1 unless it is empty.
static double number_of(const struct Flag *f, const void *at) {
    switch (f->type) {
    case FLAG_BOOL:
        return *(const bool *)at;
    case FLAG_INT:
    case FLAG_CHOICE:
        return *(const int *)at;
    case FLAG_SIZE:
    case FLAG_TIME:
        return (double)*(const size_t *)at;
    case FLAG_EVERY:
        return (double)(((const struct FlagEvery *)at)->steps +
                        ((const struct FlagEvery *)at)->seconds);
    case FLAG_POWER:
        return (double)*(const float *)at;
    case FLAG_FLOAT:
        return *(const double *)at;
    case FLAG_STRING:
    case FLAG_LIST:
    case FLAG_OPTIONAL:
        return *text_of(f, at) != 0;
    }
    CHECK(false, "--%s: unknown type %d", f->name, f->type);
}

static const void *field_of(const struct FlagValues *v, const struct Flag *f) {
    return (const char *)v->values + f->offset;
}

// True if the value is in a comma-separated list, which ends at a space, a '|' or the end of the
// text.
static bool is_one_of(const struct Flag *f, const void *at, const char *list) {
    const char *text = text_of(f, at);
    for (;; list++) {
        size_t n = strcspn(list, ",| ");
        if (text ? strlen(text) == n && !memcmp(text, list, n)
                 : strtod(list, NULL) == number_of(f, at))
            return true;
        list += n;
        if (*list != ',')
            return false;
    }
}

// Returns the right side of a comparison: the value of the flag that `text` names, or a number.
static double operand_value(const struct FlagValues *v, const char *text) {
    const struct Flag *f = find_flag(v, text, strcspn(text, ENDS));
    return f ? number_of(f, field_of(v, f)) : strtod(text, NULL);
}

// True if a term without alternatives holds; *shown: the flag to show in a refusal, or NULL.
static bool term_holds(const struct FlagValues *v, const char *term, const struct Flag **shown) {
    bool negated = *term == '!', on_line = term[negated] == '+';
    const char *name = term + negated + on_line;
    size_t n = strcspn(name, "=!<>?| ");
    const struct Flag *f = find_flag(v, name, n);
    *shown = negated ? NULL : f;
    if (!f)
        return fact_holds(v, name, n) != negated;
    const void *at = field_of(v, f);
    if (on_line && (!v->said || !flag_is_on_line(v->said, f->name)))
        return negated;
    switch (name[n]) {
    case '=':
        return is_one_of(f, at, name + n + 1) != negated;
    case '!':
        return is_one_of(f, at, name + n + 2) == negated;
    case '<':
        return (number_of(f, at) < operand_value(v, name + n + 1)) != negated;
    case '>':
        return (number_of(f, at) > operand_value(v, name + n + 1)) != negated;
    case '?':
        return true;
    default:
        return (on_line || number_of(f, at) != 0) != negated;
    }
}

enum { MOST_SHOWN = 6 };

// True if all terms hold; then `shown` has the flags to show in a refusal, each once, and a NULL.
static bool terms_hold(const struct FlagValues *v, const char *terms,
                       const struct Flag *shown[MOST_SHOWN + 1]) {
    size_t n = 0;
    for (const char *at = terms; *at; at += *at == ' ') {
        const struct Flag *f = NULL;
        bool any = term_holds(v, at, &f);
        at += strcspn(at, ENDS);
        while (*at == '|') {
            any = any || term_holds(v, at + 1, &f);
            at += 1 + strcspn(at + 1, ENDS);
        }
        if (!any)
            return false;
        for (size_t i = 0; i < n && f; i++)
            f = shown[i] == f ? NULL : f;
        CHECK(n < MOST_SHOWN, "too many terms: %s", terms);
        if (f)
            shown[n++] = f;
    }
    shown[n] = NULL;
    return true;
}

bool flag_terms_hold(const struct FlagValues *v, const char *terms) {
    const struct Flag *shown[MOST_SHOWN + 1];
    return terms_hold(v, terms, shown);
}

static int refuse(const struct FlagRule *rule, const struct FlagValues *v,
                  const struct Flag *const *shown, struct Error *e) {
    char flags[ERROR_TEXT_BYTES] = "";
    for (size_t at = 0; *shown && at < sizeof flags; at = strlen(flags), shown++) {
        const struct Flag *f = *shown;
        const char *text = text_of(f, field_of(v, f)), *space = at ? " " : "";
        double number = number_of(f, field_of(v, f));
        if (flag_is_switch(f) && number == 1)
            snprintf(flags + at, sizeof flags - at, "%s--%s", space, f->name);
        else if (text)
            snprintf(flags + at, sizeof flags - at, "%s--%s%s%s", space, f->name, *text ? " " : "",
                     text);
        else
            snprintf(flags + at, sizeof flags - at, "%s--%s %.15g", space, f->name, number);
    }
    return error_set(e, -EINVAL, rule->id, "%s: %s", flags, rule->why);
}

int flag_rules_check(const struct FlagRule *rules, size_t n, const struct FlagValues *v,
                     struct Error *e) {
    const struct Flag *shown[MOST_SHOWN + 1];
    for (const struct FlagRule *rule = rules; rule < rules + n; rule++)
        if (terms_hold(v, rule->when, shown))
            return refuse(rule, v, shown, e);
    return 0;
}
