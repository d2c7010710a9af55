// DeepSpeed's configuration files: a verdict on every key, and the flags that the keys set.
//
// A user of DeepSpeed brings a JSON file with some of its 400 keys. Each key has a row
// (rows_train.c, rows_zero.c, rows_rest.c, or that of a flag, Flag.deepspeed) with its verdict:
// honoured, and by which flag; equal by design, and why; not applicable, and why; or refused, and
// what to use instead. No key is ignored silently: one without a row is an error that names the
// nearest known key; if none is near and DeepSpeed ignores it too, it is reported. A value of
// another type is an error. All contradictions, between keys and with the command line, are
// reported at once.
//
// An absent key has DeepSpeed's default if that shapes the numbers (no clipping; AdamW's betas in a
// given optimizer block), unless the line sets the flag. "auto" leaves the flag as it is, given or
// default, as in Transformers and Accelerate.
//
// Called by data/flags/deepspeed.c, which has the flags. scripts/gen/deepspeed_keys.py makes the
// list of keys against which rows are tested. Next: rows.h, then resolve.c and groups.c.
#ifndef DATA_DEEPSPEED_DEEPSPEED_H
#define DATA_DEEPSPEED_DEEPSPEED_H
#include "kernels/flag.h"

#include <stdio.h>

enum DsVerdict {
    DS_HONOURED,       // it sets a flag, alone or with others
    DS_EQUAL,          // every value means what is done here anyway
    DS_NOT_APPLICABLE, // it belongs to something that does not exist here, and changes no result
    DS_REFUSED,        // it is refused if it is on
};

// A key of a file, or an absent key whose default is taken.
struct DsLine {
    char *key, *value;
    bool absent;
    enum DsVerdict verdict;
    const char *flag; // the flag that it sets, without its dashes; NULL: none
    char *flag_value;
    const char *auto_flag; // "auto": the flag that it leaves as it is; NULL: another value
    char *why;             // a remark; NULL: none
};

// A resolved file.
struct DeepSpeed {
    char *path;
    struct DsLine *lines;
    size_t n;
};

// An interface to the flags, whose struct the reader does not know.
struct DsFlags {
    const void *context;
    const struct Flag *table; // n rows, some with a key
    size_t n;
    size_t ranks; // of the whole job
    // Returns the present value. free() it.
    char *(*value)(const void *context, const char *flag);
    // True if the user gave the flag, other than by the file that is read.
    bool (*user_gave)(const void *context, const char *flag);
    // Parses the text as a value of the flag. *same: it is the present one. `where` opens the error
    // line. Errors: -EINVAL.
    int (*check)(const void *context, const char *flag, const char *where, const char *text,
                 bool *same, struct Error *e);
};

// Resolves the text of n bytes. The caller closes *out, also after an error. Errors: -EINVAL with
// all that is wrong, each with its key, value and what would be right.
int deepspeed_read(const char *text, size_t n, const char *path, const struct DsFlags *flags,
                   struct DeepSpeed *out, struct Error *e);
void deepspeed_close(struct DeepSpeed *d);

// Prints the resolved table: key, value, and the flag or the reason. The caller has set the reason
// of each "auto", as the flags' final values are not known here.
void deepspeed_print(const struct DeepSpeed *d, FILE *out);

// Prints all rows for --help deepspeed, with the flags of a table.
void deepspeed_print_rows(const struct Flag *flags, size_t n, FILE *out);

#endif
