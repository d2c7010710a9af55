// Predicts what data_open will find, without preparing anything: see data.h.
#include "data/text/loader.h"
#include "data/cache.h"
#include "data/chat/form.h"
#include "data/stream.h"

#include <stdlib.h>
#include <string.h>

void loader_log_seq_len(size_t n, size_t usual, uint64_t val_tokens) {
    log_line(LOG_NORMAL, "--seq-len %zu instead of %zu: there are %llu tokens to validate on", n,
             usual, (unsigned long long)val_tokens);
}

// Finds the tokenizer that fits the data without --tokenizer, and the seq_len of a short text.
static int predict_fit(struct Data *d, struct TokenizerSpec *fit, struct Error *e) {
    struct PrepareSpec spec = {0};
    size_t val_bytes = 0, usual = d->spec.seq_len;
    int code = loader_open_names(d, d->spec.cache_dir, e);
    enum SourceKind kind = code ? SOURCE_RANDOM : d->source[0].files.kind;
    bool holds_text = kind == SOURCE_TEXT || kind == SOURCE_JSONL;
    if (holds_text && d->spec.tokenizer) // loader_open_names took it from the model's folder
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

// The properties of the sources that are known without fetching or preparing anything.
struct Foreseen {
    const char *jsonl;  // a source of JSONL, by its content or its name, or NULL
    const char *text;   // a source of text, or NULL
    bool has_documents; // a source is JSONL, or token shards that say where documents begin
};

// Looks at a local source. One that cannot be opened is skipped, because a plan needs no data.
static void foresee_local_source(struct Foreseen *f, const char *name) {
    struct Source s;
    struct TokenFile file;
    struct Error ignored;
    if (source_open(&s, "--data", name, NULL, &ignored))
        return;
    if (s.kind == SOURCE_JSONL)
        f->jsonl = name;
    else if (s.kind == SOURCE_TEXT)
        f->text = name;
    if (s.kind == SOURCE_SHARDS &&
        !token_file_attach(&file, s.train.file[0].path, TOKENS_VOCAB_MAX, &ignored)) {
        f->has_documents |= file.layout.has_documents;
        token_file_close(&file);
    }
    source_close(&s);
}

static void foresee_source(struct Foreseen *f, const char *name) {
    char *bare = base_format("%.*s", (int)strcspn(name, "?#"), name);
    bool remote = strstr(name, "://") || !strcmp(name, "fineweb10B");
    if (stream_ends_in(bare, ".jsonl"))
        f->jsonl = name;
    else if (!strcmp(name, "tinyshakespeare"))
        f->text = name;
    else if (!remote && !source_is_pipe(name))
        foresee_local_source(f, name);
    f->has_documents |= f->jsonl != NULL;
    free(bare);
}

// Refuses what the run would refuse after it has opened the data, as far as that can be foreseen.
static int check_foreseen(const struct Data *d, const struct Foreseen *f, enum TokenizerKind kind,
                          struct Error *e) {
    if (kind == TOKENIZER_IDS && d->spec.tokenizer && (f->jsonl || f->text))
        return loader_refuse_ids(f->jsonl ? f->jsonl : f->text, f->jsonl != NULL, e);
    return f->jsonl && d->spec.chat_template ? form_check(d->spec.chat_template, e) : 0;
}

int data_predict(const struct DataSpec *spec, size_t *vocab, size_t *seq_len, bool *packed,
                 struct Error *e) {
    struct Data d = {.spec = *spec, .model_tokenizer = loader_find_model_tokenizer(spec)};
    struct TokenizerSpec fit = {.kind = TOKENIZER_IDS};
    if (!d.spec.data)
        d.spec.data = "random";
    struct Foreseen foreseen = {0};
    struct NamedSources named;
    int code = named_read(&named, d.spec.data, e);
    for (size_t s = 0; !code && s < named.count; s++)
        foresee_source(&foreseen, named.source[s].name);
    if (!code && d.spec.cache_dir)
        code = cache_check(d.spec.cache_dir, e);
    if (!code)
        code = d.spec.tokenizer ? tokenizer_parse(&fit, d.spec.tokenizer, e)
                                : predict_fit(&d, &fit, e);
    if (!code)
        code = check_foreseen(&d, &foreseen, fit.kind, e);
    if (!code && fit.kind == TOKENIZER_TRAIN) // training yields that many pieces, or fails
        tokenizer_open_ids(&d.tokenizer, fit.pieces);
    else if (!code && fit.kind == TOKENIZER_BYTE)
        tokenizer_open_byte(&d.tokenizer);
    if (!code)
        code = d.tokenizer ? loader_choose_vocab(&d, e) : loader_open_tokenizer(&d, e);
    if (code && d.source)
        loader_correct_flag(&d, code, e);
    tokenizer_close(d.tokenizer);
    loader_close_names(&d);
    *vocab = d.vocab;
    *seq_len = d.spec.seq_len;
    named_free(&named);
    *packed = foreseen.has_documents && spec->pack != PACK_OFF;
    if (!code && spec->longest && foreseen.has_documents) {
        *seq_len = size_min(*seq_len, spec->longest);
        log_line(LOG_NORMAL,
                 "--seq-len %zu at most: it is the length of the longest example, which is known "
                 "when the data are prepared",
                 *seq_len);
    }
    return code;
}
