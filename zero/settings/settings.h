// What a run is told: all that shapes a rank and its training, and what else may be asked of both.
//
// A flag of the command line is a field here and a row in settings_flags.c, which says where the
// field is, what may be written for it, and its help. Whoever needs the value reads the field: the
// rank (zero/rank/rank.h), the device (zero/rank/rank_device.h), the plan (zero/plan/). So a new
// flag of ZeRO's is a field, a row, and the line that uses it. settings.c resolves every 0 and
// auto; settings_rules.c has a row for each flag that excludes or needs another.
//
// train.c fills the struct from the line, tests by hand. Read next: settings_flags.c, then
// zero/rank/rank.h.
#ifndef ZERO_SETTINGS_SETTINGS_H
#define ZERO_SETTINGS_SETTINGS_H
#include "kernels/flag.h"
#include "kernels/master.h"
#include "kernels/step_state.h"
#include "kernels/tier.h"
#include "model/config.h"
#include "model/params.h"
#include "zero/comm/grid.h"
#include "zero/comm/world.h"
#include "zero/offload/nvme.h"
#include "zero/settings/schedule.h"
#include "zero/wire/wire.h"

enum DeviceKind { DEVICE_CPU, DEVICE_CUDA, NDEVICEKIND };
const char *device_kind_name(enum DeviceKind kind); // as --device says it

// What a rank is opened with. Fields of enums take their words' places (FLAG_CHOICE); the place
// behind the last value is that of "auto", until settings_resolve.
struct RankSettings {
    struct ModelConfig model; // finished (model_config_finish)
    const char *dtype_from;   // who chose its dtype; NULL: the user
    enum Recompute recompute;
    size_t batch;  // sequences per micro-batch
    bool packed;   // of several documents each, whose starts the reader brings; no flag of its own
    size_t nmicro; // micro-batches per step
    enum Dtype grad_dtype;
    struct LossScaleSettings loss_scale; // for fp16 alone
    size_t global_batch; // sequences of a step, as asked for; 0: whatever the ranks' batches make
    bool grad_auto;      // grad_dtype follows from nmicro
    int stage;
    size_t prefetch; // units whose weights (in shards, or offloaded) and activations come ahead
    enum DeviceKind device;
    const char *device_from; // who chose it, likewise
    int threads;             // of the CPU
    const char *kernels;     // table name of the CPU's; NULL: the fastest
    int one_queue;           // 1: nothing overlaps
    bool autotune;           // of a GPU: time the algorithms of matrix products
    bool check_launches;     // and wait after each kernel, to name the one that fails
    size_t device_bytes;     // capacity of the device tier; 0 and SIZE_MAX: the machine's
    size_t host_bytes;       // that the ranks of a node offload to its memory; likewise
    size_t rank_host_bytes;  // and each rank: capacity of the cpu tier
    enum TierKind param_tier, opt_tier, act_tier;
    double offload_ratio;     // share of the optimizer state that goes to opt_tier; 0: all of it
    bool delayed;             // updates come one step late,
    uint64_t delay_after;     // from this step on
    enum Dtype moments_dtype; // of AdamW's m and v
    enum MasterFormat master_format; // of its master weights
    bool master_open;                // nobody said so, nor does a checkpoint: advice may change it
    struct NvmeSettings nvme;
    int rank, ranks;
    size_t node_size;      // ranks of a node, whose traffic is counted apart; 0: see below
    size_t hpz_size;       // that a second partition of the weights is cut over; 0: there is none
    size_t shard_size;     // that a shard's group has; the others are replicas. 0: all data ranks
    int quantized_weights; // the form in which they travel (zero/wire); 0: as they are
    bool quantized_gradients;   // they travel in 4 bits
    size_t tp;                  // places of tensor parallelism; 0: one
    size_t pp;                  // stages of a pipeline; 0: one
    const char *pp_split;       // layers of each, "3,3,2"; NULL: by their cost
    const char *show_chain;     // a plan: of this group; NULL: none
    const char *cluster;        // that a plan is for (zero/plan/cluster.h); NULL: none
    bool sequence_parallel;     // which have the rows between products in parts, too
    bool partition_activations; // or keep a part each of what a block keeps
    struct ThreadGroup *group;  // of the ranks, where they are threads
    bool processes;             // they are processes, of an MPI job
    int node_rank, node_ranks;  // then: this one and all, on its machine
    double timeout_s;           // how long a rank waits for the others
    size_t comm_chunk;          // between processes: bytes that arrive in one exchange
    bool check_comm;            // and whether they compare their calls
    int reduce_native;          // 1: between GPUs NCCL sums, in an order of its own
    bool save_async;            // checkpoints are written from a snapshot
    bool traced;                // record what the queues do, for rank_write_trace
    bool breakdown;             // tell where the time went (zero/rank/breakdown.h)
    size_t acts_in_flight;      // of a plan's stage that stands alone; 0: the pipeline's
    struct Device *borrowed, *borrowed_host; // for dry ranks, which open none; or NULL
};

