// What the options say of text, opened: the data, what a sample begins with, and the model whose
// weights are gone on from.
//
// Called by train.c. Read next: data/text/data.h.
#ifndef DATA_FLAGS_TEXTS_H
#define DATA_FLAGS_TEXTS_H
#include "data/flags/options.h"
#include "kernels/weights.h"

// Where the options are: as the user said them, and with every 0 and auto resolved.
struct TextOptions {
    const struct Flags *flags; // over the latter
    struct Options *said, *resolved;
    size_t *said_seq_len, *seq_len;
    bool samples;     // are wanted, and so their prompt
    bool evals;       // and --eval's files
    int processes;    // of the job, which open the same texts
    uint64_t trained; // samples that the run trains on
};

struct Texts {
    struct TextOptions of;      // the caller's; all behind it outlives the struct
    struct DataFound found;     // filled by texts_open; or by another process's, and `opens`
    bool opens;                 // what is found, without preparing it
    struct Data *data;          // shared by the ranks of a process
    struct Ids prompt;          // where samples are wanted,
    struct Ids stops;           // and what ends them
    struct Evals evals;         // where items are evaluated
    struct ImportSource model;  // where weights come from (--init),
    struct ExportSink exported; // and go to (--export)
};

// Opens t->model, where there is an --init. Errors: the kind's.
int texts_open_model(struct Texts *t, struct Error *e);

// Opens t->exported, where there is an --export, again if it is open. vocab 0: it is not known yet.
// dtype: the run's. Errors: the kind's.
int texts_open_export(struct Texts *t, size_t vocab, enum Dtype dtype, struct Error *e);

// Prepares and opens them. What the data chose where nothing was said (the length of
// a short text's sequences, the tokenizer) is put into both places, and so into config.json: a
// resumed run is not to choose again. Errors: data_open's, data_prompt's, evals_open's.
int texts_open(struct Texts *t, struct Error *e);
void texts_close(struct Texts *t); // one that is not open: nothing

// The vocabulary that they would have, and whether documents are packed into sequences; and the
// length of sequences, into its resolved place. Errors: data_predict's.
int texts_predict(const struct Texts *t, size_t *vocab, bool *packed, struct Error *e);

// What a sample of n ids says, which begins with the prompt: without what ended it, and of an
// answer to --chat without the question. free() it.
char *texts_sampled(const struct Texts *t, const int32_t *ids, size_t n);

// options_identity of the struct Texts *. free() it.
char *texts_identity(const void *texts, const char *kernels);

#endif
