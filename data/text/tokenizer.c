// The tokenizers behind one face: see tokenizer.h.
#include "data/text/tokenizer.h"
#include "data/file.h"
#include "data/text/spm.h"
#include "data/text/sums.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES_MIN = 257, PIECES_MAX = 65536, MODEL_BYTES_MAX = 256 << 20 };

struct Tokenizer {
    enum TokenizerKind kind;
    size_t vocab;
    struct Spm *spm;
    char *description, *path;
};

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n > m && !strcmp(text + n - m, end);
}

int tokenizer_parse(struct TokenizerSpec *spec, const char *text, struct Error *e) {
    *spec = (struct TokenizerSpec){0};
    if (!strcmp(text, "byte") || !strcmp(text, "ids")) {
        spec->kind = *text == 'b' ? TOKENIZER_BYTE : TOKENIZER_IDS;
        return 0;
    }
    if (ends_with(text, ".model")) {
        spec->kind = TOKENIZER_MODEL;
        spec->path = text;
        return 0;
    }
    if (strncmp(text, "train:", 6))
        return error_set(e, -EINVAL,
                         "--tokenizer %s: say train:N (such as train:8192), byte, or a file that "
                         "ends in .model",
                         text);
    char *end;
    errno = 0;
    unsigned long pieces = strtoul(text + 6, &end, 10);
    if (!isdigit((unsigned char)text[6]) || *end || errno || pieces < PIECES_MIN ||
        pieces > PIECES_MAX)
        return error_set(e, -EINVAL,
                         "--tokenizer %s: the number of pieces must be %d to %d (256 of them spell "
                         "single bytes)",
                         text, PIECES_MIN, PIECES_MAX);
    spec->kind = TOKENIZER_TRAIN;
    spec->pieces = pieces;
    return 0;
}

static struct Tokenizer *open_kind(enum TokenizerKind kind, size_t vocab, char *description) {
    struct Tokenizer *t = base_alloc_zeroed(sizeof *t);
    *t = (struct Tokenizer){.kind = kind, .vocab = vocab, .description = description};
    return t;
}

void tokenizer_open_byte(struct Tokenizer **out) {
    *out = open_kind(TOKENIZER_BYTE, 256, base_format("byte (256 ids)"));
}

void tokenizer_open_ids(struct Tokenizer **out, size_t vocab) {
    *out = open_kind(TOKENIZER_IDS, vocab,
                     base_format("none (%zu ids; prompts and samples are numbers)", vocab));
}

int tokenizer_open_model(struct Tokenizer **out, const char *path, struct Error *e) {
    char *model = NULL;
    size_t bytes;
    struct Spm *spm;
    *out = NULL;
    struct Error cause;
    int code = sums_check_beside(path, &cause);
    if (!code)
        code = file_read(path, MODEL_BYTES_MAX, &model, &bytes, &cause);
    if (code)
        return error_set(e, code, "--tokenizer %s: %s", path, cause.text);
    code = spm_open(&spm, model, bytes, path, e);
    free(model);
    if (code)
        return code;
    size_t vocab = spm_vocab(spm);
    *out = open_kind(TOKENIZER_MODEL, vocab,
                     base_format("SentencePiece (%zu pieces, %s)", vocab, path));
    (*out)->spm = spm;
    (*out)->path = base_format("%s", path);
    return 0;
}

void tokenizer_close(struct Tokenizer *t) {
    if (!t)
        return;
    spm_close(t->spm);
    free(t->description);
    free(t->path);
    free(t);
}

size_t tokenizer_vocab(const struct Tokenizer *t) {
    return t->vocab;
}

const char *tokenizer_describe(const struct Tokenizer *t) {
    return t->description;
}

const char *tokenizer_path(const struct Tokenizer *t) {
    return t->path;
}

// Numbers between white space.
static int encode_ids(const struct Tokenizer *t, const char *text, size_t bytes, struct Ids *ids,
                      struct Error *e) {
    size_t i = 0;
    while (i < bytes) {
        if (isspace((unsigned char)text[i])) {
            i++;
            continue;
        }
        size_t begin = i, id = 0;
        while (i < bytes && isdigit((unsigned char)text[i]) && id < t->vocab)
            id = 10 * id + (size_t)(text[i++] - '0');
        bool ended = i == bytes || isspace((unsigned char)text[i]);
        if (i == begin || !ended || id >= t->vocab)
            return error_set(e, -EINVAL,
                             "this data has no tokenizer, so a prompt is a list of ids below %zu, "
                             "such as \"464 3290\"; it cannot be: %.*s",
                             t->vocab, (int)size_min(bytes - begin, 40), text + begin);
        ids_append(ids, (int32_t)id);
    }
    return 0;
}

int tokenizer_encode(const struct Tokenizer *t, const char *text, size_t bytes, struct Ids *ids,
                     struct Error *e) {
    if (t->kind == TOKENIZER_IDS)
        return encode_ids(t, text, bytes, ids, e);
    if (t->kind == TOKENIZER_MODEL)
        return spm_encode(t->spm, text, bytes, ids, e);
    for (size_t i = 0; i < bytes; i++)
        ids_append(ids, (unsigned char)text[i]);
    return 0;
}

int tokenizer_encode_plain(const struct Tokenizer *t, const char *text, size_t bytes,
                           struct Ids *ids, struct Error *e) {
    return tokenizer_encode(t, text, bytes, ids, e);
}

int32_t tokenizer_control(const struct Tokenizer *t, const char *text) {
    (void)t;
    (void)text;
    return -1;
}

int32_t tokenizer_begin(const struct Tokenizer *t) {
    (void)t;
    return -1;
}

int32_t tokenizer_end(const struct Tokenizer *t) {
    (void)t;
    return -1;
}

const char *tokenizer_chat_template(const struct Tokenizer *t) {
    (void)t;
    return NULL;
}

// The bytes of one id; `scratch` (16 bytes) holds what is made on the spot.
static const char *piece_of(const struct Tokenizer *t, int32_t id, char *scratch, size_t *bytes) {
    *bytes = 0;
    if (id < 0 || (size_t)id >= t->vocab)
        return scratch;
    if (t->kind == TOKENIZER_MODEL)
        return spm_piece(t->spm, (size_t)id, bytes);
    if (t->kind == TOKENIZER_IDS) {
        *bytes = (size_t)snprintf(scratch, 16, "%d ", id);
    } else {
        scratch[0] = (char)id;
        *bytes = 1;
    }
    return scratch;
}

char *tokenizer_decode(const struct Tokenizer *t, const int32_t *ids, size_t count, size_t *bytes) {
    char scratch[16];
    size_t n, total = 0;
    for (size_t i = 0; i < count; i++) {
        piece_of(t, ids[i], scratch, &n);
        total += n;
    }
    char *text = base_alloc(total + 1), *at = text;
    for (size_t i = 0; i < count; i++) {
        const char *piece = piece_of(t, ids[i], scratch, &n);
        memcpy(at, piece, n);
        at += n;
    }
    *at = 0;
    *bytes = total;
    return text;
}