// What --fit may choose, because nobody has said it. The micro-batch, the master weights and the
// moments are part of the results: a resumed run keeps its own.
struct FitOpen {
    bool stage, recompute, opt, param, act, batch;
    bool split, master, moments; // split master weights; those of bf16, and moments
    bool tp, pp;                 // the grid, of a plan for a cluster alone
    bool pair;                   // the stage stays 0 or 1, or 2 or 3, which have the same results
};

// All that ranks do besides steps. Every so many steps, 0: never.
struct Intervals {
    size_t val_every, eval_every, sample_every, hash_every;
    struct FlagEvery save_every;
    size_t keep;       // checkpoints; 0: all
    bool keep_best;    // and that with the lowest validation loss
    size_t patience;   // validations without a better one that end the run; 0: it has no such end
    size_t time_limit; // seconds after the start at which the run saves and stops; 0: never
};

// What --fit chooses.
enum Fit { FIT_OFF, FIT_AUTO, FIT_MASTERS, NFIT };

// Whether the head's matrix is the token embedding.
enum Tie { TIE_AUTO, TIE_ON, TIE_OFF, NTIE };

// A rank, and how it is trained.
struct Settings {
    const char *preset;           // name of the model to start from
    const char *rope_scaling;     // as model_rope_scaling reads it; NULL: the model's
    const char *sparse_attention; // as sparse_read reads it
    enum Tie tie;
    enum Fit fit;
    struct FitOpen open; // by --fit; all false without
    bool tunes; // nobody says the micro-batch, and it is what half of the free memory is enough for
    size_t global_batch; // sequences of a step; the rank has what was asked for
    size_t epochs;       // 0: schedule.steps is as asked for; else as settings_set_epochs finds
    struct RankSettings rank;
    struct LrSchedule schedule;
    struct AdamSettings adam;
    struct Intervals intervals;
};

// The rows of all these flags (settings_flags.c).
extern const struct Flag settings_table[];
extern const size_t settings_count;

// What auto means: where it computes, and in which format there.
struct Chosen {
    enum DeviceKind device;
    enum Dtype dtype[NDEVICEKIND];
    const char *from; // who says so
};

// How the settings are to be looked at.
struct SettingsUse {
    struct FlagsSaid said; // by whom each flag was set
    bool resumed;          // the run goes on from a checkpoint, whose global batch it keeps
    bool plan;             // it only says what a run would take
    bool tunes;            // it goes on from somebody's model, whose size nobody may have asked
    bool launched;         // the launcher has made the ranks, and knows the nodes
    int cores;             // that a rank has
    struct Chosen chosen;
};

// Resolves every 0 and auto to the value that it stands for; the model's vocabulary is left out.
// Three values are kept in `said` too, and so in config.json: the global batch does not follow the
// ranks of a resumed run, nor device and dtype its machine. Then settings_check. Errors: -EINVAL.
int settings_resolve(struct Settings *s, struct Settings *said, const struct SettingsUse *use,
                     struct Error *e);

