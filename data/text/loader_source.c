// Opens the shards of one name of --data, by its kind: see loader.h.
#include "data/text/examples.h"
#include "data/text/loader.h"
#include "data/text/made.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DEFAULT_VOCAB = 50257, // GPT-2's, which most token shards have
    RANDOM_TOKENS = 1 << 24,
};

// ---- the names ----------------------------------------------------------------------------------

static const char *kind_name(enum SourceKind kind) {
    static const char *const names[] = {[SOURCE_TEXT] = "text",
                                        [SOURCE_SHARDS] = "token shards",
                                        [SOURCE_RANDOM] = "random ids",
                                        [SOURCE_JSONL] = "JSONL"};
    return names[kind];
}

// True if sources of this kind are read once, and then a prepared shard instead.
static bool needs_preparation(enum SourceKind kind) {
    return kind == SOURCE_TEXT || kind == SOURCE_JSONL;
}

// Refuses a pipe if there are several processes: only one of them could read it.
static int check_pipe(const struct Data *d, const char *flag, const char *name, struct Error *e) {
    if (d->spec.processes <= 1 || !name || !source_is_pipe(name))
        return 0;
    return error_set(e, -EINVAL, E_DATA_PIPE,
                     "%s %s: it is a pipe, which only one of the %d processes could read: write "
                     "what it carries into a file",
                     flag, name, d->spec.processes);
}

// Chooses the model's own tokenizer, if --init is given and --tokenizer is not. Fails without one.
static int choose_model_tokenizer(struct Data *d, struct Error *e) {
    if (!d->spec.model || d->spec.tokenizer)
        return 0;
    if (d->model_tokenizer) {
        d->chosen_tokenizer = base_format("%s", d->model_tokenizer);
        d->spec.tokenizer = d->chosen_tokenizer;
        return 0;
    }
    return error_set(e, -EINVAL, E_TOKENIZER_MISSING,
                     "--data %s is %s, and --init %s brings no tokenizer; give the model's own "
                     "by --tokenizer FILE, or token shards that it made",
                     d->source[0].name, kind_name(d->source[0].files.kind), d->spec.model);
}

// Refuses several texts without a common tokenizer: each would train its own.
static int check_shared_tokenizer(const struct Data *d, struct Error *e) {
    const char *t = d->spec.tokenizer;
    if (d->named.count == 1 || (t && strncmp(t, "train:", 6)))
        return 0;
    return error_set(e, -EINVAL, E_TOKENIZER_SHARED,
                     "--tokenizer %s: %zu texts need one tokenizer for all; give byte, or a "
                     "tokenizer.json or .model file",
                     t ? t : "is missing", d->named.count);
}

static int check_kinds_and_choose_tokenizer(struct Data *d, struct Error *e) {
    const struct DataSource *first = d->source;
    enum SourceKind kind = first->files.kind;
    for (size_t s = 1; s < d->named.count; s++)
        if (d->source[s].files.kind != kind)
            return error_set(e, -EINVAL, E_DATA_KINDS,
                             "--data %s is %s, and --data %s is %s: expected sources of one kind",
                             first->name, kind_name(kind), d->source[s].name,
                             kind_name(d->source[s].files.kind));
    if (d->spec.val_data && d->val_source.kind != kind)
        return error_set(e, -EINVAL, E_DATA_KINDS,
                         "--val-data %s is %s, and --data %s is %s: expected both of one kind",
                         d->spec.val_data, kind_name(d->val_source.kind), first->name,
                         kind_name(kind));
    if (kind == SOURCE_RANDOM && d->named.count > 1)
        return error_set(e, -EINVAL, E_DATA_KINDS,
                         "--data random: it cannot be one of several sources; give it alone");
    if (d->spec.pack == PACK_ON && (kind == SOURCE_TEXT || kind == SOURCE_RANDOM))
        return error_set(e, -EINVAL, E_PACK_DOCUMENTS,
                         "--pack on: --data %s is %s, which has no documents; give JSONL, or leave "
                         "out --pack",
                         first->name, kind_name(kind));
    if (kind != SOURCE_JSONL && d->spec.data_map)
        return error_set(e, -EINVAL, E_DATA_MAP,
                         "--data-map %s: --data %s is %s and has no JSON keys to map; leave out "
                         "--data-map, or give JSONL",
                         d->spec.data_map, first->name, kind_name(kind));
    int code = needs_preparation(kind) ? choose_model_tokenizer(d, e) : 0;
    return !code && kind == SOURCE_TEXT ? check_shared_tokenizer(d, e) : code;
}

