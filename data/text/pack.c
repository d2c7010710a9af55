// Packs documents into sequences: see pack.h. From top to bottom: finding documents, choosing the
// sequence of each, and reading a sequence's ids.
#include "data/text/pack.h"

#include "data/text/order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { READ_BITS = 1 << 15, PIECES_TOGETHER = 1 << 16, SHORT_SHARE = 4, NONE = -1 };

// The key of the order in which short documents are packed, the same for every seed of a run.
static const uint64_t ORDER_KEY = 0x7061636b;

// ---- finding ------------------------------------------------------------------------------------

// The document at the present position of a walk over the bits.
struct FoundDocument {
    size_t at, places;
    uint64_t counted, lost;
    bool previous_counts; // the target of the position before counts, if it is in this document
};

// Adds a document to the list of pieces, unless none of its targets counts, and to the losses.
static void add_document(struct Pack *p, const struct FoundDocument *d, size_t seq_len,
                         struct PackLoss *loss) {
    loss->documents++;
    loss->cut += d->places > seq_len;
    loss->targets += d->lost;
    if (!d->counted) {
        loss->empty++;
        return;
    }
    p->piece = base_grow(p->piece, p->count, &p->room, sizeof *p->piece, "a list of documents");
    p->piece[p->count++] = (struct PackPiece){.at = d->at,
                                              .places = (uint32_t)size_min(d->places, seq_len),
                                              .counted = (uint32_t)d->counted};
}

int pack_find(struct Pack *p, const struct TokenFile *f, size_t begin, size_t end, size_t seq_len,
              struct PackLoss *loss, struct Error *e) {
    uint8_t *starts = base_alloc(2 * READ_BITS), *counts = starts + READ_BITS;
    struct FoundDocument d = {.at = end};
    int code = 0;
    memset(counts, 1, READ_BITS);
    for (size_t at = begin, n; !code && at < end; at += n) {
        n = size_min(end - at, READ_BITS);
        code = token_file_read_bits(f, TOKEN_STARTS, at, n, starts, e);
        if (!code && f->layout.masked)
            code = token_file_read_bits(f, TOKEN_COUNTS, at, n, counts, e);
        if (!code && at == begin && !starts[0])
            code = error_set(e, -EINVAL, E_SHARD_DOCUMENT,
                             "--data %s: no document begins at token %zu; make the shard again",
                             f->path, begin);
        for (size_t i = 0; !code && i < n; i++) {
            if (starts[i]) {
                if (d.at < end)
                    add_document(p, &d, seq_len, loss);
                d = (struct FoundDocument){.at = at + i};
            } else {
                *(d.places < seq_len ? &d.counted : &d.lost) += d.previous_counts;
                d.places++;
            }
            d.previous_counts = counts[i];
        }
    }
    if (!code && d.at < end)
        add_document(p, &d, seq_len, loss);
    free(starts);
    return code;
}

int pack_longest(const struct TokenFile *f, size_t begin, size_t end, size_t *longest,
                 struct Error *e) {
    uint8_t *starts = base_alloc(READ_BITS);
    size_t first = begin; // first id of the present document
    int code = 0;
    for (size_t at = begin, n; !code && at < end; at += n) {
        n = size_min(end - at, READ_BITS);
        code = token_file_read_bits(f, TOKEN_STARTS, at, n, starts, e);
        for (size_t i = 0; !code && i < n; i++) {
            *longest = size_max(*longest, at + i - first - (starts[i] && at + i > first));
            first = starts[i] ? at + i : first;
        }
    }
    free(starts);
    return code;
}

int pack_seek(const struct TokenFile *f, size_t document, size_t *at, struct Error *e) {
    uint8_t *starts = base_alloc(READ_BITS);
    size_t seen = 0;
    int code = 0;
    bool found = false;
    for (size_t from = 0, n; !code && !found && from < f->count; from += n) {
        n = size_min(f->count - from, READ_BITS);
        code = token_file_read_bits(f, TOKEN_STARTS, from, n, starts, e);
        for (size_t i = 0; !code && !found && i < n; i++) {
            found = starts[i] && seen == document;
            *at = from + i;
            seen += starts[i];
        }
    }
    free(starts);
    if (!found)
        *at = document == SIZE_MAX ? seen : f->count;
    return code;
}

