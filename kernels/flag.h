// A flag: a row that names a value, its type, its field in a struct, its default and help.
//
// The module that has a setting also has its row, so a new setting is a field and a row side by
// side: those of a rank and its training are in zero/settings/settings_flags.c, those of data,
// files and samples in data/flags/options.c. The words of a choice stand beside the field's enum,
// so no enum is copied. data/flags/flags.h reads the command line and configuration files into the
// structs; only it knows how a value is written. Tables of rules (below), which flag.c checks, say
// which values go together.
#ifndef KERNELS_FLAG_H
#define KERNELS_FLAG_H
#include "kernels/base.h"

#include <string.h>

// The type of the field at Flag.offset, and the values that are accepted for it.
enum FlagType {
    FLAG_BOOL,     // bool: a switch; in a file true or false
    FLAG_INT,      // int: like FLAG_SIZE, or negative; its argument must bound it
    FLAG_SIZE,     // size_t: an integer. 64k and 1.5M count in powers of 1000 (k M G T), 64Ki in
                   // powers of 1024 (Ki Mi Gi Ti)
    FLAG_POWER,    // float: a power of two, written like a size
    FLAG_FLOAT,    // double: a finite decimal number
    FLAG_STRING,   // const char *: any text; NULL without a default. struct Flags owns it
    FLAG_LIST,     // const char *: the same; each use of the flag adds a line
    FLAG_OPTIONAL, // const char *: the same; "" if the flag has no value
    FLAG_CHOICE,   // int, or an enum: the index of the word in `words`. If the words begin with
                   // "false" and "true", the flag may also be written as a switch
    FLAG_TIME,     // size_t: seconds, written 90s, 30m, 3h55m or 1d; 0: none
    FLAG_EVERY,    // struct FlagEvery: steps, written like a size, or a time
};

// An interval: every so many steps or every so many seconds; the other is 0, and both are 0 for
// never.
struct FlagEvery {
    size_t steps, seconds;
};

// Says if a resumed run may change the flag.
enum FlagIdentity {
    FLAG_FREE,  // It changes no number: it may change.
    FLAG_MODEL, // It defines the model: it may not change.
    FLAG_RUN,   // It changes the numbers: it may not change.
    FLAG_RANKS, // It changes how sums are rounded: it may change only with the number of ranks.
    FLAG_NOW,   // It is about this call only: no configuration keeps it.
};

struct Flag {
    const char *name; // without the dashes
    enum FlagType type;
    size_t offset;
    const char *value_default; // as a user would write it; NULL: NULL, false, 0, the first choice
    const char *group;         // its topic in --help
    // The name of the value in --help. Numbers may have their range: "N>=1", "X>0", "0<=X<1". The
    // default is always allowed. NULL for a switch and for a choice.
    const char *argument;
    const char *const *words; // of a choice, in the order of its enum; ends with NULL
    const char *help;         // one or more sentences; --help adds range and default
    enum FlagIdentity identity;
    // The terms (below) under which a checkpoint's identity includes it: otherwise it has no
    // meaning, or older checkpoints lack it and had the value that the terms exclude. NULL: always.
    const char *identity_if;
    const char *also; // what others call it, separated by spaces; NULL: nothing else
    const char *was;  // its former name: read in files, and for a while on the line; NULL: none
    const char *deepspeed; // the key of DeepSpeed's files that has the same value; has no effect
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

// Tells who set a flag last, to code that checks values without the command line.
struct FlagsSaid {
    enum FlagSource (*source)(const void *flags, const char *name); // an unknown name is fatal
    const void *flags;
};

static inline bool flag_is_on_line(const struct FlagsSaid *said, const char *name) {
    return said->source(said->flags, name) == FLAG_FROM_LINE;
}

// ---- rules on combinations of values ----

// A rule refuses a combination of values: it applies if all its terms hold. Terms are separated by
// a space; "a|b" holds if one of a and b does, which are terms themselves:
//
//     tp                  the value is not 0, false, the first word of a choice, or an empty text
//     dtype=bf16,fp16     it is one of these; dtype!=bf16,fp16: it is none of them
//     pp<2, min-lr>lr     a number is less, or more, than another, or another flag's
//     zero?               always, so that the refusal shows the value
//     +tp, +check-io=1    the flag is on the command line, and the rest holds; +tp: no rest
//     !tp, !dtype=bf16    the term does not hold; the refusal does not show it
//
// A name that no flag has is the name of a fact.
struct FlagRule {
    enum ErrorId id;
    const char *when;
    const char *why; // with the remedy: what is expected, or what to leave out
};

// A fact beside the flags.
struct FlagFact {
    const char *name;
    bool holds;
};

struct FlagValues {
    const struct Flag *table;
    size_t n;
    const void *values;           // the struct that the table's offsets refer to
    const struct FlagsSaid *said; // NULL: no flag is on the command line
    const struct FlagFact *facts; // ends with one without a name; NULL: none
};

// True if all terms hold. An unknown name is fatal.
bool flag_terms_hold(const struct FlagValues *v, const char *terms);

// Reports the first rule that applies: "--min-lr 1 --lr 0.1: WHY". Errors: -EINVAL.
int flag_rules_check(const struct FlagRule *rules, size_t n, const struct FlagValues *v,
                     struct Error *e);

#endif
