// A growing list of ids with a mask: see masked.h.
#include "data/chat/masked.h"
#include "kernels/base.h"

#include <stdlib.h>

void masked_append(struct Masked *m, int32_t id, bool counts) {
    if (m->ids.count >= m->room) {
        m->room = size_max(2 * m->room, 1024);
        m->counts = base_realloc(m->counts, m->room, "a mask");
    }
    m->counts[m->ids.count] = counts;
    ids_append(&m->ids, id);
}

void masked_clear(struct Masked *m) {
    m->ids.count = 0;
}

void masked_free(struct Masked *m) {
    ids_free(&m->ids);
    free(m->counts);
    *m = (struct Masked){0};
}
