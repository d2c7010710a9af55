// Packs documents into sequences.
//
// A document of L ids has L - 1 positions, each an input and the next id as its target; the last id
// is no input, so documents need no gap between them. None is split: one longer than a sequence is
// truncated, and the rest is lost (struct PackLoss counts it). Padding positions have targets that
// do not count.
//
// Documents go into sequences by best fit, the longest first (Johnson, "Near-optimal bin packing
// algorithms", MIT 1973), and those of up to a quarter of a sequence last, in a shuffled order: few
// positions are padding, and similar documents, which are adjacent in a file or of equal length,
// are spread over many sequences. Packing works within stretches of 65,536 documents, and is a
// function of their lengths alone: every rank finds the same sequences, in every epoch. shards.c,
// which calls this, orders the sequences.
#ifndef DATA_TEXT_PACK_H
#define DATA_TEXT_PACK_H
#include "data/text/tokens.h"
#include "kernels/batch.h"

// The part of a document that is in a sequence.
struct PackPiece {
    uint64_t at;              // index of its first id
    uint32_t places, counted; // its positions, and how many of their targets count
};

struct Pack {
    struct PackPiece *piece; // after packing, in the order of sequences
    size_t count, room;
    size_t *first; // [windows + 1] the first piece of each sequence
    size_t windows;
};

// The losses by the limited length of sequences.
struct PackLoss {
    uint64_t documents, cut; // all documents; those longer than a sequence
    uint64_t targets, empty; // counted targets that are cut off; documents that keep none
};

// Finds the documents of ids begin .. end - 1; begin and end are the beginning of a document or the
// file's end. Adds to *loss. p is empty. Errors: those of token_file_read; -EINVAL if the first id
// begins no document.
int pack_find(struct Pack *p, const struct TokenFile *f, size_t begin, size_t end, size_t seq_len,
              struct PackLoss *loss, struct Error *e);

// Raises *longest to the positions of the longest document.
int pack_longest(const struct TokenFile *f, size_t begin, size_t end, size_t *longest,
                 struct Error *e);

// Packs the documents that were found: together, into few sequences; else each into its own.
void pack_make(struct Pack *p, size_t seq_len, bool together);
void pack_free(struct Pack *p);

// Return the targets of a sequence that count, and its positions that documents fill.
uint64_t pack_counted(const struct Pack *p, size_t window);
uint64_t pack_filled(const struct Pack *p, size_t window);

// Reads a sequence into b's first row: inputs, targets and, unless it is NULL, starts: (seq_len).
// Errors: those of token_file_read.
int pack_read(const struct Pack *p, const struct TokenFile *f, size_t window, size_t seq_len,
              const struct Batch *b, struct Error *e);

// Finds the index of the first id of document number `document` (from 0), or the file's count if
// it has fewer. SIZE_MAX: *at becomes the number of documents. Errors: those of token_file_read.
int pack_seek(const struct TokenFile *f, size_t document, size_t *at, struct Error *e);

#endif
