// --deepspeed: the file's keys set the other flags, unless the command line does.
//
// Called by options.c. Next: data/deepspeed/deepspeed.h.
#ifndef DATA_FLAGS_DEEPSPEED_H
#define DATA_FLAGS_DEEPSPEED_H
#include "data/deepspeed/deepspeed.h"
#include "data/flags/flags.h"

// Sets the flags of the file at `path`, for so many ranks; 0: --ranks. A flag that the line or the
// file of --config sets to another value is refused. The caller closes *out, also after an error.
// Errors: -EINVAL with all that is wrong, those of the file.
int deepspeed_read_flags(struct Flags *f, const char *path, size_t ranks, struct DeepSpeed *out,
                         struct Error *e);

// Reads the configuration from memory; `path` names it in errors.
int deepspeed_read_flags_text(struct Flags *f, const char *path, const char *text, size_t bytes,
                              size_t ranks, struct DeepSpeed *out, struct Error *e);

// Prints the resolved table once the run's flags are known, `resolved` (flags_over). For keys that
// are "auto", it has the flag's value and where that comes from.
void deepspeed_describe(struct DeepSpeed *d, const struct Flags *resolved, FILE *out);

#endif
