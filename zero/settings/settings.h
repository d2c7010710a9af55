// The settings of a run: all that shapes a rank and its training, and questions about both.
//
// A flag of the command line is a field here and a row in settings_flags.c, which has the field's
// offset, the values that may be given, and its help. Code that needs the value reads the field:
// the rank (zero/rank/rank.h), the device (zero/rank/rank_device.h), the plan (zero/plan/). So a
// new flag of ZeRO's is a field, a row, and the line that uses it. settings.c resolves every 0 and
// auto; settings_rules.c has a row for each flag that excludes or needs another.
//
// train.c fills the struct from the command line, tests by hand. Read next: settings_flags.c, then
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
const char *device_kind_name(enum DeviceKind kind); // as --device names it

// The settings with which a rank is opened. A field of an enum is an index of its words
// (FLAG_CHOICE); the one after the last value is "auto", until settings_resolve.
struct RankSettings {
    struct ModelConfig model; // finished (model_config_finish)
    const char *dtype_from;   // who chose its dtype; NULL: the user
    enum Recompute recompute;
    size_t batch;  // sequences per micro-batch
    bool packed;   // sequences hold several documents; the reader brings their starts; no flag
    size_t nmicro; // micro-batches per step
    enum Dtype grad_dtype;
    struct LossScaleSettings loss_scale; // for fp16 alone
    size_t global_batch; // sequences of a step, as given; 0: as the ranks' batches make
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
    size_t host_bytes;       // what the ranks of a node may offload to its memory; likewise
    size_t rank_host_bytes;  // and what each rank may: capacity of the cpu tier
    enum TierKind param_tier, opt_tier, act_tier;
    double offload_ratio;            // share of the optimizer state in opt_tier; 0: all of it
    bool delayed;                    // updates come one step late,
    uint64_t delay_after;            // from the step after this one on
    enum Dtype moments_dtype;        // of AdamW's m and v
    enum MasterFormat master_format; // of its master weights
    bool master_open;                // nobody chose it, nor a checkpoint: advice may change it
    struct NvmeSettings nvme;
    int rank, ranks;
    size_t node_size;         // ranks of a node, for counting traffic; 0: settings_node_ranks says
    size_t hpz_size;          // ranks of the second partition of the weights; 0: there is none
    size_t shard_size;        // ranks of a shard group; the others are replicas. 0: all data ranks
    int quantized_weights;    // the form in which they travel (zero/wire); 0: as they are
    bool quantized_gradients; // they travel in 4 bits
    size_t tp;                // size of tensor parallelism; 0: one
    size_t pp;                // stages of the pipeline; 0: one
    const char *pp_split;     // layers of each, "3,3,2"; NULL: by their cost
    const char *show_chain;   // group whose chains a plan prints; NULL: none
    const char *cluster;      // file of what a plan is for (zero/plan/cluster.h); NULL: none
    bool sequence_parallel;   // TP ranks split rows between products, too
    bool partition_activations; // or each keeps a part of what a block keeps
    struct ThreadGroup *group;  // of the ranks, if they are threads
    bool processes;             // ranks are processes, of an MPI job
    int node_rank, node_ranks;  // then: this rank and all, on its machine
    double timeout_s;           // how long a rank waits for the others
    size_t comm_chunk;          // between processes: bytes received in one exchange
    bool check_comm;            // ranks compare their calls
    int reduce_native;          // 1: between GPUs NCCL sums, in an order of its own
    bool save_async;            // checkpoints are written from a snapshot
    bool inference;             // it does not train: no gradients, no optimizer state
    size_t cache_tokens;        // capacity of generation's cache of keys and values; 0: none
    enum Dtype cache_dtype;     // its format; NDTYPE: that of the model
    bool traced;                // record what the queues do, for rank_write_trace
    bool traced_zero;           // with `traced`: and what they did to memory (zero/trace/trace.h)
    bool breakdown;             // log where the time went (zero/rank/breakdown.h)
    size_t acts_in_flight;      // of a plan's stage that stands alone; 0: the pipeline's
    struct Device *borrowed, *borrowed_host; // for dry ranks, which open none; or NULL
};

