// See bpe.h.
//
// Merges of a word wait in a heap, the one that was learned first in front, and of the same one the
// leftmost: a word of n bytes takes n log n steps however long it is. A merge whose pieces are not
// there any more when its turn comes is passed over, by the rule of the reference implementation:
// it counts as there when its neighbours of then would make the same piece.
//
// Words come again and again, so a thread keeps the ids of short ones: in the slot that their hash
// says or one of the next three, else in place of what lies there.
#include "data/bpe/bpe.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 1 << 16, WAYS = 4, KEPT_WORDS = 1 << 20, KEPT_BYTES_MAX = 64, NONE = UINT32_MAX };

struct Symbol {
    int32_t id; // -1: it was merged into its left neighbour
    uint32_t before, after;
};

struct Waiting {
    uint64_t order; // the rank, and the place of the left symbol
    int32_t id;
};

// A word that was met: its bytes, padded to fours, and behind them its ids, from kept[at] on.
struct Met {
    uint32_t hash, at;
    uint16_t bytes, ids; // bytes 0: an empty slot
};

struct BpeWork {
    struct Met *met;
    uint32_t *kept;
    size_t nkept;
    struct Symbol *symbol; // symbol[0] is a word's first
    size_t nsymbol, room;
    size_t missing; // bytes without a piece
    struct Waiting *heap;
    size_t nheap, heap_room;
    struct Bytes text; // normalized
};

struct BpeWork *bpe_work_open(void) {
    struct BpeWork *w = base_alloc_zeroed(sizeof *w);
    w->met = base_alloc_zeroed(SLOTS * sizeof *w->met);
    w->kept = base_alloc(KEPT_WORDS * sizeof *w->kept);
    return w;
}

void bpe_work_close(struct BpeWork *w) {
    if (!w)
        return;
    free(w->met);
    free(w->kept);
    free(w->symbol);
    free(w->heap);
    free(w->text.data);
    free(w);
}

void bpe_close(struct Bpe *b) {
    unicode_close(&b->unicode);
    added_free(&b->raw);
    added_free(&b->normalized);
    for (size_t i = 0; i < b->nadded; i++)
        free(b->added[i].text);
    free(b->added);
    free(b->bytes.data);
    free(b->piece);
    free(b->merge);
    free(b->word);
    free(b->chat_template);
    *b = (struct Bpe){0};
}

// ---- merging ------------------------------------------------------------------------------------

static void heap_push(struct BpeWork *w, struct Waiting x) {
    if (w->nheap == w->heap_room) {
        w->heap_room = size_max(256, 2 * w->heap_room);
        w->heap = base_realloc(w->heap, w->heap_room * sizeof *w->heap, "the merges of a word");
    }
    size_t i = w->nheap++;
    for (; i && w->heap[(i - 1) / 2].order > x.order; i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = x;
}

static struct Waiting heap_pop(struct BpeWork *w) {
    struct Waiting top = w->heap[0], last = w->heap[--w->nheap];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < w->nheap; i = k) {
        if (k + 1 < w->nheap && w->heap[k + 1].order < w->heap[k].order)
            k++;
        if (w->heap[k].order >= last.order)
            break;
        w->heap[i] = w->heap[k];
    }
    w->heap[i] = last;
    return top;
}

static const struct BpeMerge *find_merge(const struct Bpe *b, int32_t left, int32_t right) {
    const struct BpeMerge *m = bpe_slot(b, (uint64_t)(uint32_t)left << 32 | (uint32_t)right);
    return m->pair == UINT64_MAX ? NULL : m;
}

// The merge of a symbol with the one behind it, if there are both, waits.
static void wait_for(const struct Bpe *b, struct BpeWork *w, uint32_t left) {
    uint32_t right = left == NONE ? NONE : w->symbol[left].after;
    if (right == NONE)
        return;
    const struct BpeMerge *m = find_merge(b, w->symbol[left].id, w->symbol[right].id);
    if (m)
        heap_push(w, (struct Waiting){(uint64_t)m->rank << 32 | left, m->id});
}

