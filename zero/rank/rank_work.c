// How much a rank has to compute: see rank.h. What was measured of the machine divides it into
// times (zero/plan/), and a run's rate is told as a share of it.
#include "zero/rank/rank.h"

#include "model/work.h"
#include "zero/offload/offload.h"

// Every weight is multiplied with each token once, but for an embedding that the head does not
// share, whose rows are only looked up. Of the whole model, whatever part of it this rank has.
double rank_flops_per_token(const struct Rank *r) {
    const struct ModelConfig *c = &r->params.config;
    double looked_up = c->untied ? (double)(c->vocab * c->channels) : 0;
    return 6.0 * ((double)r->params.real - looked_up) +
           6.0 * (double)c->layers * model_attention_work(c);
}

struct StepFlops rank_step_flops(const struct Rank *r, const struct RankSettings *s) {
    const struct ModelConfig *c = &r->model.config;
    double tokens = (double)(s->batch * c->seq_len * s->nmicro);
    struct StepFlops flops = {0};
    for (int u = 0; u < r->params.nunit; u++) {
        struct UnitWork w = model_unit_work(c, r->params.unit[u].kind, s->recompute);
        flops.forward += tokens * w.forward;
        flops.backward += tokens * w.backward;
    }
    return flops;
}

struct StepUpdates rank_step_updates(const struct Rank *r) {
    struct StepUpdates n = {0, 0};
    for (int g = 0; g < r->params.ngroup; g++)
        *(host_updates(&r->zero, g) ? &n.host : &n.device) += zero_owned_numel(&r->zero, g);
    return n;
}
