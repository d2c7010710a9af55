// Operations of units: see work.h. Next: zero/rank/rank_step.c, which adds up those of a step.
#include "model/work.h"

#include "model/acts.h"
#include "model/adapter.h"

// Twice the keys that a query sees on average, times the width of all heads: without a bound, half
// of a T x T product is computed.
double model_attention_work(const struct ModelConfig *c) {
    double t = (double)c->seq_len, w = (double)c->window;
    double keys = c->window && w < t ? 2 * w - w * w / t : t;
    if (c->sparse.mode != SPARSE_DENSE)
        keys = t * c->sparse_share;
    return (double)model_attention_width(c) * keys;
}

// A product of a block, by the tensor that it makes.
struct Product {
    enum Act tensor; // NACT: the block's output
    double flops;
};

static void list_products(const struct ModelConfig *c, struct Product out[NPRODUCT]) {
    double C = (double)c->channels, att = (double)model_attention_width(c);
    out[0] = (struct Product){ACT_QKV, 2 * C * (double)model_qkv_width(c)};
    out[1] = (struct Product){ACT_X2, 2 * C * att};
    out[2] = (struct Product){ACT_FC, 2 * C * (double)model_fc_width(c)};
    out[3] = (struct Product){NACT, 2 * C * (double)c->ffn};
}

// A forward pass is the products and two causal attention products; a backward pass is twice the
// products, five of attention's, and the restored ones: the products that make dropped tensors
// (block_run in model/block.c), so never the last product.
static struct UnitWork block_work(const struct ModelConfig *c, uint32_t kept,
                                  enum UnitBackward backward) {
    double attention = model_attention_work(c);
    struct UnitWork w = {2 * attention, 5 * attention};
    struct Product product[NPRODUCT];
    list_products(c, product);
    w.backward += kept & BIT(ACT_ATT) ? 0 : 2 * attention;
    for (int i = 0; i < NPRODUCT; i++) {
        bool restored = product[i].tensor != NACT && !(kept & BIT(product[i].tensor));
        w.forward += product[i].flops;
        w.backward += (restored + (backward == BACKWARD_ALL ? 2 : 1)) * product[i].flops;
        if (backward != BACKWARD_ADAPTER)
            continue;
        double adapter_flops = adapter_work(c, (enum AdapterProduct)i, true);
        w.forward += adapter_flops;
        w.backward += 2 * adapter_flops + restored * adapter_work(c, (enum AdapterProduct)i, false);
    }
    w.backward = backward == BACKWARD_NONE ? 0 : w.backward;
    return w;
}

enum UnitBackward model_unit_backward(const struct ModelConfig *whole, int unit) {
    if (!model_unit_is_frozen(whole, unit))
        return BACKWARD_ALL;
    if (model_unit_has_adapter(whole, unit))
        return BACKWARD_ADAPTER;
    return unit > model_first_trained(whole) ? BACKWARD_INPUT : BACKWARD_NONE;
}

// The embedding only looks up rows. All of the head's products belong to its backward pass
// (model/ends.c).
struct UnitWork model_unit_work(const struct ModelConfig *c, enum UnitKind kind,
                                enum Recompute level, enum UnitBackward backward) {
    if (kind == UNIT_BLOCK)
        return block_work(c, acts_kept(level), backward);
    double head = 2 * (double)(c->vocab_padded * c->channels);
    return (struct UnitWork){0, kind == UNIT_HEAD ? (backward == BACKWARD_ALL ? 3 : 2) * head : 0};
}
