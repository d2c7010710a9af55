// What a member of a JSON object says, where a file may lack it or have something else there.
//
// Used by what writes models' files (data/hf, data/llmc). Texts that others wrote are parsed, and
// doubted, by data/json.h.
#ifndef DATA_JSON_MEMBERS_H
#define DATA_JSON_MEMBERS_H
#include <cjson/cJSON.h>

// 0 where it is no number.
static inline double json_number(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

// "" where it is no text. The object's own.
static inline const char *json_text(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsString(item) ? item->valuestring : "";
}

#endif
