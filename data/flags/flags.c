// The flag table and the command line: see flags.h for what a user may write.
//
// A word of the line is handled in one place, parse_word; text becomes a value in flags_value.c.
// Read flags_json.c next for the file that --config names.
#include "data/flags/flags.h"

#include "kernels/nearest.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

// ---- the table ----

static bool has_name(const struct Flag *flag, const char *name) {
    return !strcmp(flag->name, name) || (flag->was && !strcmp(flag->was, name));
}

size_t flags_find(const struct Flags *f, const char *name) {
    size_t i = 0;
    while (i < f->n && !has_name(&f->table[i], name))
        i++;
    return i;
}

void flags_note_name(struct Flags *f, size_t i, const char *name) {
    f->renamed[i] = f->renamed[i] || strcmp(f->table[i].name, name);
}

void flags_log_renamed(const struct Flags *f) {
    for (size_t i = 0; i < f->n; i++)
        if (f->renamed[i])
            log_line(LOG_NORMAL,
                     "--%s is called --%s now; the command line takes the old name until the end "
                     "of 2027, files keep it",
                     f->table[i].was, f->table[i].name);
}

static size_t find_existing(const struct Flags *f, const char *name) {
    size_t i = flags_find(f, name);
    CHECK(i < f->n, "no flag --%s in the table", name);
    return i;
}

static void *option_field(const struct Flags *f, size_t i) {
    return (char *)f->options + f->table[i].offset;
}

void flags_store(struct Flags *f, size_t i, const union FlagValue *v, enum FlagSource source) {
    void *at = option_field(f, i);
    switch (f->table[i].type) {
    case FLAG_BOOL:
        *(bool *)at = v->on;
        break;
    case FLAG_INT:
        *(int *)at = (int)v->integer;
        break;
    case FLAG_POWER:
        *(float *)at = (float)v->number;
        break;
    case FLAG_SIZE:
    case FLAG_TIME:
        *(size_t *)at = v->size;
        break;
    case FLAG_EVERY:
        *(struct FlagEvery *)at = v->every;
        break;
    case FLAG_FLOAT:
        *(double *)at = v->number;
        break;
    case FLAG_CHOICE:
        *(int *)at = v->choice;
        break;
    case FLAG_STRING:
    case FLAG_LIST:
    case FLAG_OPTIONAL:
        free(f->text[i]);
        f->text[i] = v->text ? base_format("%s", v->text) : NULL;
        *(const char **)at = f->text[i];
    }
    f->source[i] = source;
}

static void store_default(struct Flags *f, size_t i) {
    const struct Flag *flag = &f->table[i];
    CHECK(flags_find(f, flag->name) == i, "--%s stands twice in the table", flag->name);
    // An ill-formed range ends the program here, not at the user's first try.
    (void)flag_range(flag);
    union FlagValue v = {0};
    struct Error e = {0};
    CHECK((flag->type == FLAG_CHOICE) == (flag->words != NULL), "the words of --%s", flag->name);
    struct Flag unbounded = *flag; // a default may lie outside the range: it means "derived"
    unbounded.argument = NULL;
    CHECK(!flag->value_default ||
              !flag_value_parse(&unbounded, flag->name, flag->value_default, &v, &e),
          "default of %s", e.text);
    flags_store(f, i, &v, FLAG_FROM_DEFAULT);
}

void flags_init(struct Flags *f, const struct FlagPart *parts, size_t n, void *options) {
    *f = (struct Flags){.options = options};
    for (size_t p = 0; p < n; p++)
        f->n += parts[p].n;
    f->table = base_alloc(f->n * sizeof *f->table);
    f->source = base_alloc_zeroed(f->n * sizeof *f->source);
    f->text = base_alloc_zeroed(f->n * sizeof *f->text);
    f->altered = base_alloc_zeroed(f->n * sizeof *f->altered);
    f->renamed = base_alloc_zeroed(f->n * sizeof *f->renamed);
    f->bare = base_alloc_zeroed(f->n * sizeof *f->bare);
    f->file = base_alloc_zeroed(f->n * sizeof *f->file);
    struct Flag *to = f->table;
    for (size_t p = 0; p < n; p++)
        for (size_t i = 0; i < parts[p].n; i++, to++) {
            *to = parts[p].table[i];
            to->offset += parts[p].offset;
        }
    for (size_t i = 0; i < f->n; i++)
        store_default(f, i);
}

