// A training step on a GPU, kernel by kernel: measured, and on paper.
//
// step_rows.c makes the settings and the rows, step_measure.c takes a step's times from a trace,
// step_budget.c adds up what the kernels must do and says what that takes at a GPU's limits. The
// program is step_kernels.c; test_step_kernels.c runs both halves in the simulator.
#ifndef TESTS_BENCH_STEP_KERNELS_H
#define TESTS_BENCH_STEP_KERNELS_H
#include "kernels/cost.h"
#include "zero/rank/rank.h"

#include <stdio.h>

// All operations of a step with one name; of matrix products, those of one shape.
struct StepRow {
    enum Queue queue;
    const char *name;
    char shape[COST_SHAPE_BYTES]; // empty: they differ
    unsigned count, launches;
    double flops, bytes, seconds;
};

enum { STEP_ROWS = 128 };
struct StepRows {
    size_t n;
    struct StepRow row[STEP_ROWS]; // in the order of their first operation
};

// Adds an operation to its row.
void step_add(struct StepRows *rows, const struct StepRow *operation);

// The settings with which ./train would open a GPU's rank: bf16, one rank, no offload. Errors:
// -EINVAL for an unknown model or a batch that is no number.
int step_settings(const char *model, const char *batch, struct RankSettings *out, struct Error *e);

// Sets the least recompute level with which the rank takes at most so many bytes of the device;
// *peak: what it takes then. Errors: -ENOMEM where no level does.
int step_fit(struct RankSettings *s, double bytes, size_t *peak, struct Error *e);

// ---- measured ----

struct StepCeilings {
    double copy;    // bytes/s, read and written, of a large copy on the device
    double product; // FLOP/s of a large bf16 product of random numbers
};
// The product is of `side` in all directions.
struct StepCeilings step_ceilings(struct Device *d, size_t copy_bytes, size_t side);

struct StepMeasured {
    double step_s;        // median of the timed steps, which nobody traces
    double traced_s;      // of the traced one, from its first operation on the device to its last
    double busy_s;        // of it: while the compute queue had an operation
    struct StepRows rows; // of the traced step
    size_t launches;      // that the simulator saw in it; 0 on a GPU
    char *products;       // a line each: algorithm, split, workspace. free() it
};

// Opens a rank, runs `steps` steps (at least 4) of random tokens, of which the last three quarters
// are timed, then a traced one. Errors: those of rank_open.
int step_measure(const struct RankSettings *s, size_t steps, struct StepMeasured *out,
                 struct Error *e);
void step_print(FILE *out, const char *model, const struct RankSettings *s,
                const struct StepMeasured *m, const struct StepCeilings *c);

// ---- on paper ----

// The rows of a step that is only counted: no GPU, no memory. Launches are those of the CUDA
// backend.
struct StepPaper {
    struct StepRows rows;
    bool sums_apart;
    double logits_bytes; // what is not counted: the classifier's second look at the logits
};
// sums_apart: bias gradients are rows of their own, as on 9.0; else the products' epilogues make
// them.
int step_count(const struct RankSettings *s, bool sums_apart, struct StepPaper *out,
               struct Error *e);

// The budget of arguments MODEL BATCH [--gpu NAME] [--hopper-attention] as Markdown. Errors:
// -EINVAL for arguments that are wrong, -ENOMEM for a batch that does not fit.
int step_budget(FILE *out, int argc, char **argv, struct Error *e);
// The limits of all GPUs that it knows, and where each figure comes from; likewise.
void step_limits(FILE *out);

#endif
