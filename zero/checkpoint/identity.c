// Is a checkpoint of this run? Its identity is held against the run's, line by line: see
// checkpoint.h.
#include "zero/checkpoint/files.h"
#include "zero/settings/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct IdentityLine {
    const char *text; // NULL: there is none
    size_t n, name;   // bytes: without the line feed; of its name
};

static bool is_flag(const struct IdentityLine *l) {
    return l->n >= 2 && !memcmp(l->text, "--", 2);
}

// The flag that it names, by its oldest name (options_identity); NULL: none of the settings.
static const struct Flag *flag_of(const struct IdentityLine *l) {
    for (const struct Flag *f = settings_table; f < settings_table + settings_count; f++) {
        const char *name = f->was ? f->was : f->name;
        if (is_flag(l) && strlen(name) == l->name - 2 && !memcmp(l->text + 2, name, l->name - 2))
            return f;
    }
    return NULL;
}

// Whether a run of another number of ranks may change it.
static bool is_of_the_ranks(const struct IdentityLine *l) {
    const struct Flag *f = flag_of(l);
    return f && f->identity == FLAG_RANKS;
}

// It as a user writes it; free() it.
static char *line_text(const struct IdentityLine *l) {
    const struct Flag *f = flag_of(l);
    if (f)
        return base_format("--%s%.*s", f->name, (int)(l->n - l->name), l->text + l->name);
    return base_format("%.*s", (int)l->n, l->text);
}

// The first line of a text; the text goes on behind it. A flag's name ends at the first space, and
// any other, which may have spaces itself, at the last.
static struct IdentityLine next_line(const char **text) {
    struct IdentityLine l = {*text, strcspn(*text, "\n"), 0};
    if (is_flag(&l))
        l.name = strcspn(l.text, " \n");
    for (size_t i = 0; i < l.n && !is_flag(&l); i++)
        if (l.text[i] == ' ')
            l.name = i;
    *text += l.n + (l.text[l.n] == '\n');
    return l;
}

// One of the two says what a run computes with.
static bool names_kernels(const struct IdentityLine *l) {
    return (l->name == 8 && !memcmp(l->text, "--device", 8)) ||
           (l->name == 9 && !memcmp(l->text, "--kernels", 9));
}

// The line of a text that has another's name.
static struct IdentityLine line_named(const char *text, const struct IdentityLine *as) {
    while (*text) {
        struct IdentityLine l = next_line(&text);
        if ((l.name == as->name && !memcmp(l.text, as->text, l.name)) ||
            (names_kernels(&l) && names_kernels(as)))
            return l;
    }
    return (struct IdentityLine){0};
}

// A value that is wanted as * may be any.
static bool is_same(const struct IdentityLine *has, const struct IdentityLine *want) {
    bool any = want->text && want->n == want->name + 2 && want->text[want->n - 1] == '*';
    return any || (want->text && has->n == want->n && !memcmp(has->text, want->text, has->n));
}

// The first flag, or else the first other line, in which two identities differ; either may lack it.
static bool find_difference(const char *stored, const char *wanted, bool flags, bool same_ranks,
                            struct IdentityLine *has, struct IdentityLine *want) {
    for (const char *s = stored; *s;) {
        *has = next_line(&s);
        *want = line_named(wanted, has);
        if (!is_same(has, want) && is_flag(has) == flags && (same_ranks || !is_of_the_ranks(has)))
            return true;
    }
    for (const char *w = wanted; *w;) {
        *want = next_line(&w);
        *has = line_named(stored, want);
        if (!has->text && is_flag(want) == flags && (same_ranks || !is_of_the_ranks(want)))
            return true;
    }
    return false;
}

// A flag is told before a hash, which other flags change too.
int checkpoint_compare_identity(const char *path, const char *stored, const char *wanted,
                                bool same_ranks, struct Error *e) {
    struct IdentityLine has, want;
    if (!find_difference(stored, wanted, true, same_ranks, &has, &want) &&
        !find_difference(stored, wanted, false, same_ranks, &has, &want))
        return 0;
    char *had = has.text ? line_text(&has) : NULL, *wants = want.text ? line_text(&want) : NULL;
    char *why = !had     ? base_format("lacks \"%s\"", wants)
                : !wants ? base_format("has \"%s\", which this run lacks", had)
                         : base_format("has \"%s\", not \"%s\"", had, wants);
    error_set(e, -EINVAL, E_CHECKPOINT_IDENTITY,
              "checkpoint %s is of another run: it %s; give the flags and data of that run", path,
              why);
    free(had);
    free(wants);
    free(why);
    return -EINVAL;
}