void flags_free(struct Flags *f) {
    for (size_t i = 0; i < f->n; i++)
        free(f->text[i]);
    for (size_t i = 0; i < f->nfile; i++)
        free(f->files[i]);
    free(f->text);
    free(f->file);
    free(f->files);
    free(f->source);
    free(f->altered);
    free(f->renamed);
    free(f->bare);
    free(f->table);
    *f = (struct Flags){0};
}

struct Flags flags_over(const struct Flags *f, void *options) {
    struct Flags over = *f;
    over.options = options;
    return over;
}

static enum FlagSource find_source(const void *flags, const char *name) {
    const struct Flags *f = flags;
    return f->source[find_existing(f, name)];
}

struct FlagsSaid flags_said(const struct Flags *f) {
    return (struct FlagsSaid){find_source, f};
}

bool flags_was_set(const struct Flags *f, const char *name) {
    return f->source[find_existing(f, name)] != FLAG_FROM_DEFAULT;
}

bool flags_is_bare(const struct Flags *f, const char *name) {
    return f->bare[find_existing(f, name)];
}

bool flags_forget_if_default(struct Flags *f, const char *name) {
    size_t i = find_existing(f, name);
    bool is_default = flags_is_default(f, i);
    if (is_default)
        f->source[i] = FLAG_FROM_DEFAULT;
    return is_default;
}

char *flags_value(const struct Flags *f, const char *name) {
    size_t i = find_existing(f, name);
    return flag_value_format(&f->table[i], option_field(f, i));
}

double flags_number(const struct Flags *f, const char *name) {
    char *value = flags_value(f, name);
    double number = strtod(value, NULL);
    free(value);
    return number;
}

// ---- where values come from ----

// True if the text names this flag, and not another one that begins like it.
static bool names_flag(const char *text, const char *name) {
    size_t n = strlen(name);
    for (const char *at = text; (at = strstr(at, "--")); at += 2)
        if (!strncmp(at + 2, name, n) && at[2 + n] != '-' && !isalnum((unsigned char)at[2 + n]))
            return true;
    return false;
}

bool flags_is_default(const struct Flags *f, size_t i) {
    const struct Flag *flag = &f->table[i];
    union FlagValue preset = {0};
    struct Error ignored;
    char *value = flag_value_format(flag, option_field(f, i));
    bool same = flag->value_default && *value && !strcmp(value, flag->value_default);
    if (flag->type == FLAG_FLOAT && flag->value_default && // 6e-4 is formatted as 0.0006
        !flag_value_parse(flag, flag->name, flag->value_default, &preset, &ignored))
        same = preset.number == *(const double *)option_field(f, i);
    free(value);
    return same;
}

// Returns where a value comes from that is not on the line, for an error; NULL: nowhere to name.
static char *describe_source(const struct Flags *f, size_t i, bool defaults) {
    const char *name = f->table[i].name;
    if (f->source[i] == FLAG_FROM_FILE || (f->source[i] == FLAG_FROM_DEFAULT && f->altered[i]))
        return base_format("--%s: from %s", name, f->file[i]);
    if (defaults && f->source[i] == FLAG_FROM_DEFAULT && flags_is_default(f, i))
        return base_format("--%s: the default", name);
    return NULL;
}

void flags_describe_sources(const struct Flags *f, bool defaults, struct Error *e) {
    char *all = base_format("%s", "");
    for (size_t i = 0; i < f->n; i++) {
        char *text = names_flag(e->text, f->table[i].name) ? describe_source(f, i, defaults) : NULL;
        if (!text)
            continue;
        base_append(&all, "%s%s", *all ? "; " : "", text);
        free(text);
    }
    struct Error why = *e;
    if (*all)
        error_set(e, 0, why.id, "%s (%s)", why.text, all);
    free(all);
}

