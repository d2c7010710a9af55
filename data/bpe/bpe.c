// See bpe.h.
//
// A heap holds the merges of a word, the one of the lowest rank in front, the leftmost of equal
// ones: a word of n bytes takes n log n steps however long it is. A merge whose pieces have changed
// when its turn comes is skipped, by the rule of the reference implementation: it is done if the
// symbols that are neighbours then merge into the same piece.
//
// Words come again and again, so a thread caches the ids of short ones: in the slot of their hash
// or one of the next three; if all four are taken, in the first of them.
#include "data/bpe/bpe.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 1 << 16, WAYS = 4, KEPT_NUMBERS = 1 << 20, KEPT_BYTES_MAX = 64, NONE = UINT32_MAX };

struct Symbol {
    int32_t id; // -1: it was merged into its left neighbour
    uint32_t before, after;
};

struct PendingMerge {
    uint64_t order; // the rank, and the index of the left symbol
    int32_t id;
};

// A cached word: its bytes, padded to a multiple of 4, then its ids, from kept[at] on.
struct CachedWord {
    uint32_t hash, at;
    uint16_t bytes, ids; // bytes 0: an empty slot
};

struct BpeWork {
    struct CachedWord *cached;
    uint32_t *kept;
    size_t nkept;
    struct Symbol *symbol; // symbol[0] is a word's first
    size_t nsymbol, room;
    size_t missing; // bytes without a piece
    struct PendingMerge *heap;
    size_t nheap, heap_room;
    struct Bytes text[2]; // normalized
    struct StepsWork steps;
};

struct BpeWork *bpe_work_open(void) {
    struct BpeWork *w = base_alloc_zeroed(sizeof *w);
    w->cached = base_alloc_zeroed(SLOTS * sizeof *w->cached);
    w->kept = base_alloc(KEPT_NUMBERS * sizeof *w->kept);
    return w;
}

void bpe_work_close(struct BpeWork *w) {
    if (!w)
        return;
    free(w->cached);
    free(w->kept);
    free(w->symbol);
    free(w->heap);
    free(w->text[0].data);
    free(w->text[1].data);
    steps_work_close(&w->steps);
    free(w);
}

void bpe_close(struct Bpe *b) {
    unicode_close(&b->unicode);
    added_free(&b->raw);
    added_free(&b->normalized);
    for (size_t i = 0; i < b->nadded; i++) {
        free(b->added[i].text);
        free(b->added[i].name);
    }
    for (size_t i = 0; i < b->steps.count; i++)
        step_close(&b->steps.step[i]);
    normal_close(&b->normal);
    free(b->added);
    free(b->bytes.data);
    if (b->shown != b->piece)
        free(b->shown);
    free(b->piece);
    free(b->merge);
    free(b->word);
    free(b->mark);
    free(b->chat_template);
    *b = (struct Bpe){0};
}

// ---- merging ------------------------------------------------------------------------------------

