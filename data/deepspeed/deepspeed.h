// DeepSpeed's configuration files: a verdict on every key, and the flags that they stand for.
//
// Whoever comes from DeepSpeed brings a JSON file with some of its 400 keys. Each has a row
// (rows_train.c, rows_zero.c, rows_rest.c; a key that is one flag's has the flag's) that says
// whether it is honoured, and by which flag; equal by design, and why; not applicable, and why; or
// refused, and what to use instead. Nothing
// is passed over in silence: a key without a row is an error with the nearest one that there is, or
// told, where none is near and DeepSpeed passes over it; a value of another type is an error. What
// is wrong between keys, or between the file and the command line, is told all at once.
//
// What a file does not say has DeepSpeed's default where that shapes the numbers (no clipping;
// AdamW's betas in a given optimizer block), unless the line says otherwise; "auto" leaves the flag
// as it is, given or default, as Transformers and Accelerate use the word.
//
// Called by data/flags/deepspeed.c, which knows the flags. The list of keys that rows are tested
// against is made by scripts/gen/deepspeed_keys.py. Next: rows.h, then resolve.c and groups.c.
#ifndef DATA_DEEPSPEED_DEEPSPEED_H
#define DATA_DEEPSPEED_DEEPSPEED_H
#include "kernels/flag.h"

#include <stdio.h>

enum DsVerdict {
    DS_HONOURED,       // it sets a flag, or takes part in it
    DS_EQUAL,          // any value gives what is done here
    DS_NOT_APPLICABLE, // it is of something that is not here, and changes no result
    DS_REFUSED,        // where it is on
};

// A key of a file, or one that the file lacks and whose default is taken.
struct DsLine {
    char *key, *value;
    bool absent;
    enum DsVerdict verdict;
    const char *flag; // the flag that it sets, without its dashes; NULL: none
    char *to;         // the flag's value
    const char *as;   // "auto": the flag that it leaves as it is; NULL: it is none
    char *why;        // what else there is to say; NULL: nothing
};

// A file, resolved.
struct DeepSpeed {
    char *path;
    struct DsLine *lines;
    size_t n;
};

// The flags as the reader sees them, over a struct that it does not.
struct DsFlags {
    const void *context;
    const struct Flag *table; // their n rows, of which some have a key
    size_t n;
    size_t ranks; // all that there are
    // The present value. free() it.
    char *(*value)(const void *context, const char *flag);
    // Did the user give it, other than by the file that is read?
    bool (*given)(const void *context, const char *flag);
    // Is the text a value of the flag, and the present one? `where` opens the error line. Errors:
    // -EINVAL.
    int (*check)(const void *context, const char *flag, const char *where, const char *text,
                 bool *same, struct Error *e);
};

// Resolves the text of n bytes; *out is the caller's to close, also after an error. Errors: -EINVAL
// with all that is wrong, each with its key, value and what would be right.
int deepspeed_read(const char *text, size_t n, const char *path, const struct DsFlags *flags,
                   struct DeepSpeed *out, struct Error *e);
void deepspeed_close(struct DeepSpeed *d);

// The resolved table: key, value, and the flag or the reason. What flags are that "auto" leaves as
// they are is not known here: who knows it sets these lines' reasons before.
void deepspeed_print(const struct DeepSpeed *d, FILE *out);

// All rows, as --help deepspeed shows them, for the flags of a table.
void deepspeed_print_rows(const struct Flag *flags, size_t n, FILE *out);

#endif
