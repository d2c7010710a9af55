// Encodes text as token shards: see prepare.h.
//
// In the cache: text-HASH/train.bin, val.bin, checksums and, if it was trained here,
// tokenizer.model.
#include "data/text/prepare.h"
#include "data/file.h"
#include "data/text/made.h"
#include "data/text/spm.h"
#include "data/text/sums.h"
#include "data/text/text.h"
#include "data/text/tokens.h"
#include "data/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// Changes whenever the same input would give other files.
static const char FORMAT[] = "zero.c prepared text 1";
static const char BEGIN_RULE[] = "begins as the tokenizer says"; // hashed for a tokenizer's file

enum { PIECE_TEXT_BYTES = 512, FIT_PIECES_MIN = 512, FIT_PIECES_MAX = 8192 };

// The training and the validation part, of one text or of two.
struct Parts {
    struct Text all, val_text;
    const char *train, *val;
    size_t train_bytes, val_bytes;
};

static int load_parts(struct Parts *p, const struct PrepareSpec *spec, struct Error *e) {
    *p = (struct Parts){0};
    int code = text_load(&p->all, spec->files, spec->file_count, e);
    if (!code && spec->val_file_count)
        code = text_load(&p->val_text, spec->val_files, spec->val_file_count, e);
    if (code) {
        text_free(&p->all);
        return code;
    }
    p->train = p->all.data;
    p->train_bytes = p->all.bytes;
    if (spec->val_file_count) {
        p->val = p->val_text.data;
        p->val_bytes = p->val_text.bytes;
    } else {
        p->train_bytes = text_split(p->all.data, p->all.bytes);
        p->val = p->all.data + p->train_bytes;
        p->val_bytes = p->all.bytes - p->train_bytes;
    }
    return 0;
}

static void free_parts(struct Parts *p) {
    text_free(&p->all);
    text_free(&p->val_text);
}

// ---- the tokenizer that fits ----

// Counts the different characters of valid UTF-8.
static size_t count_characters(const char *text, size_t bytes) {
    uint8_t *seen = base_alloc_zeroed(0x110000 / 8);
    size_t letters = 0;
    for (size_t i = 0, n; i < bytes; i += n) {
        uint32_t letter = unicode_at((const uint8_t *)text + i, &n);
        letters += !(seen[letter / 8] >> letter % 8 & 1);
        seen[letter / 8] |= (uint8_t)(1 << letter % 8);
    }
    free(seen);
    return letters;
}

static struct TokenizerSpec fit_tokenizer(const char *text, size_t bytes) {
    if (bytes < (size_t)FIT_PIECES_MIN * PIECE_TEXT_BYTES)
        return (struct TokenizerSpec){.kind = TOKENIZER_BYTE};
    size_t pieces = FIT_PIECES_MAX, least = 2 * count_characters(text, bytes);
    while (pieces * PIECE_TEXT_BYTES > bytes && pieces / 2 >= least)
        pieces /= 2;
    return (struct TokenizerSpec){.kind = TOKENIZER_TRAIN, .pieces = pieces};
}

int prepare_predict(const struct PrepareSpec *spec, struct TokenizerSpec *fit, size_t *val_bytes,
                    struct Error *e) {
    struct Parts parts;
    int code = load_parts(&parts, spec, e);
    if (code)
        return code;
    *fit = fit_tokenizer(parts.train, parts.train_bytes);
    *val_bytes = parts.val_bytes;
    free_parts(&parts);
    return 0;
}

// ---- the files ----

// True if the tokenizer is a file of the user's: neither bytes nor trained here.
static bool has_tokenizer_file(const struct PrepareSpec *spec) {
    return spec->tokenizer.kind == TOKENIZER_MODEL || spec->tokenizer.kind == TOKENIZER_JSON;
}

// Hashes the tokenizer's file, and tokenizer_config.json beside it, which says how a text begins.
static int hash_tokenizer(struct Sha256 *h, const struct PrepareSpec *spec, struct Error *e) {
    char *file = tokenizer_file(&spec->tokenizer), *text;
    const char *slash = strrchr(file, '/');
    char *beside =
        base_format("%.*stokenizer_config.json", slash ? (int)(slash + 1 - file) : 0, file);
    size_t bytes;
    struct Error cause;
    made_hash(h, BEGIN_RULE, sizeof BEGIN_RULE);
    int code = file_read(file, MODEL_BYTES_MAX, &text, &bytes, &cause);
    if (!code) {
        made_hash(h, text, bytes);
        free(text);
        code = file_read(beside, MODEL_BYTES_MAX, &text, &bytes, &cause);
        if (!code) {
            made_hash(h, text, bytes);
            free(text);
        }
        code = code == -ENOENT ? 0 : code;
    }
    if (code)
        error_set(e, code, cause.id, "--tokenizer %s: %s", file, cause.text);
    free(file);
    free(beside);
    return code;
}

