// Command-line flags: one table drives the line, --help, and the saved configuration.
//
// A table is an array of struct Flag over the fields of its owner's options struct.
// Everything that a flag needs stands in its row, so a new flag is one row and one field:
//
//     struct Options { size_t batch; double lr; int dtype; const char *out; bool overlap; };
//     static const struct Flag table[] = {
//         {"batch", FLAG_SIZE, offsetof(struct Options, batch), "8", "Training",
//          .argument = "N>=1", .help = "sequences a micro-batch"},
//         {"dtype", FLAG_CHOICE, offsetof(struct Options, dtype), "fp32", "Numbers",
//          .words = FLAG_WORDS("fp32", "bf16"), .help = "format of weights"},
//     };
//
// Each part of the program has a table and a struct (kernels/flag.h describes a row); struct Flags
// joins the tables, over a struct that contains theirs.
//
// On the line: --name VALUE or --name=VALUE; a switch is --name or --no-name. The last of a
// repeated flag wins; a list (FLAG_LIST) keeps them all. A value that begins with "--" needs the
// form with "=". If the table has a string flag "config", flags_parse reads the named file too; the
// line overrides the file, wherever --config stands.
//
// The code lies in flags.c (the table and the line), flags_value.c (text to value and back),
// flags_json.c (configuration files) and flags_help.c. Called by train.c and this folder.
#ifndef DATA_FLAGS_FLAGS_H
#define DATA_FLAGS_FLAGS_H
#include "kernels/flag.h"

#include <stdio.h>

// A table, and the offset of its struct in the options of the whole program.
struct FlagPart {
    const struct Flag *table;
    size_t n;
    size_t offset;
};

struct Flags {
    struct Flag *table; // owned: all parts' rows, with offsets from `options`
    size_t n;
    void *options;
    enum FlagSource *source; // [n] who set the value last
    bool *altered;           // [n] not given, but the file has another value than the default
    bool *renamed;           // [n] it was given by its former name (Flag.was)
    bool *bare;              // [n] the line has it without a value
    char **text;             // [n] the strings that this struct owns
    const char **file;       // [n] the configuration that its value is from; NULL: none
    char **files;            // owned: the configurations that were read
    size_t nfile;
};

// Sets every option to its default. A default that is no value of its type is a mistake of the
// program: CHECK. `options`, and the texts of the tables, must outlive `f`; the strings in
// `options` live until flags_free.
void flags_init(struct Flags *f, const struct FlagPart *parts, size_t n, void *options);
void flags_free(struct Flags *f);

// The same flags over another struct of options, such as one with every 0 and auto resolved. It
// owns nothing, and lives no longer than `f`.
struct Flags flags_over(const struct Flags *f, void *options);

// Reads the line (argv[0] is skipped), then the file that --config names. The first thing that is
// wrong ends it with -EINVAL (or the -errno of the file) and one line in `e`; the caller exits with
// status 2.
int flags_parse(struct Flags *f, int argc, char **argv, struct Error *e);

// True if the user set this flag, on the line or in a file. An unknown name is fatal.
bool flags_was_set(const struct Flags *f, const char *name);

// True if the line has this flag without a value: FLAG_OPTIONAL alone, and not with an empty text.
bool flags_is_bare(const struct Flags *f, const char *name);

// If the value that the user set is the default, marks the flag as not set, and returns true.
bool flags_forget_if_default(struct Flags *f, const char *name);

// Logs a line for each flag that the user gave by its former name, on the line or in a file.
void flags_log_renamed(const struct Flags *f);

// Returns who set each flag, for code that does not know struct Flags.
struct FlagsSaid flags_said(const struct Flags *f);

// Returns the present value as a user would write it, "" for a NULL string. free() it.
char *flags_value(const struct Flags *f, const char *name);
double flags_number(const struct Flags *f, const char *name);

// Reads a JSON object of flag names and values. Flags set on the line keep their values, but the
// file is checked wholly: unknown, repeated or ill-typed keys are errors. Integers past 2^53 stand
// as strings. The key "given" lists the flags that count as set by the user; without it all that
// are named do.
int flags_load_json(struct Flags *f, const char *path, struct Error *e);
// Loads from memory. `path` names the text in error lines; `text` needs no zero byte at its end.
int flags_load_json_text(struct Flags *f, const char *path, const char *text, size_t bytes,
                         struct Error *e);

// Writes every flag but --config with its present value, so that a later program with other
// defaults repeats this run. The file is replaced atomically.
int flags_save_json(const struct Flags *f, const char *path, struct Error *e);

// Prints the flags of a topic (a group's name), or of "all", wrapped at 100 columns; or a single
// flag, by its name; for "" the names of all flags, by topic. Errors: -EINVAL for other topics.
int flags_print_help(const struct Flags *f, const char *topic, FILE *out, struct Error *e);

// Appends to a refusal the sources of the flags that it names and that are not on the line:
// "(--batch: the default; --lr: from out/config.json)". defaults: also of the flags that have their
// defaults. Values that were derived from other flags have no source. f: over the refused values
// (flags_over).
void flags_describe_sources(const struct Flags *f, bool defaults, struct Error *e);

// ---- between the flags_*.c files ----

// Any value; Flag.type selects the member.
union FlagValue {
    struct FlagEvery every; // the largest is the first: {0} need not clear more than that one
    bool on;
    int64_t integer;
    size_t size;
    double number; // also for FLAG_POWER
    int choice;
    const char *text; // borrowed
};
_Static_assert(sizeof(union FlagValue) == sizeof(struct FlagEvery), "every is not the largest");

// Notes by which name flag i was given, which may be its former name.
void flags_note_name(struct Flags *f, size_t i, const char *name);
// Returns the index of the flag with this name or former name; f->n: there is none.
size_t flags_find(const struct Flags *f, const char *name);
// Returns our name for another program's flag (Flag.also); NULL: there is none. "_" is read as "-".
const char *flags_known_as(const struct Flags *f, const char *name);
// Returns the name nearest to a mistyped one; NULL: none is near.
const char *flags_nearest(const struct Flags *f, const char *name);
// Stores a value and remembers its source; a string is copied.
void flags_store(struct Flags *f, size_t i, const union FlagValue *v, enum FlagSource source);

// True if the value is the default that the table has, and not one derived from other flags.
bool flags_is_default(const struct Flags *f, size_t i);

// Reads `text` as a value of the flag. `where` opens the error line ("--lr", "config.json: lr").
// -EINVAL.
int flag_value_parse(const struct Flag *flag, const char *where, const char *text,
                     union FlagValue *v, struct Error *e);
// The reverse, exact: reading the text gives the same bits. `at` is the option's field. free() it.
char *flag_value_format(const struct Flag *flag, const void *at);

// Returns a short description of the flag's value: "fp32|bf16", "N>=1", "a value". free() it.
char *flag_argument(const struct Flag *flag);

// Returns the text in small letters; free() it.
char *flags_lower_case(const char *text);

bool flag_is_number(const struct Flag *flag);

// The range of a number, from Flag.argument.
struct FlagRange {
    double low, high;         // -INFINITY and INFINITY without a bound
    bool low_open, high_open; // the bound itself is not allowed
    const char *name;         // the value's name in --help: the letters of the argument ...
    int name_length;          // ... so many of them
};
// Reads the range. Without '<' or '>' there are no bounds. An ill-formed argument is fatal.
struct FlagRange flag_range(const struct Flag *flag);

#endif
