// The growing list of ids: doubles its room, so that appending costs constant time.
#include "data/text/ids.h"
#include "kernels/base.h"

#include <stdlib.h>

void ids_append(struct Ids *ids, int32_t id) {
    if (ids->count == ids->room) {
        ids->room = ids->room ? 2 * ids->room : 1024;
        ids->data = base_realloc(ids->data, ids->room * sizeof *ids->data, "token ids");
    }
    ids->data[ids->count++] = id;
}

void ids_free(struct Ids *ids) {
    free(ids->data);
    *ids = (struct Ids){0};
}
