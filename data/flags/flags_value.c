// Converts flag values from text and back to text.
//
// Numbers are read by hand or checked by character first: strtod and strtoull alone would accept
// " 5", "0x10", "nan" or "-1" as a size. Every accepted number is exact: 1.5k is 1500, and 1.0001k
// is refused. Called by flags.c and flags_json.c; see flags.h.
#include "data/flags/flags.h"
#include "kernels/nearest.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const INTEGER_HINT = "an integer such as 12, 64k, 1.5M, 7G for 7 billion (k "
                                        "M G T = powers of 1000) or 64Ki (Ki Mi Gi Ti = powers "
                                        "of 1024)";

// Returns the factor of a suffix; 0: there is no such suffix. A B after a letter is ignored: GB is
// G, GiB is Gi.
static uint64_t suffix_factor(const char *suffix) {
    static const char letters[] = "kMGT";
    size_t n = strlen(suffix);
    if (!n)
        return 1;
    n -= n > 1 && suffix[n - 1] == 'B';
    if (n > 2)
        return 0;
    bool binary = n == 2 && suffix[1] == 'i';
    char letter = binary && *suffix == 'K' ? 'k' : *suffix;
    const char *at = strchr(letters, letter);
    if (!at || (n == 2 && !binary) || (binary && *suffix == 'k'))
        return 0;
    uint64_t factor = 1;
    for (const char *p = letters; p <= at; p++)
        factor *= binary ? 1024 : 1000;
    return factor;
}

// Reads digits, optionally a fraction and a suffix; the result must be whole. Returns 0, -EINVAL
// for other text, -ERANGE past 64 bits.
static int parse_magnitude(const char *text, uint64_t *out) {
    unsigned __int128 digits = 0;
    uint64_t scale = 1; // digits / scale is the number before the suffix
    bool point = false, any = false, large = false;
    const char *p = text;
    for (; (*p >= '0' && *p <= '9') || (*p == '.' && !point); p++) {
        if (*p == '.') {
            point = true;
            continue;
        }
        any = true;
        if (scale > UINT64_MAX / 10)
            return -EINVAL;
        scale *= point ? 10 : 1;
        digits = digits * 10 + (unsigned)(*p - '0');
        large |= digits > (unsigned __int128)UINT64_MAX * scale;
        if (large) // stop growing; the text is still checked to its end
            digits = 0;
    }
    uint64_t factor = suffix_factor(p);
    if (!any || !factor || p[-1] == '.')
        return -EINVAL;
    if (large)
        return -ERANGE;
    // At most 2^64 * 10^19 * 10^12 could overflow 128 bits, so the common factor of ten goes first.
    while (scale > 1 && factor % 10 == 0) {
        scale /= 10;
        factor /= 10;
    }
    if (factor > 1 && digits > ~(unsigned __int128)0 / factor)
        return -ERANGE;
    digits *= factor;
    if (digits % scale)
        return -EINVAL;
    digits /= scale;
    *out = (uint64_t)digits;
    return digits > UINT64_MAX ? -ERANGE : 0;
}

bool flag_is_number(const struct Flag *flag) {
    switch (flag->type) {
    case FLAG_INT:
    case FLAG_SIZE:
    case FLAG_POWER:
    case FLAG_FLOAT:
        return true;
    default:
        return false;
    }
}

struct FlagRange flag_range(const struct Flag *flag) {
    const char *p = flag->argument;
    struct FlagRange r = {.low = -INFINITY, .high = INFINITY, .name = p};
    if (!p)
        return r;
    r.name_length = (int)strlen(p);
    if (!flag_is_number(flag) || !strpbrk(p, "<>"))
        return r;
    char *end;
    double low = strtod(p, &end); // "0<=X<1": the bound before the name
    if (end != p) {
        CHECK(*end == '<', "--%s: ill-formed range '%s'", flag->name, flag->argument);
        r.low = low;
        r.low_open = end[1] != '=';
        p = end + 1 + !r.low_open;
    }
    r.name = p;
    r.name_length = (int)strcspn(p, "<>");
    p += r.name_length;
    if (*p) { // "X<1" or "N>=1": the bound after it
        bool open = p[1] != '=';
        double bound = strtod(p + 1 + !open, &end);
        CHECK(end != p + 1 + !open && !*end, "--%s: ill-formed range '%s'", flag->name,
              flag->argument);
        *(*p == '<' ? &r.high : &r.low) = bound;
        *(*p == '<' ? &r.high_open : &r.low_open) = open;
    }
    CHECK(r.name_length, "--%s: no name in the range '%s'", flag->name, flag->argument);
    return r;
}

static bool in_range(const struct FlagRange *r, double x) {
    return (r->low_open ? x > r->low : x >= r->low) && (r->high_open ? x < r->high : x <= r->high);
}

