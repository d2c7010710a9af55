// One interface to all tokenizers: see tokenizer.h.
#include "data/text/tokenizer.h"
#include "data/bpe/read.h"
#include "data/file.h"
#include "data/json.h"
#include "data/text/spm.h"
#include "data/text/sums.h"
#include "data/text/text.h"
#include "data/text/tokens.h"

#include <ctype.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECES_MIN = 257, PIECES_MAX = 65536 };

struct Tokenizer {
    enum TokenizerKind kind;
    size_t vocab;
    struct Spm *spm;
    struct Bpe bpe;
    int32_t begin, end;
    char *description, *path, *chat_template;
    struct EncodeCache *cache;
};

// The buffers and cached words of tokenizer_encode, which takes them and gives them back: clearing
// them for each text would take longer than most texts. NULL: in use, or not made yet.
struct EncodeCache {
    _Atomic(struct BpeWork *) work;
    _Atomic(size_t) missing; // bytes that had no piece
};

int tokenizer_parse(struct TokenizerSpec *spec, const char *text, struct Error *e) {
    *spec = (struct TokenizerSpec){0};
    if (!strcmp(text, "byte") || !strcmp(text, "ids")) {
        spec->kind = *text == 'b' ? TOKENIZER_BYTE : TOKENIZER_IDS;
        return 0;
    }
    struct stat st;
    bool folder = !stat(text, &st) && S_ISDIR(st.st_mode);
    if (folder || file_ends_in(text, strlen(text), ".model") ||
        file_ends_in(text, strlen(text), ".json")) {
        *spec = (struct TokenizerSpec){.kind = TOKENIZER_JSON, .path = text};
        char *file = tokenizer_file(spec);
        spec->kind = file_ends_in(file, strlen(file), ".model") ? TOKENIZER_MODEL : TOKENIZER_JSON;
        free(file);
        return 0;
    }
    if (strncmp(text, "train:", 6))
        return error_set(
            e, -EINVAL, E_TOKENIZER_NAME,
            "--tokenizer %s: no such tokenizer; give train:N (such as train:8192), byte, "
            "a .model or .json file, or a folder that has tokenizer.json or "
            "tokenizer.model",
            text);
    char *end;
    errno = 0;
    unsigned long pieces = strtoul(text + 6, &end, 10);
    if (!isdigit((unsigned char)text[6]) || *end || errno || pieces < PIECES_MIN ||
        pieces > PIECES_MAX)
        return error_set(e, -EINVAL, E_TOKENIZER_PIECES,
                         "--tokenizer %s: the number of pieces must be %d to %d (256 of them spell "
                         "single bytes)",
                         text, PIECES_MIN, PIECES_MAX);
    spec->kind = TOKENIZER_TRAIN;
    spec->pieces = pieces;
    return 0;
}

static struct Tokenizer *new_tokenizer(enum TokenizerKind kind, size_t vocab, char *description) {
    struct Tokenizer *t = base_alloc_zeroed(sizeof *t);
    *t = (struct Tokenizer){
        .kind = kind, .vocab = vocab, .begin = -1, .end = -1, .description = description};
    t->cache = base_alloc_zeroed(sizeof *t->cache);
    return t;
}

void tokenizer_open_byte(struct Tokenizer **out) {
    *out = new_tokenizer(TOKENIZER_BYTE, 256, base_format("byte (256 ids)"));
}

