// The time of a step on a cluster that is not here, and the memory of its ranks and nodes.
//
// A file says what the cluster is made of (cluster_file.c): nodes and their GPUs, links inside a
// node and between nodes, the link to the host's memory, disks, and how fast the GPU's kernels are.
// The grid and the model are the run's flags. One rank is then opened over dry tiers, as for every
// plan, which gives its memory to the byte and its collectives one by one; its kernels are counted
// (count.h); and the times are put together as for --fit (bound.h):
//
//   kernels    each at the file's rate, with what a product of few rows takes more
//   sums       between TP ranks: in the compute queue, so nothing hides them
//   collectives of ZeRO: hidden by the part of a step that they are made beside
//   bubble     the time in which a stage of the pipeline waits for others
//
// All ranks are alike and nothing goes wrong: no jitter, no file, no slow node. A pipeline's stages
// (--pp) have as many layers each, as nearly as can be; their schedule is a run's, 1F1B
// (zero/pipe/order.h).
//
// Called by predict.c. Read next: cluster_file.c, then cluster.c.
#ifndef ZERO_PLAN_CLUSTER_H
#define ZERO_PLAN_CLUSTER_H
#include "zero/plan/candidates.h"
#include "zero/plan/count.h"
#include "zero/plan/footprint.h"

#include <stdio.h>

struct cJSON;

struct ClusterLink {
    double rate;    // bytes per second in one direction, of a GPU's near link; of a node's far one
    double latency; // seconds that a piece takes from one rank to the next, however small it is
};

// Rates are per second; FLOP and bytes as cost.h counts them, of 16-bit formats.
struct Cluster {
    char name[64];
    size_t nodes, node_gpus;                              // GPUs of a node
    size_t device_bytes, host_bytes, disk_bytes;          // of a GPU; of a node
    double matmul, attention_forward, attention_backward; // FLOP
    double memory;    // bytes of all kernels that multiply nothing
    double call;      // seconds from one kernel to the next
    bool scores_kept; // attention writes its T x T scores to memory, as before FlashAttention
    struct ClusterLink near, far;
    double in, out;       // bytes between a GPU and its host, with all GPUs of the node at it
    double host_update;   // bytes of the node's AdamW
    double read, written; // bytes of the node's disks
};

// Reads the tree of the file at `path`, and deletes it. Errors: -EINVAL with the file, the key,
// what it has and what would be right; and for no tree, NULL, of which e has a line already.
int cluster_read(const char *path, struct cJSON *tree, struct Cluster *out, struct Error *e);

// The rates of all kernels, for heads of this size.
struct KernelRates cluster_rates(const struct Cluster *c, size_t head_size);

// Seconds of a collective over `size` ranks that are `stride` ranks apart, in a job of `ranks`, all
// of whose groups make it at once. NCCL makes it in rings, whose links between nodes the node's
// groups share; direct: each rank sends to each other one, as sums in the order of ranks do. bytes:
// of a rank's piece, which goes to each other rank; in an all-reduce twice.
struct ClusterGroup {
    size_t ranks, size, stride;
};
double cluster_seconds(const struct Cluster *c, const struct ClusterGroup *g, enum Collective kind,
                       double bytes, bool direct);

struct ClusterForecast {
    struct Forecast rank;         // of one that holds most; its `work` has times of the whole
    size_t tp_size, stages, data; // the grid: tp, pp, dp
    size_t device, host, disk;    // bytes: of a GPU; of a node
    // Seconds of a step: kernels of both passes, sums of tensor parallelism, what goes from stage
    // to stage, the bubble, the update, and what else the compute queue waits for. Together: step.
    double kernels, sums, handed, bubble, update, waits, step;
    double sent[NSENDPHASE]; // seconds of collectives, hidden or not, by what they are made beside
    struct Bound bound;      // of one stage
    double parameters;       // of the whole model
    double tokens;           // of a step
    double flops_per_token;  // of the model: 6 per parameter, and attention's
};

// Lends the settings devices that are not there, for many forecasts; without, each opens its own.
// Errors: those of device_open_cpu.
int cluster_open(struct RankSettings *s, struct Error *e);
void cluster_close(struct RankSettings *s);

// Errors: -EINVAL for ranks, nodes and formats that the cluster has not.
int cluster_check(const struct Cluster *c, const struct RankSettings *s, struct Error *e);

// s: checked as a run's settings are (settings_check). Errors: those of cluster_check and of
// footprint_predict.
int cluster_forecast(const struct Cluster *c, const struct RankSettings *s,
                     struct ClusterForecast *out, struct Error *e);

// Returns the bytes that may be used: those that are there, or as many as a flag says (not 0).
size_t cluster_limit(size_t there, size_t said);

// Checks a forecast against the file's memory, --device-mem and --host-mem-per-rank (of each rank)
// and --host-mem (of a node). Errors: -ENOMEM, which names the memory that is too small.
int cluster_check_room(const struct Cluster *c, const struct ClusterForecast *f, struct Error *e);

// ---- cluster_choose.c ----

enum { CLUSTER_BEST = 3, CLUSTER_MOST_BATCH = 64 };
struct ClusterChoices {
    struct ClusterForecast best[CLUSTER_BEST]; // the first takes the least time
    size_t n;                                  // of them
    size_t tried;                              // forecasts that were made
};

// Chooses the settings that no flag gives for the least time on a cluster; the micro-batch divides
// said->global_batch. Errors: -ENOMEM if nothing fits, -EINVAL if no settings are valid.
int cluster_choose(const struct Cluster *c, const struct RankSettings *said,
                   const struct FitOpen *open, struct ClusterChoices *out, struct Error *e);
void cluster_choices_print(FILE *out, const struct ClusterChoices *c);

// ---- cluster_table.c ----

void cluster_print(FILE *out, const struct Cluster *c, const struct ClusterForecast *f);
char *cluster_json(const struct Cluster *c, const struct ClusterForecast *f); // free() it

// ---- card.c ----

// Sets *out to the cluster of the smallest card with device_bytes, the slowest of such; for 0 (not
// known), or more than any has, the slowest of the largest. Returns its file's name.
const char *card_choose(size_t device_bytes, struct Cluster *out);

// Fills in that card's rates, and all speeds but those of a disk that was measured here (not 0).
void card_assume(const struct RankSettings *s, struct Rates *rates, struct Speeds *speeds);

#endif
