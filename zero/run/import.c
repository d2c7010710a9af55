// See import.h.
#include "zero/run/import.h"
#include "zero/state.h"

int import_check(const struct ModelConfig *c, const struct ImportSource *from, struct Error *e) {
    if (!from->ask)
        return 0;
    int err = params_tell(c, from->ask, from->context, e);
    return err ? err : from->asked_all(from->context, e);
}

// Elements [begin, end) of parameter p, counted in its group, of which this rank owns some.
static int import_range(struct Zero *z, int g, const struct Param *p, size_t begin, size_t end,
                        const struct ImportSource *from, float *chunk, struct Error *e) {
    int layer = params_layer(z->params, g), err = 0;
    for (size_t i = begin; i < end && !err; i += STATE_CHUNK) {
        size_t n = size_min(STATE_CHUNK, end - i);
        err = from->read(from->context, layer, p->name, i - p->offset, n, chunk, e);
        if (!err)
            zero_write_state(z, g, STATE_MASTER, i - zero_owned_begin(z, g), n, chunk);
    }
    return err;
}

static int import_group(struct Zero *z, int g, const struct ImportSource *from, float *chunk,
                        struct Error *e) {
    const struct Group *group = &z->params->group[g];
    size_t begin = zero_owned_begin(z, g), end = begin + zero_owned_numel(z, g);
    int err = 0;
    for (int i = 0; i < group->nparam && !err; i++) {
        const struct Param *p = &group->param[i];
        size_t first = size_max(begin, p->offset), last = size_min(end, p->offset + p->real);
        if (first < last)
            err = import_range(z, g, p, first, last, from, chunk, e);
    }
    return err;
}

int import_weights(struct Zero *z, const struct ImportSource *from, struct Error *e) {
    if (from->load)
        return from->load(from->context, z, e);
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    int err = 0;
    zero_sync(z);
    for (int g = 0; g < z->params->ngroup && !err; g++)
        err = import_group(z, g, from, chunk, e);
    device_free_host(z->device, chunk);
    err = zero_agree(z, err);
    if (!err)
        zero_store_params(z, false);
    return err;
}