int loader_open_names(struct Data *d, const char *cache_dir, struct Error *e) {
    int code = named_read(&d->named, d->spec.data, e);
    if (code)
        return code;
    d->source = base_alloc_zeroed(d->named.count * sizeof *d->source);
    for (size_t s = 0; s < d->named.count; s++)
        d->source[s].name = d->named.source[s].name;
    for (size_t s = 0; !code && s < d->named.count; s++)
        code = check_pipe(d, "--data", d->source[s].name, e);
    if (!code)
        code = check_pipe(d, "--val-data", d->spec.val_data, e);
    // What another process has prepared is opened without its sources.
    if (d->spec.found && needs_preparation((enum SourceKind)d->spec.found->kind)) {
        for (size_t s = 0; s < d->named.count; s++)
            d->source[s].files.kind = (enum SourceKind)d->spec.found->kind;
        d->val_source.kind = (enum SourceKind)d->spec.found->kind;
        return code ? code : check_kinds_and_choose_tokenizer(d, e);
    }
    for (size_t s = 0; !code && s < d->named.count; s++)
        code = source_open(&d->source[s].files, "--data", d->source[s].name, cache_dir, e);
    if (!code && d->spec.val_data)
        code = source_open(&d->val_source, "--val-data", d->spec.val_data, cache_dir, e);
    return code ? code : check_kinds_and_choose_tokenizer(d, e);
}

void loader_close_names(struct Data *d) {
    for (size_t s = 0; d->source && s < d->named.count; s++)
        source_close(&d->source[s].files);
    source_close(&d->val_source);
    free(d->source);
    d->source = NULL;
    named_free(&d->named);
    free(d->chosen_tokenizer);
    free(d->model_tokenizer);
    d->chosen_tokenizer = d->model_tokenizer = NULL;
}

// ---- the tokenizer ------------------------------------------------------------------------------

int loader_choose_vocab(struct Data *d, struct Error *e) {
    size_t tokenizer_ids = tokenizer_vocab(data_tokenizer(d));
    d->vocab = d->spec.vocab ? d->spec.vocab : tokenizer_ids;
    if (d->vocab < tokenizer_ids)
        return error_set(
            e, -EINVAL, E_VOCAB_SIZE, "--vocab %zu: the tokenizer has more ids, %zu: %s; give %s%s",
            d->vocab, tokenizer_ids, tokenizer_describe(data_tokenizer(d)),
            d->spec.model ? "the tokenizer of --init " : "as many by --vocab, or leave it out",
            d->spec.model ? d->spec.model : "");
    return 0;
}

int loader_refuse_ids(const char *source, bool is_jsonl, struct Error *e) {
    return error_set(e, -EINVAL, E_TOKENIZER_DATA, "--tokenizer ids: --data %s is %s", source,
                     is_jsonl ? "JSONL, whose text needs a tokenizer; use byte or the model's "
                                "tokenizer.json"
                              : "text, which needs a tokenizer; use train:8192, byte or a "
                                "tokenizer's file");
}

char *loader_find_model_tokenizer(const struct DataSpec *spec) {
    struct TokenizerSpec folder = {.path = spec->folder};
    char *file = spec->folder ? tokenizer_file(&folder) : NULL;
    if (file && access(file, F_OK)) {
        free(file);
        file = NULL;
    }
    return file;
}

