// Pieces, merges and added tokens of a tokenizer.json: see read.h.
//
// With ByteLevel, pieces are written in its alphabet (steps.h); else as they are. With ByteLevel, a
// piece that has another letter cannot be part of a word, and is kept as it is written.
#include "data/bpe/read.h"
#include "data/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { IDS_MAX = 1 << 24 };

// Appends the bytes for which a text's letters stand; without ByteLevel, the text as it is. false,
// with nothing appended: a character is no letter of the alphabet.
static bool append_decoded(const struct Bpe *b, struct Bytes *out, const char *text, size_t n) {
    size_t before = out->count;
    if (!b->byte_level) {
        bytes_append(out, text, n);
        return true;
    }
    for (size_t i = 0, w; i < n; i += w) {
        int byte = letter_to_byte(unicode_at((const uint8_t *)text + i, &w));
        if (byte < 0) {
            out->count = before;
            return false;
        }
        bytes_append(out, &(uint8_t){(uint8_t)byte}, 1);
    }
    return true;
}

static size_t table_size(size_t count) {
    size_t n = 2;
    while (n < 2 * count)
        n *= 2;
    return n;
}

// ---- pieces ----

static int add_piece(struct Bpe *b, const cJSON *item, size_t count, const char *path,
                     struct Error *e) {
    uint64_t id;
    struct JsonShown shown = json_shown(item->string);
    if (!json_is_count(item, &id) || id >= count || b->piece[id].at != SIZE_MAX)
        return error_set(e, -EINVAL, E_BPE_VOCAB,
                         "%s: the id of \"%s\" in the vocabulary is not valid or used twice; "
                         "expected 0 to %zu, each once",
                         path, shown.text, count - 1);
    size_t at = b->bytes.count, n = strlen(item->string);
    bool in_alphabet = append_decoded(b, &b->bytes, item->string, n);
    if (!in_alphabet)
        bytes_append(&b->bytes, item->string, n);
    b->piece[id] = (struct BpePiece){at, b->bytes.count - at};
    if (!in_alphabet)
        return 0;
    int32_t *slot = bpe_word_slot(b, b->bytes.data + at, b->bytes.count - at);
    if (*slot >= 0)
        return error_set(e, -EINVAL, E_BPE_VOCAB,
                         "%s: the vocabulary has \"%s\" twice; keep one of them", path, shown.text);
    *slot = (int32_t)id;
    return 0;
}

static int read_pieces(struct Bpe *b, const cJSON *vocab, size_t nadded, const char *path,
                       struct Error *e) {
    size_t count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, vocab) count++;
    if (!cJSON_IsObject(vocab) || !count || count > IDS_MAX)
        return error_set(e, -EINVAL, E_BPE_VOCAB,
                         "%s: \"vocab\" of the model has %zu pieces; expected an object of 1 to %d",
                         path, count, IDS_MAX);
    b->piece = base_alloc((count + nadded) * sizeof *b->piece);
    for (size_t i = 0; i < count; i++)
        b->piece[i] = (struct BpePiece){SIZE_MAX, 0};
    b->npiece = count;
    b->nword = table_size(count);
    b->word = base_alloc(b->nword * sizeof *b->word);
    memset(b->word, 0xff, b->nword * sizeof *b->word); // -1
    bytes_append(&b->bytes, "", 1);                    // so that data is not NULL
    int err = 0;
    cJSON_ArrayForEach(item, vocab) if (!err) err = add_piece(b, item, count, path, e);
    for (unsigned byte = 0; !err && byte < 256; byte++)
        b->byte_id[byte] =
            b->byte_level || byte < 0x80 ? *bpe_word_slot(b, &(uint8_t){(uint8_t)byte}, 1) : -1;
    return err;
}

// Finds the ids of <0x00> to <0xFF>.
static void read_fallback(struct Bpe *b, bool falls_back) {
    char name[8];
    for (unsigned byte = 0; byte < 256; byte++) {
        int n = snprintf(name, sizeof name, "<0x%02X>", byte);
        b->fallback[byte] = falls_back ? *bpe_word_slot(b, name, (size_t)n) : -1;
    }
}

