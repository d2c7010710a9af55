// The form in which weights and gradients travel from rank to rank: as they are, or in few bits.
//
// Between machines a collective takes as long as its bytes. Quantized in blocks
// (kernels/quantize.h) a weight takes 1 + 1/64 bytes instead of 2 or 4, a gradient 1/2 + 1/64, and
// nothing else of ZeRO changes.
//
// WEIGHTS travel in 8 bits. A rank quantizes its shard, the messages are gathered, and every rank
// dequantizes all of them:
//
//   shard --quantize--> message  --all_gather-->  messages --dequantize--> whole
//
// A rank dequantizes its own shard from its message too, so that all ranks compute with the same
// weights. The shards that are updated and saved are never rounded. A quantized weight depends on
// its block alone, and blocks begin at multiples of 256 of a group: the weights are the same for
// any number of ranks and any stage.
//
// GRADIENTS travel in 4 bits. A ring of sums would round them at each rank; so each rank sends
// every other rank that one's shard, quantized once, and the receiver adds. There are two hops:
// among the H ranks of a node, each of which then has the node's sums for its local rank on all
// nodes; and among the N / H ranks of one local rank. So a node sends its sums, not their terms:
//
//   whole --quantize--> all_to_all in node --sums, quantized--> between nodes --sums--> shard
//
// Sums are made in fp32 in the order of ranks. A hop among one rank is left out.
//
// Wang et al. 2023, "ZeRO++: extremely efficient collective communication for giant model training"
// (arXiv 2306.10209), sections 3.1 (qwZ) and 3.3 (qgZ). Each arrow is a hop of a group's chain, on
// the comm queue. Opened by zero/rank/rank.c. Read next: wire.c.
#ifndef ZERO_WIRE_WIRE_H
#define ZERO_WIRE_WIRE_H
#include "zero/zero.h"

// Shards are multiples of so many elements if anything is quantized.
enum { WIRE_SHARD = QUANTIZE_BLOCK };

struct Wire {
    int weights; // index in wire_weight_words: the form in which they travel
    struct Comm *intra_node, *inter_node; // for these two hops of gradients; NULL: not quantized
    struct Block messages;                // of the group at hand: one collective follows another
};

// The values of --zero-quantized-weights; NULL ends them.
extern const char *const wire_weight_words[];

// Turns on quantized gradients. shards: how many neighbouring ranks share state; node_ranks: ranks
// of a node, a divisor or a multiple of that. dry: only planned. All ranks call it.
void wire_join(struct Wire *w, struct Comm *all, int shards, int node_ranks, bool dry);

// Called after zero_open: allocates the messages, and adds hops to the groups' chains. Errors:
// -ENOMEM; call wire_close in any case.
int wire_open(struct Wire *w, struct Zero *z, struct Tier *tier, struct Error *e);
void wire_close(struct Wire *w);

#endif
