// Opens the data and the prompt: see texts.h.
#include "data/flags/texts.h"
#include "data/peft/kind.h"
#include "data/chat/conversation.h"
#include "data/text/printed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// The longest sequence if --init leaves --seq-len to the examples: longer ones are cut, and logged.
enum { LONGEST_EXAMPLE = 1024 };

// Sampling needs no data. With a tokenizer that is not trained on them, they are not opened: they
// may be gone, or on another machine.
static void skip_unneeded_data(struct DataSpec *spec, const struct Options *o) {
    bool made_of_data = !o->tokenizer || !strncmp(o->tokenizer, "train:", 6);
    if (!o->sample_only || made_of_data)
        return;
    spec->data = "random";
    spec->val_data = spec->data_map = NULL;
    spec->pack = PACK_AUTO;
}

// Returns the folder of --init hf:DIR; NULL: it is of another kind, or not given.
static const char *hf_folder(const struct Options *o) {
    const char *path = NULL;
    const struct WeightsKind *kind = init_kind(o->kinds, INIT_FROM, o->init, &path);
    return kind && strcmp(kind->prefix, "hf:") == 0 ? path : NULL;
}

static struct DataSpec data_spec(const struct TextOptions *t) {
    const struct Options *o = t->resolved;
    bool by_model = init_is_fine_tuning_default(t->flags, "seq-len");
    struct DataSpec spec = {.data = o->data,
                            .val_data = o->val_data,
                            .pack = (enum Packing)o->pack,
                            .tokenizer = o->tokenizer,
                            .cache_dir = o->cache,
                            .seq_len = *t->seq_len,
                            .vocab = o->vocab,
                            .seed = o->seed,
                            .model = o->init,
                            .chat_template = o->chat_template,
                            .data_map = o->data_map,
                            .folder = hf_folder(o),
                            .seq_len_fits = !*t->given_seq_len, // it may follow from the data
                            .longest = by_model ? LONGEST_EXAMPLE : 0,
                            .processes = t->processes,
                            .samples = t->train_samples};
    skip_unneeded_data(&spec, o);
    return spec;
}

static int open_dialog(struct Texts *t, struct Error *e) {
    const struct Options *o = t->options.resolved;
    struct ConversationSpec spec = {data_tokenizer(t->data), o->chat_template, o->system,
                                    data_seq_len(t->data)};
    int err = dialog_open(&t->dialog, &spec, o->sample_tokens, e);
    if (!err)
        conversation_append_stops(t->dialog.conversation, &t->stops);
    return err;
}

static int open_prompts(struct Texts *t, struct Error *e) {
    const struct Options *o = t->options.resolved;
    struct PromptsSpec spec = {o->prompts, data_tokenizer(t->data), o->chat_template, o->system,
                               data_seq_len(t->data)};
    return prompts_open(&t->prompts, &spec, e);
}

// Makes the question of --chat the prompt of a sample, and the end of an answer its stop.
static int open_question(struct Texts *t, struct Error *e) {
    const struct Options *o = t->options.resolved;
    struct ConversationSpec spec = {data_tokenizer(t->data), o->chat_template, o->system, SIZE_MAX};
    struct Conversation *c;
    struct Error why;
    size_t seq_len = data_seq_len(t->data), left_out;
    int err = conversation_open(&c, &spec, e);
    if (err)
        return err;
    conversation_append_stops(c, &t->stops);
    err = conversation_ask(c, o->chat, 0, &t->prompt, &left_out, &why);
    conversation_close(c);
    if (err)
        return error_set(e, err, why.id, "--chat: %s", why.text);
    return t->prompt.count <= seq_len
               ? 0
               : error_set(e, -EINVAL, E_CHAT_TOO_LONG,
                           "--chat: the question has %zu tokens in its template, but the model "
                           "sees at most %zu; shorten it, or raise --seq-len",
                           t->prompt.count, seq_len);
}

int texts_open(struct Texts *t, struct Error *e) {
    struct TextOptions *options = &t->options;
    struct Options *o = options->resolved;
    struct DataSpec spec = data_spec(options);
    spec.found = t->only_opens ? &t->found : NULL;
    int err = data_open(&t->data, &spec, e);
    if (err)
        return err;
    data_found(t->data, &t->found);
    const char *tokenizer = data_chosen_tokenizer(t->data);
    if (data_seq_len(t->data) != *options->seq_len)
        *options->seq_len = *options->given_seq_len = data_seq_len(t->data);
    if (tokenizer)
        o->tokenizer = options->given->tokenizer = tokenizer;
    struct EvalSpec eval = {data_tokenizer(t->data), data_vocab(t->data), *options->seq_len,
                            o->eval_limit};
    err = options->needs_evals ? evals_open(&t->evals, o->eval, &eval, e) : 0;
    if (err || !options->needs_prompt)
        return err;
    if (o->prompts)
        return open_prompts(t, e);
    if (o->chat)
        return *o->chat ? open_question(t, e) : open_dialog(t, e);
    int32_t end = tokenizer_end(data_tokenizer(t->data));
    if (end >= 0)
        ids_append(&t->stops, end);
    err = data_prompt(t->data, o->prompt, flags_was_set(options->flags, "prompt"), &t->prompt, e);
    if (!err && t->prompt.count > *options->seq_len)
        log_line(
            LOG_NORMAL,
            "--prompt has %zu tokens: the first %zu are left out, for the model sees --seq-len %zu",
            t->prompt.count, t->prompt.count - *options->seq_len, *options->seq_len);
    return err;
}

