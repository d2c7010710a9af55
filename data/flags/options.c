// The flags of ./train: see options.h. A row is name, type, field, default, help, group, value.
#include "data/flags/options.h"

#include "data/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT(field) offsetof(struct Options, field)
const struct Flag options_table[] = {
    {"model", FLAG_STRING, AT(model), "tiny",
     "Sizes to start from: tiny, gpt2, gpt2-medium, gpt2-large or gpt2-xl.", "Model", "NAME"},
    {"layers", FLAG_SIZE, AT(layers), "0", "Blocks; 0: the model's.", "Model", "N"},
    {"heads", FLAG_SIZE, AT(heads), "0", "Attention heads; 0: the model's.", "Model", "N"},
    {"channels", FLAG_SIZE, AT(channels), "0", "Width, a multiple of heads; 0: the model's.",
     "Model", "N"},
    {"seq-len", FLAG_SIZE, AT(seq_len), "0", "Tokens in a sequence; 0: the model's.", "Model", "N"},
    {"vocab", FLAG_SIZE, AT(vocab), "0",
     "Vocabulary, for token shards; 0: the tokenizer's, or 50257.", "Model", "N"},
    {"data", FLAG_STRING, AT(data), NULL,
     "A text file, a folder of them, a glob of token shards, a URL, tinyshakespeare, fineweb10B, "
     "or random.",
     "Data", "WHAT"},
    {"val-data", FLAG_STRING, AT(val_data), NULL,
     "Validation data, like --data. Without it, the last tenth of a text.", "Data", "WHAT"},
    {"tokenizer", FLAG_STRING, AT(tokenizer), NULL,
     "train:N trains N pieces on the training text, byte, or a SentencePiece .model file. Default: "
     "what fits the text, from byte for less than 256 KiB to train:8192 from 4 MiB on.",
     "Data", "WHAT"},
    {"cache", FLAG_STRING, AT(cache), NULL,
     "Folder for downloads, tokenizers, token shards and measurements. Default ~/.cache/zero.c.",
     "Data", "DIR"},
    {"steps", FLAG_SIZE, AT(steps), "1000", "The step at which the run ends, resumed or not.",
     "Training", "N<=99999999"},
    {"batch", FLAG_SIZE, AT(batch), "8", "Sequences in a micro-batch on each rank.", "Training",
     "1<=N<=65536"},
    {"global-batch", FLAG_SIZE, AT(global_batch), "0",
     "Sequences in a step on all ranks, a multiple of --batch times --ranks: the rest is "
     "accumulation. 0: one micro-batch.",
     "Training", "N<=4294967296"},
    {"lr", FLAG_FLOAT, AT(lr), "6e-4", "Learning rate, the highest of the schedule.", "Training",
     "0<=X<=1000"},
    {"min-lr", FLAG_FLOAT, AT(min_lr), "0", "Where a decaying schedule ends.", "Training",
     "0<=X<=1000"},
    {"warmup", FLAG_SIZE, AT(warmup), "0", "Steps in which the rate rises to --lr.", "Training",
     "N<=99999999"},
    {"schedule", FLAG_CHOICE, AT(schedule), "constant",
     "After the warm-up: constant, cosine or linear to --min-lr at --steps, wsd (constant, then "
     "linear over "
     "--decay-share), or the shapes of DeepSpeed's WarmupLR and WarmupDecayLR.",
     "Training", "constant|cosine|linear|wsd|WarmupLR|WarmupDecayLR"},
    {"decay-share", FLAG_FLOAT, AT(decay_share), "0.2", "wsd: the last share of the steps.",
     "Training", "0<=X<=1"},
    {"beta1", FLAG_FLOAT, AT(beta1), "0.9", "AdamW's momentum.", "Training", "0<=X<=0.999999"},
    {"beta2", FLAG_FLOAT, AT(beta2), "0.95", "AdamW's average of squares.", "Training",
     "0<=X<=0.999999"},
    {"eps", FLAG_FLOAT, AT(eps), "1e-8", "AdamW's denominator.", "Training", "1e-30<=X<=1"},
    {"weight-decay", FLAG_FLOAT, AT(weight_decay), "0.1", "On matrices, not on vectors.",
     "Training", "0<=X<=1000"},
    {"clip", FLAG_FLOAT, AT(clip), "1", "Largest norm of the gradient; 0: any.", "Training",
     "0<=X<=1e30"},
    {"seed", FLAG_SIZE, AT(seed), "1", "Of initial weights, order of data and samples.", "Training",
     "N"},
    {"dtype", FLAG_CHOICE, AT(dtype), "fp32",
     "Of parameters and activations. fp16 needs a loss scale, and finds it while it trains.",
     "Numbers and memory", "fp32|bf16|fp16"},
    {"grad-dtype", FLAG_CHOICE, AT(grad_dtype), "auto",
     "Of gradients. auto: --dtype for one micro-batch, fp32 with accumulation.",
     "Numbers and memory", "auto|fp32|bf16|fp16"},
    {"loss-scale", FLAG_SIZE, AT(loss_scale), "65536",
     "--dtype fp16: what the loss is multiplied by at first, a power of two.", "Numbers and memory",
     "1<=N<=1099511627776"},
    {"loss-scale-window", FLAG_SIZE, AT(loss_scale_window), "1000",
     "--dtype fp16: steps in a row without an overflow that double the loss scale; 0: none do.",
     "Numbers and memory", "N"},
    {"loss-scale-hysteresis", FLAG_SIZE, AT(loss_scale_hysteresis), "2",
     "--dtype fp16: the overflow that halves the loss scale, as do all after it in a window.",
     "Numbers and memory", "1<=N<=1000000"},
    {"loss-scale-min", FLAG_SIZE, AT(loss_scale_min), "1",
     "--dtype fp16: the least loss scale, a power of two.", "Numbers and memory",
     "1<=N<=1099511627776"},
    {"recompute", FLAG_CHOICE, AT(recompute), "none",
     "What the backward pass computes again instead of keeping it. In a block, none keeps every "
     "tensor "
     "(16C numbers a token); gelu keeps all but the GELU's output (12C); attention keeps the "
     "block's input, "
     "qkv, the stream after attention and the MLP's pre-activation (9C); block keeps its input "
     "alone (C).",
     "Numbers and memory", "none|gelu|attention|block"},
    {"device-mem", FLAG_SIZE, AT(device_mem), "0",
     "Capacity of the device's memory in bytes; 0: all.", "Numbers and memory", "BYTES"},
    {"plan", FLAG_BOOL, AT(plan), NULL,
     "Print the memory that the run would take, what each rank would send and move, and with "
     "offload the time that a step takes at least; and exit.",
     "Numbers and memory", NULL},
    {"json", FLAG_BOOL, AT(json), NULL, "--plan: as one JSON object, in bytes.",
     "Numbers and memory", NULL},
    {"params", FLAG_SIZE, AT(params), "0",
     "--plan: the model states of so many parameters, such as 7.5G, instead of a model's memory; "
     "0: "
     "a model's.",
     "Numbers and memory", "N<=100000000000000"},
    {"device", FLAG_CHOICE, AT(device), "cpu", "Where it computes.", "Machine", "cpu|cuda"},
    {"autotune", FLAG_BOOL, AT(autotune), "false",
     "On a GPU: time the algorithms there are for each matrix product at its first use, and take "
     "the quickest. Checkpoints keep the choice; another run may choose other ones, and other "
     "bits.",
     "Machine", NULL},
    {"check-launches", FLAG_BOOL, AT(check_launches), "false",
     "On a GPU: wait after each kernel, and name the one that fails, its step and unit. The same "
     "bits, slower.",
     "Machine", NULL},
    {"overlap", FLAG_CHOICE, AT(overlap), "on",
     "off: one queue instead of four, so that nothing runs beside anything else on a device, and "
     "no step is queued before the last has ended. The same bits.",
     "Machine", "off|on"},
    {"threads", FLAG_SIZE, AT(threads), "0", "Of a kernel; 0: one per core. Part of the numerics.",
     "Machine", "N<=4096"},
    {"kernels", FLAG_STRING, AT(kernels), NULL,
     "The CPU's kernels: oracle, base, avx2 or avx512. Default: the fastest that it runs.",
     "Machine", "NAME"},
    {"ranks", FLAG_SIZE, AT(ranks), "1",
     "Data-parallel ranks, as threads of this process. Under mpirun or srun each process is a "
     "rank.",
     "ZeRO", "1<=N<=1024"},
    {"zero", FLAG_CHOICE, AT(zero), "0",
     "Stage of ZeRO, what ranks keep in shards: 0 nothing; 1 optimizer state; 2 gradients too; 3 "
     "parameters too.",
     "ZeRO", "0|1|2|3"},
    {"prefetch", FLAG_SIZE, AT(prefetch), "1",
     "Units whose parameters, where they are in shards or offloaded, are fetched ahead of the one "
     "that computes.",
     "ZeRO", "N<=64"},
    {"comm-timeout", FLAG_FLOAT, AT(comm_timeout), "600",
     "Seconds that a rank waits for the others in one collective before it ends the job. What rank "
     "0 does alone meanwhile counts: finishing a checkpoint.",
     "ZeRO", "1<=X<=1e6"},
    {"comm-chunk", FLAG_SIZE, AT(comm_chunk), "4Mi",
     "Between processes: bytes that a rank receives at a time, from all others together.", "ZeRO",
     "65536<=BYTES<=1073741824"},
    {"reduce", FLAG_CHOICE, AT(reduce), "ordered",
     "Between GPUs: ordered sums gradients in the order of ranks, so that all stages agree to the "
     "bit; native leaves the order to NCCL.",
     "ZeRO", "ordered|native"},
    {"check-comm", FLAG_BOOL, AT(check_comm), "true",
     "Between processes: compare before each collective that all ranks make the same.", "ZeRO",
     NULL},
    {"offload-optimizer", FLAG_CHOICE, AT(offload_optimizer), "none",
     "Where master weights and moments lie, and where they are updated: on the device; or cpu, "
     "nvme: "
     "by the CPU, beside the next forward pass. Gradients then go to the CPU's memory. The same "
     "bits.",
     "Offload", "none|cpu|nvme"},
    {"offload-param", FLAG_CHOICE, AT(offload_param), "none",
     "Where weights lie while no unit needs them: the device has some units' at a time. The same "
     "bits.",
     "Offload", "none|cpu|nvme"},
    {"offload-activations", FLAG_CHOICE, AT(offload_activations), "none",
     "Where the backward pass finds what --recompute keeps of each block. The same bits.",
     "Offload", "none|cpu|nvme"},
    {"offload-ratio", FLAG_FLOAT, AT(offload_ratio), "1",
     "Of the optimizer's state, how much --offload-optimizer moves, in whole blocks; the device "
     "updates the rest.",
     "Offload", "0.001<=X<=1"},
    {"delay-update", FLAG_BOOL, AT(delay_update), "false",
     "With --offload-optimizer: weights are those of one update earlier, so that an update has a "
     "whole step's time. Other numbers.",
     "Offload", NULL},
    {"delay-after", FLAG_SIZE, AT(delay_after), "0",
     "--delay-update: steps before updates begin to be late.", "Offload", "N"},
    {"moments", FLAG_CHOICE, AT(moments), "fp32",
     "Format of AdamW's two moments. bf16 has half the bytes, and other numbers.", "Offload",
     "fp32|bf16"},
    {"host-mem", FLAG_SIZE, AT(host_mem), "0",
     "Most that a rank may offload to the CPU's memory, in bytes; 0: what there is.", "Offload",
     "BYTES"},
    {"nvme-path", FLAG_STRING, AT(nvme_path), NULL,
     "Folder on an NVMe disk, for what is offloaded to nvme. Nothing stays there.", "Offload",
     "FOLDER"},
    {"nvme-block", FLAG_SIZE, AT(nvme_block), "1Mi", "Bytes that the disk reads or writes at once.",
     "Offload", "4096<=BYTES<=268435456"},
    {"nvme-depth", FLAG_SIZE, AT(nvme_depth), "16", "Reads, and writes, that it is given at once.",
     "Offload", "1<=N<=4096"},
    {"check-io", FLAG_BOOL, AT(check_io), "false",
     "Compare checksums of what the disk gives back with what it was given.", "Offload", NULL},
    {"out", FLAG_STRING, AT(out), "out", "Folder for log, checkpoints and configuration.", "Run",
     "DIR"},
    {"save-every", FLAG_SIZE, AT(save_every), "0",
     "Steps between checkpoints; 0: at the end alone.", "Run", "N"},
    {"keep", FLAG_SIZE, AT(keep), "2", "Checkpoints to keep; 0: all.", "Run", "N"},
    {"resume", FLAG_STRING, AT(resume), NULL,
     "auto: go on from the newest checkpoint in --out that is intact, or start; or a checkpoint's "
     "folder. "
     "Flags that are not given are taken from --out's config.json.",
     "Run", "auto|DIR"},
    {"config", FLAG_STRING, AT(config), NULL, "Read flags from a config.json.", "Run", "FILE"},
    {"val-every", FLAG_SIZE, AT(val_every), "0", "Steps between validations; 0: at the end alone.",
     "Run", "N"},
    {"val-batches", FLAG_SIZE, AT(val_batches), "20", "Micro-batches of a validation on the way.",
     "Run", "1<=N<=1000000"},
    {"log-every", FLAG_SIZE, AT(log_every), "10", "Steps between lines where there is no terminal.",
     "Run", "N"},
    {"trace", FLAG_STRING, AT(trace), NULL,
     "Write what every queue did in the last step, as Chrome trace JSON; rank N > 0 writes FILE.N.",
     "Run", "FILE"},
    {"tensorboard", FLAG_BOOL, AT(tensorboard), "true",
     "Write a TensorBoard event file into --out.", "Run", NULL},
    {"sample-every", FLAG_SIZE, AT(sample_every), "0", "Steps between samples; 0: none.", "Samples",
     "N"},
    {"sample-only", FLAG_BOOL, AT(sample_only), NULL,
     "With --resume: print a sample, and on standard output nothing else, and exit.", "Samples",
     NULL},
    {"prompt", FLAG_STRING, AT(prompt), "\n", "What a sample begins with.", "Samples", "TEXT"},
    {"sample-tokens", FLAG_SIZE, AT(sample_tokens), "200", "Length of a sample.", "Samples",
     "1<=N<=1000000"},
    {"temperature", FLAG_FLOAT, AT(temperature), "0.8", "0: always the likeliest token.", "Samples",
     "0<=X<=1000"},
    {"top-k", FLAG_SIZE, AT(top_k), "50", "Draw among the k likeliest tokens; 0: all.", "Samples",
     "N"},
    {"help", FLAG_BOOL, AT(help), NULL, "Print this, and exit.", "Help", NULL},
    {"version", FLAG_BOOL, AT(version), NULL, "Print version and libraries, and exit.", "Help",
     NULL},
};
const size_t options_count = sizeof options_table / sizeof options_table[0];

