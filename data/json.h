// Parses JSON from untrusted files by cJSON, with checks that cJSON lacks; and prints it.
//
// cJSON would take the first of two equal keys, Python the last; a number past 2^53 loses digits;
// anything may follow the object; and 100 MB of commas would take gigabytes as a tree. All of that
// is refused. Used by all readers but that of chats, whose lines are long (data/chat/scan.h).
#ifndef DATA_JSON_H
#define DATA_JSON_H
#include "kernels/base.h"

#include <cjson/cJSON.h>
#include <string.h>

// Parses n bytes that are one JSON object and nothing else; cJSON_Delete the tree. NULL: they are
// not; byte *at is wrong.
struct cJSON *json_parse(const char *text, size_t n, size_t *at);

// Parses as json_parse. NULL, with the line "PATH: ..." in *e: the text is not an object, has too
// many values, a zero byte in a string, or a key twice at its top.
struct cJSON *json_parse_object(const char *text, size_t n, const char *path, struct Error *e);

// Reads and parses a file of at most bytes_max bytes; *tree is NULL after an error. Errors: those
// of file_read (file.h); -EINVAL for what json_parse_object refuses.
int json_read_max(const char *path, size_t bytes_max, struct cJSON **tree, struct Error *e);

// Does the same for a file of at most 1 MiB. NULL, with a line in *e: it is refused.
struct cJSON *json_read(const char *path, struct Error *e);

// Print a tree and delete it; free() the text. A file's text is indented and ends in a line break,
// a line's does not.
char *json_file_text(struct cJSON *tree);
char *json_line_text(struct cJSON *tree);

// True if a string of the JSON holds "\u0000", a zero byte, at which cJSON would end the string.
bool json_has_zero(const char *json, size_t n);

// Returns a key that the object has twice, or NULL. The text belongs to the object.
const char *json_repeated_key(const struct cJSON *object);

// True if the item is a whole number from 0 to 2^53, which goes into *value.
bool json_is_count(const struct cJSON *item, uint64_t *value);

// A name from a file, for an error line: unprintable bytes are "?", and a long name is cut.
struct JsonShown {
    char text[128];
};
struct JsonShown json_shown(const char *name);

// ---- members of an object that may be missing or of another type ----

static inline const cJSON *json_member(const cJSON *object, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

// Returns the number, or 0 if there is none.
static inline double json_number(const cJSON *object, const char *name) {
    const cJSON *item = json_member(object, name);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

// Returns the text, which belongs to the object, or "" if there is none.
static inline const char *json_text(const cJSON *object, const char *name) {
    const cJSON *item = json_member(object, name);
    return cJSON_IsString(item) ? item->valuestring : "";
}

// True if its "type" is this text.
static inline bool json_has_type(const cJSON *object, const char *type) {
    return strcmp(json_text(object, "type"), type) == 0;
}

#endif
