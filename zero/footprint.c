// What a run takes: see footprint.h. Next: plan.c, which takes a rank's memory and foretells its
// traffic.
#include "zero/footprint.h"

#include <errno.h>
#include <string.h>

// What the ranks' tiers take of the memory that place_memory counts: a GPU's, or the machine's.
static size_t place_bytes(const struct RankSettings *s, const struct Tier tier[NTIER]) {
    return tier[TIER_DEVICE].peak + (s->device == DEVICE_CPU ? tier[TIER_CPU].peak : 0);
}

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
        out->is = (struct Footprint){
            .traffic = zero_traffic(&dry.zero), .stepped = true, .process_bytes = process_bytes};
        memcpy(out->is.tier, dry.tier, sizeof dry.tier);
        out->is.all_bytes = process_bytes + (size_t)ranks_here * place_bytes(s, dry.tier);
    }
    rank_close(&dry);
    return err;
}

struct Footprint footprint_measure(const struct Rank *r, const struct RankSettings *s,
                                   size_t host_bytes) {
    struct Footprint f = {.traffic = r->step_traffic,
                          .stepped = r->stepped,
                          .all_bytes = place_peak_bytes(s, host_bytes)};
    memcpy(f.tier, r->tier, sizeof f.tier);
    return f;
}

size_t footprint_model_states(const struct Footprint *f) {
    size_t bytes = 0;
    for (int kind = 0; kind < NTIER; kind++) {
        const size_t *most = f->tier[kind].most;
        bytes += most[TAG_PARAM] + most[TAG_GRAD] + most[TAG_OPTIMIZER];
    }
    return bytes;
}

// Bytes times ranks: of every parameter, or of a rank's share of them.
static uint64_t times_ranks(const struct Placement *p, size_t bytes, uint64_t parameters,
                            int ranks) {
    return parameters * bytes * (p->sharded ? 1 : (uint64_t)ranks);
}

int footprint_of_parameters(uint64_t parameters, const struct ZeroOptions *options, int ranks,
                            struct ModelStates *out, struct Error *e) {
    struct ZeroPlan p;
    int err = zero_plan(&p, options, NULL, e);
    if (err)
        return err;
    size_t moments = (p.own_master ? sizeof(float) : 0) + 2 * dtype_size(p.moments_dtype);
    *out = (struct ModelStates){
        .parameters = parameters,
        .ranks = (uint64_t)ranks,
        .param = times_ranks(&p.param, dtype_size(p.param.dtype), parameters, ranks),
        .grad = times_ranks(&p.grad, dtype_size(p.grad.dtype), parameters, ranks),
        .optimizer = times_ranks(&p.optimizer, moments, parameters, ranks),
    };
    return 0;
}