void options_print_help(FILE *out) {
    fputs("Usage: ./train --data WHAT [--FLAG VALUE ...]\n\n"
          "Trains a GPT on text. Three examples:\n\n"
          "  ./train --data README.md --steps 50\n"
          "  ./train --out out --resume auto --sample-only --prompt \"zero.c \"\n"
          "  ./train --data random --model gpt2 --dtype bf16 --batch 4 --seq-len 512 --plan\n\n",
          out);
    flags_print_help(options_table, options_count, out);
}

static const char *const scale_flags[] = {"loss-scale-min", "loss-scale-hysteresis",
                                          "loss-scale-window", "loss-scale"};
enum { NSCALE_FLAGS = sizeof scale_flags / sizeof scale_flags[0] };
static const char *const nvme_flags[] = {"check-io", "nvme-depth", "nvme-block", "nvme-path"};
enum { NNVME_FLAGS = sizeof nvme_flags / sizeof nvme_flags[0] };

static bool is_on_line(const struct Flags *f, const char *name) {
    return f->source[flags_find(f, name)] == FLAG_FROM_LINE;
}

// The last of some flags that is on the command line; NULL: none is.
static const char *last_on_line(const struct Flags *f, const char *const *names, size_t n) {
    const char *last = NULL;
    for (size_t i = 0; i < n; i++)
        last = is_on_line(f, names[i]) ? names[i] : last;
    return last;
}

