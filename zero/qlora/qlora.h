// QLoRA: the base of adapters in fewer bits (--base-dtype). Blocks that are not trained are kept
// packed, and a unit's weights are unpacked into a slot when it needs them.
//
//   kept, packed --h2d, all_gather--> slot, packed --dequantize--> slot, as a unit reads it
//
// A group is packed in runs of BASE_RUN elements that stand alone: int8 in the blocks of
// kernels/quantize.h, or NF4 (kernels/nf4.h; Dettmers et al. 2023, "QLoRA", section 3). Norms and
// biases, which come last, keep the run's dtype: the runs that have any of them are kept as they
// are, behind the others. A rank's part of a group:
//
//   run 0 | run 1 | ... | run n-1 |  the raw runs
//
// Shards are whole runs, so the weights are the same bits at every stage and in every tier. Each
// rank packs all that it keeps: nothing is published. The embedding and the head are not packed.
// The core gets it as struct PackOps. Next: qlora.c.
#ifndef ZERO_QLORA_QLORA_H
#define ZERO_QLORA_QLORA_H
#include "zero/zero.h"

extern const char *const qlora_words[]; // the values of --base-dtype, by enum BaseFormat; NULL ends

extern const struct PackOps qlora_pack;

// Bytes of a part of `n` elements of group g, a shard or the whole, as it is kept.
size_t qlora_bytes(const struct Zero *z, int g, size_t n);

#endif