// Returns the id of the piece whose text in tokenizer.json is `text`; -1: there is none.
static int32_t piece_named(const struct Bpe *b, const char *text) {
    size_t n = strlen(text);
    struct Bytes bytes = {0};
    bool in_alphabet = append_decoded(b, &bytes, text, n);
    int32_t id = in_alphabet && bytes.count ? *bpe_word_slot(b, bytes.data, bytes.count) : -1;
    for (size_t i = 0; !in_alphabet && i < b->npiece && id < 0; i++) {
        const uint8_t *piece = b->bytes.data + b->piece[i].at;
        if (b->piece[i].count == n && !memcmp(piece, text, n) &&
            *bpe_word_slot(b, piece, n) != (int32_t)i) // not one of letters, with these bytes
            id = (int32_t)i;
    }
    free(bytes.data);
    return id;
}

// True if a text may have a byte without a piece.
static bool lacks_bytes(const struct Bpe *b) {
    for (unsigned byte = 0; byte < 256 && !b->byte_level; byte++)
        if (b->fallback[byte] < 0)
            return true;
    for (unsigned byte = 0; b->byte_level && byte < 0xf5; byte++) // the bytes of UTF-8
        if (b->byte_id[byte] < 0 && byte != 0xc0 && byte != 0xc1)
            return true;
    return false;
}

// Reads "unk_token", which stands for bytes without a piece. If it is no piece, the reference fails
// on a text that needs it.
static int read_unknown(struct Bpe *b, const cJSON *model, const char *path, struct Error *e) {
    const cJSON *token = json_member(model, "unk_token");
    b->fuse_unknown = cJSON_IsTrue(json_member(model, "fuse_unk"));
    if (!cJSON_IsString(token))
        return 0;
    b->unknown = piece_named(b, token->valuestring);
    if (b->unknown >= 0 || !lacks_bytes(b))
        return 0;
    return error_set(e, -EINVAL, E_BPE_VOCAB,
                     "%s: the \"unk_token\" \"%s\" is not in the vocabulary; name a piece of it",
                     path, json_shown(token->valuestring).text);
}

// ---- merges ----

// Reads the two parts of a merge, "a b" or ["a", "b"].
static bool read_parts(const cJSON *item, const char *part[2], size_t n[2]) {
    if (cJSON_IsString(item)) {
        const char *space = strchr(item->valuestring, ' ');
        if (!space || strchr(space + 1, ' '))
            return false;
        part[0] = item->valuestring;
        n[0] = (size_t)(space - part[0]);
        part[1] = space + 1;
        n[1] = strlen(part[1]);
        return true;
    }
    const cJSON *a = cJSON_IsArray(item) ? item->child : NULL, *b = a ? a->next : NULL;
    if (!cJSON_IsString(a) || !cJSON_IsString(b) || b->next)
        return false;
    part[0] = a->valuestring, n[0] = strlen(part[0]);
    part[1] = b->valuestring, n[1] = strlen(part[1]);
    return true;
}

// Finds the ids of the two parts and of both together; false: one of them has no id.
static bool find_parts(struct Bpe *b, const char *part[2], const size_t n[2], int32_t ids[3]) {
    size_t before = b->bytes.count, middle;
    bool found = append_decoded(b, &b->bytes, part[0], n[0]);
    middle = b->bytes.count;
    found = found && append_decoded(b, &b->bytes, part[1], n[1]);
    if (found) {
        const uint8_t *text = b->bytes.data + before;
        size_t left = middle - before, all = b->bytes.count - before;
        ids[0] = *bpe_word_slot(b, text, left);
        ids[1] = *bpe_word_slot(b, text + left, all - left);
        ids[2] = *bpe_word_slot(b, text, all);
        found = left && left < all && ids[0] >= 0 && ids[1] >= 0 && ids[2] >= 0;
    }
    b->bytes.count = before;
    return found;
}