static int parse_integer(bool is_size, const char *where, const char *text, union FlagValue *v,
                         struct Error *e) {
    bool minus = *text == '-';
    uint64_t magnitude = 0;
    int code = parse_magnitude(text + (minus || *text == '+'), &magnitude);
    if (code == -EINVAL)
        return error_set(e, -EINVAL, E_FLAG_INTEGER, "%s: '%s' is not %s", where, text,
                         INTEGER_HINT);
    if (is_size && minus && (magnitude || code))
        return error_set(e, -EINVAL, E_FLAG_INTEGER, "%s: '%s' is negative; it must be 0 or more",
                         where, text);
    uint64_t limit = is_size ? UINT64_MAX : (uint64_t)INT64_MAX + minus;
    if (code || magnitude > limit)
        return error_set(e, -EINVAL, E_FLAG_INTEGER, "%s: '%s' is too large; the %s is %s%" PRIu64,
                         where, text, minus ? "smallest" : "largest", minus ? "-" : "", limit);
    if (is_size)
        v->size = magnitude;
    else
        v->integer = (int64_t)(minus ? 0 - magnitude : magnitude);
    return 0;
}

static int parse_float(const char *where, const char *text, union FlagValue *v, struct Error *e) {
    char *end;
    bool plain = *text && !text[strspn(text, "+-.0123456789eE")];
    errno = 0;
    v->number = plain ? strtod(text, &end) : 0;
    if (!plain || *end)
        return error_set(e, -EINVAL, E_FLAG_NUMBER, "%s: '%s' is not a number such as 0.1 or 3e-4",
                         where, text);
    if (errno == ERANGE)
        return error_set(
            e, -EINVAL, E_FLAG_NUMBER,
            "%s: '%s' is too %s for a 64-bit number; expected 0, or 2.3e-308 to 1.7e308", where,
            text, isinf(v->number) ? "large" : "small");
    return 0;
}

static int parse_power(const char *where, const char *text, union FlagValue *v, struct Error *e) {
    union FlagValue n;
    if (parse_integer(true, where, text, &n, e))
        return -EINVAL;
    if (!n.size || (n.size & (n.size - 1)))
        return error_set(e, -EINVAL, E_FLAG_INTEGER,
                         "%s: '%s' is not a power of two such as 1, 2 or 64", where, text);
    v->number = (double)n.size;
    return 0;
}

// The units of a time, the longest first.
static const struct {
    char letter;
    size_t seconds;
} units[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};
enum { NUNIT = sizeof units / sizeof units[0] };

// Reads "3h55m": whole numbers, each with a unit, the longest unit first. "0" means none.
static int parse_time(const char *where, const char *text, size_t *seconds, struct Error *e) {
    const char *p = text;
    *seconds = 0;
    for (int u = 0; u < NUNIT && *p; u++) {
        size_t digits = strspn(p, "0123456789");
        if (!digits || digits > 9 || p[digits] != units[u].letter)
            continue;
        *seconds += (size_t)strtoull(p, NULL, 10) * units[u].seconds;
        p += digits + 1;
    }
    if (p > text && !*p)
        return 0;
    return strcmp(text, "0") == 0
               ? 0
               : error_set(e, -EINVAL, E_FLAG_TIME,
                           "%s: '%s' is not a time such as 90s, 30m, 3h55m or 1d", where, text);
}

static char *format_time(size_t seconds) {
    char *text = base_format("%s", seconds ? "" : "0");
    for (int u = 0; u < NUNIT; u++) {
        size_t n = seconds / units[u].seconds;
        if (n)
            base_append(&text, "%zu%c", n, units[u].letter);
        seconds %= units[u].seconds;
    }
    return text;
}

// Reads steps, or a time if there is a unit at its end.
static int parse_every(const char *where, const char *text, union FlagValue *v, struct Error *e) {
    union FlagValue steps = {0};
    size_t length = strlen(text);
    v->every = (struct FlagEvery){0, 0};
    if (length && strchr("dhms", text[length - 1]))
        return parse_time(where, text, &v->every.seconds, e);
    if (parse_integer(true, where, text, &steps, e))
        return error_set(e, -EINVAL, E_FLAG_TIME,
                         "%s: '%s' is neither a number of steps such as 500 or 1k, nor a time such "
                         "as 90s, 30m, 3h55m or 1d",
                         where, text);
    v->every.steps = steps.size;
    return 0;
}

char *flag_argument(const struct Flag *flag) {
    if (flag->type != FLAG_CHOICE)
        return base_format("%s", flag->argument ? flag->argument : "a value");
    char *all = base_format("%s", flag->words[0]);
    for (int i = 1; flag->words[i]; i++)
        base_append(&all, "|%s", flag->words[i]);
    return all;
}

