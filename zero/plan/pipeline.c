// Forecasts of a pipeline's stages: see pipeline.h. Next: table.c, which prints them.
#include "zero/plan/pipeline.h"

#include "zero/pipe/order.h"

#include <stdlib.h>

// FLOP stand for seconds: stages compute at one rate.
static double bubble_of(const struct PipelineForecast *f, size_t nmicro) {
    struct OrderCost *cost = base_alloc((size_t)f->n * sizeof *cost);
    struct Order order;
    for (int i = 0; i < f->n; i++) {
        const struct StepFlops *flops = &f->stage[i].work.flops;
        cost[i] =
            (struct OrderCost){flops->forward / (double)nmicro, flops->backward / (double)nmicro};
    }
    order_make(&order, f->n, nmicro, cost, 0);
    double bubble = order_bubble(&order);
    order_free(&order);
    free(cost);
    return bubble;
}

int pipeline_predict(const struct RankSettings *s, int ranks_here, struct PipelineForecast *out,
                     struct Error *e) {
    int n = settings_stages(s), err = 0;
    *out = (struct PipelineForecast){0};
    if (n == 1)
        return 0;
    out->stage = base_alloc((size_t)n * sizeof *out->stage);
    for (; out->n < n && !err; out->n++)
        err = footprint_of_stage(s, out->n, 0, ranks_here, &out->stage[out->n], e);
    if (err) {
        pipeline_free(out);
        return err;
    }
    out->bubble = bubble_of(out, s->nmicro);
    return 0;
}

void pipeline_free(struct PipelineForecast *f) {
    free(f->stage);
    *f = (struct PipelineForecast){0};
}

static double flops_of(const struct Forecast *f) {
    return f->work.flops.forward + f->work.flops.backward;
}

double pipeline_share(const struct PipelineForecast *f, int stage) {
    double all = 0;
    for (int i = 0; i < f->n; i++)
        all += flops_of(&f->stage[i]);
    return flops_of(&f->stage[stage]) / all;
}
