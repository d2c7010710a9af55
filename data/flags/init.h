// --init and --export: the files of a pretrained model set the flags that describe the model, and
// fine-tuning has defaults of its own.
//
// Called by options.c and texts.c. Next: kernels/weights.h, data/hf/config.h.
#ifndef DATA_FLAGS_INIT_H
#define DATA_FLAGS_INIT_H
#include "data/flags/flags.h"
#include "kernels/weights.h"

// The list of kinds, which ends in NULL. A kind is a source, a sink, or both.
typedef const struct WeightsKind *const WeightsKinds;

static const double INIT_WARMUP = 0.03; // share of the steps, without --warmup

enum InitUse { INIT_FROM, INIT_TO }; // --init, --export

// Returns the kind of a value such as "hf:DIR", and its path, a part of the value; NULL: no kind.
const struct WeightsKind *init_kind(WeightsKinds *kinds, enum InitUse use, const char *value,
                                    const char **path);

// Refuses a value of no kind, with a list of the kinds. Returns -EINVAL.
int init_refuse(WeightsKinds *kinds, enum InitUse use, const char *value, struct Error *e);

// Sets --lr to the default of fine-tuning, ahead of init_read_flags: flags that are read in between
// may be a share of it.
void init_lower_learning_rate(struct Flags *f);

// Sets the flags that describe the model of --init `value`; flags on the line must agree. Also sets
// those of --lr, --weight-decay and --warmup that are not given to the defaults of fine-tuning.
// Errors: -EINVAL, those of the kind's flags.
int init_read_flags(struct Flags *f, WeightsKinds *kinds, const char *value, struct Error *e);

// Sets the flags of adapters to those of --init-adapter DIR, after init_read_flags; flags on the
// line must agree, but for --lora-dropout. Errors: -EINVAL, peft_flags'.
int init_read_adapter(struct Flags *f, const char *dir, struct Error *e);

// Refuses an --init on the line of a resumed run that has another model. One that no longer exists
// is ignored, with a log line. Errors: -EINVAL, those of the kind's flags.
int init_check_resumed(const struct Flags *resolved, WeightsKinds *kinds, const char *value,
                       struct Error *e);

// True if init_read_flags has set a flag to the default of fine-tuning.
bool init_is_fine_tuning_default(const struct Flags *f, const char *name);

// Logs the values of --lr, --weight-decay and --warmup, given or default.
void init_log_defaults(const struct Flags *f);

// Returns the model as a JSON object of complete flags (data/hf/config.h), from `resolved`
// (flags_over); vocab 0: it is not known yet. free() it.
char *init_model_json(const struct Flags *resolved, size_t vocab);

// Makes the same from a checkpoint's identity (options_identity) and a table of flags. `where`
// names the checkpoint in the error line. free() *text. Errors: -EINVAL.
int init_identity_flags(const struct Flag *table, size_t n, const char *identity, const char *where,
                        char **text, struct Error *e);

#endif