void tokenizer_open_ids(struct Tokenizer **out, size_t vocab) {
    *out = new_tokenizer(TOKENIZER_IDS, vocab,
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
        return error_set(e, code, cause.id, "--tokenizer %s: %s", path, cause.text);
    code = spm_open(&spm, model, bytes, path, e);
    free(model);
    if (code)
        return code;
    size_t vocab = spm_vocab(spm);
    *out = new_tokenizer(TOKENIZER_MODEL, vocab,
                         base_format("SentencePiece (%zu pieces, %s)", vocab, path));
    struct Tokenizer *t = *out;
    t->spm = spm;
    t->path = base_format("%s", path);
    struct TokenizerConfig c;
    code = tokenizer_config_read(&c, path, &cause);
    if (code) {
        tokenizer_close(t);
        *out = NULL;
        return error_set(e, code, cause.id, "--tokenizer %s: %s", path, cause.text);
    }
    t->begin = c.adds_no_begin ? -1 : spm_begin(spm);
    t->end = spm_end(spm);
    t->chat_template = c.chat_template;
    c.chat_template = NULL;
    tokenizer_config_free(&c);
    return 0;
}

int tokenizer_open_json(struct Tokenizer **out, const char *path, struct Error *e) {
    struct Bpe bpe;
    struct Error cause;
    *out = NULL;
    int code = sums_check_beside(path, &cause);
    if (!code)
        code = bpe_open(&bpe, path, &cause);
    if (code)
        return error_set(e, code, cause.id, "--tokenizer %s", cause.text);
    struct Tokenizer *t =
        new_tokenizer(TOKENIZER_JSON, bpe.npiece,
                      base_format("BPE of %s (%zu ids, %s)", bpe.kind, bpe.npiece, path));
    t->begin = bpe.begin;
    t->end = bpe.end;
    t->chat_template = bpe.chat_template;
    bpe.chat_template = NULL;
    t->bpe = bpe;
    t->path = base_format("%s", path);
    *out = t;
    return 0;
}

char *tokenizer_file(const struct TokenizerSpec *spec) {
    struct stat st;
    if (stat(spec->path, &st) || !S_ISDIR(st.st_mode))
        return base_format("%s", spec->path);
    char *file = base_format("%s/tokenizer.json", spec->path);
    char *model = base_format("%s/tokenizer.model", spec->path);
    bool uses_model = access(file, F_OK) && !access(model, F_OK);
    free(uses_model ? file : model);
    return uses_model ? model : file;
}

int tokenizer_open_spec(struct Tokenizer **out, const struct TokenizerSpec *spec, struct Error *e) {
    char *file = tokenizer_file(spec);
    int code = file_ends_in(file, strlen(file), ".model") ? tokenizer_open_model(out, file, e)
                                                          : tokenizer_open_json(out, file, e);
    free(file);
    return code;
}

void tokenizer_close(struct Tokenizer *t) {
    if (!t)
        return;
    spm_close(t->spm);
    bpe_work_close(atomic_load(&t->cache->work));
    free(t->cache);
    bpe_close(&t->bpe);
    free(t->chat_template);
    free(t->description);
    free(t->path);
    free(t);
}

enum TokenizerKind tokenizer_kind(const struct Tokenizer *t) {
    return t->kind;
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

// Reads numbers that are separated by white space.
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
            return error_set(
                e, -EINVAL, E_PROMPT_IDS,
                "the prompt has '%.*s', but this data has no tokenizer; give ids below %zu, "
                "such as \"464 3290\", or --tokenizer FILE",
                (int)size_min(bytes - begin, 40), text + begin, t->vocab);
        ids_append(ids, (int32_t)id);
    }
    return 0;
}

// ---- parts of a text ----

struct BpeWork *tokenizer_work_open(const struct Tokenizer *t) {
    return t->kind == TOKENIZER_JSON ? bpe_work_open() : NULL;
}

static int encode_json(const struct Tokenizer *t, struct BpeWork *w, const struct BpeText *text,
                       struct Ids *ids, struct Error *e) {
    struct Error cause;
    int err = bpe_encode(&t->bpe, w, text, ids, &cause);
    t->cache->missing += bpe_take_missing(w);
    return err && err != -EAGAIN
               ? error_set(e, err, cause.id, "--tokenizer %s: %s", t->path, cause.text)
               : err;
}

int tokenizer_encode_part(const struct Tokenizer *t, struct BpeWork *w, const struct TextPart *p,
                          struct Ids *ids, struct Error *e) {
    if (t->kind == TOKENIZER_IDS)
        return encode_ids(t, p->text, p->bytes, ids, e);
    if (t->kind == TOKENIZER_MODEL)
        return spm_encode(t->spm, p->text, p->bytes, p->at == 0, ids, e);
    if (t->kind == TOKENIZER_JSON) {
        struct BpeText text = {p->text, p->bytes, p->after, p->at, .inside = p->at > 0};
        return encode_json(t, w, &text, ids, e);
    }
    for (size_t i = 0; i < p->bytes; i++)
        ids_append(ids, (unsigned char)p->text[i]);
    return 0;
}

size_t tokenizer_cut(const struct Tokenizer *t, const char *text, size_t bytes, size_t wanted) {
    if (t->kind == TOKENIZER_JSON)
        return bpe_cut(&t->bpe, text, bytes, wanted);
    size_t n = size_min(bytes, wanted);
    const char *newline = n < bytes ? memrchr(text, '\n', n) : NULL;
    if (newline)
        return (size_t)(newline + 1 - text);
    while (n < bytes && ((unsigned char)text[n] & 0xc0) == 0x80)
        n--; // not inside a character
    return n;
}

// ---- a text ----

static int encode_bpe(const struct Tokenizer *t, const char *text, size_t bytes, bool plain,
                      bool follows, struct Ids *ids, struct Error *e) {
    size_t bad = text_find_invalid(text, bytes);
    if (bad < bytes)
        return error_set(e, -EINVAL, E_UTF8,
                         "byte %zu (0x%02x) of %zu is not UTF-8; convert the text, for example "
                         "with iconv",
                         bad, (unsigned char)text[bad], bytes);
    struct BpeWork *work = atomic_exchange(&t->cache->work, NULL);
    if (!work)
        work = bpe_work_open();
    struct BpeText whole = {text, bytes, .plain = plain, .follows = follows};
    int err = encode_json(t, work, &whole, ids, e);
    bpe_work_close(atomic_exchange(&t->cache->work, work)); // closes another thread's
    return err;
}

