// What --deepspeed means for the other flags: the file's keys set them, below the line.
//
// Called by options.c. Next: data/deepspeed/deepspeed.h.
#ifndef DATA_FLAGS_DEEPSPEED_H
#define DATA_FLAGS_DEEPSPEED_H
#include "data/deepspeed/deepspeed.h"
#include "data/flags/flags.h"

// Sets the flags that the file at `path` stands for, for so many ranks; 0: as --ranks says. What
// the line, or the file of --config, says otherwise is refused. *out is the caller's to close,
// also after an error. Errors: -EINVAL with all that is wrong, those of the file.
int deepspeed_read_flags(struct Flags *f, const char *path, size_t ranks, struct DeepSpeed *out,
                         struct Error *e);

// Reads the configuration from memory; `path` names it in errors.
int deepspeed_read_flags_text(struct Flags *f, const char *path, const char *text, size_t bytes,
                              size_t ranks, struct DeepSpeed *out, struct Error *e);

// Prints the resolved table once the run's flags are known, `resolved` (flags_over): what "auto"
// leaves as it is has its value and who says it.
void deepspeed_describe(struct DeepSpeed *d, const struct Flags *resolved, FILE *out);

#endif
