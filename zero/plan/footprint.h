// The memory of a run by tier and tag, and its traffic by collective, predicted and measured.
//
// The forecast is made by opening a rank over dry tiers, which count and allocate nothing, with the
// lines that open it for the run (zero/rank/rank.h); the measurement reads the same counters of a
// rank that has trained. A forecast is of one rank. Most are equal, since shards are padded to one
// size; what the others take where they are not, such as stages of a pipeline, its Demand says.
//
// Called by predict.c; table.h prints it, fit.c looks for one that fits.
#ifndef ZERO_PLAN_FOOTPRINT_H
#define ZERO_PLAN_FOOTPRINT_H
#include "zero/offload/offload.h"
#include "zero/plan/bound.h"

struct Footprint {
    struct Tier tier[NTIER]; // of one rank; `most` and `peak` are what counts
    struct Traffic traffic;  // what one rank sends in one training step
    bool stepped;            // measured: what a training step sends is known
    struct Moved moved;      // over the bus, and from and to the disk, in one training step
    bool moved_known;        // measured: there was a step that followed another
    size_t process_bytes;    // predicted: of code, libraries, stacks and data
    size_t own_bytes;        // predicted: of them, what comes with the ranks
    size_t all_bytes;        // of the process with its ranks
    size_t io_bytes;         // predicted: of the host's memory, for one rank's files on NVMe
    size_t host_bytes;       // of a GPU's process with its ranks: what is in the host's memory
};

// The demand of all ranks, which may be unlike, on each tier.
struct Demand {
    struct TierDemand {
        int rank;            // that takes most of this tier, the first of such
        struct Footprint is; // all that it takes; nothing of the process
        size_t here;         // what this process's ranks take of the tier together
    } of[NTIER];
    // Together, likewise: in the host's memory beside the device's tier; in the memory where that
    // tier is; and what comes with ranks.
    size_t host_bytes, place_bytes, own_bytes;
    size_t node_bytes; // in the host's memory, of the ranks of a node: the most of any node
};

// The part of the model in a rank's pipeline stage: all of it, if there is one stage.
struct StageHas {
    int first_layer, layers;
    bool embedding, head;
    uint64_t parameters; // real weights, of all TP ranks; a tied head's in both of its stages
};

struct Forecast {
    struct RankSettings settings;
    struct Footprint is; // of settings.rank, which takes most of the device, then of the others
    struct Demand demand;
    struct StageHas stage;
    uint64_t parameters, padded; // real weights; elements stored
    int ranks_here;              // ranks of this process
    bool unlike;                 // ranks do not take the same of each tier
    struct StepWork work;        // of one rank in a step
    struct Speeds speeds;        // with which it takes a time; the caller's
};

// Forecasts rank `rank`, which out->settings names. The process is counted as if its ranks were all
// like this one, and took nothing before they are opened. Errors: those of rank_open.
int footprint_of_rank(const struct RankSettings *s, int rank, int ranks_here, struct Forecast *out,
                      struct Error *e);

// Forecasts the rank that takes most, with the demand of all ranks. In the process each rank counts
// as it is; if ranks are processes (ranks_here is 1), each counts as the largest.
// process_bytes: what the process takes before its ranks are opened. Errors: likewise.
int footprint_predict(const struct RankSettings *s, size_t process_bytes, int ranks_here,
                      struct Forecast *out, struct Error *e);

// The forecast of each pipeline stage, and of the time that stages wait for each other.
//
// Stages have other layers, and keep other numbers of micro-batches, so that one forecast is not
// enough: each gets its own, of the rank that takes most in it. What the kernels of its passes
// count says how long they are, in parts of each other, and the order of a step (zero/pipe/order.h)
// is gone through with passes as long as that: so the bubble is that of this cut, whose stages need
// not be alike. Swaps take no time in it.
struct PipelineForecast {
    int n;                  // 0: there is one stage, of which nothing is told
    struct Forecast *stage; // (n)
    double bubble;          // share of all stages' time
};

// Forecasts of each stage the first rank that takes most. pipeline_free when done. Errors: those of
// footprint_of_rank.
int pipeline_predict(const struct RankSettings *s, struct PipelineForecast *out, struct Error *e);
void pipeline_free(struct PipelineForecast *f);

// The share of a stage in what all compute.
double pipeline_share(const struct PipelineForecast *f, int stage);

// host_bytes: the most that the process ever had in the CPU's memory.
struct Footprint footprint_measure(const struct Rank *r, const struct RankSettings *s,
                                   size_t host_bytes);

// Return the bytes of one rank in the host's memory, without the device's tier; and the number of
// ranks of a node, whose sum --host-mem bounds.
size_t footprint_host_bytes(const struct Footprint *f);
int footprint_node_ranks(const struct RankSettings *s);

// Bytes of parameters, gradients and optimizer state on a rank: 16 Psi of the ZeRO paper.
size_t footprint_model_states(const struct Footprint *f);

// The same for a number of parameters instead of a model, as the paper counts: no padding, no
// buffers. On N ranks a shard's bytes need not be whole: values are fractions of `ranks`.
struct ModelStates {
    uint64_t parameters, ranks;
    uint64_t param, grad, optimizer; // numerators over `ranks`, of bytes on one rank
    enum TierKind param_tier, grad_tier, opt_tier;
    uint64_t sum[NTIER]; // likewise, of each tier
};
// options->tier is not looked at. parameters * ranks * 20 must be less than 2^64.
int footprint_of_parameters(uint64_t parameters, const struct ZeroOptions *options,
                            const struct OffloadOptions *offload, int ranks,
                            struct ModelStates *out, struct Error *e);

#endif
