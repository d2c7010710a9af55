// The growing list of ids: doubles its capacity, so that appending costs constant time.
#include "data/text/ids.h"
#include "kernels/base.h"

#include <stdlib.h>

void ids_append(struct Ids *ids, int32_t id) {
    ids->data = base_grow(ids->data, ids->count, &ids->room, sizeof *ids->data, "token ids");
    ids->data[ids->count++] = id;
}

void ids_free(struct Ids *ids) {
    free(ids->data);
    *ids = (struct Ids){0};
}