// The pieces of single bytes that a word begins as. A byte that has none is told by `unknown`, once
// for each or once for all in a row; or else the bytes on its two sides are neighbours.
static void take_bytes(const struct Bpe *b, struct BpeWork *w, const uint8_t *word, size_t n) {
    size_t count = 0;
    bool fused = false; // the last symbol stands for bytes without a piece
    for (size_t i = 0; i < n; i++) {
        int32_t id = b->byte_id[word[i]];
        bool lacks = id < 0;
        w->missing += lacks;
        if (!lacks || (b->unknown >= 0 && !(fused && b->fuse_unknown)))
            w->symbol[count++].id = lacks ? b->unknown : id;
        fused = lacks;
    }
    w->nsymbol = count;
    for (uint32_t i = 0; i < count; i++) {
        w->symbol[i].before = i ? i - 1 : NONE;
        w->symbol[i].after = i + 1 < count ? i + 1 : NONE;
    }
}

static void merge_word(const struct Bpe *b, struct BpeWork *w, const uint8_t *word, size_t n) {
    if (n >= NONE)
        base_out_of_memory(n * sizeof *w->symbol, "a word of more than 4 GiB");
    if (n > w->room) {
        w->room = 2 * n;
        w->symbol = base_realloc(w->symbol, w->room * sizeof *w->symbol, "the bytes of a word");
    }
    struct Symbol *s = w->symbol;
    take_bytes(b, w, word, n);
    w->nheap = 0;
    for (uint32_t i = 0; i + 1 < w->nsymbol; i++)
        wait_for(b, w, i);
    while (w->nheap) {
        struct Waiting top = heap_pop(w);
        uint32_t left = (uint32_t)top.order, right = s[left].after;
        if (s[left].id < 0 || right == NONE)
            continue;
        const struct BpeMerge *m = find_merge(b, s[left].id, s[right].id);
        if (!m || m->id != top.id)
            continue;
        s[left].id = top.id;
        s[right].id = -1;
        s[left].after = s[right].after;
        if (s[left].after != NONE)
            s[s[left].after].before = left;
        wait_for(b, w, s[left].before);
        wait_for(b, w, left);
    }
}

// ---- words --------------------------------------------------------------------------------------

static void keep_word(struct BpeWork *w, struct Met *slot, uint32_t hash, const uint8_t *word,
                      size_t n, const int32_t *ids, size_t count) {
    size_t text = ceil_div(n, 4);
    if (w->nkept + text + count > KEPT_WORDS) {
        memset(w->met, 0, SLOTS * sizeof *w->met);
        w->nkept = 0;
    }
    *slot = (struct Met){hash, (uint32_t)w->nkept, (uint16_t)n, (uint16_t)count};
    memcpy(w->kept + w->nkept, word, n);
    memcpy(w->kept + w->nkept + text, ids, count * sizeof *ids);
    w->nkept += text + count;
}

// The slot of the word, or the one where it may be kept.
static struct Met *find_met(const struct BpeWork *w, uint32_t hash, const uint8_t *word, size_t n,
                            bool *found) {
    struct Met *empty = NULL;
    *found = false;
    for (size_t i = 0; i < WAYS; i++) {
        struct Met *m = &w->met[(hash + i) % SLOTS];
        if (m->bytes == n && m->hash == hash && !memcmp(w->kept + m->at, word, n)) {
            *found = true;
            return m;
        }
        if (!m->bytes && !empty)
            empty = m;
    }
    return empty ? empty : &w->met[hash % SLOTS];
}

static void encode_word(const struct Bpe *b, struct BpeWork *w, const uint8_t *word, size_t n,
                        struct Ids *ids) {
    if (n == 1 && b->byte_id[word[0]] >= 0) {
        ids_append(ids, b->byte_id[word[0]]);
        return;
    }
    bool found = false;
    uint32_t hash = n <= KEPT_BYTES_MAX ? (uint32_t)bpe_hash(word, n) : 0;
    struct Met *slot = n <= KEPT_BYTES_MAX ? find_met(w, hash, word, n, &found) : NULL;
    if (found) {
        const uint32_t *kept = w->kept + slot->at + ceil_div(n, 4);
        for (size_t i = 0; i < slot->ids; i++)
            ids_append(ids, (int32_t)kept[i]);
        return;
    }
    size_t before = ids->count, missing = w->missing;
    int32_t whole = b->whole_words ? *bpe_word_slot(b, word, n) : -1;
    if (whole >= 0) {
        ids_append(ids, whole);
    } else {
        merge_word(b, w, word, n);
        for (uint32_t i = w->nsymbol ? 0 : NONE; i != NONE; i = w->symbol[i].after)
            ids_append(ids, w->symbol[i].id);
    }
    if (slot && w->missing == missing) // what lacks is counted each time
        keep_word(w, slot, hash, word, n, ids->data + before, ids->count - before);
}

