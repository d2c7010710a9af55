// In what form weights and gradients travel from rank to rank: as they are, or in few bits.
//
// Between machines a collective takes as long as its bytes. Quantized in blocks
// (kernels/quantize.h) a weight is 1 byte and 1/64 instead of 2 or 4, a gradient 1/2 and 1/64, and
// nothing else of ZeRO changes.
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
// (arXiv 2306.10209), sections 3.1 (qwZ) and 3.3 (qgZ). Each arrow is a hop of a group's chain, on
// the comm queue. Opened by zero/rank/rank.c. Read next: wire.c.
#ifndef ZERO_WIRE_WIRE_H
#define ZERO_WIRE_WIRE_H
#include "zero/zero.h"

// Shards are multiples of so many elements where something is quantized.
enum { WIRE_SHARD = QUANTIZE_BLOCK };

struct Wire {
    int weights; // the form in which they travel: a place in wire_weight_words
    struct Comm *intra_node, *inter_node; // gradients are, for these two hops; NULL: they are not
    struct Block messages;                // of the group at hand: one collective follows another
};

// Of --zero-quantized-weights; NULL behind the last.
extern const char *const wire_weight_words[];

// From now on gradients are quantized. shards: neighbours of all that there are, who share state;
// node_ranks: those of a node, a divisor or a multiple of that. dry: of a plan. All ranks call it.
void wire_join(struct Wire *w, struct Comm *all, int shards, int node_ranks, bool dry);

// Behind zero_open: takes memory for what is quantized, and adds hops to the groups' chains.
// Errors: -ENOMEM; wire_close is due in any case.
int wire_open(struct Wire *w, struct Zero *z, struct Tier *tier, struct Error *e);
void wire_close(struct Wire *w);

#endif
