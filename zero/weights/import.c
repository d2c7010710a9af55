// See import.h.
#include "zero/state.h"
#include "zero/weights/import.h"

int import_check(const struct ModelConfig *c, const struct ImportSource *from, struct Error *e) {
    if (!from->ask)
        return 0;
    int err = params_visit(c, from->ask, from->context, e);
    return err ? err : from->asked_all(from->context, e);
}

void import_log(const struct ModelConfig *c, const struct ImportSource *from) {
    for (const char *at = from->told; at && *at; at += strcspn(at, "\n") + 1)
        log_line(LOG_NORMAL, "%.*s", (int)strcspn(at, "\n"), at);
    if (from->seq_len && c->seq_len > from->seq_len)
        log_line(LOG_NORMAL,
                 "--seq-len %zu: the model of --init supports at most %zu positions "
                 "(max_position_embeddings); it has to learn those beyond",
                 c->seq_len, from->seq_len);
}

// Reads a piece that this rank owns entirely.
static int import_piece(struct Zero *z, int g, const struct Piece *p,
                        const struct ImportSource *from, float *chunk, struct Error *e) {
    int layer = params_layer(z->params, g), err = 0;
    for (size_t n, i = 0; i < p->range.n && !err; i += n) {
        n = size_min(STATE_CHUNK, p->range.n - i);
        struct WeightsRange range = weights_cut(&p->range, i, n);
        err = from->read(from->context, layer, p->param->name, &range, chunk, e);
        if (!err)
            zero_write_state(z, g, STATE_MASTER, p->begin + i - zero_owned_begin(z, g), n, chunk);
    }
    return err;
}

static int import_group(struct Zero *z, int g, const struct ImportSource *from, float *chunk,
                        struct Error *e) {
    struct Piece piece[MAX_PIECES];
    size_t begin = zero_owned_begin(z, g), end = begin + zero_owned_numel(z, g);
    int n = params_pieces(&z->params->group[g], begin, end, piece), err = 0;
    for (int i = 0; i < n && !err; i++)
        err = import_piece(z, g, &piece[i], from, chunk, e);
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
