// Weights in 8 bits and gradients in 4, on their way from rank to rank: see wire.h. Next:
// kernels/cpu/quantize.c.
#include "zero/wire/wire.h"

enum { WEIGHT_BITS = 8, GRADIENT_BITS = 4 };

// ---- weights ----

size_t wire_weight_bytes(const struct Wire *w, enum Dtype dtype, size_t n) {
    return w && w->weights ? quantized_bytes(WEIGHT_BITS, n) : n * dtype_size(dtype);
}

void *wire_arrivals(const struct Wire *w, void *whole) {
    return w && w->weights ? w->messages.mem : whole;
}

void wire_read(const struct Wire *w, void *whole, size_t shards, size_t n, enum Dtype dtype) {
    if (!w || !w->weights)
        return; // they came to their places
    w->device->kernels->dequantize(w->device->queue[QUEUE_COMM],
                                   &(struct Dequantize){.n = n,
                                                        .parts = shards,
                                                        .ranks = 1,
                                                        .bits = WEIGHT_BITS,
                                                        .dtype = dtype,
                                                        .from = w->messages.mem,
                                                        .x = whole});
}

void wire_gather(const struct Wire *w, struct Comm *over, void *whole, const void *shard, size_t n,
                 enum Dtype dtype) {
    size_t bytes = wire_weight_bytes(w, dtype, n);
    char *arrivals = wire_arrivals(w, whole), *message = arrivals + bytes * (size_t)over->rank;
    bool quantized = w && w->weights;
    if (quantized)
        w->device->kernels->quantize(w->device->queue[QUEUE_COMM],
                                     &(struct Quantize){.n = n,
                                                        .parts = 1,
                                                        .columns = 1,
                                                        .bits = WEIGHT_BITS,
                                                        .dtype = dtype,
                                                        .x = shard,
                                                        .to = message});
    over->ops->all_gather(over, arrivals, quantized ? message : shard, bytes);
    wire_read(w, whole, (size_t)over->size, n, dtype);
}

// ---- gradients ----

// A shard's message, and the two halves of the memory: what is sent, and what has come.
struct Hops {
    size_t near, far, bytes;
    char *sent, *came;
};

static struct Hops hops_of(const struct Wire *w, size_t n) {
    size_t near = (size_t)w->near->size, far = (size_t)w->far->size;
    size_t bytes = quantized_bytes(GRADIENT_BITS, n);
    char *sent = w->messages.mem;
    return (struct Hops){near, far, bytes, sent, sent + near * far * bytes};
}

static void exchange(struct Comm *c, const struct Hops *h, size_t messages) {
    c->ops->all_to_all(c, h->came, h->sent, messages * h->bytes);
}

// What has come from the neighbours, for this rank's place on each node: their sums.
static void pass_on(const struct Wire *w, const struct Hops *h, size_t n) {
    w->device->kernels->requantize(w->device->queue[QUEUE_COMM],
                                   &(struct Requantize){.n = n,
                                                        .parts = h->far,
                                                        .ranks = h->near,
                                                        .bits = GRADIENT_BITS,
                                                        .from = h->came,
                                                        .to = h->sent});
}

// Shard j * near + k is that of place k on node j. For the first hop those of one place are side by
// side; where it is left out, they are so already.
void wire_reduce(const struct Wire *w, struct Comm *dp, void *shard, const void *whole, size_t n,
                 enum Dtype dtype, bool accumulate) {
    if (!w || !w->near || dp->size == 1) {
        dp->ops->reduce_scatter(dp, shard, whole, n, dtype, accumulate);
        return;
    }
    const struct Kernels *k = w->device->kernels;
    struct Stream *s = w->device->queue[QUEUE_COMM];
    struct Hops h = hops_of(w, n);
    k->quantize(s, &(struct Quantize){.n = n,
                                      .parts = h.near * h.far,
                                      .columns = h.near,
                                      .bits = GRADIENT_BITS,
                                      .dtype = dtype,
                                      .x = whole,
                                      .to = h.sent});
    if (h.near > 1)
        exchange(w->near, &h, h.far);
    if (h.near > 1 && h.far > 1)
        pass_on(w, &h, n);
    if (h.far > 1)
        exchange(w->far, &h, 1);
    k->dequantize(s, &(struct Dequantize){.n = n,
                                          .parts = 1,
                                          .ranks = h.far > 1 ? h.far : h.near,
                                          .bits = GRADIENT_BITS,
                                          .dtype = dtype,
                                          .from = h.came,
                                          .x = shard,
                                          .accumulate = accumulate});
}

// ---- opening and closing ----

void wire_join(struct Wire *w, struct Comm *all, int shards, int node_ranks, bool dry) {
    int near = shards < node_ranks ? shards : node_ranks;
    struct Grid grid = grid_of(shards, 1, near, 1); // of those that share state, again and again
    struct CommSplit hops[] = {
        {grid_line(&grid, all->rank, AXIS_DP), QUEUE_COMM, NULL},
        {grid_line(&grid, all->rank, AXIS_REPLICA), QUEUE_COMM, NULL},
    };
    w->near = comm_split_even(all, &hops[0], dry);
    w->far = comm_split_even(all, &hops[1], dry);
    comm_set_nodes(w->near, node_ranks);
    comm_set_nodes(w->far, node_ranks);
}

int wire_open(struct Wire *w, struct Device *device, size_t most, struct Tier *tier,
              struct Error *e) {
    size_t weights = w->weights ? quantized_bytes(WEIGHT_BITS, most) : 0;
    size_t gradients = w->near ? 2 * quantized_bytes(GRADIENT_BITS, most) : 0;
    size_t bytes = size_max(weights, gradients);
    w->device = device;
    return bytes ? tier_alloc(tier, TAG_COMM, "what travels quantized", bytes, &w->messages, e) : 0;
}

void wire_close(struct Wire *w) {
    struct Comm *hops[] = {w->near, w->far};
    tier_free(&w->messages);
    for (int i = 0; i < 2; i++)
        if (hops[i])
            hops[i]->ops->close(hops[i]);
    *w = (struct Wire){0};
}