// ---- packing ------------------------------------------------------------------------------------

// Unfinished sequences of one stretch of documents. Lists link indices of sequences or pieces, and
// end with NONE.
struct Bins {
    int32_t *of_room;      // [seq_len + 1] the last sequence with so many free positions ...
    int32_t *before;       // [n] ... and the one before that in its list
    uint64_t *nonempty;    // a bit for each list that is not empty
    int32_t *newest;       // [n] a sequence's last piece,
    int32_t *older;        // [n] the piece before a piece in its sequence,
    int32_t *bin_of_piece; // [n] the sequence of a piece
    uint32_t *room;        // [n] a sequence's free positions
    size_t count;
};

// Puts a sequence that is in no list into that of its new number of free positions.
static void set_room(struct Bins *b, int32_t bin, uint32_t room) {
    b->room[bin] = room;
    b->before[bin] = b->of_room[room];
    b->of_room[room] = bin;
    b->nonempty[room / 64] |= UINT64_C(1) << room % 64;
}

// Removes from its list, and returns, a sequence with the fewest free positions that hold `places`;
// NONE: there is none.
static int32_t pop_fitting(struct Bins *b, uint32_t places, size_t seq_len) {
    size_t word = places / 64;
    uint64_t bits = b->nonempty[word] >> places % 64 << places % 64;
    while (!bits && ++word <= seq_len / 64)
        bits = b->nonempty[word];
    if (!bits)
        return NONE;
    size_t room = 64 * word + (size_t)__builtin_ctzll(bits);
    int32_t bin = b->of_room[room];
    b->of_room[room] = b->before[bin];
    if (b->before[bin] == NONE)
        b->nonempty[word] &= ~(UINT64_C(1) << room % 64);
    return bin;
}

// Puts a piece into the unfinished sequence where it leaves the least room, or into a new one.
static void place_piece(struct Bins *b, int32_t piece, uint32_t places, size_t seq_len) {
    int32_t bin = pop_fitting(b, places, seq_len);
    if (bin == NONE) {
        bin = (int32_t)b->count++;
        b->newest[bin] = NONE;
        b->room[bin] = (uint32_t)seq_len;
    }
    b->older[piece] = b->newest[bin];
    b->newest[bin] = piece;
    b->bin_of_piece[piece] = bin;
    set_room(b, bin, b->room[bin] - places);
}

// Returns the sort key of a piece: long ones come first, and all short ones are equal.
static size_t sort_key(const struct PackPiece *piece, size_t seq_len) {
    return piece->places > seq_len / SHORT_SHARE ? seq_len - piece->places : seq_len;
}

// Sorts the indices of n pieces by sort_key, equal ones shuffled: a counting sort.
static void sort_by_length(const struct PackPiece *piece, size_t n, size_t seq_len,
                           int32_t *order) {
    size_t *at = base_alloc_zeroed((seq_len + 2) * sizeof *at);
    for (size_t i = 0; i < n; i++)
        at[sort_key(&piece[i], seq_len) + 1]++;
    for (size_t k = 1; k <= seq_len; k++)
        at[k] += at[k - 1];
    for (size_t k = 0; k < n; k++) {
        size_t i = order_permute(n, ORDER_KEY, k);
        order[at[sort_key(&piece[i], seq_len)]++] = (int32_t)i;
    }
    free(at);
}

// Appends the sequences to p, in the order of their first documents, and their pieces to `out`,
// which has `done` pieces already.
static void append_sequences(struct Pack *p, const struct Bins *b, const struct PackPiece *piece,
                             size_t n, struct PackPiece *out, size_t done) {
    bool *emitted = base_alloc_zeroed(n);
    for (size_t i = 0; i < n; i++) {
        int32_t bin = b->bin_of_piece[i];
        if (emitted[bin])
            continue;
        emitted[bin] = true;
        p->first[p->windows++] = done;
        for (int32_t k = b->newest[bin]; k != NONE; k = b->older[k])
            out[done++] = piece[k];
    }
    free(emitted);
}

// Returns the next `count` numbers of a block; *left moves after them.
static int32_t *take_numbers(int32_t **left, size_t count) {
    int32_t *part = *left;
    *left += count;
    return part;
}

