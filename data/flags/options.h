// The options of ./train: one struct, and the flags that fill it.
//
// The table in options.c is the one place that names a flag; the line, --help, config.json and the
// checks for a resumed run all come from it.
#ifndef DATA_FLAGS_OPTIONS_H
#define DATA_FLAGS_OPTIONS_H
#include "data/text/data.h"
#include "data/flags/flags.h"

// The words of --dtype, as in enum Dtype, and of --grad-dtype: the same after auto. The other
// choices' orders are those of enum Recompute (model/config.h) and enum Schedule
// (zero/run/schedule.h).
enum { DTYPE_FP32, DTYPE_BF16, DTYPE_FP16 };
enum { GRAD_AUTO, GRAD_FP32, GRAD_BF16, GRAD_FP16 };

struct Options {
    const char *model;
    size_t layers, heads, channels, seq_len, vocab; // 0: the preset's, or the tokenizer's
    const char *data, *val_data, *tokenizer, *cache;
    size_t batch, global_batch, steps, warmup;
    size_t loss_scale, loss_scale_window, loss_scale_hysteresis, loss_scale_min;
    double lr, min_lr, decay_share, beta1, beta2, eps, weight_decay, clip;
    int schedule, dtype, grad_dtype, recompute, zero, device, overlap, reduce;
    size_t seed, threads, ranks, device_mem, prefetch;
    int offload_optimizer, offload_param, offload_activations, moments; // none, cpu, nvme
    double offload_ratio;
    size_t delay_after, host_mem, nvme_block, nvme_depth;
    const char *nvme_path;
    bool delay_update, check_io;
    double comm_timeout;
    size_t comm_chunk;
    bool check_comm;
    // Filled by options_resolve, before it replaces them.
    size_t asked_batch; // --global-batch
    bool grad_auto;     // --grad-dtype auto
    bool seq_len_usual; // no --seq-len, so a short text may have shorter sequences
    // Stand on this line (options_read): --batch; --offload-ratio or --host-mem; and a flag of the
    // loss scale, and one of the disk (NULL: none).
    bool batch_given, offload_given;
    const char *loss_scale_given, *nvme_given;
    const char *kernels;
    const char *out, *resume, *config, *prompt, *trace;
    size_t save_every, keep, val_every, val_batches, log_every;
    size_t sample_every, sample_tokens, top_k;
    double temperature;
    bool autotune, check_launches, sample_only, plan, json, help, version, tensorboard;
    size_t params; // 0: plan the model
};

extern const struct Flag options_table[];
extern const size_t options_count;

// What the user asks for every so many steps (0: never), as --save-every does.
static inline bool is_due(uint64_t step, size_t every) {
    return every && step % every == 0;
}

// What --data and its like say.
struct DataSpec options_data(const struct Options *o);

// What the data chose where nothing was said: the length of a short text's sequences, and the
// tokenizer. Both go into `said` too, and so into config.json: a resumed run is not to choose
// again. The data must outlive both.
void options_keep_fit(struct Options *o, struct Options *said, const struct Data *d);

// Usage, the flags by group, and three examples.
void options_print_help(FILE *out);

// What a resumed run may not change, a line each: the text, the kernels, and "--name value" of the
// flags that shape the numbers, from `resolved`. free() it.
char *options_identity(const struct Flags *f, const struct Options *resolved, size_t vocab,
                       uint64_t fingerprint, const char *kernels);

// Reads the line, and where a run is resumed the configuration that it was started with. Errors:
// those of flags.h.
int options_read(struct Flags *f, int argc, char **argv, struct Error *e);

// Replaces every 0 and auto that means "the usual" by its value (`cores` threads a rank), and
// checks the values. One of them is kept in `said` too, and so in config.json: the global batch
// does not follow the ranks of a resumed run. Errors: -EINVAL.
int options_resolve(struct Options *o, struct Options *said, size_t cores, struct Error *e);

// Checks values against each other that no single row of the table can.
// Errors: -EINVAL with the flags, their values and what would be right.
int options_check(const struct Options *o, struct Error *e);

#endif
