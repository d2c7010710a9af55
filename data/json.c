// Reads JSON from untrusted files, and prints it: see json.h.
#include "data/json.h"

#include "data/file.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

// A tree takes 64 bytes a value and more. The headers of the largest models have some 100,000
// values in a file.
enum { VALUES_MAX = 4000000 };

// Returns an upper bound of the number of values: every value follows a comma or a bracket. Those
// inside strings count, too.
static size_t count_values(const char *text, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += text[i] == ',' || text[i] == '[' || text[i] == '{';
    return count;
}

bool json_has_zero(const char *json, size_t n) {
    for (size_t i = 0; i + 6 <= n; i++)
        if (json[i] == '\\') {
            if (memcmp(json + i + 1, "u0000", 5) == 0)
                return true;
            i++; // the escaped character
        }
    return false;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char *json_repeated_key(const struct cJSON *object) {
    size_t n = (size_t)cJSON_GetArraySize(object), i = 0;
    const char **names = base_alloc((n + 1) * sizeof *names), *twice = NULL;
    const cJSON *item;
    cJSON_ArrayForEach(item, object) names[i++] = item->string;
    qsort(names, n, sizeof *names, compare_names);
    for (i = 1; i < n && !twice; i++)
        twice = strcmp(names[i - 1], names[i]) ? NULL : names[i];
    free(names);
    return twice;
}

struct cJSON *json_parse(const char *text, size_t n, size_t *at) {
    const char *end = memchr(text, 0, n); // cJSON would take it for a space
    cJSON *tree = end ? NULL : cJSON_ParseWithLengthOpts(text, n, &end, false);
    *at = end ? (size_t)(end - text) : 0;
    while (tree && *at < n && strchr(" \t\r\n", text[*at]))
        ++*at;
    if (cJSON_IsObject(tree) && *at == n)
        return tree;
    if (tree && !cJSON_IsObject(tree))
        *at = 0;
    cJSON_Delete(tree);
    return NULL;
}

// Reports where the text is not JSON, by line and column from 1.
static void refuse_syntax(const char *path, const char *text, size_t at, struct Error *e) {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at; i++) {
        column = text[i] == '\n' ? 1 : column + 1;
        line += text[i] == '\n';
    }
    error_set(e, -EINVAL, E_JSON_SYNTAX,
              "%s: line %zu, column %zu: not JSON; expected one object {\"name\": value, ...} "
              "without comments",
              path, line, column);
}

struct cJSON *json_parse_object(const char *text, size_t n, const char *path, struct Error *e) {
    size_t at;
    if (count_values(text, n) > VALUES_MAX) {
        error_set(e, -EINVAL, E_JSON_TOO_LARGE,
                  "%s: the JSON has more than %d values; is it the right file?", path, VALUES_MAX);
        return NULL;
    }
    if (json_has_zero(text, n)) {
        error_set(e, -EINVAL, E_ZERO_BYTE,
                  "%s: a text in it holds a zero byte (\\u0000); remove it", path);
        return NULL;
    }
    cJSON *tree = json_parse(text, n, &at);
    const char *twice = tree ? json_repeated_key(tree) : NULL;
    if (!tree)
        refuse_syntax(path, text, at, e);
    if (!twice)
        return tree;
    error_set(e, -EINVAL, E_JSON_DUPLICATE_KEY, "%s: \"%s\" is there twice; keep one of them", path,
              json_shown(twice).text);
    cJSON_Delete(tree);
    return NULL;
}

int json_read_max(const char *path, size_t bytes_max, struct cJSON **tree, struct Error *e) {
    char *text;
    size_t bytes;
    int err = file_read(path, bytes_max, &text, &bytes, e);
    *tree = err ? NULL : json_parse_object(text, bytes, path, e);
    free(text);
    return err || *tree ? err : -EINVAL;
}

struct cJSON *json_read(const char *path, struct Error *e) {
    cJSON *tree;
    json_read_max(path, (size_t)1 << 20, &tree, e);
    return tree;
}

// Returns the text that cJSON printed of the tree, with `end` behind it, and frees both.
static char *take_text(cJSON *tree, char *printed, const char *end) {
    if (!printed)
        base_out_of_memory(0, "a text of JSON");
    char *text = base_format("%s%s", printed, end);
    cJSON_free(printed);
    cJSON_Delete(tree);
    return text;
}

char *json_file_text(struct cJSON *tree) {
    return take_text(tree, cJSON_Print(tree), "\n");
}

char *json_line_text(struct cJSON *tree) {
    return take_text(tree, cJSON_PrintUnformatted(tree), "");
}

bool json_is_count(const struct cJSON *item, uint64_t *value) {
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= 0x1p53))
        return false;
    *value = (uint64_t)item->valuedouble;
    return (double)*value == item->valuedouble;
}

struct JsonShown json_shown(const char *name) {
    struct JsonShown shown;
    const size_t most = sizeof shown.text - 4;
    size_t n = 0;
    for (; name[n] && n < most; n++)
        shown.text[n] = (name[n] >= ' ' && name[n] <= '~') ? name[n] : '?';
    memcpy(shown.text + n, name[n] ? "..." : "", name[n] ? 4 : 1);
    return shown;
}