// Packs n pieces from number `at` on, into the same numbers of `out`.
static void pack_stretch(struct Pack *p, size_t at, size_t n, size_t seq_len,
                         struct PackPiece *out) {
    const struct PackPiece *piece = p->piece + at;
    int32_t *lists = base_alloc(((seq_len + 1) + 6 * n) * sizeof *lists), *left = lists;
    struct Bins b = {.nonempty = base_alloc_zeroed((seq_len / 64 + 1) * sizeof *b.nonempty)};
    b.of_room = take_numbers(&left, seq_len + 1);
    b.before = take_numbers(&left, n);
    b.newest = take_numbers(&left, n);
    b.older = take_numbers(&left, n);
    b.bin_of_piece = take_numbers(&left, n);
    b.room = (uint32_t *)take_numbers(&left, n);
    int32_t *order = take_numbers(&left, n);
    memset(b.of_room, NONE, (seq_len + 1) * sizeof *b.of_room);
    sort_by_length(piece, n, seq_len, order);
    for (size_t i = 0; i < n; i++)
        place_piece(&b, order[i], piece[order[i]].places, seq_len);
    append_sequences(p, &b, piece, n, out, at);
    free(b.nonempty);
    free(lists);
}

void pack_make(struct Pack *p, size_t seq_len, bool together) {
    p->first = base_alloc((p->count + 1) * sizeof *p->first);
    p->windows = 0;
    if (!together) {
        for (p->windows = 0; p->windows < p->count; p->windows++)
            p->first[p->windows] = p->windows;
    } else {
        struct PackPiece *out = base_alloc(size_max(p->count, 1) * sizeof *out);
        for (size_t at = 0, n; at < p->count; at += n) {
            n = size_min(p->count - at, PIECES_TOGETHER);
            pack_stretch(p, at, n, seq_len, out);
        }
        free(p->piece);
        p->piece = out;
    }
    p->first[p->windows] = p->count;
    p->first = base_realloc(p->first, (p->windows + 1) * sizeof *p->first, "a list of sequences");
}

void pack_free(struct Pack *p) {
    free(p->piece);
    free(p->first);
    *p = (struct Pack){0};
}

// ---- reading ------------------------------------------------------------------------------------

uint64_t pack_counted(const struct Pack *p, size_t window) {
    uint64_t counted = 0;
    for (size_t i = p->first[window]; i < p->first[window + 1]; i++)
        counted += p->piece[i].counted;
    return counted;
}

uint64_t pack_filled(const struct Pack *p, size_t window) {
    uint64_t filled = 0;
    for (size_t i = p->first[window]; i < p->first[window + 1]; i++)
        filled += p->piece[i].places;
    return filled;
}

// Reads a piece to position t of its sequence; ids and counts: buffers of (seq_len + 1),
// and counts is 1 everywhere if the file has no mask.
static int read_piece(const struct TokenFile *f, const struct PackPiece *piece, size_t t,
                      int32_t *ids, uint8_t *counts, const struct Batch *b, struct Error *e) {
    size_t n = piece->places;
    int code = token_file_read(f, piece->at, n + 1, ids, e);
    if (!code && f->layout.masked)
        code = token_file_read_bits(f, TOKEN_COUNTS, piece->at, n, counts, e);
    for (size_t i = 0; !code && i < n; i++) {
        b->inputs[t + i] = ids[i];
        b->targets[t + i] = counts[i] ? ids[i + 1] : UNCOUNTED;
        if (b->starts)
            b->starts[t + i] = (int32_t)t;
    }
    return code;
}

int pack_read(const struct Pack *p, const struct TokenFile *f, size_t window, size_t seq_len,
              const struct Batch *b, struct Error *e) {
    int32_t *ids = base_alloc((seq_len + 1) * (sizeof *ids + 1));
    uint8_t *counts = (uint8_t *)(ids + seq_len + 1);
    size_t t = 0;
    int code = 0;
    memset(counts, 1, seq_len);
    for (size_t i = p->first[window]; !code && i < p->first[window + 1]; i++) {
        code = read_piece(f, &p->piece[i], t, ids, counts, b, e);
        t += p->piece[i].places;
    }
    for (; !code && t < seq_len; t++) { // padding: each position is a document of its own
        b->inputs[t] = 0;
        b->targets[t] = UNCOUNTED;
        if (b->starts)
            b->starts[t] = (int32_t)t;
    }
    free(ids);
    return code;
}