// The settings that --fit may choose, because no flag gives them. The micro-batch, the master
// weights and the moments are part of the results: a resumed run keeps its own.
struct FitOpen {
    bool stage, recompute, opt, param, act, batch;
    bool split, master, moments; // split master weights; those in bf16, and moments
    bool tp, pp;                 // the grid, only in a plan for a cluster
    bool lora;                   // adapters, and a base in fewer bits, where nothing else fits
    bool keeps_stage_pair;       // the stage stays 0 or 1, or 2 or 3, which have the same results
};

// The work of ranks besides steps, and how often they do it, in steps; 0: never.
struct Intervals {
    size_t val_every, eval_every, sample_every, hash_every;
    struct FlagEvery save_every;
    size_t keep;       // checkpoints; 0: all
    bool keep_best;    // and the one with the lowest validation loss
    size_t patience;   // validations without a better one that end the run; 0: none do
    size_t time_limit; // seconds after the start at which the run saves and stops; 0: never
};

// The choice of --fit: nothing; settings; also formats of master weights and moments; or adapters,
// where nothing fits that trains the model.
enum Fit { FIT_OFF, FIT_AUTO, FIT_MASTERS, FIT_LORA, NFIT };
enum { FIT_RANK = 16 }; // of those adapters

// Whether the head's matrix is the token embedding.
enum Tie { TIE_AUTO, TIE_ON, TIE_OFF, NTIE };

// A rank, and how it is trained.
struct Settings {
    const char *preset;           // name of the model to start from
    const char *rope_scaling;     // as model_rope_scaling reads it; NULL: the model's
    const char *sparse_attention; // as sparse_read reads it
    const char *freeze;           // as freeze_read reads it; NULL: none
    const char *lora_targets;     // as lora_read_targets reads it; NULL: all
    enum Tie tie;
    enum Fit fit;
    struct FitOpen open; // by --fit; all false without
    bool lowers_batch;   // no flag says the micro-batch: it may take half of the free memory
    size_t global_batch; // sequences of a step; the rank has the value as given
    size_t epochs;       // 0: schedule.steps is as given; else as settings_set_epochs finds
    struct RankSettings rank;
    struct LrSchedule schedule;
    struct AdamSettings adam;
    struct Intervals intervals;
};

// The rows of all these flags (settings_flags.c).
extern const struct Flag settings_table[];
extern const size_t settings_count;

// The values of auto: the device, and the dtype on it.
struct Chosen {
    enum DeviceKind device;
    enum Dtype dtype[NDEVICEKIND];
    const char *from; // where they are from, for messages
};

// The use of the settings: a new run or a resumed one, a plan, a launcher's.
struct SettingsUse {
    struct FlagsSaid said; // which flags are given explicitly, and where
    bool resumed;          // the run resumes a checkpoint, whose global batch it keeps
    bool plan;             // it only predicts what a run would take
    bool has_init;         // --init names its model, whose size the user may not know
    bool launched;         // the launcher has made the ranks, and knows the nodes
    int cores;             // of a rank
    struct Chosen chosen;
};

// Resolves every 0 and auto to the value that it stands for; except the model's vocabulary. Three
// values are kept in `said` too, and so in config.json: the global batch does not follow the ranks
// of a resumed run, nor device and dtype its machine. Then calls settings_check. Errors: -EINVAL.
int settings_resolve(struct Settings *s, struct Settings *said, const struct SettingsUse *use,
                     struct Error *e);

// With --epochs: sets the steps of so many passes through `samples` samples, in both, once the data
// are open. warmup_share: of the steps, if --warmup is a share; else negative. Errors: -EINVAL for
// more steps than there may be, or fewer than --warmup.
int settings_set_epochs(struct Settings *s, struct Settings *said, uint64_t samples,
                        double warmup_share, struct Error *e);
// Logs how many steps --epochs makes; samples 0: they are not known yet.
void settings_log_epochs(const struct Settings *s, uint64_t samples);

// Checks flags against each other, which a row of the flag table cannot. Errors: -EINVAL with the
// flags, their values and what would be right.
int settings_check(const struct Settings *s, const struct SettingsUse *use, struct Error *e);

