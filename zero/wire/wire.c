// Weights in 8 bits and gradients in 4, on their way from rank to rank: see wire.h. Next:
// kernels/cpu/quantize.c.
#include "zero/wire/wire.h"
#include "zero/shard.h"

enum { WEIGHT_BITS = 8, GRADIENT_BITS = 4 };

// A form in which weights travel: bytes of a shard of n elements, and the hops around the gather.
struct WireForm {
    size_t (*bytes)(size_t n);
    const struct Hop *pack, *unpack;
};

static const struct Kernels *comm_queue_kernels(const struct Zero *z, struct Stream **queue) {
    *queue = z->device->queue[QUEUE_COMM];
    return z->device->kernels;
}

// ---- weights ----

static void quantize_shard(struct Zero *z, const struct HopArgs *a) {
    struct Stream *queue;
    size_t bytes = z->state[a->group].message_bytes;
    comm_queue_kernels(z, &queue)->quantize(
        queue, &(struct Quantize){.n = zero_shard_numel(z, a->group),
                                  .parts = 1,
                                  .columns = 1,
                                  .bits = WEIGHT_BITS,
                                  .dtype = z->plan.param.dtype,
                                  .x = a->mem[BUFFER_SHARD],
                                  .to = weights_gather_target(z, a) +
                                        bytes * (size_t)z->shard_group->rank});
}

static void dequantize_whole(struct Zero *z, const struct HopArgs *a) {
    struct Stream *queue;
    comm_queue_kernels(z, &queue)->dequantize(
        queue, &(struct Dequantize){.n = zero_shard_numel(z, a->group),
                                    .parts = (size_t)z->shard_group->size,
                                    .ranks = 1,
                                    .bits = WEIGHT_BITS,
                                    .dtype = z->plan.param.dtype,
                                    .from = weights_gather_target(z, a),
                                    .x = a->mem[BUFFER_WHOLE]});
}

static const struct Hop quantize_weights = {
    "quantize",   POINT_PACK, WHEN_ANY, QUEUE_COMM, USES_SHARD | USES_STORE, .run = quantize_shard,
    .where = HERE};
static const struct Hop dequantize_weights = {"dequantize", POINT_UNPACK, WHEN_ANY,
                                              QUEUE_COMM,   USES_WHOLE,   .run = dequantize_whole,
                                              .where = HERE};

static size_t weight_message_bytes(size_t n) {
    return quantized_bytes(WEIGHT_BITS, n);
}

const char *const wire_weight_words[] = {"false", "true", NULL};
static const struct WireForm forms[] = {
    {NULL, NULL, NULL}, // as they are
    {weight_message_bytes, &quantize_weights, &dequantize_weights},
};

// ---- gradients ----

// Ranks of both hops, bytes of a shard's message, and the buffer's halves: to send, to receive.
struct Halves {
    size_t intra, inter, bytes;
    char *send, *receive;
};

static struct Halves message_halves(const struct Zero *z, const struct HopArgs *a) {
    const struct Wire *w = a->context;
    size_t intra = (size_t)w->intra_node->size, inter = (size_t)w->inter_node->size;
    size_t bytes = quantized_bytes(GRADIENT_BITS, zero_shard_numel(z, a->group));
    char *send = w->messages.mem;
    return (struct Halves){intra, inter, bytes, send, send + intra * inter * bytes};
}

// Shard j * intra + k is that of local rank k on node j. The intra-node hop needs the messages for
// one local rank side by side; if it is left out, they are so already.
static void quantize_whole(struct Zero *z, const struct HopArgs *a) {
    struct Stream *queue;
    struct Halves h = message_halves(z, a);
    comm_queue_kernels(z, &queue)->quantize(queue,
                                            &(struct Quantize){.n = zero_shard_numel(z, a->group),
                                                               .parts = h.intra * h.inter,
                                                               .columns = h.intra,
                                                               .bits = GRADIENT_BITS,
                                                               .dtype = z->plan.grad.dtype,
                                                               .x = a->mem[BUFFER_WHOLE],
                                                               .to = h.send});
}

static void exchange_intra(struct Zero *z, const struct HopArgs *a) {
    struct Comm *intra = ((const struct Wire *)a->context)->intra_node;
    struct Halves h = message_halves(z, a);
    intra->ops->all_to_all(intra, h.receive, h.send, h.inter * h.bytes);
}

// Sums what the node's ranks sent, one shard for each node, and quantizes the sums.
static void requantize_node_sums(struct Zero *z, const struct HopArgs *a) {
    struct Stream *queue;
    struct Halves h = message_halves(z, a);
    comm_queue_kernels(z, &queue)->requantize(
        queue, &(struct Requantize){.n = zero_shard_numel(z, a->group),
                                    .parts = h.inter,
                                    .ranks = h.intra,
                                    .bits = GRADIENT_BITS,
                                    .from = h.receive,
                                    .to = h.send});
}

