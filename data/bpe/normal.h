// The normalizers of a tokenizer.json: what is done to a text before it is split into words.
//
// Called by bpe.c; made by read_steps.c. Next: steps.h.
#ifndef DATA_BPE_NORMAL_H
#define DATA_BPE_NORMAL_H
#include "data/bpe/steps.h"

enum { NORMAL_MAX = 6 };

enum NormalKind { NORMAL_NFC, NORMAL_PREPEND, NORMAL_REPLACE };

struct NormalStep {
    enum NormalKind kind;
    char *text, *with; // PREPEND: the text; REPLACE: one text with another
};

struct Normal {
    struct NormalStep step[NORMAL_MAX];
    size_t count;
};

// Normalizes the stretch, into one of the two rooms if that changes it. Its cut goes along:
// what lies before it and behind it is normalized each by itself.
void normal_apply(const struct Normal *m, const struct Unicode *u, struct Bytes room[2],
                  struct Stretch *s);

void normal_close(struct Normal *m);

#endif
