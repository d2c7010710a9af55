// The configurations that a run might have instead: every stage, recomputation and offload, master
// weights and moments, and the micro-batches that divide its step.
//
// One list serves two questions. A run that does not fit is told the smallest change that would
// (fit.c): there is an order of changes, from the least to the largest. --fit auto asks which of
// those that fit takes the least time (choose.c). Each is forecast by opening a rank over dry
// tiers; the devices, which take the most of that, are opened once and lent.
//
// Read next: fit.c and choose.c.
#ifndef ZERO_PLAN_CANDIDATES_H
#define ZERO_PLAN_CANDIDATES_H
#include "zero/plan/capacity.h"

// The settings that a user might choose differently, by name or number.
enum Choose {
    CHOOSE_OPT,
    CHOOSE_PARAM,
    CHOOSE_ACT,
    CHOOSE_MASTER,
    CHOOSE_MOMENTS,
    CHOOSE_LEVEL,
    CHOOSE_STAGE,
    NCHOOSE
};
struct Candidate {
    union {
        struct {
            enum TierKind opt, param, act;
            enum MasterFormat master;
            enum Dtype moments;
            enum Recompute recompute;
            int stage;
        };
        int of[NCHOOSE];
    };
    size_t batch;
};

struct Candidate candidate_of(const struct RankSettings *s);
void candidate_apply(const struct Candidate *c, struct RankSettings *s); // all but the batch

// Lists all that `open` allows instead of `said`, with its batch, `said` first; free() *out. disk:
// candidates may offload to NVMe. Returns how many.
size_t candidates_list(const struct RankSettings *said, const struct FitOpen *open, bool disk,
                       struct Candidate **out);

// Lists the micro-batches up to `most` that divide the step, rising; free() *out. Returns how many.
size_t candidates_batches(const struct RankSettings *said, size_t most, size_t **out);

// Looks for the largest of n batches, in rising order, that fits with c, as memory grows with the
// batch. The last call of `fits` is for the batch found. False: none fits.
typedef bool CandidateFits(void *context, const struct Candidate *c);
bool candidates_largest(const size_t *batch, size_t n, struct Candidate c, CandidateFits *fits,
                        void *context);

// Refuses --fit auto: no candidate makes a run. Returns -EINVAL.
int candidates_refuse_flags(struct Error *e);

// Writes c as flags, as far as it differs from `from`, each after a space. folder: --nvme-path's.
enum { CANDIDATE_BYTES = 256 };
void candidate_describe(const struct Candidate *c, const struct Candidate *from, const char *folder,
                        char text[CANDIDATE_BYTES]);

// Returns how far c, one of a list without other moments and bf16 masters, is from what was said,
// for advice: stages and recomputation, then offload to the CPU, split master weights, the disk or,
// if host_is_short, less offload. disk: there is one. CANDIDATE_NOT: that is no advice.
// candidate_distance_with_batch is for those that also get a smaller batch.
#define CANDIDATE_NOT UINT64_MAX
uint64_t candidate_distance(const struct Candidate *c, const struct Candidate *said,
                            bool host_is_short, bool disk);
uint64_t candidate_distance_with_batch(const struct Candidate *c, const struct Candidate *said);

// Forecasts of candidates, each held against the room that there is.
struct Trials {
    const struct RankSettings *settings; // as they were said
    const struct Capacity *room;
    int ranks_here;
    bool advice;                  // a run would refuse --host-mem and its kin without offload
    struct Device *device, *host; // lent to dry ranks
    bool last_exists;             // there is such a run as the last candidate
    struct Forecast last;         // its forecast
    struct Candidate nearest;     // one that fits, or the one that exceeds least
    size_t excess;                // what it needs beyond all limits; SIZE_MAX: there is none
    struct Needs needs;           // its, on one rank
};
int trials_open(struct Trials *t, const struct RankSettings *s, const struct Capacity *room,
                int ranks_here, bool advice, struct Error *e);
void trials_close(struct Trials *t);
// A CandidateFits: true if the candidate makes a run that fits.
bool trials_fit(void *trials, const struct Candidate *c);

#endif
