// Byte-pair encoding (Sennrich, Haddow, Birch, ACL 2016; Radford et al. 2019): the ids that PyPI's
// `tokenizers` gives, encode(text, add_special_tokens=False), for the tokenizer.json of GPT-2,
// Llama 2 and 3, Qwen 2 and 3, SmolLM2, Mistral, Gemma, DeepSeek and their like.
//
// A text goes through five steps: added tokens are cut out (added.h); the rest is normalized
// (normal.h); added tokens that are normalized are cut out; the rest is split into words (steps.h);
// in each word, from its single bytes or characters on, the pair of neighbours that was learned
// first is merged, until none is left.
//
// Once open it is only read: threads share it, each with a BpeWork of its own. Opened by read.c.
// Called by data/text/tokenizer.c. Next: bpe.c.
#ifndef DATA_BPE_BPE_H
#define DATA_BPE_BPE_H
#include "data/bpe/added.h"
#include "data/bpe/normal.h"
#include "data/text/ids.h"

struct BpeMerge {
    uint64_t pair; // ids, the left one's in the upper half; UINT64_MAX: an empty slot
    uint32_t rank;
    int32_t id;
};

// What an id stands for: place and length in `bytes`.
struct BpePiece {
    size_t at, count;
};

struct Bpe {
    struct Unicode unicode;
    struct Normal normal;
    struct Steps steps;
    const char *kind; // a name for people
    bool letters;     // words are of bytes, in ByteLevel's alphabet; else of characters
    bool whole_words; // a word that is a piece is that piece, whatever is merged ("ignore_merges")
    bool one_stretch; // a text that is cut might have other ids than the whole
    struct Bytes bytes;
    struct BpePiece *piece; // by id
    struct BpePiece *shown; // the text that it decodes to; `piece` where that is the same
    size_t npiece;          // with added tokens
    int32_t byte_id[256];   // of single bytes; -1: the vocabulary lacks it
    int32_t fallback[256]; // of <0x00> and so on, for characters without a piece; -1: there is none
    int32_t unknown;       // what stands for bytes without a piece; -1: they are left out
    bool fuse_unknown;     // one for all of them in a row
    struct BpeMerge *merge; // a hash table
    size_t nmerge;          // its slots, a power of two
    int32_t *word;          // ids by their bytes, a hash table; -1: an empty slot
    size_t nword;
    struct Added *added;
    size_t nadded;
    struct AddedSet raw, normalized; // `added`, by where they are looked for
    char *mark;                      // what stands for a space in pieces; NULL: nothing does
    bool shows_bytes;                // <0x0A> decodes to a newline
    int32_t begin, end;              // what a text begins and ends with; -1: nothing
    char *chat_template;             // or NULL
};

// What one thread needs to encode: the words that it has met, and room. Valid for this Bpe alone.
struct BpeWork;
struct BpeWork *bpe_work_open(void);
void bpe_work_close(struct BpeWork *w); // NULL is allowed

// What is encoded: n bytes of valid UTF-8, and how they lie in a text.
struct BpeText {
    const char *text;
    size_t n;
    size_t behind; // bytes of the text that follow in memory; n is a place that bpe_cut gave
    size_t at;     // bytes in front of it, for error lines
    bool inside;   // there are some
    bool plain;    // no special token is found in it
    bool follows;  // a token stands in front of it, which is no part of it
};

// Appends the ids. Errors, with nothing appended: -EAGAIN: the text cannot be cut behind these n
// bytes; -EINVAL: an expression takes too long.
int bpe_encode(const struct Bpe *b, struct BpeWork *w, const struct BpeText *t, struct Ids *ids,
               struct Error *e);

// Whether a text that follows a token is encoded in another way than one that begins.
bool bpe_has_first(const struct Bpe *b);

// Returns how many bytes had no piece since the last call.
size_t bpe_missing(struct BpeWork *w);

// A place where a text of n bytes may well be cut in two that are encoded each by itself (which
// bpe_encode finds out); `wanted` or before it, if there is such a place. n: it must not be cut.
size_t bpe_cut(const struct Bpe *b, const char *text, size_t n, size_t wanted);

// Finds the added token of this name; NULL: there is none.
const struct Added *bpe_added(const struct Bpe *b, const char *name);

// Returns the id of the control token with this text; -1: there is none.
int32_t bpe_control(const struct Bpe *b, const char *text);

void bpe_close(struct Bpe *b);

// ---- for read.c ----

static inline uint64_t bpe_hash(const void *data, size_t n) {
    const uint8_t *p = data;
    uint64_t h = n * 0x9e3779b97f4a7c15u, x;
    for (; n >= 8; p += 8, n -= 8) {
        __builtin_memcpy(&x, p, 8);
        h = (h ^ x) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    x = 0;
    for (size_t i = 0; i < n; i++)
        x |= (uint64_t)p[i] << 8 * i;
    h = (h ^ x) * 0xff51afd7ed558ccdu;
    return h ^ h >> 32;
}

// Finds the slot of a pair in the hash table of merges, or the empty slot where it would be.
static inline struct BpeMerge *bpe_slot(const struct Bpe *b, uint64_t pair) {
    size_t at = bpe_hash(&pair, sizeof pair) & (b->nmerge - 1);
    while (b->merge[at].pair != pair && b->merge[at].pair != UINT64_MAX)
        at = (at + 1) & (b->nmerge - 1);
    return &b->merge[at];
}

// Finds the slot of a word's id in the hash table of words, or an empty one.
static inline int32_t *bpe_word_slot(const struct Bpe *b, const void *word, size_t n) {
    size_t at = bpe_hash(word, n) & (b->nword - 1);
    for (; b->word[at] >= 0; at = (at + 1) & (b->nword - 1)) {
        const struct BpePiece *p = &b->piece[b->word[at]];
        if (p->count == n && !__builtin_memcmp(b->bytes.data + p->at, word, n))
            break;
    }
    return &b->word[at];
}

#endif
