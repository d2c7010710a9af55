// Makes the files of the run's text: tokenizer, chat template, end tokens. See text.h.
#include "data/hf/text.h"

#include "data/bpe/steps.h"
#include "data/chat/template.h"
#include "data/file.h"
#include "data/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 256 << 20, JSON_BYTES_MAX = 64 << 20 };

static const char CONFIG[] = "tokenizer_config.json", TEMPLATE[] = "chat_template.jinja",
                  SPECIAL[] = "special_tokens_map.json", GENERATION[] = "generation_config.json";

// The state of hf_text_make.
struct TextMaker {
    struct HfText *x;
    const struct Tokenizer *tokenizer;
    const char *family;
    const struct HfFolder *from;
    char *folder;         // the folder of the tokenizer's file; NULL: it has no file
    bool keeps_tokenizer; // it is the imported folder's, which export.c copies
    struct Error *e;
};

static void add_file(struct HfText *x, const char *name, char *text, size_t bytes) {
    CHECK(x->count < HF_TEXT_FILES, "no room for %s", name);
    x->file[x->count++] = (struct HfTextFile){name, text, bytes};
}

// Adds a file that has the object as JSON. Takes over the object.
static void add_json(struct HfText *x, const char *name, cJSON *object) {
    char *text = json_file_text(object);
    add_file(x, name, text, strlen(text));
}

bool hf_text_has(const struct HfText *x, const char *name) {
    for (size_t i = 0; i < x->count; i++)
        if (strcmp(x->file[i].name, name) == 0)
            return true;
    return false;
}

void hf_text_free(struct HfText *x) {
    for (size_t i = 0; i < x->count; i++)
        free(x->file[i].text);
    free(x->remark);
    *x = (struct HfText){0};
}

// ---- the tokenizer ------------------------------------------------------------------------------

static char *parent_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? base_format("%.*s", (int)(slash - path), path) : base_format(".");
}

static bool same_folder(const char *a, const char *b) {
    char *first = realpath(a, NULL), *second = realpath(b, NULL);
    bool same = first && second && strcmp(first, second) == 0;
    free(first);
    free(second);
    return same;
}

// Copies a file from the tokenizer's folder, if it exists.
static int copy_from_tokenizer_folder(struct TextMaker *m, const char *name) {
    char *path = base_format("%s/%s", m->folder, name), *text = NULL;
    size_t n;
    int err = access(path, F_OK) ? 0 : file_read(path, FILE_BYTES_MAX, &text, &n, m->e);
    if (text && !err)
        add_file(m->x, name, text, n);
    free(path);
    return err;
}

