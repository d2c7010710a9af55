// Growing lists of items, and choices by scores: see items.h.
#include "data/eval/items.h"

#include <stdlib.h>

const char *const eval_measure_names[] = {
    [EVAL_ACC] = "acc", [EVAL_ACC_NORM] = "acc_norm", [EVAL_LLMC_ACC] = "llmc_acc", NULL};

struct EvalItem *items_add(struct EvalItems *s, int label, int choices) {
    s->item = base_grow(s->item, s->count, &s->room, sizeof *s->item, "items of an evaluation");
    struct EvalItem *item = &s->item[s->count++];
    *item = (struct EvalItem){.label = label, .choices = choices};
    for (int p = 0; p < NEVALPROTOCOL; p++)
        item->first[p] = s->list[p].count;
    return item;
}

void items_add_sequence(struct EvalItems *s, enum EvalProtocol p, const int32_t *ids, size_t count,
                        size_t from) {
    struct EvalList *l = &s->list[p];
    CHECK(from >= 1 && from < count, "tokens %zu to %zu of a sequence", from, count);
    l->sequence = base_grow(l->sequence, l->count, &l->room, sizeof *l->sequence,
                            "sequences of an evaluation");
    l->sequence[l->count++] = (struct Sequence){.count = count, .from = from};
    for (size_t i = 0; i < count; i++)
        ids_append(&l->ids, ids[i]);
}

void items_drop(struct EvalItems *s, enum EvalProtocol p) {
    s->list[p].count = 0;
    ids_free(&s->list[p].ids);
}

void items_finish(struct EvalItems *s) {
    for (int p = 0; p < NEVALPROTOCOL; p++) {
        struct EvalList *l = &s->list[p];
        size_t at = 0;
        for (size_t i = 0; i < l->count; i++) {
            l->sequence[i].ids = l->ids.data + at;
            at += l->sequence[i].count;
        }
    }
}

void items_free(struct EvalItems *s) {
    for (int p = 0; p < NEVALPROTOCOL; p++) {
        free(s->list[p].sequence);
        ids_free(&s->list[p].ids);
    }
    free(s->item);
    *s = (struct EvalItems){0};
}

// Returns the number by which answer c's log-probability is divided.
static double divisor(const struct EvalItems *s, size_t i, enum EvalMeasure m, int c) {
    const struct EvalItem *item = &s->item[i];
    const struct Sequence *q = &s->list[EVAL_LLMC].sequence[item->first[EVAL_LLMC] + (size_t)c];
    if (m == EVAL_ACC_NORM)
        return (double)item->characters[c];
    return m == EVAL_LLMC_ACC ? (double)(q->count - q->from) : 1;
}

int items_choice(const struct EvalItems *s, size_t i, enum EvalMeasure m, const double *logprob) {
    const struct EvalItem *item = &s->item[i];
    const double *own = logprob + item->first[items_protocol(m)];
    int best = 0;
    for (int c = 1; c < item->choices; c++)
        if (own[c] / divisor(s, i, m, c) > own[best] / divisor(s, i, m, best))
            best = c;
    return best;
}

double items_accuracy(const struct EvalItems *s, enum EvalMeasure m, const double *logprob) {
    size_t right = 0;
    if (!s->list[items_protocol(m)].count)
        return -1;
    for (size_t i = 0; i < s->count; i++)
        right += items_choice(s, i, m, logprob) == s->item[i].label;
    return (double)right / (double)s->count;
}
