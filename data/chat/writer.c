// Writes text between control tokens: see writer.h.
#include "data/chat/writer.h"

#include <stdlib.h>
#include <string.h>

enum { CONTROL_BYTES = 64 }; // no control token is longer

void masked_append(struct Masked *m, int32_t id, bool counts) {
    m->counts = base_grow(m->counts, m->ids.count, &m->room, sizeof *m->counts, "a mask");
    m->counts[m->ids.count] = counts;
    ids_append(&m->ids, id);
}

void masked_free(struct Masked *m) {
    ids_free(&m->ids);
    free(m->counts);
    *m = (struct Masked){0};
}

void write_text(struct Writer *w, const char *text, size_t bytes, bool counts) {
    if (w->bytes + bytes > w->room) {
        w->room = 2 * (w->bytes + bytes);
        w->text = base_realloc(w->text, w->room, "a conversation's text");
    }
    if (counts && bytes) {
        w->counted = base_grow(w->counted, w->stretches, &w->stretch_room, sizeof *w->counted,
                               "a conversation's answers");
        w->counted[w->stretches++] = (struct CountedBytes){w->bytes, w->bytes + bytes};
    }
    if (bytes)
        memcpy(w->text + w->bytes, text, bytes);
    w->bytes += bytes;
}

static size_t decoded_bytes(const struct Tokenizer *t, const int32_t *ids, size_t count) {
    size_t bytes;
    free(tokenizer_decode(t, ids, count, &bytes));
    return bytes;
}

// Appends the ids of the first `bytes` bytes of the text that is not yet encoded. Behind other
// output a tokenizer's mark for the front of a text does not come again.
static int encode_first_bytes(const struct Writer *w, size_t bytes, struct Ids *ids,
                              struct Error *e) {
    if (w->out->ids.count && tokenizer_marks_only_front(w->t))
        return tokenizer_encode_after(w->t, w->text, bytes, !w->raw, ids, e);
    return w->raw ? tokenizer_encode(w->t, w->text, bytes, ids, e)
                  : tokenizer_encode_plain(w->t, w->text, bytes, ids, e);
}

// Finds the offset of byte `at` of the text in the text to which its ids decode. The two differ if
// the tokenizer normalizes text (NFC) or prepends a space.
static int find_decoded(const struct Writer *w, size_t at, size_t *decoded, struct Error *e) {
    struct Ids ids = {0};
    int err = encode_first_bytes(w, at, &ids, e);
    *decoded = err ? 0 : decoded_bytes(w->t, ids.data, ids.count);
    ids_free(&ids);
    return err;
}

// Converts the counted stretches from offsets in the text to those in the decoded text.
static int convert_stretches(struct Writer *w, struct Error *e) {
    int err = 0;
    for (size_t i = 0; i < w->stretches && !err; i++) {
        struct CountedBytes *s = &w->counted[i];
        err = find_decoded(w, s->begin, &s->begin, e);
        if (!err)
            err = find_decoded(w, s->end, &s->end, e);
    }
    return err;
}

// Appends ids to the output; those count whose decoded text overlaps a counted stretch.
static void append_masked_ids(struct Writer *w, const struct Ids *ids) {
    const struct CountedBytes *s = w->counted, *end = s + w->stretches;
    size_t at = 0;
    for (size_t i = 0; i < ids->count; i++) {
        size_t from = at;
        at += s < end ? decoded_bytes(w->t, ids->data + i, 1) : 0;
        while (s < end && s->end <= from)
            s++;
        masked_append(w->out, ids->data[i], s < end && s->begin < at);
    }
}

int write_end(struct Writer *w, struct Error *e) {
    struct Ids ids = {0};
    int err = w->bytes ? encode_first_bytes(w, w->bytes, &ids, e) : 0;
    bool all_counts = w->stretches == 1 && !w->counted[0].begin && w->counted[0].end == w->bytes;
    if (!err && w->stretches && !all_counts && decoded_bytes(w->t, ids.data, ids.count) != w->bytes)
        err = convert_stretches(w, e);
    if (!err && w->stretches && !all_counts)
        append_masked_ids(w, &ids);
    else
        for (size_t i = 0; i < ids.count && !err; i++)
            masked_append(w->out, ids.data[i], all_counts);
    ids_free(&ids);
    w->bytes = w->stretches = 0;
    return err;
}

// Returns the control token at the beginning of a string, and its bytes; -1: there is none.
static int32_t control_at(const struct Tokenizer *t, const char *string, size_t *bytes) {
    char name[CONTROL_BYTES];
    char close = *string == '<' ? '>' : ']';
    int32_t found = -1;
    *bytes = strlen("{bos}");
    if (!strncmp(string, "{bos}", *bytes))
        return tokenizer_begin(t);
    if (!strncmp(string, "{eos}", *bytes))
        return tokenizer_end(t);
    if (*string != '<' && *string != '[')
        return -1;
    for (size_t n = 0; n + 1 < sizeof name && string[n]; n++) {
        name[n] = string[n];
        name[n + 1] = 0;
        int32_t id = string[n] == close ? tokenizer_control(t, name) : -1;
        if (id >= 0) {
            found = id;
            *bytes = n + 1;
        }
    }
    return found;
}

int write_form(struct Writer *w, const char *string, bool ends, struct Error *e) {
    const char *text = string;
    int err = 0;
    while (*string && !err) {
        size_t n;
        int32_t id = control_at(w->t, string, &n);
        if (id < 0) {
            string++;
            continue;
        }
        write_text(w, text, (size_t)(string - text), ends);
        err = write_end(w, e);
        if (!err)
            masked_append(w->out, id, ends);
        ends = false;
        text = string += n;
    }
    if (!err)
        write_text(w, text, (size_t)(string - text), false);
    return err;
}

int32_t writer_find_control(const struct Tokenizer *t, const char *string) {
    int32_t id = -1;
    size_t n;
    for (; *string && id < 0; string++)
        id = control_at(t, string, &n);
    return id;
}

void write_free(struct Writer *w) {
    free(w->text);
    free(w->counted);
}