// Opens the tokenizer of the model's folder for token shards. It only decodes samples and encodes
// --eval's texts, so one that cannot be read is logged and ignored.
static void open_model_tokenizer(struct Data *d) {
    struct TokenizerSpec spec;
    struct Error e = {0};
    enum SourceKind kind = d->source ? d->source[0].files.kind : SOURCE_TEXT;
    bool ids_only = kind == SOURCE_SHARDS || kind == SOURCE_RANDOM;
    if (!d->model_tokenizer || d->spec.tokenizer || !ids_only ||
        tokenizer_parse(&spec, d->model_tokenizer, &e))
        return;
    int code = tokenizer_open_spec(&d->tokenizer, &spec, &e);
    if (!code)
        code = loader_choose_vocab(d, &e);
    d->display_only = !code;
    if (d->display_only)
        return;
    tokenizer_close(d->tokenizer);
    d->tokenizer = NULL;
    log_line(LOG_NORMAL, "--init %s: its tokenizer is not used, and samples are numbers: %s",
             d->spec.model, e.text);
}

// Without --tokenizer, token shards take that of --init, or none: text is numbers; JSONL is bytes.
int loader_open_tokenizer(struct Data *d, struct Error *e) {
    open_model_tokenizer(d);
    if (d->tokenizer)
        return 0;
    bool is_jsonl = d->source && d->source[0].files.kind == SOURCE_JSONL;
    const char *name = d->spec.tokenizer ? d->spec.tokenizer : is_jsonl ? "byte" : "ids";
    struct TokenizerSpec spec;
    int code = tokenizer_parse(&spec, name, e);
    if (code)
        return code;
    if (spec.kind == TOKENIZER_TRAIN)
        return error_set(e, -EINVAL, E_TOKENIZER_DATA,
                         "--tokenizer %s: --data %s holds %s, not text; %s", name,
                         d->source[0].name, is_jsonl ? "examples" : "ids",
                         is_jsonl ? "use byte or the model's tokenizer.json"
                                  : "give the tokenizer that made them, or leave out --tokenizer");
    if (spec.kind == TOKENIZER_IDS && is_jsonl)
        return loader_refuse_ids(d->source[0].name, true, e);
    if (spec.kind == TOKENIZER_IDS)
        tokenizer_open_ids(&d->tokenizer, d->spec.vocab ? d->spec.vocab : DEFAULT_VOCAB);
    else if (spec.kind == TOKENIZER_BYTE)
        tokenizer_open_byte(&d->tokenizer);
    else
        code = tokenizer_open_spec(&d->tokenizer, &spec, e);
    if (!code && is_jsonl && !d->spec.tokenizer)
        d->chosen_tokenizer = base_format("%s", name);
    return code ? code : loader_choose_vocab(d, e);
}

// ---- text ---------------------------------------------------------------------------------------

int loader_read_text(struct Data *d, size_t s, struct PrepareSpec *spec, struct TokenizerSpec *fit,
                     size_t *val_bytes, struct Error *e) {
    struct DataSource *source = &d->source[s];
    spec->files = source->files.train.file;
    spec->file_count = source->files.train.count;
    spec->val_files = d->val_source.train.file;
    spec->val_file_count = d->val_source.train.count;
    int code =
        fit ? prepare_predict(spec, fit, val_bytes, e) : prepare_text(&source->prepared, spec, e);
    source_free_carried(&source->files);
    if (s + 1 == d->named.count)
        source_free_carried(&d->val_source);
    return code;
}

// Opens a prepared shard. part: 0 training, 1 validation.
static void open_prepared_shard(struct Data *d, struct DataSource *s, int part, char *path) {
    struct SourceFile file = {.path = path};
    struct SourceFiles files = {&file, 1};
    shards_open(part ? &s->val : &s->train, &files, d->spec.seq_len, d->vocab);
}

static int open_text(struct Data *d, size_t s, const char *cache_dir, struct Error *e) {
    struct Prepared *p = &d->source[s].prepared;
    struct PrepareSpec spec = {.cache_dir = cache_dir, .tokenizer.kind = TOKENIZER_FIT};
    int code = d->spec.tokenizer ? tokenizer_parse(&spec.tokenizer, d->spec.tokenizer, e) : 0;
    if (!code && spec.tokenizer.kind == TOKENIZER_IDS)
        code = loader_refuse_ids(d->source[s].name, false, e);
    const struct DataFound *found = d->spec.found;
    if (found && spec.tokenizer.kind == TOKENIZER_FIT)
        spec.tokenizer = (struct TokenizerSpec){
            .kind = found->pieces ? TOKENIZER_TRAIN : TOKENIZER_BYTE, .pieces = found->pieces};
    if (!code)
        code = found
                   ? prepare_open(p, &spec, found->source[s].made[0], found->source[s].val_bytes, e)
                   : loader_read_text(d, s, &spec, NULL, NULL, e);
    if (!code)
        code = loader_choose_vocab(d, e);
    if (code)
        return code;
    d->source[s].number[0] = p->number;
    if (!d->spec.tokenizer && p->spec.kind == TOKENIZER_BYTE)
        d->chosen_tokenizer = base_format("byte");
    else if (!d->spec.tokenizer)
        d->chosen_tokenizer = base_format("train:%zu", p->spec.pieces);
    open_prepared_shard(d, &d->source[s], 0, p->train_path);
    if (!s || !d->spec.val_data)
        open_prepared_shard(d, &d->source[s], 1, p->val_path);
    return 0;
}