// ---- other names ----

// True if the n letters of `word` are the name, in which "_" stands for "-", too.
static bool is_same_name(const char *word, const char *name, size_t n) {
    size_t i = 0;
    while (i < n && (word[i] == name[i] || (word[i] == '-' && name[i] == '_')))
        i++;
    return i == n && !name[n];
}

const char *flags_known_as(const struct Flags *f, const char *name) {
    for (size_t i = 0; i < f->n; i++)
        for (const char *word = f->table[i].also; word && *word; word += *word == ' ') {
            size_t n = strcspn(word, " ");
            if (is_same_name(word, name, n))
                return f->table[i].name;
            word += n;
        }
    return NULL;
}

const char *flags_nearest(const struct Flags *f, const char *name) {
    size_t best = nearest_limit(name);
    const char *nearest = NULL;
    for (size_t i = 0; i < f->n; i++) {
        size_t distance = nearest_distance(name, f->table[i].name);
        if (distance < best) {
            best = distance;
            nearest = f->table[i].name;
        }
    }
    // Half a name, which GNU programs allow, is no typing error: suggest a flag that begins so.
    for (size_t i = 0; i < f->n && !nearest && strlen(name) > 1; i++)
        if (!strncmp(f->table[i].name, name, strlen(name)))
            nearest = f->table[i].name;
    return nearest;
}

// ---- the line ----

static int refuse_unknown_flag(const struct Flags *f, const char *name, struct Error *e) {
    const char *ours = flags_known_as(f, name), *nearest = flags_nearest(f, name);
    if (ours)
        return error_set(e, -EINVAL, E_FLAG_UNKNOWN,
                         "unknown flag --%s: zero.c calls it --%s; --help %s says what it does",
                         name, ours, ours);
    if (!nearest && !strncmp(name, "no-", 3))
        nearest = flags_nearest(f, name + 3);
    if (nearest)
        return error_set(e, -EINVAL, E_FLAG_UNKNOWN, "unknown flag --%s; did you mean --%s?", name,
                         nearest);
    return error_set(e, -EINVAL, E_FLAG_UNKNOWN, "unknown flag --%s; --help lists all flags", name);
}

static int set_from_line(struct Flags *f, size_t i, const char *text, struct Error *e) {
    union FlagValue v = {0};
    bool is_list = f->table[i].type == FLAG_LIST,
         is_repeated = is_list && f->source[i] == FLAG_FROM_LINE;
    if (is_list && strchr(text, '\n')) // the separator of a list's names
        return error_set(e, -EINVAL, E_FLAG_LINE_BREAK,
                         "--%s %s: there is a line break in the name; rename it", f->table[i].name,
                         text);
    char *where = base_format("--%s", f->table[i].name);
    char *list = is_repeated ? base_format("%s\n%s", f->text[i], text) : NULL;
    int code = flag_value_parse(&f->table[i], where, list ? list : text, &v, e);
    free(where);
    if (!code)
        flags_store(f, i, &v, FLAG_FROM_LINE);
    free(list);
    return code;
}

static int refuse_missing_value(const struct Flag *flag, const char *next, struct Error *e) {
    if (next)
        return error_set(
            e, -EINVAL, E_FLAG_NO_VALUE,
            "--%s: its value is missing ('%s' follows); a value that begins with -- is "
            "written --%s=VALUE",
            flag->name, next, flag->name);
    char *takes = flag_argument(flag);
    error_set(e, -EINVAL, E_FLAG_NO_VALUE, "--%s: its value is missing; it takes %s", flag->name,
              takes);
    free(takes);
    return -EINVAL;
}

// True if the next word is a flag that is the topic of --help, as in "--help --zero".
static bool names_topic(const struct Flags *f, const struct Flag *flag, const char *next) {
    return !strcmp(flag->name, "help") && next && !strncmp(next, "--", 2) &&
           (flags_find(f, next + 2) < f->n || flags_known_as(f, next + 2));
}

