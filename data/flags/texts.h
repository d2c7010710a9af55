// The texts and models that the options name, opened: the data, the prompt of samples, and the
// sources and sinks of weights.
//
// Called by train.c. Read next: data/text/data.h.
#ifndef DATA_FLAGS_TEXTS_H
#define DATA_FLAGS_TEXTS_H
#include "data/chat/answers.h"
#include "data/chat/dialog.h"
#include "data/flags/options.h"
#include "kernels/weights.h"

// The options: as the user gave them, and with every 0 and auto resolved.
struct TextOptions {
    const struct Flags *flags; // over `resolved`
    struct Options *given, *resolved;
    size_t *given_seq_len, *seq_len;
    bool needs_prompt;      // samples are printed
    bool needs_evals;       // --eval's files are read
    int processes;          // of the job, which open the same texts
    uint64_t train_samples; // that the run trains on
};

struct Texts {
    struct TextOptions options;         // the caller's; its pointers outlive this struct
    struct DataFound found;             // filled by texts_open, or from another process
    bool only_opens;                    // what another process has found; prepares nothing
    struct Data *data;                  // shared by the ranks of a process
    struct Ids prompt;                  // of samples
    struct Ids stops;                   // tokens that end a sample
    struct Dialog dialog;               // of --chat without a text
    struct Prompts *prompts;            // of --prompts; NULL: none
    struct Evals evals;                 // items to evaluate
    struct ImportSource model;          // weights of --init
    struct ExportSink exported;         // of --export
    struct ImportSource adapter;        // weights of --init-adapter
    struct ExportSink exported_adapter; // of --export-adapter
};

// Opens t->model, if there is an --init. Errors: the kind's.
int texts_open_model(struct Texts *t, struct Error *e);

// Opens t->adapter, if there is an --init-adapter. Errors: peft_source_open's.
int texts_open_adapter(struct Texts *t, struct Error *e);

// Opens t->exported, if there is an --export; reopens it if it is open. vocab 0: it is not known
// yet. dtype: the run's. Errors: the kind's.
// Likewise t->exported_adapter, of --export-adapter.
int texts_open_export(struct Texts *t, size_t vocab, enum Dtype dtype, struct Error *e);

// Prepares and opens the data, the prompt, or prompts, and the evaluations. Values that the data
// choose (the sequence length of a short text, the tokenizer) go into `given` and `resolved`, and
// so into config.json: a resumed run must not choose again. Errors: data_open's, data_prompt's,
// dialog_open's, prompts_open's, evals_open's.
int texts_open(struct Texts *t, struct Error *e);
void texts_close(struct Texts *t); // does nothing if it is not open

// Predicts the vocabulary, whether documents are packed into sequences, and the sequence length
// (into *seq_len of the options). Errors: data_predict's.
int texts_predict(const struct Texts *t, size_t *vocab, bool *packed, struct Error *e);

// Returns the text of a sample of n ids, which begins with the prompt; without the stop token, and
// for --chat without the question. free() it.
char *texts_format_sample(const struct Texts *t, const int32_t *ids, size_t n);

// options_identity of the struct Texts *. free() it.
char *texts_identity(const void *texts, const char *kernels);

#endif