// Hashes all inputs to the number in the folder's name.
static int hash_inputs(const struct PrepareSpec *spec, const struct Parts *parts, uint64_t *number,
                       struct Error *e) {
    struct Sha256 h;
    char hex[SHA256_HEX_BYTES];
    uint64_t numbers[2] = {spec->tokenizer.kind, spec->tokenizer.pieces};
    sha256_init(&h);
    made_hash(&h, FORMAT, sizeof FORMAT);
    made_hash(&h, numbers, sizeof numbers);
    made_hash(&h, parts->train, parts->train_bytes);
    made_hash(&h, parts->val, parts->val_bytes);
    if (has_tokenizer_file(spec)) {
        int code = hash_tokenizer(&h, spec, e);
        if (code)
            return code;
    }
    sha256_hex(&h, hex);
    *number = made_number(hex);
    return 0;
}

static const char PREFIX[] = "text";
enum { TRAIN, VAL, MODEL, NFILES };
static const char *const names[] = {
    [TRAIN] = "train.bin", [VAL] = "val.bin", [MODEL] = "tokenizer.model", SUMS_NAME, NULL};

// The writer of ids; the bytes of the whole text, and when a line of progress was logged last.
struct IdsWriter {
    struct TokenWriter writer;
    size_t bytes;
    double logged_s;
};

static int append_ids(void *sink, const struct Ids *ids, size_t done, struct Error *e) {
    struct IdsWriter *s = sink;
    if (base_seconds() - s->logged_s > 10) {
        log_line(LOG_NORMAL, "encoding: %.1f of %.1f MB", (double)done * 1e-6,
                 (double)s->bytes * 1e-6);
        s->logged_s = base_seconds();
    }
    return token_writer_append(&s->writer, ids->data, ids->count, e);
}

static int encode_to_file(const struct Tokenizer *t, const char *text, size_t bytes,
                          const char *path, size_t *count, struct Error *e) {
    struct IdsWriter s = {.bytes = bytes, .logged_s = base_seconds()};
    int code = token_writer_open(&s.writer, path, tokenizer_vocab(t), false, e);
    if (code)
        return code;
    code = tokenizer_encode_text(t, text, bytes, 0, append_ids, &s, e);
    *count = s.writer.count;
    if (code) {
        token_writer_abandon(&s.writer);
        return code;
    }
    return token_writer_finish(&s.writer, e);
}

static int train_tokenizer(const struct Parts *parts, size_t pieces, const char *path,
                           struct Error *e) {
    char *model;
    size_t bytes;
    double begin = base_seconds();
    log_line(LOG_NORMAL, "tokenizer: learning %zu pieces from %.1f MB of text", pieces,
             (double)parts->train_bytes * 1e-6);
    int code = spm_train(parts->train, parts->train_bytes, pieces, &model, &bytes, e);
    if (code)
        return code;
    code = file_replace(path, model, bytes, e);
    free(model);
    if (!code)
        log_line(LOG_NORMAL, "tokenizer: %zu pieces learned from %.1f MB of text in %.1f s", pieces,
                 (double)parts->train_bytes * 1e-6, base_seconds() - begin);
    return code;
}

// Opens the tokenizer file that a spec names, or the one in `folder`, learned from the text. The
// path's ending says its kind. *model_path: that path, free() it; NULL: bytes need no file.
static int open_tokenizer(struct Tokenizer **t, const struct PrepareSpec *spec, const char *folder,
                          char **model_path, struct Error *e) {
    *model_path = NULL;
    *t = NULL;
    if (spec->tokenizer.kind == TOKENIZER_BYTE) {
        tokenizer_open_byte(t);
        return 0;
    }
    if (has_tokenizer_file(spec))
        *model_path = tokenizer_file(&spec->tokenizer);
    else
        *model_path = base_format("%s/%s", folder, names[MODEL]);
    struct TokenizerSpec file = {.kind = TOKENIZER_MODEL, .path = *model_path};
    int code = tokenizer_open_spec(t, &file, e);
    if (code) {
        free(*model_path);
        *model_path = NULL;
    }
    return code;
}

static void warn_missing(const struct Tokenizer *t) {
    char *missing = tokenizer_missing(t);
    if (missing)
        log_line(LOG_NORMAL, "tokens: %s", missing);
    free(missing);
}

struct Filling {
    const struct PrepareSpec *spec;
    const struct Parts *parts;
};

