// Token ids with a mask of those that count, which become an Example. Used by template.h and
// writer.h.
#ifndef DATA_CHAT_MASKED_H
#define DATA_CHAT_MASKED_H
#include "data/text/ids.h"

#include <stdbool.h>

// counts[i] belongs to ids.data[i]. masked_free() it.
struct Masked {
    struct Ids ids;
    uint8_t *counts;
    size_t room;
};
void masked_append(struct Masked *m, int32_t id, bool counts);
void masked_clear(struct Masked *m); // empty, its memory kept
void masked_free(struct Masked *m);

#endif