int tokenizer_encode(const struct Tokenizer *t, const char *text, size_t bytes, struct Ids *ids,
                     struct Error *e) {
    if (t->kind == TOKENIZER_JSON)
        return encode_bpe(t, text, bytes, false, false, ids, e);
    return tokenizer_encode_part(t, NULL, &(struct TextPart){text, bytes, 0, 0}, ids, e);
}

int tokenizer_encode_plain(const struct Tokenizer *t, const char *text, size_t bytes,
                           struct Ids *ids, struct Error *e) {
    if (t->kind == TOKENIZER_JSON)
        return encode_bpe(t, text, bytes, true, false, ids, e);
    return tokenizer_encode(t, text, bytes, ids, e);
}

bool tokenizer_marks_only_front(const struct Tokenizer *t) {
    return t->kind == TOKENIZER_JSON && bpe_marks_only_front(&t->bpe);
}

int tokenizer_encode_after(const struct Tokenizer *t, const char *text, size_t bytes, bool plain,
                           struct Ids *ids, struct Error *e) {
    CHECK(t->kind == TOKENIZER_JSON, "tokenizer %d", t->kind);
    return encode_bpe(t, text, bytes, plain, true, ids, e);
}

char *tokenizer_missing(const struct Tokenizer *t) {
    size_t missing = atomic_exchange(&t->cache->missing, 0);
    if (!missing)
        return NULL;
    if (t->bpe.unknown < 0)
        return base_format("%zu bytes have no piece in the vocabulary and are left out", missing);
    const struct BpePiece *p = &t->bpe.piece[t->bpe.unknown];
    char *unknown = base_format("%.*s", (int)p->count, t->bpe.bytes.data + p->at);
    char *text = base_format("%zu bytes have no piece in the vocabulary and become %s", missing,
                             json_shown(unknown).text);
    free(unknown);
    return text;
}

int32_t tokenizer_control(const struct Tokenizer *t, const char *text) {
    if (t->kind == TOKENIZER_MODEL)
        return spm_control(t->spm, text);
    return t->kind == TOKENIZER_JSON ? bpe_control(&t->bpe, text) : -1;
}

int32_t tokenizer_begin(const struct Tokenizer *t) {
    return t->begin;
}

int32_t tokenizer_end(const struct Tokenizer *t) {
    return t->end;
}

const char *tokenizer_chat_template(const struct Tokenizer *t) {
    return t->chat_template;
}

// Returns the bytes of one id. They may be in `scratch` (16 bytes).
static const char *get_piece_bytes(const struct Tokenizer *t, int32_t id, char *scratch,
                                   size_t *bytes) {
    *bytes = 0;
    if (id < 0 || (size_t)id >= t->vocab)
        return scratch;
    if (t->kind == TOKENIZER_MODEL)
        return spm_piece(t->spm, (size_t)id, bytes);
    if (t->kind == TOKENIZER_JSON) {
        *bytes = t->bpe.shown[id].count;
        return (const char *)t->bpe.bytes.data + t->bpe.shown[id].at;
    }
    if (t->kind == TOKENIZER_IDS) {
        *bytes = (size_t)snprintf(scratch, 16, "%d ", id);
    } else {
        scratch[0] = (char)id;
        *bytes = 1;
    }
    return scratch;
}

char *tokenizer_token_text(const struct Tokenizer *t, int32_t id) {
    char scratch[16];
    size_t n;
    if (id < 0 || (size_t)id >= t->vocab)
        return NULL;
    if (t->kind == TOKENIZER_MODEL)
        return base_format("%s", spm_name(t->spm, (size_t)id));
    const char *piece = get_piece_bytes(t, id, scratch, &n);
    return base_format("%.*s", (int)n, piece);
}

char *tokenizer_decode(const struct Tokenizer *t, const int32_t *ids, size_t count, size_t *bytes) {
    char scratch[16];
    size_t n, total = 0;
    for (size_t i = 0; i < count; i++) {
        get_piece_bytes(t, ids[i], scratch, &n);
        total += n;
    }
    char *text = base_alloc(total + 1), *at = text;
    for (size_t i = 0; i < count; i++) {
        const char *piece = get_piece_bytes(t, ids[i], scratch, &n);
        memcpy(at, piece, n);
        at += n;
    }
    *at = 0;
    *bytes = total;
    return text;
}
