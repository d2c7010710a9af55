// How much a rank has to compute, by formulas: see rank.h. What was measured of the machine divides
// it into times (zero/plan/), and a run's rate is told as a share of it.
#include "zero/run/rank.h"

#include "zero/offload/offload.h"

// Twice the keys that a query sees on average, times the width of all heads: T of causal attention.
// Of packed documents it is the most that it can be, since their lengths are the data's.
static double attention_span(const struct ModelConfig *c) {
    double t = (double)c->seq_len, w = (double)c->window;
    double keys = c->window && w < t ? 2 * w - w * w / t : t;
    if (c->sparse.mode != SPARSE_DENSE)
        keys = t * c->sparse_share;
    return (double)model_attention_width(c) * keys;
}

// Every weight is multiplied with each token once, but for an embedding that the head does not
// share, whose rows are only looked up. Of the whole model, whatever part of it this rank has.
double rank_flops_per_token(const struct Rank *r) {
    const struct ModelConfig *c = &r->params.config;
    double looked_up = c->untied ? (double)(c->vocab * c->channels) : 0;
    return 6.0 * ((double)r->params.real - looked_up) + 6.0 * (double)c->layers * attention_span(c);
}

// Of a block's product with one of its weights, for a token.
static double product_flops(const struct Rank *r, enum BlockParam weight) {
    int block = r->params.largest[1];
    if (block < 0) // of a stage without layers
        return 0;
    const struct Param *w = &r->params.group[block].param[weight];
    return 2 * (double)(w->rows * w->cols);
}

// What a restore repeats for a token: what makes the tensors that were dropped (block_run in
// model/block.c), and so never the block's last product.
static double restored_flops(const struct Rank *r, double attention) {
    uint32_t kept = r->acts.kept;
    double flops = kept & (UINT32_C(1) << ACT_ATT) ? 0 : attention;
    static const struct {
        enum Act made;
        enum BlockParam by;
    } product[] = {{ACT_QKV, BLOCK_QKV_W}, {ACT_X2, BLOCK_PROJ_W}, {ACT_FC, BLOCK_FC_W}};
    for (int i = 0; i < 3; i++)
        if (!(kept & (UINT32_C(1) << product[i].made)))
            flops += product_flops(r, product[i].by);
    return flops;
}

// A token's forward pass is the blocks' products and two of causal attention's; its backward pass
// takes twice the products, five of attention's, and what is restored. All of the head's products
// belong to the backward pass (model/ends.c).
struct StepFlops rank_step_flops(const struct Rank *r, const struct RankSettings *s) {
    const struct ModelConfig *c = &r->model.config;
    double tokens = (double)(s->batch * c->seq_len * s->nmicro), layers = (double)c->layers;
    double attention = attention_span(c);                        // one product of half a T x T
    bool last = r->zero.pipe->stage + 1 == r->zero.pipe->stages; // which has the head
    double head = last ? 2 * (double)(c->vocab_padded * c->channels) : 0;
    double products = product_flops(r, BLOCK_QKV_W) + product_flops(r, BLOCK_PROJ_W) +
                      product_flops(r, BLOCK_FC_W) + product_flops(r, BLOCK_OUT_W);
    double back = 2 * products + 5 * attention + restored_flops(r, 2 * attention);
    return (struct StepFlops){.forward = tokens * layers * (products + 2 * attention),
                              .backward = tokens * (layers * back + 3 * head)};
}

struct StepUpdates rank_step_updates(const struct Rank *r) {
    struct StepUpdates n = {0, 0};
    for (int g = 0; g < r->params.ngroup; g++)
        *(host_updates(&r->zero, g) ? &n.host : &n.device) += zero_owned_numel(&r->zero, g);
    return n;
}
