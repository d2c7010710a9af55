// Items of an evaluation: a question, some answers, and the right one; as token sequences that are
// scored, and the accuracy of their scores.
//
// A protocol makes sequences of an item, one for each answer; there are two, and a file may allow
// only one. Filled in by hellaswag.c and hellaswag_bin.c; scored by zero/rank/score.c; judged here.
// Called by evals.c and data/log/console.c.
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

// Measures of accuracy: the share of items whose best answer is the right one, best ...
enum EvalMeasure {
    EVAL_ACC,      // lm-eval: by the sum of log-probabilities
    EVAL_ACC_NORM, // lm-eval: by the sum divided by the answer's characters
    EVAL_LLMC_ACC, // llm.c: by the mean of log-probabilities
    NEVALMEASURE
};
extern const char *const eval_measure_names[]; // "acc", ...; ends in NULL

enum { EVAL_CHOICES_MAX = 16 };

struct EvalItem {
    int label, choices;                  // the right answer, from 0; how many there are
    size_t first[NEVALPROTOCOL];         // index of its first sequence in each protocol
    size_t characters[EVAL_CHOICES_MAX]; // of each answer, cleaned; lm-eval's
};

struct EvalItems {
    struct EvalItem *item;
    size_t count, room;
    struct EvalList { // the sequences of a protocol, in order of items
        struct Sequence *sequence;
        size_t count, room;
        struct Ids ids; // of all sequences
    } list[NEVALPROTOCOL];
    size_t cut; // sequences that lost tokens at their beginning
};

// Adds an item, whose sequences are added next.
struct EvalItem *items_add(struct EvalItems *s, int label, int choices);
// Adds a sequence of the item that was added last, one for each answer in their order. It has
// `count` ids, which are copied; those from index `from` on are scored.
void items_add_sequence(struct EvalItems *s, enum EvalProtocol p, const int32_t *ids, size_t count,
                        size_t from);
void items_drop(struct EvalItems *s, enum EvalProtocol p); // removes the protocol's sequences
// Sets the sequences' pointers to their ids, which no longer move: call it when all are added.
void items_finish(struct EvalItems *s);
void items_free(struct EvalItems *s);

// Returns the answer that item i's scores choose, the first of equal ones. logprob: scores of the
// sequences of the measure's protocol.
int items_choice(const struct EvalItems *s, size_t i, enum EvalMeasure m, const double *logprob);

// Returns the share of items whose choice is right; -1: the protocol has no sequences.
double items_accuracy(const struct EvalItems *s, enum EvalMeasure m, const double *logprob);

// Returns the protocol whose sequences a measure uses.
static inline enum EvalProtocol items_protocol(enum EvalMeasure m) {
    return m == EVAL_LLMC_ACC ? EVAL_LLMC : EVAL_LM_EVAL;
}

#endif
