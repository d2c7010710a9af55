// Stands in for the reader of JSONL (data/chat/example.h) where a build has none: lines of
// {"text"} and {"prompt", "completion"} alone.
#include "data/chat/example.h"
#include "data/file.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int read_line(const char *text, const struct Tokenizer *t, struct Ids *ids, size_t *from,
                     struct Error *e) {
    cJSON *line = cJSON_Parse(text);
    const char *whole = cJSON_GetStringValue(cJSON_GetObjectItem(line, "text"));
    const char *prompt = cJSON_GetStringValue(cJSON_GetObjectItem(line, "prompt"));
    const char *completion = cJSON_GetStringValue(cJSON_GetObjectItem(line, "completion"));
    int code = whole || (prompt && completion) ? 0 : error_set(e, -EINVAL, "it is no example");
    ids->count = *from = 0;
    if (!code && !whole)
        code = tokenizer_encode(t, prompt, strlen(prompt), ids, e);
    *from = ids->count;
    const char *rest = whole ? whole : completion;
    if (!code)
        code = tokenizer_encode(t, rest, strlen(rest), ids, e);
    cJSON_Delete(line);
    return code;
}

int examples_read(const char *path, const char *flag, const struct Tokenizer *t,
                  const struct ChatSpec *chat, ExampleTaker *take, void *context, struct Error *e) {
    char *text, *at;
    size_t bytes, number = 1;
    struct Error cause;
    struct Ids ids = {0};
    (void)chat;
    int code = file_read(path, SIZE_MAX - 1, &text, &bytes, &cause);
    if (code)
        return error_set(e, code, "%s %s", flag, cause.text);
    for (at = text; !code && *at; number++) {
        size_t n = strcspn(at, "\n"), from;
        bool last = !at[n];
        at[n] = 0;
        code = read_line(at, t, &ids, &from, &cause);
        if (code)
            error_set(e, code, "%s %s: line %zu: %s", flag, path, number, cause.text);
        uint8_t *counts = base_alloc_zeroed(ids.count + 1);
        memset(counts + from, 1, ids.count - from);
        if (!code)
            code = take(context, &(struct Example){ids.data, counts, ids.count}, e);
        free(counts);
        at += n + !last;
    }
    ids_free(&ids);
    free(text);
    return code;
}