// Where there are --epochs: as many steps as go so often through `samples` samples, into both. Once
// the data are open. warmup_share: of the steps, where that is what --warmup is; else negative.
// Errors: -EINVAL for more steps than there may be, or fewer than --warmup.
int settings_set_epochs(struct Settings *s, struct Settings *said, uint64_t samples,
                        double warmup_share, struct Error *e);
// Says so; samples 0: they are not known yet.
void settings_log_epochs(const struct Settings *s, uint64_t samples);

// Checks values against each other that no single row can. Errors: -EINVAL with the flags, their
// values and what would be right.
int settings_check(const struct Settings *s, const struct SettingsUse *use, struct Error *e);

// Parts of it: places of tensor parallelism, which resolving looks at first; of a finished model
// the layers of a pipeline's stages, and rows in parts; shards, what travels, and stages; and the
// steps of a warm-up, which may be known later.
int settings_check_tp(const struct RankSettings *s, struct Error *e);
int settings_check_split(const struct RankSettings *s, struct Error *e);
int settings_check_rows(const struct RankSettings *s, struct Error *e);
int settings_check_shards(const struct RankSettings *s, struct Error *e);
int settings_check_warmup(const struct LrSchedule *l, struct Error *e);

// Where a process sits in its world; not which rank it is.
void settings_use_rank_info(struct RankSettings *s, const struct World *w);

// The settings of each rank of this process: what the line says, its world's part, and the text's
// vocabulary. Errors: those of model_config_finish.
int settings_of_ranks(const struct Settings *s, const struct World *w, size_t vocab,
                      struct RankSettings *out, struct Error *e);

// Makes it `batch` sequences per micro-batch: nmicro, and grad_dtype if it is to, follow. Errors:
// -EINVAL where the step cannot be divided so.
int settings_set_batch(struct RankSettings *s, size_t batch);

// The ranks of a node: those that the launcher put there, and all where they are threads.
static inline int settings_node_ranks(const struct RankSettings *s) {
    int launched = s->processes && s->node_ranks ? s->node_ranks : s->ranks;
    return s->node_size ? (int)s->node_size : launched;
}

// The same without limits, so that what is too much can be told.
static inline struct RankSettings settings_unbounded(const struct RankSettings *s) {
    struct RankSettings r = *s;
    r.device_bytes = r.host_bytes = r.rank_host_bytes = 0;
    return r;
}

// Ranks that have a part of each matrix, and work on the same tokens; such as have some of the
// layers each; and the sets of all these, each with tokens of its own.
static inline int settings_tp_size(const struct RankSettings *s) {
    return s->tp ? (int)s->tp : 1;
}
static inline int settings_stages(const struct RankSettings *s) {
    return s->pp ? (int)s->pp : 1;
}
// Which stage this rank has, and of how many micro-batches at most it keeps activations at a time.
int settings_stage(const struct RankSettings *s);
size_t settings_acts_in_flight(const struct RankSettings *s);
static inline int settings_data_ranks(const struct RankSettings *s) {
    return s->ranks / (settings_tp_size(s) * settings_stages(s));
}

// The ranks that a group's shards are cut over.
static inline int settings_shard_ranks(const struct RankSettings *s) {
    return s->shard_size ? (int)s->shard_size : settings_data_ranks(s);
}

// How the job's ranks stand.
static inline struct Grid settings_grid(const struct RankSettings *s) {
    return grid_of(s->ranks, settings_tp_size(s), settings_shard_ranks(s), settings_stages(s));
}

// For how many shards groups are laid out (model/params.h): for more than there are where each is
// to be of whole blocks (zero/wire).
static inline size_t settings_layout_shards(const struct RankSettings *s) {
    bool blocks = s->quantized_weights || s->quantized_gradients;
    size_t each = blocks ? WIRE_SHARD / SHARD_MULTIPLE : 1;
    return (size_t)settings_data_ranks(s) * each;
}

// What the core of ZeRO is asked for; the ranks and the tiers are the caller's to fill in.
struct ZeroOptions settings_zero(const struct RankSettings *s);

bool settings_offload(const struct RankSettings *s);  // anything at all
bool settings_use_disk(const struct RankSettings *s); // anything to NVMe

#endif
