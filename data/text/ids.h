// A growing list of token ids, into which a tokenizer writes. Included by C and C++.
#ifndef DATA_TEXT_IDS_H
#define DATA_TEXT_IDS_H
#include <stddef.h>
#include <stdint.h>

struct Ids {
    int32_t *data; // free() it through ids_free
    size_t count, room;
};

#ifdef __cplusplus
extern "C" {
#endif

void ids_append(struct Ids *ids, int32_t id);
void ids_free(struct Ids *ids); // leaves an empty list, which may be used again

#ifdef __cplusplus
}
#endif
#endif
