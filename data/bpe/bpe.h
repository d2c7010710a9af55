// Byte-pair encoding (Sennrich, Haddow, Birch, ACL 2016; Radford et al. 2019). The ids are those of
// encode(text, add_special_tokens=False) of PyPI's `tokenizers`, for the tokenizer.json of GPT-2,
// Llama 2 and 3, Qwen 2 and 3, SmolLM2, Mistral, Gemma, DeepSeek and their like.
//
// A text goes through five steps: added tokens are cut out (added.h); the rest is normalized
// (normal.h); added tokens that are normalized are cut out; the rest is split into words (steps.h);
// each word is split into bytes or characters, and of its neighbouring pairs the one of the lowest
// rank is merged, until no pair has a merge.
//
// An open Bpe is only read: threads share it, each with a BpeWork of its own. Opened by read.c.
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

// The text of an id: its offset and length in `bytes`.
struct BpePiece {
    size_t at, count;
};

struct Bpe {
    struct Unicode unicode;
    struct Normal normal;
    struct Steps steps;
    const char *kind; // a name for people
    bool byte_level;  // words are of bytes, in ByteLevel's alphabet; else of characters
    bool whole_words; // a word that is a piece is that piece, whatever is merged ("ignore_merges")
    bool one_stretch; // a text must not be cut: its parts might have other ids than the whole
    struct Bytes bytes;
    struct BpePiece *piece; // by id
    struct BpePiece *shown; // the text that it decodes to; `piece` where that is the same
    size_t npiece;          // with added tokens
    int32_t byte_id[256];   // ids of single bytes; -1: the vocabulary lacks it
    int32_t fallback[256];  // ids of <0x00> and so on, for characters without a piece; -1: none
    int32_t unknown;        // the id for bytes without a piece; -1: they are left out
    bool fuse_unknown;      // one `unknown` for all such bytes in a row
    struct BpeMerge *merge; // a hash table
    size_t nmerge;          // its slots, a power of two
    int32_t *word;          // ids by their bytes, a hash table; -1: an empty slot
    size_t nword;
    struct Added *added;
    size_t nadded;
    struct AddedSet raw, normalized; // `added`, by the text in which they are found
    char *mark;                      // stands for a space in pieces (U+2581); NULL: there is none
    bool shows_bytes;                // <0x0A> decodes to a newline
    int32_t begin, end;              // ids that open and end a text; -1: none
    char *chat_template;             // or NULL
};

// One thread's cache of words and its buffers, for encoding with one Bpe alone.
struct BpeWork;
struct BpeWork *bpe_work_open(void);
void bpe_work_close(struct BpeWork *w); // NULL is allowed

// A text to encode: n bytes of valid UTF-8, possibly a part of a longer text.
struct BpeText {
    const char *text;
    size_t n;
    size_t after; // bytes of the longer text that follow in memory; then n is from bpe_cut
    size_t at;    // its offset in the longer text, for error lines
    bool inside;  // the longer text has bytes before it
    bool plain;   // special tokens are not recognised in it
    bool follows; // it follows a token that is not part of it
};

// Appends the text's ids to *ids. Errors, with nothing appended: -EAGAIN: the text cannot be cut
// after its n bytes; -EINVAL: an expression takes too long.
int bpe_encode(const struct Bpe *b, struct BpeWork *w, const struct BpeText *t, struct Ids *ids,
               struct Error *e);

// True if a space's mark is put at the beginning of a text, but not of a text after a token.
bool bpe_marks_only_front(const struct Bpe *b);

// Returns how many bytes had no piece since the last call of this function.
size_t bpe_take_missing(struct BpeWork *w);

// Returns an offset where a text of n bytes can probably be cut into two that are encoded
// separately (bpe_encode finds out): `wanted` or less, if possible. n: it must not be cut.
size_t bpe_cut(const struct Bpe *b, const char *text, size_t n, size_t wanted);

// Finds the added token of this name; NULL: there is none.
const struct Added *bpe_added(const struct Bpe *b, const char *name);

// Returns the id of the control token with this text; -1: there is none.
int32_t bpe_control(const struct Bpe *b, const char *text);

void bpe_close(struct Bpe *b);

// ---- for read.c ----

// Returns a hash of n bytes. Its multipliers: 2^64 divided by the golden ratio; MurmurHash3's.
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
static inline struct BpeMerge *bpe_merge_slot(const struct Bpe *b, uint64_t pair) {
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
