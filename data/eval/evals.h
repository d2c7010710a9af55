// What --eval names, opened: the files of items, and whether perplexity is asked for.
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

// Whether --eval is understood, and its files are there. *ppl: it names ppl. NULL: nothing is asked
// for. Errors: -EINVAL, file_open's.
int evals_check(const char *text, bool *ppl, struct Error *e);

// Reads the files. evals_close is due in any case. Errors: file_read's, hellaswag_parse's.
int evals_open(struct Evals *out, const char *text, const struct EvalSpec *spec, struct Error *e);
void evals_close(struct Evals *evals); // one that is not open: nothing

// The accuracy by each measure, -1 where the file allows none; logprob has room for the scores of
// all sequences, those of the first protocol first.
struct EvalResult {
    const char *name;
    size_t items;
    double accuracy[NEVALMEASURE];
};
struct EvalResult evals_result(const struct EvalTask *task, const double *logprob);

// The file's name without its folders.
const char *evals_short_name(const char *name);

#endif