static void heap_push(struct BpeWork *w, struct PendingMerge x) {
    if (w->nheap == w->heap_room) {
        w->heap_room = size_max(256, 2 * w->heap_room);
        w->heap = base_realloc(w->heap, w->heap_room * sizeof *w->heap, "the merges of a word");
    }
    size_t i = w->nheap++;
    for (; i && w->heap[(i - 1) / 2].order > x.order; i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = x;
}

static struct PendingMerge heap_pop(struct BpeWork *w) {
    struct PendingMerge top = w->heap[0], last = w->heap[--w->nheap];
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
    const struct BpeMerge *m = bpe_merge_slot(b, (uint64_t)(uint32_t)left << 32 | (uint32_t)right);
    return m->pair == UINT64_MAX ? NULL : m;
}

// Pushes on the heap the merge of symbol `left`, or NONE, with the next symbol, if there is one.
static void push_merge(const struct Bpe *b, struct BpeWork *w, uint32_t left) {
    uint32_t right = left == NONE ? NONE : w->symbol[left].after;
    if (right == NONE)
        return;
    const struct BpeMerge *m = find_merge(b, w->symbol[left].id, w->symbol[right].id);
    if (m)
        heap_push(w, (struct PendingMerge){(uint64_t)m->rank << 32 | left, m->id});
}

// Splits a word into the pieces of its bytes. A byte without a piece becomes `unknown`, once for
// each or (fuse_unknown) once for all in a row; without an `unknown` it is left out.
static void add_bytes(const struct Bpe *b, struct BpeWork *w, const uint8_t *word, size_t n) {
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
}

// True if there are pieces <0xXX> for all bytes of a character.
static bool falls_back(const struct Bpe *b, const uint8_t *character, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (b->fallback[character[i]] < 0)
            return false;
    return true;
}

// Splits a word into the pieces of its characters. A character without a piece becomes <0xXX>
// pieces; without those it becomes `unknown`, as in add_bytes, but behind the <0xXX> pieces that
// follow it, as in the reference.
static void add_characters(const struct Bpe *b, struct BpeWork *w, const uint8_t *word, size_t n) {
    size_t count = 0;
    bool pending = false; // an `unknown` is still to be added
    for (size_t i = 0, bytes; i < n; i += bytes) {
        unicode_at(word + i, &bytes);
        int32_t id = bytes == 1 ? b->byte_id[word[i]] : *bpe_word_slot(b, word + i, bytes);
        if (id < 0 && falls_back(b, word + i, bytes)) {
            for (size_t k = 0; k < bytes; k++)
                w->symbol[count++].id = b->fallback[word[i + k]];
            continue;
        }
        if (pending && (id >= 0 || !b->fuse_unknown))
            w->symbol[count++].id = b->unknown;
        pending = id < 0 && b->unknown >= 0;
        w->missing += id < 0 ? bytes : 0;
        if (id >= 0)
            w->symbol[count++].id = id;
    }
    if (pending)
        w->symbol[count++].id = b->unknown;
    w->nsymbol = count;
}

// Leaves the pieces of a word as a linked list from w->symbol[0] on; w->nsymbol 0: it is empty.
static void merge_word(const struct Bpe *b, struct BpeWork *w, const uint8_t *word, size_t n) {
    if (n >= NONE)
        base_out_of_memory(n * sizeof *w->symbol, "a word of more than 4 GiB");
    if (n > w->room) {
        w->room = 2 * n;
        w->symbol = base_realloc(w->symbol, w->room * sizeof *w->symbol, "the bytes of a word");
    }
    struct Symbol *s = w->symbol;
    if (b->byte_level)
        add_bytes(b, w, word, n);
    else
        add_characters(b, w, word, n);
    for (uint32_t i = 0; i < w->nsymbol; i++) {
        s[i].before = i ? i - 1 : NONE;
        s[i].after = i + 1 < w->nsymbol ? i + 1 : NONE;
    }
    w->nheap = 0;
    for (uint32_t i = 0; i + 1 < w->nsymbol; i++)
        push_merge(b, w, i);
    while (w->nheap) {
        struct PendingMerge top = heap_pop(w);
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
        push_merge(b, w, s[left].before);
        push_merge(b, w, left);
    }
}

// ---- words --------------------------------------------------------------------------------------

static void cache_word(struct BpeWork *w, struct CachedWord *slot, uint32_t hash,
                       const uint8_t *word, size_t n, const int32_t *ids, size_t count) {
    size_t text_numbers = ceil_div(n, 4);
    if (w->nkept + text_numbers + count > KEPT_NUMBERS) { // full: forget all words
        memset(w->cached, 0, SLOTS * sizeof *w->cached);
        w->nkept = 0;
    }
    *slot = (struct CachedWord){hash, (uint32_t)w->nkept, (uint16_t)n, (uint16_t)count};
    memcpy(w->kept + w->nkept, word, n);
    memcpy(w->kept + w->nkept + text_numbers, ids, count * sizeof *ids);
    w->nkept += text_numbers + count;
}

// Returns the slot of the cached word; or else, with *found false, the slot where it may be cached.
static struct CachedWord *find_cached_word(const struct BpeWork *w, uint32_t hash,
                                           const uint8_t *word, size_t n, bool *found) {
    struct CachedWord *empty = NULL;
    *found = false;
    for (size_t i = 0; i < WAYS; i++) {
        struct CachedWord *m = &w->cached[(hash + i) % SLOTS];
        if (m->bytes == n && m->hash == hash && !memcmp(w->kept + m->at, word, n)) {
            *found = true;
            return m;
        }
        if (!m->bytes && !empty)
            empty = m;
    }
    return empty ? empty : &w->cached[hash % SLOTS];
}

static void encode_word(const struct Bpe *b, struct BpeWork *w, const uint8_t *word, size_t n,
                        struct Ids *ids) {
    if (n == 1 && b->byte_id[word[0]] >= 0) {
        ids_append(ids, b->byte_id[word[0]]);
        return;
    }
    bool found = false;
    uint32_t hash = n <= KEPT_BYTES_MAX ? (uint32_t)bpe_hash(word, n) : 0;
    struct CachedWord *slot =
        n <= KEPT_BYTES_MAX ? find_cached_word(w, hash, word, n, &found) : NULL;
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
    if (slot && w->missing == missing) // missing bytes are counted each time
        cache_word(w, slot, hash, word, n, ids->data + before, ids->count - before);
}

// One call of bpe_encode.
struct Call {
    const struct Bpe *b;
    struct BpeWork *w;
    struct Ids *ids;
    bool plain;
    struct Error *e;
};

static void add_word(void *call, const uint8_t *word, size_t n) {
    struct Call *c = call;
    encode_word(c->b, c->w, word, n, c->ids);
}

static int encode_words(struct Call *c, struct Stretch s) {
    struct StepsRun run = {&c->b->steps, &c->b->unicode, &c->w->steps, add_word, c, c->e};
    return steps_run(&run, 0, s);
}

// ---- added tokens -------------------------------------------------------------------------------

static bool is_space(const struct Bpe *b, const uint8_t *p, size_t *bytes) {
    return (b->unicode.kind[unicode_at(p, bytes)] & UNICODE_CLASS) == UNICODE_SPACE;
}

// Returns the beginning of the white space that ends at `end`; at least `from`.
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

static size_t space_after(const struct Bpe *b, const uint8_t *text, size_t n, size_t from) {
    for (size_t w; from < n && is_space(b, text + from, &w);)
        from += w;
    return from;
}

typedef int Encode(struct Call *c, struct Stretch s);

// Passes bytes begin .. end - 1 of the stretch on to `rest`, if they begin before its cut.
static int encode_before_cut(struct Call *c, const struct Stretch *s, size_t begin, size_t end,
                             Encode *rest) {
    if (begin >= end || begin >= s->cut)
        return 0;
    return rest(c, stretch_part(s, begin, end, s->open && end == s->n));
}

// Cuts the tokens of a set out of a stretch; the text between them goes on to `rest`.
static int encode_around_added(struct Call *c, const struct AddedSet *set, struct Stretch s,
                               Encode *rest) {
    size_t done = 0, from = 0, begin;
    const struct Added *a;
    while (done < s.cut && (a = added_find(set, s.text, s.n, from, &begin))) {
        size_t end = begin + a->bytes;
        from = end;
        if (c->plain && a->special)
            continue;
        if (a->lstrip && begin > done)
            begin = space_before(c->b, s.text, done, begin);
        if (a->rstrip)
            end = space_after(c->b, s.text, s.n, end);
        int err = encode_before_cut(c, &s, done, begin, rest);
        if (err)
            return err;
        if (begin < s.cut)
            ids_append(c->ids, a->id);
        done = end;
    }
    return encode_before_cut(c, &s, done, s.n, rest);
}

static int encode_normalized(struct Call *c, struct Stretch s) {
    normal_apply(&c->b->normal, &c->b->unicode, c->w->text, &s);
    return encode_around_added(c, &c->b->normalized, s, encode_words);
}

// Bytes after a cut that are read along, so that the end of the word before it is seen.
enum { AFTER_MAX = 256 };

int bpe_encode(const struct Bpe *b, struct BpeWork *w, const struct BpeText *t, struct Ids *ids,
               struct Error *e) {
    struct Call c = {b, w, ids, t->plain, e};
    struct Stretch s = {.text = (const uint8_t *)t->text,
                        .n = t->n + size_min(t->after, AFTER_MAX),
                        .cut = t->after ? t->n : SIZE_MAX,
                        .at = t->at,
                        .begins = !t->inside && !t->follows,
                        .middle = t->inside};
    while (s.n < t->n + t->after && (s.text[s.n] & 0xc0) == 0x80) // to a character's end
        s.n++;
    s.open = s.n < t->n + t->after;
    size_t count = ids->count, missing = w->missing;
    int err = encode_around_added(&c, &b->raw, s, encode_normalized);
    if (err) {
        ids->count = count;
        w->missing = missing;
    }
    return err;
}

bool bpe_marks_only_front(const struct Bpe *b) {
    for (size_t i = 0; i < b->steps.count; i++)
        if (b->steps.step[i].kind == STEP_MARK && b->steps.step[i].prepend == PREPEND_FIRST)
            return true;
    return false;
}

size_t bpe_take_missing(struct BpeWork *w) {
    size_t missing = w->missing;
    w->missing = 0;
    return missing;
}

// True if an added token ends at byte `at`. The text after one begins like a text of its own.
static bool follows_added(const struct Bpe *b, const char *text, size_t at) {
    for (size_t i = 0; i < b->nadded; i++) {
        size_t n = b->added[i].bytes;
        if (n <= at && !memcmp(text + at - n, b->added[i].text, n))
            return true;
    }
    return false;
}

size_t bpe_cut(const struct Bpe *b, const char *text, size_t n, size_t wanted) {
    if (b->one_stretch || wanted >= n)
        return n;
    size_t cut = split_cut(&b->unicode, (const uint8_t *)text, n, wanted);
    while (cut < n && follows_added(b, text, cut)) {
        size_t before = cut > 1 ? split_cut(&b->unicode, (const uint8_t *)text, n, cut - 1) : n;
        cut = before < cut ? before : n; // n: no earlier place
    }
    return cut;
}

const struct Added *bpe_added(const struct Bpe *b, const char *name) {
    for (size_t i = 0; i < b->nadded; i++)
        if (!strcmp(b->added[i].name, name))
            return &b->added[i];
    return NULL;
}

int32_t bpe_control(const struct Bpe *b, const char *text) {
    const struct Added *a = bpe_added(b, text);
    return a && a->special ? a->id : -1;
}
