// A growing list of ids with a mask: see masked.h.
#include "data/chat/masked.h"
#include "kernels/base.h"

#include <stdlib.h>

void masked_append(struct Masked *m, int32_t id, bool counts) {
    m->counts = base_grow(m->counts, m->ids.count, &m->room, sizeof *m->counts, "a mask");
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
