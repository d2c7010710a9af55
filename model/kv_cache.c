// The memory of keys and values: see kv_cache.h.
#include "model/kv_cache.h"

#include "kernels/layout.h"

int kv_cache_open(struct KvCache *k, const struct ModelConfig *c, const struct KvCacheSpec *spec,
                  struct Tier *tier, struct Error *e) {
    size_t seen = c->window ? size_min(spec->tokens, c->window + spec->at_once) : spec->tokens;
    *k = (struct KvCache){.sequences = spec->sequences,
                          .capacity = round_up(seen, LAYOUT_TILE),
                          .dtype = spec->dtype};
    k->sequence_bytes = 2 * c->kv_heads * k->capacity * c->head_size * dtype_size(k->dtype);
    return tier_alloc(tier, TAG_ACTIVATION, "keys and values of generation",
                      c->layers * k->sequences * k->sequence_bytes, &k->block, e);
}

void kv_cache_close(struct KvCache *k) {
    tier_free(&k->block);
    *k = (struct KvCache){0};
}