static void exchange_inter(struct Zero *z, const struct HopArgs *a) {
    struct Comm *inter = ((const struct Wire *)a->context)->inter_node;
    struct Halves h = message_halves(z, a);
    inter->ops->all_to_all(inter, h.receive, h.send, h.bytes);
}

static void dequantize_shard(struct Zero *z, const struct HopArgs *a) {
    struct Stream *queue;
    struct Halves h = message_halves(z, a);
    comm_queue_kernels(z, &queue)->dequantize(
        queue,
        &(struct Dequantize){.n = zero_shard_numel(z, a->group),
                             .parts = 1,
                             .ranks = h.inter > 1 ? h.inter : h.intra,
                             .bits = GRADIENT_BITS,
                             .dtype = z->plan.grad.dtype,
                             .from = h.receive,
                             .x = a->mem[BUFFER_SHARD],
                             .accumulate = z->plan.grad.shard_group && z->backwards_done > 0});
}

static const struct Hop quantize_gradient = {"quantize",   POINT_PACK, WHEN_REDUCED,
                                             QUEUE_COMM,   USES_WHOLE, .run = quantize_whole,
                                             .where = HERE};
static const struct Hop all_to_all_intra = {
    "all_to_all", POINT_PACK, WHEN_REDUCED, QUEUE_COMM, 0, .run = exchange_intra, .where = HERE};
static const struct Hop requantize_sums = {"requantize", POINT_PACK, WHEN_REDUCED,
                                           QUEUE_COMM,   0,          .run = requantize_node_sums,
                                           .where = HERE};
static const struct Hop all_to_all_inter = {
    "all_to_all", POINT_PACK, WHEN_REDUCED, QUEUE_COMM, 0, .run = exchange_inter, .where = HERE};
static const struct Hop dequantize_sums = {"dequantize",
                                           POINT_PACK,
                                           WHEN_REDUCED,
                                           QUEUE_COMM,
                                           USES_WHOLE | USES_SHARD,
                                           .run = dequantize_shard,
                                           .where = HERE,
                                           .instead = true};

// ---- opening and closing ----

void wire_join(struct Wire *w, struct Comm *all, int shards, int node_ranks, bool dry) {
    int intra = shards < node_ranks ? shards : node_ranks;
    struct Grid grid = grid_of(shards, 1, intra, 1); // repeated for each group that shares state
    struct CommSplit hops[] = {
        {grid_line(&grid, all->rank, AXIS_DP), QUEUE_COMM, NULL},
        {grid_line(&grid, all->rank, AXIS_REPLICA), QUEUE_COMM, NULL},
    };
    w->intra_node = comm_split_even(all, &hops[0], dry);
    w->inter_node = comm_split_even(all, &hops[1], dry);
    comm_set_nodes(w->intra_node, node_ranks);
    comm_set_nodes(w->inter_node, node_ranks);
}

static void attach_weights(struct Wire *w, struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    struct Chain *c = &s->chain[z->plan.param.shard_group ? FETCH : PUBLISH];
    const struct WireForm *form = &forms[w->weights];
    s->messages = &w->messages;
    s->message_bytes = form->bytes(zero_shard_numel(z, g));
    chain_add(c, form->pack, w);
    chain_add(c, form->unpack, w);
}

static void attach_gradient(struct Wire *w, struct Zero *z, int g) {
    struct Chain *c = &z->state[g].chain[REDUCE];
    chain_add(c, &quantize_gradient, w);
    if (w->intra_node->size > 1)
        chain_add(c, &all_to_all_intra, w);
    if (w->intra_node->size > 1 && w->inter_node->size > 1)
        chain_add(c, &requantize_sums, w);
    if (w->inter_node->size > 1)
        chain_add(c, &all_to_all_inter, w);
    chain_add(c, &dequantize_sums, w);
}

int wire_open(struct Wire *w, struct Zero *z, struct Tier *tier, struct Error *e) {
    size_t most = params_largest_group(z->params);
    size_t weights = w->weights ? forms[w->weights].bytes(most) : 0;
    size_t gradients = w->intra_node ? 2 * quantized_bytes(GRADIENT_BITS, most) : 0;
    size_t bytes = size_max(weights, gradients);
    for (int g = 0; g < z->params->ngroup; g++) {
        if (w->weights)
            attach_weights(w, z, g);
        if (w->intra_node && z->shard_group->size > 1 && zero_trains(z, g))
            attach_gradient(w, z, g);
    }
    return bytes ? tier_alloc(tier, TAG_COMM, "what travels quantized", bytes, &w->messages, e) : 0;
}

void wire_close(struct Wire *w) {
    struct Comm *hops[] = {w->intra_node, w->inter_node};
    tier_free(&w->messages);
    for (int i = 0; i < 2; i++)
        if (hops[i])
            hops[i]->ops->close(hops[i]);
    *w = (struct Wire){0};
}