// Sets flag i. `inside` is the text after "=", or NULL; `next` the next word, or NULL. Returns the
// number of words used, or -EINVAL.
static int parse_flag(struct Flags *f, size_t i, const char *inside, const char *next,
                      struct Error *e) {
    const struct Flag *flag = &f->table[i];
    bool follows = next && strncmp(next, "--", 2);
    const char *implied = flag->type == FLAG_BOOL ? "true" : NULL;
    if (!follows && flag_is_switch(flag))
        implied = "true";
    else if (!follows && flag->type == FLAG_OPTIONAL)
        implied = "";
    const char *text = inside ? inside : implied;
    if (!inside && names_topic(f, flag, next))
        text = next + 2;
    if (!inside && flag->type == FLAG_BOOL && follows && *next != '-')
        return error_set(e, -EINVAL, E_FLAG_SWITCH,
                         "unexpected '%s': --%s takes no value; --no-%s turns it off", next,
                         flag->name, flag->name);
    if (!text && !follows)
        return refuse_missing_value(flag, next, e);
    f->bare[i] = !inside && !follows;
    int code = set_from_line(f, i, text ? text : next, e);
    return code ? code : 1 + !text;
}

// Sets a switch by "--no-NAME".
static int parse_negation(struct Flags *f, const char *name, bool has_value, struct Error *e) {
    size_t i = strncmp(name, "no-", 3) ? f->n : flags_find(f, name + 3);
    if (i == f->n)
        return refuse_unknown_flag(f, name, e);
    if (!flag_is_switch(&f->table[i])) {
        char *takes = flag_argument(&f->table[i]);
        error_set(e, -EINVAL, E_FLAG_SWITCH, "--%s: --%s is no switch; it takes %s", name, name + 3,
                  takes);
        free(takes);
        return -EINVAL;
    }
    if (has_value)
        return error_set(e, -EINVAL, E_FLAG_SWITCH, "--%s: it takes no value; write --%s alone",
                         name, name);
    int code = set_from_line(f, i, "false", e);
    return code ? code : 1;
}

// Reads the flag at the head of the `n` words left. Returns the number of words used, or -EINVAL.
static int parse_word(struct Flags *f, int n, char *const *words, struct Error *e) {
    const char *word = strcmp(words[0], "-h") ? words[0] : "--help";
    if (strncmp(word, "--", 2) || !word[2]) {
        const char *near = word[0] == '-' && word[1] ? flags_nearest(f, word + 1) : NULL;
        if (near)
            return error_set(e, -EINVAL, E_FLAG_STRAY_WORD, "unexpected '%s'; did you mean --%s?",
                             word, near);
        return error_set(e, -EINVAL, E_FLAG_STRAY_WORD,
                         "unexpected '%s'; every flag is written --NAME VALUE, "
                         "--help lists them",
                         word);
    }
    const char *equals = strchr(word, '=');
    char *name = equals ? base_format("%.*s", (int)(equals - word) - 2, word + 2)
                        : base_format("%s", word + 2);
    size_t i = flags_find(f, name);
    if (i < f->n)
        flags_note_name(f, i, name);
    int used = i < f->n ? parse_flag(f, i, equals ? equals + 1 : NULL, n > 1 ? words[1] : NULL, e)
                        : parse_negation(f, name, equals != NULL, e);
    free(name);
    return used;
}

int flags_parse(struct Flags *f, int argc, char **argv, struct Error *e) {
    size_t help = flags_find(f, "help");
    for (int i = 1; i < argc;) {
        int used = parse_word(f, argc - i, argv + i, e);
        if (used < 0)
            return used;
        if (help < f->n && f->text[help])
            return 0; // --help ignores the rest of the line
        i += used;
    }
    size_t config = flags_find(f, "config");
    if (config < f->n && f->text[config])
        return flags_load_json(f, f->text[config], e);
    return 0;
}
