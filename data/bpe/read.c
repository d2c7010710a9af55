// tokenizer.json but for the vocabulary: see read.h.
#include "data/bpe/read.h"
#include "data/file.h"
#include "data/json.h"
#include "data/text/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 256 << 20 };

static bool is_absent_or_null(const cJSON *item) {
    return !item || cJSON_IsNull(item);
}

int bpe_refuse(const char *path, const char *part, const cJSON *object, const char *expected,
               struct Error *e) {
    struct JsonShown shown = json_shown(json_text(object, "type"));
    return error_set(e, -EINVAL, E_BPE_UNSUPPORTED,
                     "%s: %s \"%s\" is not supported; expected %s, or token shards as --data", path,
                     part, *shown.text ? shown.text : "(without a type)", expected);
}

// ---- the model ----

static int read_model(struct Bpe *b, const cJSON *model, const cJSON *added, const char *path,
                      struct Error *e) {
    static const char *const texts[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *type = json_text(model, "type");
    if (strcmp(type, "BPE") != 0 && (*type || !json_member(model, "merges")))
        return bpe_refuse(path, "model", model, "\"BPE\" (for SentencePiece, give its .model file)",
                          e);
    const cJSON *dropout = json_member(model, "dropout");
    if (!is_absent_or_null(dropout) && !(cJSON_IsNumber(dropout) && dropout->valuedouble == 0))
        return error_set(e, -EINVAL, E_BPE_UNSUPPORTED,
                         "%s: \"dropout\" of the model is not supported; set it to null", path);
    for (size_t i = 0; i < 2; i++)
        if (*json_text(model, texts[i]))
            return error_set(
                e, -EINVAL, E_BPE_UNSUPPORTED,
                "%s: \"%s\" of the model, \"%s\", is not supported; give token shards as --data",
                path, texts[i], json_shown(json_text(model, texts[i])).text);
    b->whole_words = cJSON_IsTrue(json_member(model, "ignore_merges"));
    return bpe_read_vocab(b, model, added, path, e);
}

// ---- what a text begins and ends with ----

// Reads the id of a token that the template names.
static int read_template_id(const cJSON *template, const cJSON *token, const char *path,
                            int32_t *id, struct Error *e) {
    const char *name = json_text(token, "id");
    const cJSON *ids =
        json_member(json_member(json_member(template, "special_tokens"), name), "ids");
    uint64_t value;
    if (cJSON_GetArraySize(ids) == 1 && json_is_count(ids->child, &value) && value < INT32_MAX) {
        *id = (int32_t)value;
        return 0;
    }
    return error_set(e, -EINVAL, E_BPE_TEMPLATE,
                     "%s: the post-processor's \"%s\" must have one id: give \"ids\" one number",
                     path, json_shown(name).text);
}

static int read_template(struct Bpe *b, const cJSON *template, const char *path, struct Error *e) {
    const cJSON *item;
    size_t sequences = 0;
    int err = 0;
    cJSON_ArrayForEach(item, json_member(template, "single")) {
        const cJSON *token = json_member(item, "SpecialToken");
        int32_t *place = sequences ? &b->end : &b->begin;
        if (!token) {
            sequences++;
        } else if (*place >= 0) {
            return error_set(
                e, -EINVAL, E_BPE_TEMPLATE,
                "%s: the post-processor adds two tokens at one end of a text; expected one", path);
        } else {
            err = read_template_id(template, token, path, place, e);
        }
        if (err)
            return err;
    }
    if (sequences == 1)
        return 0;
    return error_set(e, -EINVAL, E_BPE_TEMPLATE,
                     "%s: the post-processor's \"single\" has %zu \"Sequence\" items; expected one",
                     path, sequences);
}

static int read_processor(struct Bpe *b, const cJSON *p, const char *path, struct Error *e) {
    if (is_absent_or_null(p) || json_has_type(p, "ByteLevel")) // which changes offsets, not ids
        return 0;
    const cJSON *list = json_has_type(p, "Sequence") ? json_member(p, "processors") : NULL, *item;
    int err = 0;
    if (json_has_type(p, "TemplateProcessing"))
        return read_template(b, p, path, e);
    if (!cJSON_IsArray(list))
        return bpe_refuse(path, "post-processor", p, "\"ByteLevel\" or \"TemplateProcessing\"", e);
    cJSON_ArrayForEach(item, list) {
        if (json_has_type(item, "TemplateProcessing"))
            err = read_template(b, item, path, e);
        else if (!json_has_type(item, "ByteLevel"))
            err = bpe_refuse(path, "post-processor", item,
                             "\"ByteLevel\" or \"TemplateProcessing\"", e);
        if (err)
            return err;
    }
    return 0;
}

// ---- all ----

static int read_tree(struct Bpe *b, const cJSON *tree, const char *path, struct Error *e) {
    int err = bpe_read_normalizer(b, json_member(tree, "normalizer"), path, e);
    if (!err)
        err = bpe_read_steps(b, json_member(tree, "pre_tokenizer"), path, e);
    if (!err)
        err = bpe_read_decoder(b, json_member(tree, "decoder"), path, e);
    if (err)
        return err;
    unicode_open(&b->unicode);
    err = read_model(b, json_member(tree, "model"), json_member(tree, "added_tokens"), path, e);
    if (!err)
        bpe_use_marks(b);
    if (!err)
        err = read_processor(b, json_member(tree, "post_processor"), path, e);
    if (!err && (b->begin >= (int32_t)b->npiece || b->end >= (int32_t)b->npiece))
        err =
            error_set(e, -EINVAL, E_BPE_TEMPLATE,
                      "%s: the post-processor adds token %d, but the vocabulary has only the ids 0 "
                      "to %zu; use the tokenizer.json that came with the model, unchanged",
                      path, b->begin >= (int32_t)b->npiece ? b->begin : b->end, b->npiece - 1);
    return err;
}

int bpe_parse(struct Bpe *b, const char *text, size_t n, const char *path, struct Error *e) {
    *b = (struct Bpe){.begin = -1, .end = -1, .unknown = -1};
    size_t bad = text_find_invalid(text, n); // cJSON does not check UTF-8
    if (bad < n)
        return error_set(e, -EINVAL, E_UTF8, "%s: byte %zu of %zu is not UTF-8; save it as UTF-8",
                         path, bad, n);
    cJSON *tree = json_parse_object(text, n, path, e);
    if (!tree)
        return -EINVAL;
    int err = read_tree(b, tree, path, e);
    cJSON_Delete(tree);
    if (err)
        bpe_close(b);
    return err;
}

// Finds the id of a token that tokenizer_config.json names, if the template gives none.
static int read_control_token(const struct Bpe *b, const char *what, const char *token,
                              const char *path, int32_t *id, struct Error *e) {
    if (!token || *id >= 0)
        return 0;
    *id = bpe_token_to_id(b, token);
    if (*id >= 0)
        return 0;
    return error_set(e, -EINVAL, E_BPE_SPECIAL_TOKEN,
                     "%s: the %s \"%s\" of tokenizer_config.json is not in the vocabulary; take "
                     "both files from one model",
                     path, what, json_shown(token).text);
}

int bpe_open(struct Bpe *b, const char *path, struct Error *e) {
    struct TokenizerConfig c = {0};
    char *text = NULL;
    size_t n;
    *b = (struct Bpe){0};
    int err = file_read(path, FILE_BYTES_MAX, &text, &n, e);
    if (err)
        return err;
    err = bpe_parse(b, text, n, path, e);
    free(text);
    if (err)
        return err;
    err = tokenizer_config_read(&c, path, e);
    if (!err && c.adds_begin)
        err = read_control_token(b, "bos_token", c.begin, path, &b->begin, e);
    if (!err)
        err = read_control_token(b, "eos_token", c.end, path, &b->end, e);
    b->chat_template = c.chat_template;
    c.chat_template = NULL;
    tokenizer_config_free(&c);
    if (err)
        bpe_close(b);
    return err;
}