// Parts of settings_check and settings_of_ranks: TP ranks, which resolving needs first; for a
// finished model the layers of pipeline stages, and the split of rows; shards, their forms and
// stages; and the steps of a warm-up, which may be known later.
int settings_check_tp(const struct RankSettings *s, struct Error *e);
int settings_check_split(const struct RankSettings *s, struct Error *e);
int settings_check_shards(const struct RankSettings *s, struct Error *e);
int settings_check_warmup(const struct LrSchedule *l, struct Error *e);

// Fills in whether ranks are processes, and where this one is on its machine; not which rank it is.
void settings_use_rank_info(struct RankSettings *s, const struct World *w);

// Makes the settings that the ranks of this process share, from the command line, its part of the
// world, and the text's vocabulary. Errors: those of model_config_finish; -EINVAL.
int settings_of_ranks(const struct Settings *s, const struct World *w, size_t vocab,
                      struct RankSettings *out, struct Error *e);

// Leaves out what only training has, for a rank that generates or evaluates.
void settings_set_inference(struct RankSettings *s);
// Gives a rank that generates its cache: of so many texts that are continued together, or of one if
// it trains. With sparse attention there is none, since a pattern is of whole tiles, nor with
// sequence parallelism in training, since one row has no part for each TP rank: then each token
// runs the whole text.
void settings_set_cache(struct RankSettings *s, size_t sequences);

// Sets `batch` sequences per micro-batch; nmicro, and grad_dtype if it is auto, follow. Errors:
// -EINVAL if the step cannot be divided so. The plan calls it where it chooses the batch: with
// --fit, or --init without --batch (predict_choose). Otherwise settings_resolve has divided the
// step by --batch, or its key of a DeepSpeed file, or what refit_batch made of it in a resumed run.
int settings_set_batch(struct RankSettings *s, size_t batch);

// Returns the ranks of a node: those that the launcher put there, or all if they are threads.
static inline int settings_node_ranks(const struct RankSettings *s) {
    int launched = s->processes && s->node_ranks ? s->node_ranks : s->ranks;
    return s->node_size ? (int)s->node_size : launched;
}

// Returns the same without limits, so that what exceeds them can be reported.
static inline struct RankSettings settings_unbounded(const struct RankSettings *s) {
    struct RankSettings r = *s;
    r.device_bytes = r.host_bytes = r.rank_host_bytes = 0;
    return r;
}

// The number of TP ranks; of pipeline stages; and of data-parallel ranks, each a set of all these
// with tokens of its own.
static inline int settings_tp_size(const struct RankSettings *s) {
    return s->tp ? (int)s->tp : 1;
}
static inline int settings_stages(const struct RankSettings *s) {
    return s->pp ? (int)s->pp : 1;
}
static inline int settings_data_ranks(const struct RankSettings *s) {
    return s->ranks / (settings_tp_size(s) * settings_stages(s));
}
// Returns the most micro-batches whose activations this rank keeps at a time.
size_t settings_acts_in_flight(const struct RankSettings *s);

// Returns how many ranks a group's shards are cut over.
static inline int settings_shard_ranks(const struct RankSettings *s) {
    return s->shard_size ? (int)s->shard_size : settings_data_ranks(s);
}

// Returns the grid of the job's ranks.
static inline struct Grid settings_grid(const struct RankSettings *s) {
    return grid_of(s->ranks, settings_tp_size(s), settings_shard_ranks(s), settings_stages(s));
}

// Returns for how many shards groups are laid out (model/params.h): more than there are if each
// must be of whole blocks (zero/wire).
static inline size_t settings_layout_shards(const struct RankSettings *s) {
    bool blocks = s->quantized_weights || s->quantized_gradients;
    size_t each = blocks ? WIRE_SHARD / SHARD_MULTIPLE : 1;
    return (size_t)settings_data_ranks(s) * each;
}

// Returns the options of the core of ZeRO; the caller fills in the ranks and the tiers.
struct ZeroOptions settings_zero(const struct RankSettings *s);

// True if a rank needs zero/offload: some state is not kept on its device, or activations are
// partitioned (zero/offload/activations.h).
bool settings_needs_offload(const struct RankSettings *s);
bool settings_uses_disk(const struct RankSettings *s); // offloads anything to NVMe

#endif