char *flags_lower_case(const char *text) {
    char *lower = base_format("%s", text);
    for (char *p = lower; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    return lower;
}

// Returns the word nearest to a mistyped one, ignoring case; NULL: none is near.
static const char *nearest_word(const struct Flag *flag, const char *text) {
    char *typed = flags_lower_case(text);
    size_t best = size_min(nearest_limit(typed), strlen(typed)); // no single letter is near another
    const char *nearest = NULL;
    for (int i = 0; flag->words[i]; i++) {
        char *word = flags_lower_case(flag->words[i]);
        size_t distance = nearest_distance(typed, word);
        if (distance < best) {
            best = distance;
            nearest = flag->words[i];
        }
        free(word);
    }
    free(typed);
    return nearest;
}

static int parse_choice(const struct Flag *flag, const char *where, const char *text,
                        union FlagValue *v, struct Error *e) {
    for (int i = 0; flag->words[i]; i++)
        if (!strcmp(flag->words[i], text)) {
            v->choice = i;
            return 0;
        }
    char *all = flag_argument(flag);
    const char *nearest = nearest_word(flag, text);
    error_set(e, -EINVAL, E_FLAG_CHOICE, "%s: '%s' is not one of %s%s%s%s", where, text, all,
              nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
    free(all);
    return -EINVAL;
}

static int parse_bool(const char *where, const char *text, union FlagValue *v, struct Error *e) {
    v->on = !strcmp(text, "true");
    if (!v->on && strcmp(text, "false"))
        return error_set(e, -EINVAL, E_FLAG_CHOICE, "%s: '%s' is not true or false", where, text);
    return 0;
}

static int parse_any(const struct Flag *flag, const char *where, const char *text,
                     union FlagValue *v, struct Error *e) {
    switch (flag->type) {
    case FLAG_BOOL:
        return parse_bool(where, text, v, e);
    case FLAG_FLOAT:
        return parse_float(where, text, v, e);
    case FLAG_CHOICE:
        return parse_choice(flag, where, text, v, e);
    case FLAG_POWER:
        return parse_power(where, text, v, e);
    case FLAG_TIME:
        return parse_time(where, text, &v->size, e);
    case FLAG_EVERY:
        return parse_every(where, text, v, e);
    case FLAG_STRING:
    case FLAG_LIST:
    case FLAG_OPTIONAL:
        v->text = text;
        return 0;
    case FLAG_INT:
    case FLAG_SIZE:
        return parse_integer(flag->type == FLAG_SIZE, where, text, v, e);
    }
    CHECK(false, "--%s: unknown type %d", flag->name, flag->type);
}

static double as_number(const struct Flag *flag, const union FlagValue *v) {
    switch (flag->type) {
    case FLAG_INT:
        return (double)v->integer;
    case FLAG_SIZE:
        return (double)v->size;
    case FLAG_POWER:
    case FLAG_FLOAT:
        return v->number;
    default:
        return 0; // no range
    }
}

int flag_value_parse(const struct Flag *flag, const char *where, const char *text,
                     union FlagValue *v, struct Error *e) {
    int code = parse_any(flag, where, text, v, e);
    struct FlagRange range = flag_range(flag);
    if (code || in_range(&range, as_number(flag, v)))
        return code;
    // A default outside the range means "derived from other flags"; a saved file has it written
    // out.
    union FlagValue preset = {0};
    struct Error ignored;
    if (flag->value_default && !parse_any(flag, where, flag->value_default, &preset, &ignored) &&
        as_number(flag, &preset) == as_number(flag, v))
        return 0;
    return error_set(e, -EINVAL, E_FLAG_RANGE, "%s: '%s' is out of range; it must be %s", where,
                     text, flag->argument);
}

// Returns the shortest decimal that reads back to the same bits.
static char *format_double(double x) {
    for (int digits = 1;; digits++) {
        char *text = base_format("%.*g", digits, x);
        if (digits == 17 || strtod(text, NULL) == x)
            return text;
        free(text);
    }
}

char *flag_value_format(const struct Flag *flag, const void *at) {
    switch (flag->type) {
    case FLAG_BOOL:
        return base_format("%s", *(const bool *)at ? "true" : "false");
    case FLAG_INT:
        return base_format("%d", *(const int *)at);
    case FLAG_POWER:
        return base_format("%.0f", (double)*(const float *)at);
    case FLAG_SIZE:
        return base_format("%zu", *(const size_t *)at);
    case FLAG_TIME:
        return format_time(*(const size_t *)at);
    case FLAG_EVERY: {
        const struct FlagEvery *every = at;
        return every->seconds ? format_time(every->seconds) : base_format("%zu", every->steps);
    }
    case FLAG_FLOAT:
        return format_double(*(const double *)at);
    case FLAG_CHOICE:
        return base_format("%s", flag->words[*(const int *)at]);
    case FLAG_STRING:
    case FLAG_LIST:
    case FLAG_OPTIONAL:
        return base_format("%s", *(char *const *)at ? *(char *const *)at : "");
    }
    CHECK(false, "--%s: unknown type %d", flag->name, flag->type);
}
