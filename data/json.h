// JSON that others wrote: parsed by cJSON, with the doubts that cJSON does not have.
//
// Of a key that is there twice, cJSON would find the first and Python the last; of a number behind
// 2^53 not every digit counts; behind the object there could be anything; and a text of 100 MB that
// is nothing but commas would take gigabytes as a tree. All of that is refused. Used by all readers
// but that of chats, whose lines are long (data/chat/scan.h).
#ifndef DATA_JSON_H
#define DATA_JSON_H
#include "kernels/base.h"

struct cJSON;

// Parses n bytes that are one JSON object and nothing else; cJSON_Delete the tree. NULL: they are
// not, from byte *at on.
struct cJSON *json_parse(const char *text, size_t n, size_t *at);

// Parses as json_parse. NULL, with the line "PATH: ..." in *e: the text is not an object, has too
// many values, a zero byte in a string, or a key twice at its top.
struct cJSON *json_parse_object(const char *text, size_t n, const char *path, struct Error *e);

// Reads and parses a file of at most a megabyte. NULL, with a line in *e, also for what file_read
// (file.h) refuses.
struct cJSON *json_read(const char *path, struct Error *e);

// Whether a string of the JSON holds "\u0000", a zero byte, where cJSON would end the string.
bool json_has_zero(const char *json, size_t n);

// Returns a key that the object has twice, or NULL. The object's own.
const char *json_repeated_key(const struct cJSON *object);

// Whether the item is a whole number from 0 to 2^53, which goes into *value.
bool json_is_count(const struct cJSON *item, uint64_t *value);

// A name out of a file, for an error line: what cannot be printed is "?", and a long one is cut.
struct JsonShown {
    char text[128];
};
struct JsonShown json_shown(const char *name);

#endif