// Adds a tokenizer.json of single bytes: the id is the byte, which has a letter in ByteLevel.
static void add_byte_tokenizer(struct HfText *x) {
    cJSON *vocab = cJSON_CreateObject();
    for (int b = 0; b < 256; b++) {
        char utf8[5] = "";
        unicode_put((uint8_t *)utf8, byte_to_letter((uint8_t)b));
        cJSON_AddNumberToObject(vocab, utf8, b);
    }
    char *list = cJSON_PrintUnformatted(vocab);
    static const char level[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_"
                                "offsets\":true,\"use_regex\":true}";
    char *text = base_format("{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"
                             "\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":%s,"
                             "\"post_processor\":null,\"decoder\":%s,\"model\":{\"type\":\"BPE\","
                             "\"dropout\":null,\"unk_token\":null,"
                             "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                             "\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":%s,"
                             "\"merges\":[]}}\n",
                             level, level, list);
    add_file(x, "tokenizer.json", text, strlen(text));
    cJSON_free(list);
    cJSON_Delete(vocab);
}

static int copy_tokenizer(struct TextMaker *m) {
    bool is_model_file = tokenizer_kind(m->tokenizer) == TOKENIZER_MODEL;
    char *text;
    size_t n;
    if (!m->folder) {
        add_byte_tokenizer(m->x);
        return 0;
    }
    int err = file_read(tokenizer_path(m->tokenizer), FILE_BYTES_MAX, &text, &n, m->e);
    if (err)
        return err;
    add_file(m->x, is_model_file ? "tokenizer.model" : "tokenizer.json", text, n);
    err = copy_from_tokenizer_folder(m, SPECIAL);
    return err ? err : copy_from_tokenizer_folder(m, TEMPLATE);
}

// ---- tokenizer_config.json ----------------------------------------------------------------------

// Reads a JSON file of the tokenizer's folder; *object NULL: it does not exist.
static int read_object(struct TextMaker *m, const char *name, cJSON **object) {
    *object = NULL;
    if (!m->folder)
        return 0;
    char *path = base_format("%s/%s", m->folder, name);
    int err = access(path, F_OK) ? 0 : json_read_max(path, JSON_BYTES_MAX, object, m->e);
    free(path);
    return err;
}

// Sets a key to the text of the token `id`; removes it if there is no such token.
static void set_token(const struct TextMaker *m, cJSON *config, const char *key, int32_t id) {
    char *text = tokenizer_token_text(m->tokenizer, id);
    cJSON_DeleteItemFromObjectCaseSensitive(config, key);
    if (text)
        cJSON_AddStringToObject(config, key, text);
    free(text);
}

// Makes a tokenizer_config.json for a tokenizer that has none, so that transformers reads the file
// as it is, instead of with the family's usual class.
static cJSON *make_config(const struct TextMaker *m) {
    cJSON *config = cJSON_CreateObject();
    cJSON_AddStringToObject(config, "tokenizer_class", "PreTrainedTokenizerFast");
    cJSON_AddFalseToObject(config, "clean_up_tokenization_spaces");
    set_token(m, config, "bos_token", tokenizer_begin(m->tokenizer));
    set_token(m, config, "eos_token", tokenizer_end(m->tokenizer));
    if (tokenizer_kind(m->tokenizer) == TOKENIZER_MODEL)
        cJSON_AddBoolToObject(config, "add_bos_token", tokenizer_begin(m->tokenizer) >= 0);
    return config;
}

static void drop_file(struct HfText *x, const char *name) {
    for (size_t i = 0; i < x->count; i++)
        if (strcmp(x->file[i].name, name) == 0) {
            free(x->file[i].text);
            x->file[i--] = x->file[--x->count];
        }
}

// ---- a chat template ----------------------------------------------------------------------------

// Sets the end token of special_tokens_map.json, which takes precedence in transformers.
static int set_special_end(struct TextMaker *m, int32_t end) {
    cJSON *special;
    int err = read_object(m, SPECIAL, &special);
    if (special) {
        drop_file(m->x, SPECIAL);
        set_token(m, special, "eos_token", end);
        add_json(m->x, SPECIAL, special);
    }
    return err;
}

// Adds tokenizer_config.json, unless the imported folder's stays as it is. Takes over `jinja`, the
// template to add; NULL: the tokenizer has it already.
static int add_tokenizer_config(struct TextMaker *m, char *jinja, int32_t stop) {
    cJSON *config;
    int err = read_object(m, CONFIG, &config);
    bool made = !err && !config;
    if (made)
        config = make_config(m);
    if (!err && jinja) {
        drop_file(m->x, TEMPLATE);
        add_file(m->x, TEMPLATE, jinja, strlen(jinja));
        cJSON_DeleteItemFromObjectCaseSensitive(config, "chat_template");
        set_token(m, config, "eos_token", stop);
        err = set_special_end(m, stop);
    } else {
        free(jinja);
    }
    if (!err && (made || jinja || !m->keeps_tokenizer))
        add_json(m->x, CONFIG, config);
    else
        cJSON_Delete(config);
    return err;
}

// ---- generation_config.json ---------------------------------------------------------------------

// Appends an id, unless it is -1 (no token) or the list has it. Returns true if it was appended.
static bool add_id(cJSON *ids, int32_t id) {
    const cJSON *item;
    cJSON_ArrayForEach(item, ids) if (item->valuedouble == (double)id) return false;
    if (id >= 0)
        cJSON_AddItemToArray(ids, cJSON_CreateNumber(id));
    return id >= 0;
}

static cJSON *copy_ids(const cJSON *ids) {
    cJSON *list = cJSON_CreateArray();
    const cJSON *item;
    if (cJSON_IsNumber(ids))
        cJSON_AddItemToArray(list, cJSON_CreateNumber(ids->valuedouble));
    cJSON_ArrayForEach(item, ids) if (cJSON_IsNumber(item))
        cJSON_AddItemToArray(list, cJSON_CreateNumber(item->valuedouble));
    return list;
}

// Adds a generation_config.json, unless the imported folder's stops generate() at all of `stops`.
static int add_generation_config(struct TextMaker *m, const int32_t *stops, size_t count) {
    static const char KEY[] = "eos_token_id";
    cJSON *generation = NULL;
    int err = m->keeps_tokenizer ? read_object(m, GENERATION, &generation) : 0;
    if (err)
        return err;
    bool existed = generation != NULL, added = false;
    generation = existed ? generation : cJSON_CreateObject();
    const cJSON *known = cJSON_GetObjectItemCaseSensitive(generation, KEY);
    if (!known && m->keeps_tokenizer)
        known = cJSON_GetObjectItemCaseSensitive(m->from->config, KEY);
    cJSON *ids = copy_ids(known);
    for (size_t i = 0; i < count; i++)
        added = add_id(ids, stops[i]) || added;
    if (!existed && m->x->begin >= 0)
        cJSON_AddNumberToObject(generation, "bos_token_id", m->x->begin);
    cJSON_DeleteItemFromObjectCaseSensitive(generation, KEY);
    if (cJSON_GetArraySize(ids) == 1)
        cJSON_AddNumberToObject(generation, KEY, cJSON_GetArrayItem(ids, 0)->valuedouble);
    else
        cJSON_AddItemToObject(generation, KEY, cJSON_Duplicate(ids, true));
    cJSON_Delete(ids);
    if (added)
        add_json(m->x, GENERATION, generation);
    else
        cJSON_Delete(generation);
    return 0;
}

// ---- all of it ----------------------------------------------------------------------------------

// Adds the template of --chat-template, and its end tokens. Without the flag, the end tokens are
// those of the tokenizer's template; if that is none that we know, the run did not use it, and the
// end token is the tokenizer's.
static int add_template_and_ends(struct TextMaker *m, const char *chat_template) {
    struct Template *t = NULL;
    struct Error why;
    int32_t stops[TEMPLATE_STOPS] = {m->x->end, -1};
    size_t count = m->x->end >= 0;
    int err = template_open(&t, m->tokenizer, chat_template, chat_template ? m->e : &why);
    if (err && chat_template)
        return err;
    char *jinja = NULL;
    if (!err) {
        count = template_stops(t, stops);
        jinja = chat_template ? template_jinja(t) : NULL;
    }
    err = add_tokenizer_config(m, jinja, stops[0]);
    template_close(t);
    return err ? err : add_generation_config(m, stops, count);
}

// Warns that AutoTokenizer ignores the class of a qwen2's tokenizer (transformers 5.24).
static void warn_of_qwen2(const struct TextMaker *m) {
    if (strcmp(m->family, "qwen2") == 0 && !m->keeps_tokenizer)
        m->x->remark = base_format("AutoTokenizer reads every tokenizer of a qwen2 as Qwen's own; "
                                   "load this one by PreTrainedTokenizerFast.from_pretrained");
}

int hf_text_make(struct HfText *x, const struct ExportModel *model, const char *family,
                 const struct HfFolder *from, struct Error *e) {
    *x = (struct HfText){.begin = -1, .end = -1};
    struct TextMaker m = {x, model->tokenizer, family, from, NULL, false, e};
    if (!m.tokenizer)
        return 0;
    if (tokenizer_kind(m.tokenizer) == TOKENIZER_IDS) {
        if (!from)
            x->remark = base_format("the folder has no tokenizer, because the run has none; copy "
                                    "the files of one into it");
        return 0;
    }
    const char *path = tokenizer_path(m.tokenizer);
    m.folder = path ? parent_folder(path) : NULL;
    m.keeps_tokenizer = from && path && same_folder(m.folder, from->path);
    x->replaces_tokenizer = from && !m.keeps_tokenizer;
    x->begin = tokenizer_begin(m.tokenizer);
    x->end = tokenizer_end(m.tokenizer);
    int err = m.keeps_tokenizer ? 0 : copy_tokenizer(&m);
    if (!err)
        err = add_template_and_ends(&m, model->chat_template);
    warn_of_qwen2(&m);
    free(m.folder);
    return err;
}
