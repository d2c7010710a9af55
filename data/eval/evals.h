// --eval: opens the files of items that it names. It may also ask for perplexity ("ppl").
//
// Called by data/flags/texts.c, once the tokenizer is known. Read next: hellaswag.h, items.h.
#ifndef DATA_EVAL_EVALS_H
#define DATA_EVAL_EVALS_H
#include "data/eval/hellaswag.h"

struct EvalTask {
    char *name; // as --eval says it: "hellaswag:FILE"
    struct EvalItems items;
};

struct Evals {
    struct EvalTask *task;
    size_t count;
};

// Checks the text of --eval, and that its files exist. *ppl: it names ppl. text NULL: no --eval.
// Errors: -EINVAL, file_open's.
int evals_check(const char *text, bool *ppl, struct Error *e);

// Reads the files. Call evals_close also after an error. Errors: file_read's, hellaswag_parse's.
int evals_open(struct Evals *out, const char *text, const struct EvalSpec *spec, struct Error *e);
void evals_close(struct Evals *evals); // does nothing if it is not open

// The accuracy by each measure, -1 if the file does not allow it. logprob: the scores of all
// sequences, those of the first protocol first.
struct EvalResult {
    const char *name;
    size_t items;
    double accuracy[NEVALMEASURE];
};
struct EvalResult evals_result(const struct EvalTask *task, const double *logprob);

// Returns a task's file name without its folders.
const char *evals_short_name(const char *name);

#endif
