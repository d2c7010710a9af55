// Decoders of a tokenizer.json, and the marks that stand for spaces: see read.h.
//
// Some tokenizers do not split a text into words. If no merge makes a piece with a mark after any
// other character, no merge crosses the boundary before a mark, and words may end there with the
// same ids.
#include "data/bpe/read.h"
#include "data/json.h"

#include <string.h>

// ---- decoders ----

static int read_decoder(struct Bpe *b, const cJSON *d, const char *path, struct Error *e) {
    static const char expected[] = "\"ByteLevel\", \"Metaspace\", or a sequence of \"Replace\", "
                                   "\"ByteFallback\", \"Fuse\" and \"Strip\"";
    const cJSON *pattern = json_member(d, "pattern");
    const char *mark =
        json_has_type(d, "Metaspace") ? json_text(d, "replacement") : json_text(pattern, "String");
    bool replaces = json_has_type(d, "Metaspace") ||
                    (json_has_type(d, "Replace") && strcmp(json_text(d, "content"), " ") == 0);
    if (b->byte_level ? json_has_type(d, "ByteLevel")
                      : json_has_type(d, "Fuse") || json_has_type(d, "Strip"))
        return 0; // Strip would remove the space that opens a text; it is shown here
    if (!b->byte_level && json_has_type(d, "ByteFallback")) {
        b->shows_bytes = true;
        return 0;
    }
    if (b->byte_level || !replaces || !*mark || b->mark)
        return bpe_refuse(path, "decoder", d, expected, e);
    b->mark = base_format("%s", mark);
    return 0;
}

int bpe_read_decoder(struct Bpe *b, const cJSON *d, const char *path, struct Error *e) {
    const cJSON *list = json_has_type(d, "Sequence") ? json_member(d, "decoders") : NULL;
    const cJSON *item;
    int err = 0;
    if (!d || cJSON_IsNull(d))
        return 0;
    if (!cJSON_IsArray(list))
        return read_decoder(b, d, path, e);
    cJSON_ArrayForEach(item, list) if (!err) err = read_decoder(b, item, path, e);
    return err;
}

// ---- what pieces decode to ----

// Sets what piece `id` decodes to: the byte of <0xXX>, or its text with spaces in place of marks.
static void show_piece(struct Bpe *b, size_t id) {
    const size_t n = strlen(b->mark ? b->mark : ""), at = b->piece[id].at;
    const size_t end = at + b->piece[id].count, begin = b->bytes.count;
    for (unsigned byte = 0; b->shows_bytes && byte < 256; byte++)
        if (b->fallback[byte] == (int32_t)id) {
            bytes_append(&b->bytes, &(uint8_t){(uint8_t)byte}, 1);
            b->shown[id] = (struct BpePiece){begin, 1};
            return;
        }
    for (size_t i = at; i < end;) {
        bool mark = n && end - i >= n && !memcmp(b->bytes.data + i, b->mark, n);
        uint8_t byte = mark ? ' ' : b->bytes.data[i];
        bytes_append(&b->bytes, &byte, 1);
        i += mark ? n : 1;
    }
    b->shown[id] = (struct BpePiece){begin, b->bytes.count - begin};
}

static void show_pieces(struct Bpe *b) {
    b->shown = b->piece;
    if (!b->mark && !b->shows_bytes)
        return;
    b->shown = base_alloc(b->npiece * sizeof *b->shown);
    memcpy(b->shown, b->piece, b->npiece * sizeof *b->shown);
    for (size_t id = 0; id < b->npiece; id++)
        show_piece(b, id);
    for (size_t i = 0; i < b->nadded; i++)
        b->shown[b->added[i].id] = b->piece[b->added[i].id];
}

// ---- where words end ----

// True if the piece has a mark after anything but a mark.
static bool has_inner_mark(const struct Bpe *b, const struct BpePiece *p, const char *mark) {
    size_t n = strlen(mark);
    const uint8_t *text = b->bytes.data + p->at;
    for (size_t i = 1; i + n <= p->count; i++)
        if (!memcmp(text + i, mark, n) && (i < n || memcmp(text + i - n, mark, n) != 0))
            return true;
    return false;
}

// True if a merge, or a piece that is a word as it is, crosses the boundary before a mark.
static bool has_merge_across(const struct Bpe *b, const char *mark) {
    for (size_t i = 0; i < b->nmerge; i++)
        if (b->merge[i].pair != UINT64_MAX && has_inner_mark(b, &b->piece[b->merge[i].id], mark))
            return true;
    for (size_t id = 0; b->whole_words && id < b->npiece; id++)
        if (has_inner_mark(b, &b->piece[id], mark))
            return true;
    return false;
}

// Returns what is written in place of a space; "": it stays.
static const char *find_mark(const struct Bpe *b) {
    for (size_t i = 0; i < b->steps.count; i++)
        if (b->steps.step[i].kind == STEP_MARK)
            return b->steps.step[i].text;
    for (size_t i = 0; i < b->normal.count; i++)
        if (b->normal.step[i].kind == NORMAL_REPLACE && !strcmp(b->normal.step[i].text, " "))
            return b->normal.step[i].with;
    return "";
}

// True if a character may produce no id, which makes the pieces on its two sides neighbours.
static bool leaves_out(const struct Bpe *b) {
    bool falls_back = true;
    for (size_t byte = 0; byte < 256; byte++)
        falls_back = falls_back && b->fallback[byte] >= 0;
    return !falls_back && b->unknown < 0;
}

void bpe_use_marks(struct Bpe *b) {
    const char *mark = find_mark(b);
    show_pieces(b);
    // A character that is left out, or fused with others (a mark that is no piece), would let the
    // pieces on its two sides merge.
    if (b->byte_level || leaves_out(b) || !*mark || *bpe_word_slot(b, mark, strlen(mark)) < 0 ||
        has_merge_across(b, mark))
        return;
    b->steps.step[b->steps.count++] =
        (struct Step){.kind = STEP_RUNS, .text = base_format("%s", mark), .bytes = strlen(mark)};
}
