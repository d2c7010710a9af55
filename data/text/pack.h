// Documents packed into sequences: which of them lie side by side in which.
//
// A document of L ids has L - 1 places, each an input and the id that follows as its target; the
// last id is nobody's input, so two documents need no room between them. None is split: what is
// longer than a sequence is cut there, and what is left of it is lost (struct PackLoss says how
// much). What no document fills has targets that count for nothing.
//
// Documents go into sequences by best fit, the longest first (Johnson, "Near-optimal bin packing
// algorithms", MIT 1973), and those of up to a quarter of a sequence last, in one shuffled order:
// almost no room is lost, and what lies together in a file, or is of one length, because it is of
// one kind, is spread over many sequences. All of it happens within stretches of 65,536 documents,
// and is a function of their lengths alone: every rank finds the same sequences, and no epoch packs
// anew. Their order is shards.c's, which calls this.
#ifndef DATA_TEXT_PACK_H
#define DATA_TEXT_PACK_H
#include "data/text/tokens.h"
#include "kernels/batch.h"

// What a sequence has of one document.
struct PackPiece {
    uint64_t at;              // its first id
    uint32_t places, counted; // how many of its targets count
};

struct Pack {
    struct PackPiece *piece; // once packed, those of a sequence side by side
    size_t count, room;
    size_t *first; // [windows + 1] the first piece of each sequence
    size_t windows;
};

// What the length of a sequence costs.
struct PackLoss {
    uint64_t documents, cut; // in all; longer than a sequence
    uint64_t targets, empty; // that counted, and are cut off; documents in which none counts
};

// Finds the documents of ids begin .. end - 1, both where one begins or the file ends; *loss grows.
// p is empty. Errors: those of token_file_read; -EINVAL where the first id begins no document.
int pack_find(struct Pack *p, const struct TokenFile *f, size_t begin, size_t end, size_t seq_len,
              struct PackLoss *loss, struct Error *e);

// *longest becomes the places of the longest of them, if it is less.
int pack_longest(const struct TokenFile *f, size_t begin, size_t end, size_t *longest,
                 struct Error *e);

// Packs what was found; together: into as few sequences as may be, else each into its own.
void pack_make(struct Pack *p, size_t seq_len, bool together);
void pack_free(struct Pack *p);

// Count the targets of a sequence that count, and its places that documents take.
uint64_t pack_counted(const struct Pack *p, size_t window);
uint64_t pack_filled(const struct Pack *p, size_t window);

// Reads a sequence into b's first row: inputs, targets and, unless it is NULL, starts: (seq_len).
// Errors: those of token_file_read.
int pack_read(const struct Pack *p, const struct TokenFile *f, size_t window, size_t seq_len,
              const struct Batch *b, struct Error *e);

// Where document number `document` (from 0) begins, counted from id 0; with SIZE_MAX the number of
// documents. Errors: those of token_file_read.
int pack_seek(const struct TokenFile *f, size_t document, size_t *at, struct Error *e);

#endif
