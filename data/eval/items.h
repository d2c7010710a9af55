// Items of an evaluation: a question, some answers, and which is right; as token sequences to be
// scored, and what their scores say.
//
// A protocol is a way to make sequences of an item, one for each answer; two are known, and a file
// may allow one alone. Filled in by hellaswag.c and hellaswag_bin.c; scored by zero/rank/score.c;
// judged here. Called by evals.c and data/log/console.c.
#ifndef DATA_EVAL_ITEMS_H
#define DATA_EVAL_ITEMS_H
#include "data/text/ids.h"
#include "kernels/base.h"
#include "kernels/batch.h"

enum EvalProtocol {
    EVAL_LM_EVAL, // EleutherAI's lm-evaluation-harness
    EVAL_LLMC,    // llm.c (dev/data/hellaswag.py)
    NEVALPROTOCOL
};

// What is said of the answers: whether the best is the right one.
enum EvalMeasure {
    EVAL_ACC,      // lm-eval: by the sum of log-probabilities
    EVAL_ACC_NORM, // lm-eval: by the sum divided by the answer's characters
    EVAL_LLMC_ACC, // llm.c: by the mean of log-probabilities
    NEVALMEASURE
};
extern const char *const eval_measure_names[]; // "acc", ...; NULL behind the last

enum { EVAL_CHOICES_MAX = 16 };

struct EvalItem {
    int label, choices;
    size_t first[NEVALPROTOCOL];         // its first sequence of those of the protocol
    size_t characters[EVAL_CHOICES_MAX]; // of each answer, cleaned; lm-eval's
};

struct EvalItems {
    struct EvalItem *item;
    size_t count, room;
    struct EvalList { // the sequences of a protocol, in order of items
        struct Sequence *sequence;
        size_t count, room;
        struct Ids ids; // of all of them
    } list[NEVALPROTOCOL];
    size_t cut; // sequences that lost tokens at their beginning
};

// The next item; its sequences follow.
struct EvalItem *items_add(struct EvalItems *s, int label, int choices);
// A copy of the ids. Their addresses are known after items_finish.
void items_add_sequence(struct EvalItems *s, enum EvalProtocol p, const int32_t *ids, size_t count,
                        size_t from);
void items_drop(struct EvalItems *s, enum EvalProtocol p); // the protocol's sequences
void items_finish(struct EvalItems *s);
void items_free(struct EvalItems *s);

// The answer that item i's scores choose, the first of equal ones. logprob: of the measure's
// protocol's sequences.
int items_choice(const struct EvalItems *s, size_t i, enum EvalMeasure m, const double *logprob);

// The share of items whose choice is right; -1 where the protocol has no sequences.
double items_accuracy(const struct EvalItems *s, enum EvalMeasure m, const double *logprob);

// Which sequences a measure looks at.
static inline enum EvalProtocol items_protocol(enum EvalMeasure m) {
    return m == EVAL_LLMC_ACC ? EVAL_LLMC : EVAL_LM_EVAL;
}

#endif