int options_read(struct Flags *f, int argc, char **argv, struct Error *e) {
    struct Options *said = f->options;
    int err = flags_parse(f, argc, argv, e);
    if (err || said->help || said->version)
        return err;
    bool batch_given = is_on_line(f, "batch");
    bool offload_given = is_on_line(f, "offload-ratio") || is_on_line(f, "host-mem");
    const char *scale_given = last_on_line(f, scale_flags, NSCALE_FLAGS);
    const char *nvme_given = last_on_line(f, nvme_flags, NNVME_FLAGS);
    char *saved = base_format("%s/config.json", said->out);
    if (said->resume && !said->config && access(saved, R_OK) == 0)
        err = flags_load_json(f, saved, e);
    said->batch_given = batch_given;
    said->loss_scale_given = scale_given;
    said->nvme_given = nvme_given;
    said->offload_given = offload_given;
    free(saved);
    return err;
}

// ---- "the usual" ----

// Radford et al. 2019, and the smallest that learns something in a minute.
static const struct Preset {
    const char *name;
    size_t layers, heads, channels, seq_len;
} presets[] = {
    {"gpt2", 12, 12, 768, 1024},
    {"gpt2-medium", 24, 16, 1024, 1024},
    {"gpt2-large", 36, 20, 1280, 1024},
    {"gpt2-xl", 48, 25, 1600, 1024},
    {"tiny", 4, 4, 128, 64},
};

