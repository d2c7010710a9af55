// tokenizer_config.json and chat_template.jinja: see read.h.
#include "data/bpe/read.h"
#include "data/file.h"
#include "data/json.h"
#include "data/text/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 64 << 20 };

// Reads the file `name` beside `path`; *text NULL: there is none. *file: its path. free() both.
static int read_beside(const char *path, const char *name, char **file, char **text, size_t *n,
                       struct Error *e) {
    const char *slash = strrchr(path, '/');
    *file = base_format("%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
    *text = NULL;
    int err = file_read(*file, FILE_BYTES_MAX, text, n, e);
    size_t bad = err ? 0 : text_find_invalid(*text, *n);
    if (!err && bad < *n) {
        free(*text);
        *text = NULL;
        return error_set(e, -EINVAL, E_UTF8, "%s: byte %zu of %zu is not UTF-8; save it as UTF-8",
                         *file, bad, *n);
    }
    return err == -ENOENT ? 0 : err;
}

// Returns a token's text ("bos_token": "<s>" or {"content": "<s>", ...}), to free(); NULL: none.
static char *token_text(const cJSON *config, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, name);
    if (cJSON_IsObject(item))
        item = cJSON_GetObjectItemCaseSensitive(item, "content");
    return cJSON_IsString(item) ? base_format("%s", item->valuestring) : NULL;
}

// Returns the chat template, to free(): a text, or the "default" of a list of {"name", "template"}.
static char *template_text(const cJSON *config) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, "chat_template"), *named;
    if (cJSON_IsArray(item)) {
        const cJSON *list = item;
        item = NULL;
        cJSON_ArrayForEach(named, list) if (strcmp(json_text(named, "name"), "default") == 0) item =
            cJSON_GetObjectItemCaseSensitive(named, "template");
    }
    return cJSON_IsString(item) ? base_format("%s", item->valuestring) : NULL;
}

static int read_config(struct TokenizerConfig *c, const char *path, struct Error *e) {
    char *file, *text;
    size_t n;
    int err = read_beside(path, "tokenizer_config.json", &file, &text, &n, e);
    if (!err && text) {
        cJSON *tree = json_parse_object(text, n, file, e);
        const cJSON *adds = cJSON_GetObjectItemCaseSensitive(tree, "add_bos_token");
        err = tree ? 0 : -EINVAL;
        c->begin = token_text(tree, "bos_token");
        c->end = token_text(tree, "eos_token");
        c->chat_template = template_text(tree);
        c->adds_begin = cJSON_IsTrue(adds);
        c->adds_no_begin = cJSON_IsFalse(adds);
        cJSON_Delete(tree);
    }
    free(file);
    free(text);
    return err;
}

int tokenizer_config_read(struct TokenizerConfig *c, const char *path, struct Error *e) {
    char *file, *text;
    size_t n;
    *c = (struct TokenizerConfig){0};
    int err = read_config(c, path, e);
    if (err)
        return err;
    err = read_beside(path, "chat_template.jinja", &file, &text, &n, e);
    if (!err && text) {
        free(c->chat_template);
        c->chat_template = text;
    }
    free(file);
    if (err)
        tokenizer_config_free(c);
    return err;
}

void tokenizer_config_free(struct TokenizerConfig *c) {
    free(c->begin);
    free(c->end);
    free(c->chat_template);
    *c = (struct TokenizerConfig){0};
}