int texts_open_model(struct Texts *t, struct Error *e) {
    const struct Options *o = t->options.resolved;
    const char *path;
    const struct WeightsKind *kind = init_kind(o->kinds, INIT_FROM, o->init, &path);
    return kind ? kind->open(path, &t->model, e) : 0;
}

int texts_open_adapter(struct Texts *t, struct Error *e) {
    const char *dir = t->options.resolved->init_adapter;
    struct Error why;
    if (!dir)
        return 0;
    char *model = init_model_json(t->options.flags, 0);
    int err = peft_source_open(dir, model, &t->adapter, &why);
    free(model);
    return err ? error_set(e, err, why.id, "--init-adapter %s: %s", dir, why.text) : 0;
}

static void close_sink(struct ExportSink *sink) {
    if (sink->close)
        sink->close(sink->context);
    *sink = (struct ExportSink){0};
}

static int open_adapter_sink(struct Texts *t, const char *model, struct Error *e) {
    const struct Options *o = t->options.resolved;
    const struct PeftConfig c = {.rank = (size_t)flags_number(t->options.flags, "lora-rank"),
                                 .alpha = flags_number(t->options.flags, "lora-alpha"),
                                 .dropout = flags_number(t->options.flags, "lora-dropout")};
    return peft_sink_open(o->export_adapter, model, &c, hf_folder(o), &t->exported_adapter, e);
}

// Puts --export and its value before an error, in place of a leading "--export: ". An error that
// begins with --export and goes on otherwise stays as it is. err 0: there is none.
static int add_flag_to_error(const char *value, int err, struct Error *e) {
    static const char FLAG[] = "--export";
    size_t n = sizeof FLAG - 1;
    struct Error why = *e;
    bool named = strncmp(why.text, FLAG, n) == 0;
    if (!err || (named && why.text[n] != ':'))
        return err;
    return error_set(e, err, why.id, "%s %s: %s", FLAG, value, why.text + (named ? n + 2 : 0));
}

int texts_open_export(struct Texts *t, size_t vocab, enum Dtype dtype, struct Error *e) {
    const struct Options *o = t->options.resolved;
    const char *path;
    const struct WeightsKind *kind = init_kind(o->kinds, INIT_TO, o->export, &path);
    const struct ImportSource *from = t->model.context ? &t->model : NULL;
    if (!kind && !o->export_adapter)
        return 0;
    if (o->export_dtype != NDTYPE)
        dtype = (enum Dtype)o->export_dtype;
    else if (from && from->dtype != NDTYPE)
        dtype = from->dtype;
    char *flags = init_model_json(t->options.flags, vocab);
    const struct Tokenizer *tokenizer = t->data ? data_tokenizer(t->data) : NULL;
    struct ExportModel model = {flags, dtype, from, tokenizer, o->chat_template};
    close_sink(&t->exported);
    close_sink(&t->exported_adapter);
    int err = o->export_adapter ? open_adapter_sink(t, flags, e) : 0;
    if (!err && kind)
        err = add_flag_to_error(o->export, kind->make(path, &model, &t->exported, e), e);
    free(flags);
    return err;
}

void texts_close(struct Texts *t) {
    close_sink(&t->exported);
    close_sink(&t->exported_adapter);
    if (t->model.close)
        t->model.close(t->model.context);
    if (t->adapter.close)
        t->adapter.close(t->adapter.context);
    dialog_close(&t->dialog);
    prompts_close(t->prompts);
    ids_free(&t->prompt);
    ids_free(&t->stops);
    evals_close(&t->evals);
    data_close(t->data);
}

int texts_predict(const struct Texts *t, size_t *vocab, bool *packed, struct Error *e) {
    struct DataSpec spec = data_spec(&t->options);
    return data_predict(&spec, vocab, t->options.seq_len, packed, e);
}

char *texts_format_sample(const struct Texts *t, const int32_t *ids, size_t n) {
    size_t skipped = t->options.resolved->chat ? t->prompt.count : 0;
    bool stopped = false;
    for (size_t i = 0; i < t->stops.count && n > t->prompt.count; i++)
        stopped = stopped || t->stops.data[i] == ids[n - 1];
    size_t bytes;
    return printed_text(data_tokenizer(t->data), ids + skipped, n - stopped - skipped, &bytes);
}

char *texts_identity(const void *texts, const char *kernels) {
    const struct Texts *t = texts;
    uint64_t fingerprint = data_fingerprint(t->data);
    return options_identity(t->options.flags, data_vocab(t->data), fingerprint, kernels);
}
