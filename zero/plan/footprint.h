// What a run takes: memory by tier and tag, and traffic by collective, predicted and measured.
//
// The forecast is made by opening a rank over dry tiers, which count and allocate nothing, with the
// lines that open it for the run (rank.h); the measurement reads the same counters of a rank that
// has trained. A forecast is of one rank. Most are equal, since shards are padded to one size;
// which are not, and so which decides, footprint_predict knows.
//
// Called by predict.c; table.h prints it, fit.h looks for one that fits.
#ifndef ZERO_PLAN_FOOTPRINT_H
#define ZERO_PLAN_FOOTPRINT_H
#include "zero/offload/offload.h"
#include "zero/plan/bound.h"

struct Footprint {
    struct Tier tier[NTIER]; // of one rank; `most` and `peak` are what counts
    struct Traffic traffic;  // what one rank sends in one training step
    bool stepped;            // measured: there was a training step
    struct Moved moved;      // over the bus, and from and to the disk, in one training step
    bool moved_known;        // measured: there was a step that followed another
    size_t process_bytes;    // predicted: of code, libraries, stacks and data
    size_t own_bytes;        // predicted: of them, what comes with the ranks
    size_t all_bytes;        // of the process with its ranks
    size_t io_bytes;         // predicted: of the host's memory, for one rank's files on NVMe
    size_t host_bytes;       // of a GPU's process with its ranks: what is in the host's memory
};

// What a rank's stage of a pipeline has of the model: all of it, where there is one stage.
struct StageHas {
    int first_layer, layers;
    bool embedding, head;
    uint64_t parameters; // real weights, of all places; a tied head's in both of its stages
};

struct Forecast {
    struct RankSettings settings;
    struct Footprint is;
    struct StageHas stage;
    uint64_t parameters, padded; // real weights; elements stored
    int ranks_here;              // ranks of this process
    bool decides;                // other ranks take less than this one, settings.rank
    bool lesser;                 // another rank takes more
    struct StepWork work;        // of one rank in a step
    struct Speeds speeds;        // with which it takes a time; the caller's
};

// Of rank `rank`, which out->settings names. process_bytes: what the process takes before its ranks
// are opened. Errors: those of rank_open.
int footprint_of_rank(const struct RankSettings *s, int rank, size_t process_bytes, int ranks_here,
                      struct Forecast *out, struct Error *e);

// Of the rank of a stage that takes most, the first of such. Errors: likewise.
int footprint_of_stage(const struct RankSettings *s, int stage, size_t process_bytes,
                       int ranks_here, struct Forecast *out, struct Error *e);

// Of the one of all ranks. The process is counted as if all took as much.
int footprint_predict(const struct RankSettings *s, size_t process_bytes, int ranks_here,
                      struct Forecast *out, struct Error *e);

// host_bytes: the most that the process ever had in the CPU's memory.
struct Footprint footprint_measure(const struct Rank *r, const struct RankSettings *s,
                                   size_t host_bytes);

// What one rank takes of the host's memory beside the device's tier.
size_t footprint_host_bytes(const struct Footprint *f);

// Bytes of parameters, gradients and optimizer state on a rank: 16 Psi of the ZeRO paper.
size_t footprint_model_states(const struct Footprint *f);

// The same for a number of parameters instead of a model, as the paper counts: no padding, no
// buffers. On N ranks a shard's bytes need not be whole: values are fractions of `ranks`.
struct ModelStates {
    uint64_t parameters, ranks;
    uint64_t param, grad, optimizer; // numerators over `ranks`, of bytes on one rank
    enum TierKind param_tier, grad_tier, opt_tier;
};
// options->tier is not looked at. parameters * ranks * 20 must be less than 2^64.
int footprint_of_parameters(uint64_t parameters, const struct ZeroOptions *options,
                            const struct OffloadOptions *offload, int ranks,
                            struct ModelStates *out, struct Error *e);

#endif
