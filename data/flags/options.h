// The options of ./train that are not a rank's settings: data, files, samples, and the mode.
//
// The tables in options.c and zero/settings/settings_flags.c name all flags; the line, --help,
// config.json and the checks of a resumed run all come from them.
#ifndef DATA_FLAGS_OPTIONS_H
#define DATA_FLAGS_OPTIONS_H
#include "data/deepspeed/deepspeed.h"
#include "data/eval/evals.h"
#include "data/text/data.h"
#include "data/flags/flags.h"
#include "data/flags/init.h"

#include <string.h>

struct Options {
    const char *data, *val_data, *tokenizer, *cache;
    int pack;     // an enum Packing
    size_t vocab; // 0: the tokenizer's
    size_t seed;
    const char *out, *backup_dir, *resume, *config, *deepspeed, *init, *export, *prompt, *trace,
        *trace_zero;
    const char *init_adapter, *export_adapter; // PEFT's folders; NULL: none
    const char *eval, *html;
    const char *data_map;                      // NULL: members have their usual names
    const char *chat_template, *chat, *system; // NULL: the tokenizer's own; no chat; none
    const char *prompts, *answers;             // files of many prompts and their answers
    int export_dtype; // an enum Dtype; NDTYPE: the imported model's, or --dtype
    size_t val_batches, log_every, sample_tokens, top_k, eval_limit;
    double temperature, top_p, min_p, repetition_penalty, peak_tflops;
    bool sample_only, eval_only, prepare_only, plan, json, version, tensorboard;
    const char *help; // a topic; "": --help without one; NULL: no --help
    size_t params;    // 0: plan the model
    // No flags:
    WeightsKinds *kinds; // of --init and --export; the caller's
    bool from_model;     // the run begins with the model of --init
    bool evals_ppl;      // --eval names ppl
    // For --deepspeed: the processes of a launched job, else 0; its file, which the caller closes.
    size_t processes;
    struct DeepSpeed *resolved;
};

// True for --resume best, which is read but never continued.
static inline bool options_resumes_best(const struct Options *o) {
    return o->resume && strcmp(o->resume, "best") == 0;
}

// Returns the flag that makes the program print a result without a training step, and leaves --out
// unchanged; NULL: the run trains.
static inline const char *options_only(const struct Options *o) {
    return o->chat                                                       ? "--chat"
           : o->prompts                                                  ? "--prompts"
           : o->sample_only                                              ? "--sample-only"
           : o->eval_only                                                ? "--eval-only"
           : o->prepare_only                                             ? "--prepare-only"
           : (o->export || o->export_adapter) && options_resumes_best(o) ? "--resume best"
                                                                         : NULL;
}

// The mode of the program: the first of these that a flag selects.
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

// Prints the version and `features` for --version; for --help the usage, four examples, and the
// names of all flags, or the flags of --help TOPIC. Errors: -EINVAL.
int options_print(const struct Flags *f, const struct Options *o, const char *features,
                  struct Error *e);

// Returns what a resumed run must not change, a line each: the text's fingerprint, the kernels, and
// "--name value" of the flags that shape the numbers, from `resolved` (flags_over). free() it.
char *options_identity(const struct Flags *resolved, size_t vocab, uint64_t fingerprint,
                       const char *kernels);

// Reads the line; then, unless it asks for help, the configuration of a resumed run, and the flags
// of the model that --init names. `o` is the part of f->options that has these options. Errors:
// those of flags.h.
int options_read(struct Flags *f, struct Options *o, int argc, char **argv, struct Error *e);

// Gives random tokens without --vocab the model's vocabulary; 0: it has none.
void options_fill_vocab(struct Options *o, size_t vocab);

// Resolves every 0 and auto, and checks flags against each other; `o` is the part of f->options
// that has these options. Errors: -EINVAL, -ENOENT with the flags, their values and what would be
// right.
int options_resolve(const struct Flags *f, struct Options *o, struct Error *e);

#endif