static const struct Preset *preset_of(const char *name) {
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

static void fill(size_t *value, size_t otherwise) {
    if (!*value)
        *value = otherwise;
}

// A run that is resumed on other ranks keeps its global batch. Unless the user says otherwise, a
// micro-batch is then the largest, up to what it was, that divides it.
static void refit_batch(struct Options *o) {
    size_t each = o->global_batch / o->ranks;
    if (!o->resume || o->batch_given || o->global_batch % o->ranks)
        return; // options_check looks at what it is
    o->batch = o->batch < each ? o->batch : each;
    while (each % o->batch)
        o->batch--;
}

int options_resolve(struct Options *o, struct Options *said, size_t cores, struct Error *e) {
    const struct Preset *p = preset_of(o->model);
    if (!p)
        return error_set(e, -EINVAL,
                         "--model %s: expected tiny, gpt2, gpt2-medium, gpt2-large or gpt2-xl",
                         o->model);
    if (o->plan && !o->data)
        o->data = "random"; // memory does not depend on the text
    fill(&o->layers, p->layers);
    fill(&o->heads, p->heads);
    fill(&o->channels, p->channels);
    o->seq_len_usual = !o->seq_len;
    fill(&o->seq_len, p->seq_len);
    o->asked_batch = o->global_batch;
    o->grad_auto = o->grad_dtype == GRAD_AUTO;
    fill(&o->global_batch, o->batch * o->ranks);
    said->global_batch = o->global_batch;
    refit_batch(o);
    fill(&o->threads, cores);
    bool accumulates = o->global_batch > o->batch * o->ranks;
    if (o->grad_auto)
        o->grad_dtype = accumulates ? GRAD_FP32 : GRAD_FP32 + o->dtype;
    return options_check(o, e);
}

struct DataSpec options_data(const struct Options *o) {
    return (struct DataSpec){o->data,    o->val_data, o->tokenizer, o->cache,
                             o->seq_len, o->vocab,    o->seed,      o->seq_len_usual};
}

void options_keep_fit(struct Options *o, struct Options *said, const struct Data *d) {
    const char *tokenizer = data_fitted_tokenizer(d);
    if (data_seq_len(d) != o->seq_len)
        o->seq_len = said->seq_len = data_seq_len(d);
    if (tokenizer)
        o->tokenizer = said->tokenizer = tokenizer;
}

// text, freed, with a line for one flag.
static char *with_flag(char *text, const struct Flags *f, const char *name) {
    char *value = flags_value(f, name);
    char *longer = base_format("%s--%s %s\n", text, name, value);
    free(value);
    free(text);
    return longer;
}

// All that shapes the weights but --steps, --data (whose content is compared), and what a resume
// may change: ranks, the stage (with accumulation its bits are those of a pair, zero/grad.c),
// recompute.
char *options_identity(const struct Flags *f, const struct Options *resolved, size_t vocab,
                       uint64_t fingerprint, const char *kernels) {
    struct Flags of_resolved = *f;
    of_resolved.options = (void *)resolved;
    static const char *const names[] = {
        "layers",       "heads",  "channels", "seq-len",     "batch",     "global-batch", "lr",
        "min-lr",       "warmup", "schedule", "decay-share", "beta1",     "beta2",        "eps",
        "weight-decay", "clip",   "seed",     "dtype",       "grad-dtype"};
    bool gpu = !strcmp(kernels, "cuda"); // whose results do not depend on the host's threads
    char *text =
        base_format("vocabulary %zu\ntext of --data, --val-data, --tokenizer %016llx\n"
                    "--%s %s\n",
                    vocab, (unsigned long long)fingerprint, gpu ? "device" : "kernels", kernels);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        text = with_flag(text, &of_resolved, names[i]);
    if (!gpu)
        text = with_flag(text, &of_resolved, "threads");
    for (size_t i = 0; i < NSCALE_FLAGS && resolved->dtype == DTYPE_FP16; i++)
        text = with_flag(text, &of_resolved, scale_flags[i]);
    // Only where they are not the usual, which they were when there were no such flags.
    if (resolved->moments)
        text = with_flag(text, &of_resolved, "moments");
    if (resolved->delay_update)
        text = with_flag(text, &of_resolved, "delay-after");
    return text;
}
