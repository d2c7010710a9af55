// Members of a JSON object that may be missing or of another type.
//
// Used by the writers and readers of models' files. data/json.h parses and checks untrusted texts.
#ifndef DATA_JSON_MEMBERS_H
#define DATA_JSON_MEMBERS_H
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <string.h>

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