static int refuse_merge(const char *path, uint32_t rank, const cJSON *item, struct Error *e) {
    char *merge = cJSON_PrintUnformatted(item);
    int err = error_set(e, -EINVAL, E_BPE_MERGES,
                        "%s: merges[%u] %s does not join two tokens into a third; expected \"a b\" "
                        "or [\"a\", \"b\"], with a, b and ab in the vocabulary",
                        path, rank, json_shown(merge).text);
    cJSON_free(merge);
    return err;
}

static int read_merges(struct Bpe *b, const cJSON *merges, const char *path, struct Error *e) {
    size_t count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, merges) count++;
    if (!cJSON_IsArray(merges) || count > IDS_MAX)
        return error_set(
            e, -EINVAL, E_BPE_MERGES,
            "%s: \"merges\" of the model has %zu entries; expected a list of at most %d", path,
            count, IDS_MAX);
    b->nmerge = table_size(count);
    b->merge = base_alloc(b->nmerge * sizeof *b->merge);
    for (size_t i = 0; i < b->nmerge; i++)
        b->merge[i].pair = UINT64_MAX;
    uint32_t rank = 0;
    cJSON_ArrayForEach(item, merges) {
        const char *part[2];
        size_t n[2];
        int32_t ids[3];
        if (!read_parts(item, part, n) || !find_parts(b, part, n, ids))
            return refuse_merge(path, rank, item, e);
        uint64_t pair = (uint64_t)(uint32_t)ids[0] << 32 | (uint32_t)ids[1];
        *bpe_merge_slot(b, pair) = (struct BpeMerge){pair, rank++, ids[2]}; // the last one counts
    }
    return 0;
}

// ---- added tokens ----

int32_t bpe_token_to_id(const struct Bpe *b, const char *text) {
    const struct Added *a = bpe_added(b, text);
    return a ? a->id : piece_named(b, text);
}

// True if a cut (split.h) could lie inside of the token, or at white space that it takes.
static bool may_hold_cut(const struct Added *a) {
    static const char space[] = " \t\r\n\v\f";
    bool across = a->lstrip || a->rstrip;
    for (const char *p = a->name; !across && p[0] && p[1]; p++)
        across = (p[1] == ' ' && !strchr(space, p[0])) || (p[0] == '\n' && !strchr(space, p[1]));
    return across;
}

// Sets the text to find: the name, or for a normalized token the normalized name.
static int normalize_added(const struct Bpe *b, struct Added *a, const char *path,
                           struct Error *e) {
    struct Stretch s = {.text = (const uint8_t *)a->name, .n = strlen(a->name), .cut = SIZE_MAX};
    struct Bytes room[2] = {{0}, {0}};
    if (s.n && a->normalized)
        normal_apply(&b->normal, &b->unicode, room, &s);
    a->text = base_format("%.*s", (int)s.n, (const char *)s.text);
    a->bytes = s.n;
    free(room[0].data);
    free(room[1].data);
    return a->bytes ? 0
                    : error_set(e, -EINVAL, E_BPE_ADDED_TOKEN,
                                "%s: added token %zu is empty; give it a \"content\", or remove it",
                                path, b->nadded);
}

// Gives an added token the id of the piece of its name, or else the next id (as the reference).
static int set_added_id(struct Bpe *b, struct Added *a, const cJSON *item, const char *path,
                        struct Error *e) {
    uint64_t file_id;
    int32_t piece_id = piece_named(b, a->name);
    size_t n = strlen(a->name);
    a->id = piece_id < 0 ? (int32_t)b->npiece : piece_id;
    struct JsonShown shown = json_shown(a->name);
    if (!json_is_count(json_member(item, "id"), &file_id))
        return error_set(e, -EINVAL, E_BPE_ADDED_TOKEN,
                         "%s: the added token \"%s\" has no \"id\" that is a number; write %d",
                         path, shown.text, a->id);
    if (file_id != (uint64_t)a->id)
        return error_set(e, -EINVAL, E_BPE_ADDED_TOKEN,
                         "%s: the added token \"%s\" has the \"id\" %llu, other than %d, %s; write "
                         "that, or download the file again",
                         path, shown.text, (unsigned long long)file_id, a->id,
                         piece_id < 0 ? "the next free one" : "which it has in the vocabulary");
    if (piece_id < 0) {
        b->piece[b->npiece++] = (struct BpePiece){b->bytes.count, n};
        bytes_append(&b->bytes, a->name, n);
        return 0;
    }
    const struct BpePiece *p = &b->piece[piece_id];
    if (p->count == n && !memcmp(b->bytes.data + p->at, a->name, n))
        return 0;
    return error_set(
        e, -EINVAL, E_BPE_ADDED_TOKEN,
        "%s: the added token \"%s\" is also a piece of other bytes; give it another name", path,
        shown.text);
}