// ---- shards, examples and random ids ------------------------------------------------------------

static int open_shards(struct Data *d, size_t s, struct Error *e) {
    struct DataSource *source = &d->source[s];
    const struct Source *val = d->spec.val_data ? &d->val_source : &source->files;
    const struct SourceFiles *val_files = val->val.count ? &val->val : &val->train;
    shards_open(&source->train, &source->files.train, d->spec.seq_len, d->vocab);
    if (!d->spec.val_data && !source->files.val.count)
        return shards_hold_out(&source->train, &source->val, e);
    if (!s || !d->spec.val_data)
        shards_open(&source->val, val_files, d->spec.seq_len, d->vocab);
    return 0;
}

// Prepares and opens JSONL. part: 0 training, 1 validation.
static int prepare_examples(struct Data *d, struct DataSource *s, int part, const char *cache_dir,
                            struct Error *e) {
    const struct DataFound *found = d->spec.found;
    if (found) {
        s->examples_path[part] = examples_path(cache_dir, found->source[s - d->source].made[part]);
        open_prepared_shard(d, s, part, s->examples_path[part]);
        return 0;
    }
    const struct Source *from = part ? &d->val_source : &s->files;
    struct ExamplesSpec spec = {.files = from->train.file,
                                .file_count = from->train.count,
                                .flag = part ? "--val-data" : "--data",
                                .tokenizer = d->tokenizer,
                                .chat = {.name = d->spec.chat_template, .map = d->spec.data_map},
                                .cache_dir = cache_dir};
    int code = examples_prepare(&spec, &s->examples_path[part], s->key[part], e);
    if (!code)
        open_prepared_shard(d, s, part, s->examples_path[part]);
    s->number[part] = code ? 0 : made_number(s->key[part]);
    return code;
}

static int open_jsonl(struct Data *d, size_t s, const char *cache_dir, struct Error *e) {
    struct DataSource *source = &d->source[s];
    int code = prepare_examples(d, source, 0, cache_dir, e);
    if (!code && !d->spec.val_data)
        return shards_hold_out(&source->train, &source->val, e);
    return code || s ? code : prepare_examples(d, source, 1, cache_dir, e);
}

static void open_random(struct Data *d) {
    struct DataSource *s = d->source;
    size_t tokens = size_max(RANDOM_TOKENS, 64 * (d->spec.seq_len + 1));
    shards_open_random(&s->train, tokens, d->spec.seq_len, d->vocab, 2 * d->spec.seed);
    // The end of a run validates on all of it, and random ids cannot be learned: so it is short.
    shards_open_random(&s->val, 8 * d->spec.seq_len + 1, d->spec.seq_len, d->vocab,
                       2 * d->spec.seed + 1);
}

int loader_open_source(struct Data *d, size_t s, const char *cache_dir, struct Error *e) {
    switch (d->source[s].files.kind) {
    case SOURCE_TEXT:
        return open_text(d, s, cache_dir, e);
    case SOURCE_SHARDS:
        return open_shards(d, s, e);
    case SOURCE_JSONL:
        return open_jsonl(d, s, cache_dir, e);
    default:
        open_random(d);
        return 0;
    }
}

void loader_close_source(struct DataSource *s) {
    shards_close(&s->train);
    shards_close(&s->val);
    free(s->examples_path[0]);
    free(s->examples_path[1]);
    prepare_free(&s->prepared);
}
