// What --init and --export mean for the other flags: somebody's model says what it is, by the flags
// that its files stand for, and how it is gone on training where nobody says so.
//
// Called by options.c and texts.c. Next: kernels/weights.h, data/hf/config.h.
#ifndef DATA_FLAGS_INIT_H
#define DATA_FLAGS_INIT_H
#include "data/flags/flags.h"
#include "kernels/weights.h"

// The list of kinds, a NULL behind the last. A row is a kind of source, of sink, or of both.
typedef const struct WeightsKind *const WeightsKinds;

static const double INIT_WARMUP = 0.03; // share of the steps, where nobody says --warmup

enum InitUse { INIT_FROM, INIT_TO }; // --init, --export

// The kind of a value such as "hf:DIR", and its path, a part of the value; NULL: there is none.
const struct WeightsKind *init_kind(WeightsKinds *kinds, enum InitUse use, const char *value,
                                    const char **path);

// Refuses a value that is of no kind, with those that are. Returns -EINVAL.
int init_refuse(WeightsKinds *kinds, enum InitUse use, const char *value, struct Error *e);

// The default of --lr is that of a run that goes on with somebody's model, until init_read_flags
// says whose. For who reads flags in between, of which one may be a share of it.
void init_lower_rate(struct Flags *f);

// Sets the flags that the model of --init `value` is; the line may say the same, and nothing else.
// And of --lr, --weight-decay and --warmup each that nobody says, as who goes on with such a model
// has it. Errors: -EINVAL, those of the kind's flags.
int init_read_flags(struct Flags *f, WeightsKinds *kinds, const char *value, struct Error *e);

// Refuses the --init of a line that goes on with a run of another model; one that is not there any
// more is passed over. Errors: -EINVAL, those of the kind's flags.
int init_check_resumed(const struct Flags *resolved, WeightsKinds *kinds, const char *value,
                       struct Error *e);

// Whether init_read_flags has set a flag because nobody says it.
bool init_chose(const struct Flags *f, const char *name);

// Says with what that model is gone on training, whoever said so.
void init_log_defaults(const struct Flags *f);

// What the model is, as a JSON object of complete flags (data/hf/config.h), from `resolved`
// (flags_over); vocab 0: it is not known yet. free() it.
char *init_model_json(const struct Flags *resolved, size_t vocab);

// The same of the flags in a table from what a checkpoint says of its run (options_identity);
// `where` it says so is for the error line. free() *text. Errors: -EINVAL.
int init_identity_flags(const struct Flag *table, size_t n, const char *identity, const char *where,
                        char **text, struct Error *e);

#endif