static int read_added(struct Bpe *b, const cJSON *added, size_t count, const char *path,
                      struct Error *e) {
    const cJSON *item;
    int err = 0;
    b->added = base_alloc_zeroed((count + 1) * sizeof *b->added);
    cJSON_ArrayForEach(item, added) {
        const cJSON *content = json_member(item, "content");
        struct Added *a = &b->added[b->nadded];
        if (!cJSON_IsString(content))
            return error_set(e, -EINVAL, E_BPE_ADDED_TOKEN,
                             "%s: added token %zu has no \"content\"; give it one, or remove it",
                             path, b->nadded);
        *a = (struct Added){.name = base_format("%s", content->valuestring),
                            .special = cJSON_IsTrue(json_member(item, "special")),
                            .lstrip = cJSON_IsTrue(json_member(item, "lstrip")),
                            .rstrip = cJSON_IsTrue(json_member(item, "rstrip")),
                            .normalized = cJSON_IsTrue(json_member(item, "normalized"))};
        b->nadded++;
        if (cJSON_IsTrue(json_member(item, "single_word")))
            err = error_set(e, -EINVAL, E_BPE_ADDED_TOKEN,
                            "%s: the added token \"%s\" has \"single_word\", which is not "
                            "supported; set it to false, or give token shards as --data",
                            path, json_shown(a->name).text);
        if (!err)
            err = normalize_added(b, a, path, e);
        if (!err)
            err = set_added_id(b, a, item, path, e);
        if (err)
            return err;
        b->one_stretch = b->one_stretch || may_hold_cut(a);
    }
    added_sort(&b->raw, b->added, b->nadded, false);
    added_sort(&b->normalized, b->added, b->nadded, true);
    return 0;
}

// Refuses added tokens with the same text, which would have two ids or two rules.
static int check_twice(const struct Bpe *b, const char *path, struct Error *e) {
    const struct AddedSet *sets[] = {&b->raw, &b->normalized};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < sets[k]->count; i++) {
            const struct Added *a = sets[k]->token[i];
            const struct Added *next = i + 1 < sets[k]->count ? sets[k]->token[i + 1] : a;
            bool twice = (next != a && !strcmp(next->text, a->text)) ||
                         added_with_text(sets[!k], a->text, a->bytes);
            if (twice)
                return error_set(e, -EINVAL, E_BPE_ADDED_TOKEN,
                                 "%s: the added token \"%s\" is there twice; keep one of them",
                                 path, json_shown(a->text).text);
        }
    return 0;
}

int bpe_read_vocab(struct Bpe *b, const struct cJSON *model, const struct cJSON *added,
                   const char *path, struct Error *e) {
    size_t nadded = (size_t)cJSON_GetArraySize(added);
    if (added && !cJSON_IsArray(added) && !cJSON_IsNull(added))
        return error_set(
            e, -EINVAL, E_BPE_ADDED_TOKEN,
            "%s: \"added_tokens\" is not a list; expected [{\"id\": ..., \"content\": ...}, ...]",
            path);
    int err = read_pieces(b, json_member(model, "vocab"), nadded, path, e);
    if (!err) {
        read_fallback(b, cJSON_IsTrue(json_member(model, "byte_fallback")));
        err = read_unknown(b, model, path, e);
    }
    if (!err)
        err = read_merges(b, json_member(model, "merges"), path, e);
    if (!err)
        err = read_added(b, added, nadded, path, e);
    return err ? err : check_twice(b, path, e);
}
