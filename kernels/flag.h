// What a flag is: a row that names a value, its type, its place in a struct, its default and help.
//
// Whoever owns settings owns the rows that describe them, and so a new setting is a field and a row
// side by side: those of a rank and its training are in zero/settings/settings_flags.c, those of
// data, files and samples in data/flags/options.c. The words of a choice stand beside the enum that
// the field has, so nobody copies an enum. data/flags/flags.h reads the line and configuration
// files into the structs; it alone knows how a value is written. What goes together is said by
// tables of rules (below), which flag.c looks at.
#ifndef KERNELS_FLAG_H
#define KERNELS_FLAG_H
#include "kernels/base.h"

#include <string.h>

// The type of the field at Flag.offset, and what may be written for it.
enum FlagType {
    FLAG_BOOL,     // bool: a switch; in a file true or false
    FLAG_INT,      // int: as the next, or negative; its argument must bound it
    FLAG_SIZE,     // size_t: an integer. 64k and 1.5M count in powers of 1000 (k M G T), 64Ki in
                   // powers of 1024 (Ki Mi Gi Ti)
    FLAG_POWER,    // float: a power of two, written like a size
    FLAG_FLOAT,    // double: a finite decimal number
    FLAG_STRING,   // const char *: any text; NULL without a default. struct Flags owns it
    FLAG_LIST,     // const char *: the same; each time that it is given adds a line to it
    FLAG_OPTIONAL, // const char *: the same, and "" where its value is left out
    FLAG_CHOICE,   // int, or an enum: the index of the word in `words`. Where these begin with
                   // "false" and "true", it may be written as a switch, too
    FLAG_TIME,     // size_t: seconds, written 90s, 30m, 3h55m or 1d; 0: none
    FLAG_EVERY,    // struct FlagEvery: steps, written like a size, or a time
};

// How often something happens: every so many steps or every so many seconds; the other is 0, and
// both are where it never does.
struct FlagEvery {
    size_t steps, seconds;
};

// Whether a resumed run may change the flag.
enum FlagIdentity {
    FLAG_FREE,  // It shapes no number, and may change.
    FLAG_MODEL, // It says what the model is, and stays.
    FLAG_RUN,   // It shapes the numbers, and stays.
    FLAG_RANKS, // It shapes how sums are rounded, and stays while the number of ranks does.
    FLAG_NOW,   // It says what to do now: no configuration keeps it.
};

struct Flag {
    const char *name; // without the dashes
    enum FlagType type;
    size_t offset;
    const char *value_default; // as a user would write it; NULL: NULL, false, 0, the first choice
    const char *group;         // its topic in --help
    // What --help calls the value. Numbers may carry their range: "N>=1", "X>0", "0<=X<1". The
    // default is always allowed. NULL for a switch, and a choice.
    const char *argument;
    const char *const *words; // of a choice, in the order of its enum; NULL behind the last
    const char *help;         // one or more sentences; --help adds range and default
    enum FlagIdentity identity;
    // The terms (below) under which a checkpoint's identity has it: it has no meaning without them,
    // or was not there once, and had then the value that they leave out. NULL: always.
    const char *identity_if;
    const char *also;      // what others call it, with a space between two; NULL: nothing else
    const char *was;       // its name before, which is read, too; NULL: it had no other
    const char *deepspeed; // the key of DeepSpeed's files that has its value, and sets nothing else
};

static inline bool flag_is_switch(const struct Flag *flag) {
    return flag->type == FLAG_BOOL || (flag->words && !strcmp(flag->words[0], "false"));
}

// The words of a choice's row.
#define FLAG_WORDS(...)                                                                            \
    (const char *const[]) {                                                                        \
        __VA_ARGS__, NULL                                                                          \
    }

enum FlagSource { FLAG_FROM_DEFAULT, FLAG_FROM_FILE, FLAG_FROM_LINE };

// Who set a flag last: for those who check values and do not see the line.
struct FlagsSaid {
    enum FlagSource (*source)(const void *flags, const char *name); // an unknown name is fatal
    const void *flags;
};

static inline bool flag_is_on_line(const struct FlagsSaid *said, const char *name) {
    return said->source(said->flags, name) == FLAG_FROM_LINE;
}

// ---- which values go together ----

// A rule refuses values that do not go together: those of which all its terms hold. Terms have a
// space between two; "a|b" holds where one of the two does, which are terms themselves:
//
//     tp                  the value is not 0, false, the first word of a choice, or no text
//     dtype=bf16,fp16     it is one of these; dtype!=bf16,fp16: it is none
//     pp<2, min-lr>lr     a number is less, or more, than another, or another flag's
//     zero?               always, so that the refusal shows the value
//     +tp, +check-io=1    the flag is on the line, and what follows holds; +tp: that alone
//     !tp, !dtype=bf16    the term does not hold; the refusal does not show it
//
// A name that is no flag's is a fact's.
struct FlagRule {
    enum ErrorId id;
    const char *when;
    const char *why; // with the way out: what is expected, or to be left out
};

// What is known beside the flags.
struct FlagFact {
    const char *name;
    bool holds;
};

struct FlagValues {
    const struct Flag *table;
    size_t n;
    const void *values;           // the struct that the table's offsets are of
    const struct FlagsSaid *said; // NULL: nothing is on the line
    const struct FlagFact *facts; // one without a name behind the last; NULL: there are none
};

// Whether all terms hold. An unknown name is fatal.
bool flag_terms_hold(const struct FlagValues *v, const char *terms);

// Refuses what the first rule does that applies: "--min-lr 1 --lr 0.1: WHY". Errors: -EINVAL.
int flag_rules_check(const struct FlagRule *rules, size_t n, const struct FlagValues *v,
                     struct Error *e);

#endif
