// The options of ./train that are not a rank's settings: data, files, samples, and what to do.
//
// The table in options.c and that of zero/settings/settings_flags.c are the two places that name a
// flag; the line, --help, config.json and the checks for a resumed run all come from them.
#ifndef DATA_FLAGS_OPTIONS_H
#define DATA_FLAGS_OPTIONS_H
#include "data/eval/evals.h"
#include "data/text/data.h"
#include "data/flags/deepspeed.h"
#include "data/flags/flags.h"
#include "data/flags/init.h"

#include <string.h>

struct Options {
    const char *data, *val_data, *tokenizer, *cache;
    int pack;     // an enum Packing
    size_t vocab; // 0: the tokenizer's
    size_t seed;
    const char *out, *backup_dir, *resume, *config, *deepspeed, *init, *export, *prompt, *trace;
    const char *eval;
    const char *data_map;                      // NULL: members are known by their names
    const char *chat_template, *chat, *system; // NULL: the tokenizer's own; none is asked
    int export_dtype; // an enum Dtype; NDTYPE: the imported model's, or --dtype
    size_t val_batches, log_every, sample_tokens, top_k, eval_limit;
    double temperature, peak_tflops;
    bool sample_only, eval_only, prepare_only, plan, json, version, tensorboard;
    const char *help;    // a topic; "": none was named, NULL: no help is wanted
    size_t params;       // 0: plan the model
    WeightsKinds *kinds; // of --init and --export: the caller's, and no flag
    bool tunes;          // the run begins with the model of --init; no flag
    bool ppl;            // --eval names it; no flag
    // Of --deepspeed, no flags: the processes of a launched job, else 0; the caller's, to close.
    size_t processes;
    struct DeepSpeed *resolved;
};

// A checkpoint that is not gone on from.
static inline bool options_best(const struct Options *o) {
    return o->resume && strcmp(o->resume, "best") == 0;
}

// The flag by which no step is made, a result alone is printed, and --out left as it is; NULL: the
// run trains.
static inline const char *options_only(const struct Options *o) {
    return o->sample_only                 ? "--sample-only"
           : o->eval_only                 ? "--eval-only"
           : o->prepare_only              ? "--prepare-only"
           : o->export && options_best(o) ? "--resume best"
                                          : NULL;
}

// What the program is to do; the first of these that is asked for.
enum Mode {
    MODE_HELP,
    MODE_VERSION,
    MODE_PLAN_PARAMETERS,
    MODE_PLAN,
    MODE_PREPARE,
    MODE_SAMPLE,
    MODE_EVAL,
    MODE_EXPORT,
    MODE_TRAIN,
};
enum Mode options_mode(const struct Options *o);

extern const struct Flag options_table[];
extern const size_t options_count;

// What --data and its like say, for sequences of so many tokens and one process. fits: nobody asked
// for that many, so a short text may have shorter ones.
struct DataSpec options_data(const struct Options *o, size_t seq_len, bool fits);

// Prints, for --version: the program's, and `features`; for --help: usage, three examples, and the
// names of all flags; or what --help TOPIC names. Errors: -EINVAL.
int options_print(const struct Flags *f, const struct Options *o, const char *features,
                  struct Error *e);

// What a resumed run may not change, a line each: the text, the kernels, and "--name value" of the
// flags that shape the numbers, from `resolved` (flags_over). free() it.
char *options_identity(const struct Flags *resolved, size_t vocab, uint64_t fingerprint,
                       const char *kernels);

// Reads the line, of which nothing is a wish for help; where a run is resumed the configuration
// that it was started with; where it begins with somebody's model (--init) the flags that this
// model is. `o` is the part of f->options that has these options. Errors: those of flags.h.
int options_read(struct Flags *f, struct Options *o, int argc, char **argv, struct Error *e);

// Random tokens, where nothing is said of their vocabulary, have the model's; 0: it has none.
void options_fill_vocab(struct Options *o, size_t vocab);

// Resolves every 0 and auto, and checks values against each other that no single row can; `o` is
// the part of f->options that has these options. Errors: -EINVAL, -ENOENT with the flags, their
// values and what would be right.
int options_resolve(const struct Flags *f, struct Options *o, struct Error *e);

#endif
