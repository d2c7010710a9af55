// The cache of keys and values that generation keeps of each sequence, so that a token's pass needs
// no token before it (Pope et al., "Efficiently scaling transformer inference", 2022, section 3.3).
//
// Attention fills and reads it (kernels.h: AttentionCached); a block has a layer of it. All of it
// is taken when the model is opened. With an attention window it is a ring of the positions that
// can still be seen.
#ifndef MODEL_KV_CACHE_H
#define MODEL_KV_CACHE_H
#include "kernels/tier.h"
#include "model/config.h"

struct KvCacheSpec {
    size_t sequences, tokens; // of each sequence, the prompt's and those that are made
    size_t at_once;           // at most as many new tokens of a sequence in one pass
    enum Dtype dtype;
};

struct KvCache {
    size_t sequences, capacity; // capacity: positions of each sequence
    enum Dtype dtype;
    size_t sequence_bytes; // of a layer
    struct Block block;    // (layers, sequences, 2, NKV, capacity, HS)
};

// Takes the cache of a model, or of the part of one that c describes, from `tier`. No tokens: none,
// of no bytes. Errors: -ENOMEM. kv_cache_close frees.
int kv_cache_open(struct KvCache *k, const struct ModelConfig *c, const struct KvCacheSpec *spec,
                  struct Tier *tier, struct Error *e);
void kv_cache_close(struct KvCache *k);

// Returns a layer's keys and values of the sequences from `first` on.
static inline void *kv_cache_at(const struct KvCache *k, int layer, size_t first) {
    return (char *)k->block.mem + ((size_t)layer * k->sequences + first) * k->sequence_bytes;
}

#endif
