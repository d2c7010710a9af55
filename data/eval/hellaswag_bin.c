// Reads llm.c's file of HellaSwag's tokens: see hellaswag.h for the format. llm.c writes it in
// dev/data/data_common.py (write_evalfile), and reads it in llmc/dataloader.h (EvalLoader).
#include "data/eval/hellaswag.h"

#include <errno.h>
#include <string.h>

enum { HEADER_BYTES = 256 * 4, START = 65535, HEAD_WORDS = 5 };
static const int32_t MAGIC = 20240522, VERSION = 1;

struct BinReading {
    const struct EvalSpec *spec;
    struct EvalItems *out;
    const char *name, *bytes;
    size_t n, at;  // bytes
    size_t number; // of the item, from 0
    struct Ids ids;
};

bool hellaswag_bin_detect(const char *bytes, size_t n) {
    int32_t magic = 0;
    if (n >= sizeof magic)
        memcpy(&magic, bytes, sizeof magic);
    return magic == MAGIC;
}

static uint16_t word_at(const struct BinReading *r, size_t at) {
    uint16_t w;
    memcpy(&w, r->bytes + at, sizeof w);
    return w;
}

// Appends the ids at byte *at, behind their count, of an item that ends at `end`. *at passes them.
static int read_ids(struct BinReading *r, size_t *at, size_t end, struct Error *e) {
    size_t count = *at + 2 <= end ? word_at(r, *at) : 0;
    if (!count || count > (end - *at) / 2 - 1)
        return error_set(e, -EINVAL, E_HELLASWAG_BIN,
                         "%s: item %zu: the %zu tokens at byte %zu do not lie within the item, "
                         "which ends at byte %zu",
                         r->name, r->number, count, *at, end);
    *at += 2;
    for (size_t i = 0; i < count; i++, *at += 2) {
        if (word_at(r, *at) >= r->spec->vocab)
            return error_set(e, -EINVAL, E_HELLASWAG_BIN,
                             "%s: item %zu: id %d at byte %zu is past the model's vocabulary, %zu",
                             r->name, r->number, word_at(r, *at), *at, r->spec->vocab);
        ids_append(&r->ids, word_at(r, *at));
    }
    return 0;
}

// Adds a sequence for each ending of an item, whose context begins at byte `at`.
static int read_sequences(struct BinReading *r, size_t at, size_t end, int choices,
                          struct Error *e) {
    r->ids.count = 0;
    int err = read_ids(r, &at, end, e);
    size_t from = r->ids.count;
    for (int c = 0; c < choices && !err; c++) {
        r->ids.count = from;
        err = read_ids(r, &at, end, e);
        if (!err && r->ids.count > r->spec->seq_len + 1)
            err = error_set(e, -EINVAL, E_HELLASWAG_TOO_LONG,
                            "%s: item %zu: its context and an ending have %zu tokens, but "
                            "--seq-len %zu allows %zu; raise --seq-len to %zu",
                            r->name, r->number, r->ids.count, r->spec->seq_len,
                            r->spec->seq_len + 1, r->ids.count - 1);
        if (!err)
            items_add_sequence(r->out, EVAL_LLMC, r->ids.data, r->ids.count, from);
    }
    if (!err && at != end)
        err = error_set(e, -EINVAL, E_HELLASWAG_BIN,
                        "%s: item %zu: its tokens end at byte %zu, the item at %zu", r->name,
                        r->number, at, end);
    return err;
}

static int read_item(struct BinReading *r, struct Error *e) {
    size_t at = r->at, left = r->n - at;
    if (left < 2 * HEAD_WORDS)
        return error_set(e, -EINVAL, E_HELLASWAG_BIN,
                         "%s: item %zu: the file is cut short at byte %zu", r->name, r->number,
                         r->n);
    size_t bytes = word_at(r, at + 2);
    int label = word_at(r, at + 6), choices = word_at(r, at + 8);
    if (word_at(r, at) != START || word_at(r, at + 4) != (r->number & 0xffff))
        return error_set(e, -EINVAL, E_HELLASWAG_BIN,
                         "%s: item %zu: byte %zu has %d and %d, expected %d and %zu", r->name,
                         r->number, at, word_at(r, at), word_at(r, at + 4), START,
                         r->number & 0xffff);
    if (bytes % 2 || bytes < 2 * HEAD_WORDS || bytes > left)
        return error_set(e, -EINVAL, E_HELLASWAG_BIN,
                         "%s: item %zu: its size is %zu bytes, but %zu are left", r->name,
                         r->number, bytes, left);
    if (choices < 2 || choices > EVAL_CHOICES_MAX || label >= choices)
        return error_set(e, -EINVAL, E_HELLASWAG_BIN,
                         "%s: item %zu: ending %d of %d is the right one; expected one of 2 to %d "
                         "endings, counted from 0",
                         r->name, r->number, label, choices, EVAL_CHOICES_MAX);
    items_add(r->out, label, choices);
    r->at = at + bytes;
    return read_sequences(r, at + 2 * HEAD_WORDS, r->at, choices, e);
}

int hellaswag_bin_parse(struct EvalItems *out, const struct EvalSpec *spec, const char *name,
                        const char *bytes, size_t n, struct Error *e) {
    struct BinReading r = {
        .spec = spec, .out = out, .name = name, .bytes = bytes, .n = n, .at = HEADER_BYTES};
    int32_t header[3];
    int err = 0;
    if (n < HEADER_BYTES)
        return error_set(e, -EINVAL, E_HELLASWAG_BIN,
                         "%s: %zu bytes, but the header alone takes %d", name, n, HEADER_BYTES);
    memcpy(header, bytes, sizeof header);
    if (header[1] != VERSION || header[2] <= 0)
        return error_set(e, -EINVAL, E_HELLASWAG_BIN,
                         "%s: version %d with %d items; expected version %d and at least one item",
                         name, header[1], header[2], VERSION);
    size_t all = (size_t)header[2], wanted = spec->limit ? size_min(spec->limit, all) : all;
    for (; r.number < wanted && !err; r.number++)
        err = read_item(&r, e);
    ids_free(&r.ids);
    if (!err && wanted == all && r.at != n)
        err = error_set(e, -EINVAL, E_HELLASWAG_BIN,
                        "%s: %zu bytes follow the last of its %zu items", name, n - r.at, all);
    return err;
}
