// Computes how likely the model finds given tokens, for evaluations, by all ranks together.
//
// Called by train.c with the sequences that data/eval/ made. Read next: score.c, then rank.h.
#ifndef ZERO_RANK_SCORE_H
#define ZERO_RANK_SCORE_H
#include "kernels/batch.h"
#include "zero/rank/rank.h"

// logprob[i] becomes the log-probability (nats) that the model gives to tokens from .. count - 1 of
// sequence i, each given all before it: their sum. A sequence has at most seq_len + 1 tokens, as
// the last is never an input. All ranks call it with the same list and get the same numbers.
//
// It works at any stage and tier, as validation does. Sequences are cut into micro-batches, of
// --batch sequences of about one length, before they are assigned to ranks: so the results do not
// depend on how many ranks there are, to the bit, with the same --batch and --threads.
//
// Errors: -EINVAL if a rank has another list; -EINTR, without a text, if a rank was asked to stop
// meanwhile.
int rank_score(struct Rank *r, const struct Sequence *list, size_t count, double *logprob,
               struct Error *e);

#endif
