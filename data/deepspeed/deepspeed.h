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
// Called by data/flags/options.c. scripts/gen/deepspeed_keys.py makes the list of keys against
// which rows are tested. Next: read.c, rows.h, then resolve.c and groups.c.
#ifndef DATA_DEEPSPEED_DEEPSPEED_H
#define DATA_DEEPSPEED_DEEPSPEED_H
#include "data/flags/flags.h"

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

struct DeepSpeed {
    char *path;
    struct DsLine *lines;
    size_t n;
};

// Sets the flags of the file at `path`, for so many ranks; 0: --ranks. A flag that the line or the
// file of --config sets to another value is refused. The caller closes *out, also after an error.
// Errors: -EINVAL with all that is wrong, each with its key, value and what would be right; those
// of the file.
int deepspeed_read_flags(struct Flags *f, const char *path, size_t ranks, struct DeepSpeed *out,
                         struct Error *e);

// Reads the configuration from memory; `path` names it in errors.
int deepspeed_read_flags_text(struct Flags *f, const char *path, const char *text, size_t bytes,
                              size_t ranks, struct DeepSpeed *out, struct Error *e);
void deepspeed_close(struct DeepSpeed *d);

// Print the resolved table: key, value, and the flag or the reason. deepspeed_describe does so once
// the run's flags are known, `resolved` (flags_over): a key that is "auto" has the flag's value and
// where that comes from.
void deepspeed_print(const struct DeepSpeed *d, FILE *out);
void deepspeed_describe(struct DeepSpeed *d, const struct Flags *resolved, FILE *out);

// Prints all rows for --help deepspeed, with those of the flags.
void deepspeed_print_rows(const struct Flags *f, FILE *out);

#endif
