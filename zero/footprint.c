// What a run takes: see footprint.h. Next: plan.c, which takes a rank's memory and foretells its
// traffic.
#include "zero/footprint.h"

#include <errno.h>

int footprint_foretell(const struct RankSettings *s, size_t process_bytes, int ranks_here,
                       struct Forecast *out, struct Error *e) {
    struct RankSettings unbounded = *s; // so that a table can show what is too much
    unbounded.device_bytes = SIZE_MAX;
    struct Rank dry;
    int err = rank_open(&dry, &unbounded, true, e);
    if (!err) {
        *out = (struct Forecast){.settings = *s,
                                 .parameters = dry.params.real,
                                 .padded = dry.params.padded,
                                 .ranks_here = ranks_here};
        out->is = (struct Footprint){dry.tier, zero_traffic(&dry.zero), true, process_bytes,
                                     process_bytes + (size_t)ranks_here * dry.tier.peak};
    }
    rank_close(&dry);
    return err;
}

struct Footprint footprint_measure(const struct Rank *r, const struct RankSettings *s,
                                   size_t host_bytes) {
    return (struct Footprint){.device = r->tier,
                              .traffic = r->step_traffic,
                              .stepped = r->stepped,
                              .all_bytes = place_peak_bytes(s, host_bytes)};
}

size_t footprint_model_states(const struct Footprint *f) {
    const size_t *most = f->device.most;
    return most[TAG_PARAM] + most[TAG_GRAD] + most[TAG_OPTIMIZER];
}

// Bytes times ranks: of every parameter, or of a rank's share of them.
static uint64_t times_ranks(const struct Placement *p, size_t bytes, uint64_t parameters,
                            int ranks) {
    return parameters * bytes * (p->sharded ? 1 : (uint64_t)ranks);
}

int footprint_of_parameters(uint64_t parameters, const struct ZeroOptions *options, int ranks,
                            struct ModelStates *out, struct Error *e) {
    struct ZeroPlan p;
    int err = zero_plan(&p, options, e);
    if (err)
        return err;
    size_t moments = (p.own_master ? 3 : 2) * dtype_size(p.optimizer.dtype);
    *out = (struct ModelStates){
        .parameters = parameters,
        .ranks = (uint64_t)ranks,
        .param = times_ranks(&p.param, dtype_size(p.param.dtype), parameters, ranks),
        .grad = times_ranks(&p.grad, dtype_size(p.grad.dtype), parameters, ranks),
        .optimizer = times_ranks(&p.optimizer, moments, parameters, ranks),
    };
    return 0;
}
