// In what form weights and gradients travel from rank to rank: as they are, or in few bits.
//
// Between machines a collective takes as long as its bytes. Quantized in blocks
// (kernels/quantize.h) a weight is 1 byte and 1/64 instead of 2 or 4, a gradient half of that, and
// nothing else of ZeRO changes: this is a layer between the core and its collectives.
//
// WEIGHTS go in 8 bits. A rank quantizes its shard, messages of bytes are gathered, and every rank
// makes weights of all of them:
//
//   shard --quantize--> message  --all_gather-->  messages --dequantize--> whole
//
// Its own shard, too, is read from its message, so that all ranks compute with the same weights.
// What is updated and saved are the shards themselves, which nothing rounds. A quantized weight
// depends on its block alone, and blocks begin at multiples of 256 of a group: whatever the number
// of ranks and the stage, the weights are the same.
//
// GRADIENTS go in 4 bits. A ring of sums would round them at each rank; so each rank sends every
// other one what is that one's, quantized once, and who receives adds. In two hops: among the H
// ranks of a node, who then have the node's sums for their places on all nodes; and among the ranks
// of one place, one on each of the N / H nodes. So a node's sum leaves it, and not its terms:
//
//   whole --quantize--> all_to_all near --sums, quantized--> all_to_all far --sums--> shard
//
// Sums are made in fp32 in the order of ranks. A hop among one rank is left out.
//
// Wang et al. 2023, "ZeRO++: extremely efficient collective communication for giant model training"
// (arXiv 2306.10209), sections 3.1 (qwZ) and 3.3 (qgZ). A struct Wire of NULL changes nothing. All
// calls queue work on the comm queue. Opened by zero/rank/rank.c, called by zero/param.c,
// zero/grad.c and zero/hpz/. Read next: zero/zero.h.
#ifndef ZERO_WIRE_WIRE_H
#define ZERO_WIRE_WIRE_H
#include "kernels/kernels.h"
#include "kernels/tier.h"
#include "zero/comm/comm.h"

// Shards are multiples of so many elements where something is quantized.
enum { WIRE_SHARD = QUANTIZE_BLOCK };

struct Wire {
    struct Device *device;
    bool weights;            // are quantized
    struct Comm *near, *far; // gradients are, for these two hops; NULL: they are not
    struct Block messages;   // of the group at hand: one collective follows another
};

// What n elements of weights are as they travel, in bytes.
size_t wire_weight_bytes(const struct Wire *w, enum Dtype dtype, size_t n);

// whole: the shards of all ranks of `over`, n elements each, in their order, as they come from the
// wire. shard: this rank's, which may lie in its place in `whole`.
void wire_gather(const struct Wire *w, struct Comm *over, void *whole, const void *shard, size_t n,
                 enum Dtype dtype);
// The parts of that, for who keeps what has come. Where the messages arrive for `whole`; and
// `shards` of them there, of n elements each, to it.
void *wire_arrivals(const struct Wire *w, void *whole);
void wire_read(const struct Wire *w, void *whole, size_t shards, size_t n, enum Dtype dtype);

// As struct CommOps has reduce_scatter, over `dp`.
void wire_reduce(const struct Wire *w, struct Comm *dp, void *shard, const void *whole, size_t n,
                 enum Dtype dtype, bool accumulate);

// From now on gradients are quantized. shards: neighbours of all that there are, who share state;
// node_ranks: those of a node, a divisor or a multiple of that. dry: of a plan. All ranks call it.
void wire_join(struct Wire *w, struct Comm *all, int shards, int node_ranks, bool dry);

// Takes memory for what is quantized. most: elements of the largest group. Errors: -ENOMEM;
// wire_close is due in any case.
int wire_open(struct Wire *w, struct Device *device, size_t most, struct Tier *tier,
              struct Error *e);
void wire_close(struct Wire *w);

#endif
