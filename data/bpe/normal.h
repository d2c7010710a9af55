// The normalizers of a tokenizer.json, which change a text before it is split into words.
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

// Normalizes the stretch; if that changes it, the result is in one of the two buffers. The text
// before its cut and the text after it are normalized separately, and the cut moves along.
void normal_apply(const struct Normal *m, const struct Unicode *u, struct Bytes room[2],
                  struct Stretch *s);

void normal_close(struct Normal *m);

#endif
