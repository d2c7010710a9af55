// A forecast of data, before anything of them is made: see data.h.
#include "data/text/loader.h"
#include "data/stream.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FIT_SEQ_LEN_MIN = 8 }; // of data that is short

void loader_log_seq_len(size_t n, size_t usual, uint64_t val_tokens) {
    log_line(LOG_NORMAL, "--seq-len %zu instead of %zu: there are %llu tokens to validate on", n,
             usual, (unsigned long long)val_tokens);
}

// What fits the data, if it is text, and how short it is.
static int predict_fit(struct Data *d, struct TokenizerSpec *fit, struct Error *e) {
    struct PrepareSpec spec = {0};
    size_t val_bytes = 0, usual = d->spec.seq_len;
    int code = loader_open_names(d, d->spec.cache_dir, e);
    enum SourceKind kind = code ? SOURCE_RANDOM : d->source[0].files.kind;
    bool examined = kind == SOURCE_TEXT || kind == SOURCE_JSONL;
    if (examined && d->spec.tokenizer) // that of the model's folder
        code = tokenizer_parse(fit, d->spec.tokenizer, e);
    else if (kind == SOURCE_TEXT)
        code = loader_read_text(d, 0, &spec, fit, &val_bytes, e);
    else if (kind == SOURCE_JSONL)
        fit->kind = TOKENIZER_BYTE;
    while (val_bytes && fit->kind == TOKENIZER_BYTE && d->spec.seq_len_fits &&
           d->spec.seq_len >= val_bytes && d->spec.seq_len > FIT_SEQ_LEN_MIN)
        d->spec.seq_len /= 2;
    if (d->spec.seq_len < usual)
        loader_log_seq_len(d->spec.seq_len, usual, val_bytes);
    return code;
}

// Whether a file says where documents begin, or its name says that it is JSONL. What is not here is
// not asked for.
static bool has_documents(const char *name) {
    struct Source s;
    struct TokenFile f;
    struct Error ignored; // the run will say it
    char *bare = base_format("%.*s", (int)strcspn(name, "?#"), name);
    bool named = stream_ends_in(bare, ".jsonl");
    free(bare);
    if (named)
        return true;
    if (strstr(name, "://") || !strcmp(name, "tinyshakespeare") || !strcmp(name, "fineweb10B") ||
        source_is_pipe(name) || source_open(&s, "--data", name, NULL, &ignored))
        return false;
    bool documents = s.kind == SOURCE_JSONL;
    if (s.kind == SOURCE_SHARDS &&
        !token_file_attach(&f, s.train.file[0].path, TOKENS_VOCAB_MAX, &ignored)) {
        documents = f.layout.documents;
        token_file_close(&f);
    }
    source_close(&s);
    return documents;
}

static bool predict_documents(const struct DataSpec *spec) {
    struct NamedSources named;
    struct Error ignored;
    bool any = false;
    if (named_read(&named, spec->data, &ignored))
        return false;
    for (size_t s = 0; s < named.count; s++)
        any = any || has_documents(named.source[s].name);
    named_free(&named);
    return any;
}

int data_predict(const struct DataSpec *spec, size_t *vocab, size_t *seq_len, bool *packed,
                 struct Error *e) {
    struct Data d = {.spec = *spec, .own = loader_find_own(spec)};
    struct TokenizerSpec fit = {.kind = TOKENIZER_IDS};
    if (!d.spec.data)
        d.spec.data = "random";
    int code =
        d.spec.tokenizer ? tokenizer_parse(&fit, d.spec.tokenizer, e) : predict_fit(&d, &fit, e);
    if (!code && fit.kind == TOKENIZER_TRAIN) // as many as are asked for, or training it fails
        tokenizer_open_ids(&d.tokenizer, fit.pieces);
    else if (!code && fit.kind == TOKENIZER_BYTE)
        tokenizer_open_byte(&d.tokenizer);
    if (!code)
        code = d.tokenizer ? loader_choose_vocab(&d, e) : loader_open_tokenizer(&d, e);
    if (code && d.source)
        loader_blame(&d, code, e);
    tokenizer_close(d.tokenizer);
    loader_close_names(&d);
    *vocab = d.vocab;
    *seq_len = d.spec.seq_len;
    bool documents = predict_documents(&d.spec);
    *packed = documents && spec->pack != PACK_OFF;
    if (!code && spec->longest && documents) {
        *seq_len = size_min(*seq_len, spec->longest);
        log_line(LOG_NORMAL,
                 "--seq-len %zu at most: it is the length of the longest example, which is known "
                 "when the data are prepared",
                 *seq_len);
    }
    return code;
}
