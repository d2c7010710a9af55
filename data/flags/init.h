// What --init and --export mean for the other flags: somebody's model says what it is, by the flags
// that its config.json stands for, and how it is gone on training where nobody says so.
//
// Called by options.c and texts.c. Next: data/hf/config.h.
#ifndef DATA_FLAGS_INIT_H
#define DATA_FLAGS_INIT_H
#include "data/flags/flags.h"

// The folder of "hf:DIR", which is what --init and --export take; NULL: there is none.
const char *init_folder(const char *value);

// Sets the flags that the model of --init `value` is; the line may say the same, and nothing else.
// Errors: -EINVAL, hf_model_flags'.
int init_read_flags(struct Flags *f, const char *value, struct Error *e);

// Says with what that model is gone on training, where the line has no --lr.
void init_tell_defaults(const struct Flags *f);

// What the model is, as a JSON object of complete flags (data/hf/config.h), from `resolved`
// (flags_over). free() it.
char *init_model_json(const struct Flags *resolved, size_t vocab);

#endif