static int fill_folder(const void *filling, const char *folder, struct Error *e) {
    const struct Filling *f = filling;
    const struct Parts *parts = f->parts;
    struct Tokenizer *t = NULL;
    size_t train_count = 0, val_count = 0;
    char *opened = NULL, *path[NFILES];
    int code = 0;
    for (int i = 0; i < NFILES; i++)
        path[i] = base_format("%s/%s", folder, names[i]);
    if (f->spec->tokenizer.kind == TOKENIZER_TRAIN)
        code = train_tokenizer(parts, f->spec->tokenizer.pieces, path[MODEL], e);
    if (!code)
        code = open_tokenizer(&t, f->spec, folder, &opened, e);
    double begin = base_seconds();
    if (!code)
        code = encode_to_file(t, parts->train, parts->train_bytes, path[TRAIN], &train_count, e);
    if (!code)
        code = encode_to_file(t, parts->val, parts->val_bytes, path[VAL], &val_count, e);
    if (!code)
        log_line(LOG_NORMAL, "tokens: %zu to train on, %zu to validate on, encoded in %.1f s",
                 train_count, val_count, base_seconds() - begin);
    if (!code)
        warn_missing(t);
    tokenizer_close(t);
    for (int i = 0; i < NFILES; i++)
        free(path[i]);
    free(opened);
    return code;
}

int prepare_open(struct Prepared *p, const struct PrepareSpec *spec, uint64_t number,
                 size_t val_bytes, struct Error *e) {
    char *folder = made_folder_path(spec->cache_dir, PREFIX, number);
    *p = (struct Prepared){.number = number, .val_bytes = val_bytes, .spec = spec->tokenizer};
    int code = open_tokenizer(&p->tokenizer, spec, folder, &p->model_path, e);
    if (!code) {
        p->train_path = base_format("%s/%s", folder, names[TRAIN]);
        p->val_path = base_format("%s/%s", folder, names[VAL]);
    }
    free(folder);
    return code;
}

static int prepare_parts(struct Prepared *p, const struct PrepareSpec *spec,
                         const struct Parts *parts, struct Error *e) {
    struct Filling filling = {spec, parts};
    struct Made made = {.cache_dir = spec->cache_dir,
                        .prefix = PREFIX,
                        .names = names,
                        .count = spec->tokenizer.kind == TOKENIZER_TRAIN ? NFILES : MODEL,
                        .fill = fill_folder,
                        .context = &filling};
    bool found;
    int code = hash_inputs(spec, parts, &made.number, e);
    if (!code)
        code = made_once(&made, &found, e);
    return code ? code : prepare_open(p, spec, made.number, parts->val_bytes, e);
}

// Prepares with the tokenizer that fits; with bytes if training finds too few pieces in the text.
static int prepare_fitting(struct Prepared *p, const struct PrepareSpec *spec,
                           const struct Parts *parts, struct Error *e) {
    struct PrepareSpec fitted = *spec;
    fitted.tokenizer = fit_tokenizer(parts->train, parts->train_bytes);
    double kib = (double)parts->train_bytes / 1024;
    if (fitted.tokenizer.kind == TOKENIZER_TRAIN) {
        log_line(LOG_NORMAL, "tokenizer: train:%zu (chosen for %.0f KiB of text)",
                 fitted.tokenizer.pieces, kib);
        int code = prepare_parts(p, &fitted, parts, e);
        if (code != -EINVAL)
            return code;
        fitted.tokenizer = (struct TokenizerSpec){.kind = TOKENIZER_BYTE};
    }
    log_line(LOG_NORMAL, "tokenizer: byte (chosen for %.0f KiB of text)", kib);
    return prepare_parts(p, &fitted, parts, e);
}

int prepare_text(struct Prepared *p, const struct PrepareSpec *spec, struct Error *e) {
    *p = (struct Prepared){0};
    CHECK(spec->tokenizer.kind != TOKENIZER_IDS, "text cannot be read as ids");
    struct Parts parts;
    int code = load_parts(&parts, spec, e);
    if (code)
        return code;
    if (!parts.train_bytes || !parts.val_bytes)
        code = error_set(
            e, -EINVAL, E_DATA_TOO_SMALL,
            "--data %s: %zu bytes of text are too few to train and validate on; give more text",
            spec->files[0].path, parts.all.bytes);
    else if (spec->tokenizer.kind == TOKENIZER_FIT)
        code = prepare_fitting(p, spec, &parts, e);
    else
        code = prepare_parts(p, spec, &parts, e);
    free_parts(&parts);
    return code;
}

void prepare_free(struct Prepared *p) {
    tokenizer_close(p->tokenizer);
    free(p->train_path);
    free(p->val_path);
    free(p->model_path);
    *p = (struct Prepared){0};
}