static void encode_words(const struct Bpe *b, struct BpeWork *w, const uint8_t *text, size_t n,
                         struct Ids *ids) {
    struct Split s = split_begin(&b->unicode, b->split, text, n);
    const uint8_t *word;
    while ((word = split_next(&s, &n)))
        encode_word(b, w, word, n, ids);
}

// ---- added tokens -------------------------------------------------------------------------------

static bool is_space(const struct Bpe *b, const uint8_t *p, size_t *n) {
    return (b->unicode.kind[unicode_at(p, n)] & UNICODE_CLASS) == UNICODE_SPACE;
}

// Where the white space that ends at `end` begins, not before `from`.
static size_t space_before(const struct Bpe *b, const uint8_t *text, size_t from, size_t end) {
    while (end > from) {
        size_t at = end - 1, n;
        while (at > from && (text[at] & 0xc0) == 0x80)
            at--;
        if (!is_space(b, text + at, &n))
            break;
        end = at;
    }
    return end;
}

static size_t space_behind(const struct Bpe *b, const uint8_t *text, size_t n, size_t from) {
    for (size_t w; from < n && is_space(b, text + from, &w);)
        from += w;
    return from;
}

typedef void Encode(const struct Bpe *b, struct BpeWork *w, const uint8_t *text, size_t n,
                    bool plain, struct Ids *ids);

// Cuts the tokens of a set out of a text; what lies between goes on to `rest`.
static void cut_out(const struct Bpe *b, const struct AddedSet *set, struct BpeWork *w,
                    const uint8_t *text, size_t n, bool plain, Encode *rest, struct Ids *ids) {
    size_t done = 0, from = 0, begin;
    const struct Added *a;
    while ((a = added_find(set, text, n, from, &begin))) {
        size_t end = begin + a->bytes;
        from = end;
        if (plain && a->special)
            continue;
        if (a->lstrip && begin > done)
            begin = space_before(b, text, done, begin);
        if (a->rstrip)
            end = space_behind(b, text, n, end);
        if (done < begin)
            rest(b, w, text + done, begin - done, plain, ids);
        ids_append(ids, a->id);
        done = end;
    }
    if (done < n)
        rest(b, w, text + done, n - done, plain, ids);
}

static void encode_plain_words(const struct Bpe *b, struct BpeWork *w, const uint8_t *text,
                               size_t n, bool plain, struct Ids *ids) {
    (void)plain;
    encode_words(b, w, text, n, ids);
}

static void encode_normalized(const struct Bpe *b, struct BpeWork *w, const uint8_t *text, size_t n,
                              bool plain, struct Ids *ids) {
    if (b->nfc) {
        w->text.count = 0;
        unicode_compose(&b->unicode, text, n, &w->text);
        text = w->text.data;
        n = w->text.count;
    }
    cut_out(b, &b->normalized, w, text, n, plain, encode_plain_words, ids);
}

size_t bpe_encode(const struct Bpe *b, struct BpeWork *w, const char *text, size_t n, bool plain,
                  struct Ids *ids) {
    w->missing = 0;
    cut_out(b, &b->raw, w, (const uint8_t *)text, n, plain, encode_normalized, ids);
    return w->missing;
}

size_t bpe_cut(const struct Bpe *b, const char *text, size_t n, size_t wanted) {
    return b->one_stretch ? n : split_cut(&b->unicode, (const uint8_t *)text, n, wanted);
}

int32_t bpe_control(const struct Bpe *b, const char *text) {
    const struct Added *a = added_named(&b->raw, text, strlen(text));
    if (!a)
        a = added_named(&b->normalized, text, strlen(text));
    return a && a->special ? a->id : -1;
}
