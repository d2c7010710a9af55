// Checks a .model file: a protocol-buffer message (protobuf.dev, "Encoding") of type ModelProto.
//
//   ModelProto      1: piece, repeated   2: trainer      3: normalizer
//                   4: self test         5: denormalizer
//   piece           1: text   2: score, fp32   3: type
//   normalizer      2: the compiled table of replacements   3: a space at the front of a text
//
// The table is a 32-bit length, a double-array trie of so many bytes (Yata's darts-clone) and then
// the replacements, each ended by a zero byte. The trie is an array of 32-bit units: from unit i
// every step goes to (i xor offset) xor byte, so a unit is safe if the 256 units around i xor
// offset exist; a leaf holds the offset of its replacement.
#include "data/text/spm.h"
#include "kernels/base.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { PIECES_MAX = 65536 }; // the ids of 16-bit token shards

struct Field {
    uint32_t number, wire;
    uint64_t value;      // wire types 0, 1, 5
    const uint8_t *data; // wire type 2
    size_t bytes;
};

struct ProtoReader {
    const uint8_t *at, *end;
};

static bool read_varint(struct ProtoReader *r, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (r->at == r->end)
            return false;
        uint8_t byte = *r->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

// Reads the next field of a message. False: the bytes are no field.
static bool read_field(struct ProtoReader *r, struct Field *f) {
    uint64_t key, bytes;
    if (!read_varint(r, &key) || key >> 3 == 0 || key >> 32)
        return false;
    *f = (struct Field){.number = (uint32_t)(key >> 3), .wire = key & 7};
    if (f->wire == 0)
        return read_varint(r, &f->value);
    if (f->wire == 2) {
        if (!read_varint(r, &bytes) || bytes > (uint64_t)(r->end - r->at))
            return false;
        f->data = r->at;
    } else if (f->wire == 1 || f->wire == 5) {
        bytes = f->wire == 1 ? 8 : 4;
        if ((size_t)(r->end - r->at) < bytes)
            return false;
        memcpy(&f->value, r->at, bytes);
    } else {
        return false; // groups: no model has them
    }
    f->bytes = bytes;
    r->at += bytes;
    return true;
}

// This check and those below return the fault; NULL: there is none.
static const char *check_piece(const struct Field *piece) {
    struct ProtoReader r = {piece->data, piece->data + piece->bytes};
    struct Field f;
    size_t text_bytes = 0;
    while (r.at < r.end) {
        if (!read_field(&r, &f))
            return "a piece is cut or garbled";
        float score = 0;
        if (f.number == 1 && f.wire == 2)
            text_bytes = f.bytes;
        if (f.number == 2 && f.wire == 5)
            memcpy(&score, &f.value, sizeof score);
        if (!isfinite(score))
            return "a piece has a score that is not a number";
        if (f.number == 1 && f.wire == 2 && memchr(f.data, 0, f.bytes))
            return "a piece holds a zero byte";
    }
    return text_bytes ? NULL : "a piece is empty";
}

// Returns the offset of a unit of the double array: bits 10-30, times 256 if bit 9 is set.
static uint32_t unit_offset(uint32_t unit) {
    return (unit >> 10) << ((unit & 0x200) >> 6);
}

static const char *check_table(const uint8_t *table, size_t bytes) {
    if (!bytes)
        return NULL; // an identity: nothing is replaced
    uint32_t trie_bytes;
    if (bytes < 4)
        return "its normalisation table is cut";
    memcpy(&trie_bytes, table, 4);
    // The trie is blocks of 256 units of 4 bytes.
    if (trie_bytes % 1024 || !trie_bytes || trie_bytes >= bytes - 4 || table[bytes - 1])
        return "its normalisation table has impossible sizes";
    size_t units = trie_bytes / 4, replacement_bytes = bytes - 4 - trie_bytes;
    for (size_t i = 0; i < units; i++) {
        uint32_t unit, leaf;
        memcpy(&unit, table + 4 + 4 * i, 4);
        // A leaf's label matches no byte, so no step leaves it. The root's label is not used.
        if (i && unit & 0x80000000u)
            continue;
        size_t base = i ^ unit_offset(unit);
        if ((base | 255) >= units)
            return "its normalisation table leads outside itself";
        if (!(unit & 0x100))
            continue;
        memcpy(&leaf, table + 4 + 4 * base, 4);
        if ((leaf & 0x7fffffffu) >= replacement_bytes)
            return "its normalisation table names a replacement that is not there";
    }
    return NULL;
}

// Checks a normalizer's or denormalizer's fields. The library merges a message that occurs twice:
// each part is checked, and of a repeated table the last one counts.
static const char *check_normalizer(const struct Field *normalizer) {
    struct ProtoReader r = {normalizer->data, normalizer->data + normalizer->bytes};
    struct Field f;
    while (r.at < r.end) {
        if (!read_field(&r, &f))
            return "its normalizer is cut or garbled";
        if (f.number == 2 && f.wire != 2)
            return "its normalizer is garbled";
        const char *fault = f.number == 2 ? check_table(f.data, f.bytes) : NULL;
        if (fault)
            return fault;
    }
    return NULL;
}

static const char *check_fields(const char *model, size_t model_bytes, size_t *pieces) {
    struct ProtoReader r = {(const uint8_t *)model, (const uint8_t *)model + model_bytes};
    struct Field f;
    while (r.at < r.end) {
        const char *fault = NULL;
        if (!read_field(&r, &f) || (f.number <= 5 && f.wire != 2))
            return "it is damaged, or not a SentencePiece model";
        if (f.number == 1)
            fault = check_piece(&f), ++*pieces;
        else if (f.number == 3 || f.number == 5)
            fault = check_normalizer(&f);
        if (fault)
            return fault;
    }
    return NULL;
}

int spm_check_model(const char *model, size_t model_bytes, const char *name, struct Error *e) {
    size_t pieces = 0;
    const char *fault = check_fields(model, model_bytes, &pieces);
    if (fault)
        return error_set(e, -EINVAL, E_SENTENCEPIECE,
                         "--tokenizer %s: %s; give a .model file of SentencePiece", name, fault);
    if (!pieces || pieces > PIECES_MAX)
        return error_set(e, -EINVAL, E_SENTENCEPIECE,
                         "--tokenizer %s: it holds %zu pieces; a SentencePiece model of 1 to %d is "
                         "needed (tokens are stored in 16 bits)",
                         name, pieces, PIECES_MAX);
    return 0;
}

bool spm_adds_space(const char *model, size_t model_bytes) {
    struct ProtoReader r = {(const uint8_t *)model, (const uint8_t *)model + model_bytes};
    struct Field f, inner;
    bool adds = true; // the default
    while (r.at < r.end && read_field(&r, &f)) {
        if (f.number != 3 || f.wire != 2)
            continue;
        struct ProtoReader normalizer = {f.data, f.data + f.bytes};
        while (normalizer.at < normalizer.end && read_field(&normalizer, &inner))
            adds = inner.number == 3 && inner.wire == 0 ? inner.value != 0 : adds;
    }
    return adds;
}

void spm_drop_self_test(char *model, size_t model_bytes) {
    const uint8_t self_test = 4 << 3 | 2, unknown = 15 << 3 | 2; // one-byte keys of wire type 2
    struct ProtoReader r = {(const uint8_t *)model, (const uint8_t *)model + model_bytes};
    struct Field f;
    for (const uint8_t *key = r.at; r.at < r.end && read_field(&r, &f); key = r.at)
        if (*key == self_test)
            model[key - (const uint8_t *)model] = (char)unknown;
}
