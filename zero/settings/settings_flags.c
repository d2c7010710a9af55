// The flags of a rank and its training: see settings.h. A row is name, type, field, default, topic,
// value, help, what a resumed run may change, and other names (kernels/flag.h). A help text says
// what the flag does, and what it costs.
#include "zero/qlora/qlora.h"
#include "zero/engine.h"
#include "zero/settings/settings.h"
#include "zero/wire/wire.h"

#define AT(field) offsetof(struct Settings, field)

// The words of an enum are in the enum's order, one per value; auto is one more.
static const char *const dtype_words[] = {
    [F32] = "fp32", [BF16] = "bf16", [F16] = "fp16", [NDTYPE] = "auto", NULL};
static const char *const family_words[] = {[FAMILY_GPT2] = "gpt2",
                                           [FAMILY_LLAMA] = "llama",
                                           [FAMILY_MISTRAL] = "mistral",
                                           [FAMILY_QWEN2] = "qwen2",
                                           [FAMILY_QWEN3] = "qwen3",
                                           [NFAMILY] = "auto",
                                           NULL};
static const char *const recompute_words[] = {
    [RECOMPUTE_NONE] = "none", [RECOMPUTE_GELU] = "gelu",   [RECOMPUTE_ATTENTION] = "attention",
    [RECOMPUTE_MLP] = "mlp",   [RECOMPUTE_BLOCK] = "block", NULL};
static const char *const schedule_words[] = {[SCHEDULE_CONSTANT] = "constant",
                                             [SCHEDULE_COSINE] = "cosine",
                                             [SCHEDULE_LINEAR] = "linear",
                                             [SCHEDULE_WSD] = "wsd",
                                             [SCHEDULE_WARMUP_LR] = "WarmupLR",
                                             [SCHEDULE_WARMUP_DECAY_LR] = "WarmupDecayLR",
                                             [SCHEDULE_WARMUP_COSINE_LR] = "WarmupCosineLR",
                                             NULL};
static const char *const device_words[] = {
    [DEVICE_CPU] = "cpu", [DEVICE_CUDA] = "cuda", [NDEVICEKIND] = "auto", NULL};
static const char *const tier_words[] = {
    [TIER_DEVICE] = "none", [TIER_CPU] = "cpu", [TIER_NVME] = "nvme", NULL};

#define ASSERT_WORDS(words, n)                                                                     \
    _Static_assert(sizeof(words) / sizeof *(words) == (n) + 1, "a word for each value")
ASSERT_WORDS(dtype_words, NDTYPE + 1);
ASSERT_WORDS(family_words, NFAMILY + 1);
ASSERT_WORDS(recompute_words, NRECOMPUTE);
ASSERT_WORDS(schedule_words, NSCHEDULE);
ASSERT_WORDS(device_words, NDEVICEKIND + 1);
ASSERT_WORDS(tier_words, NTIER);
const struct Flag settings_table[] = {
    {"model", FLAG_STRING, AT(preset), "tiny", "Model", .argument = "NAME",
     .help = "The model to start from: tiny, gpt2, gpt2-medium, gpt2-large, gpt2-xl, or one of "
             "docs/models.md's Llama, Mistral, Qwen and SmolLM2, such as llama3.2-1b."},
    {"family", FLAG_CHOICE, AT(rank.model.kind), "auto", "Model", .words = family_words,
     .help = "What blocks are made of; auto: the model's. All but gpt2 have RMS norms, rotary "
             "embedding and SwiGLU.",
     .identity = FLAG_MODEL, .identity_if = "family"},
    {"layers", FLAG_SIZE, AT(rank.model.layers), "0", "Model", .argument = "N",
     .help = "Blocks; 0: the model's.", .identity = FLAG_MODEL,
     .also = "num-layers num-hidden-layers n-layer"},
    {"heads", FLAG_SIZE, AT(rank.model.heads), "0", "Model", .argument = "N",
     .help = "Attention heads; 0: the model's.", .identity = FLAG_MODEL,
     .also = "num-heads num-attention-heads n-head"},
    {"channels", FLAG_SIZE, AT(rank.model.channels), "0", "Model", .argument = "N",
     .help = "Width, a multiple of heads; 0: the model's.", .identity = FLAG_MODEL,
     .also = "hidden-size d-model n-embd"},
    {"kv-heads", FLAG_SIZE, AT(rank.model.kv_heads), "0", "Model", .argument = "N",
     .help = "Heads of keys and values, each read by as many of the others; 0: the model's.",
     .identity = FLAG_MODEL, .identity_if = "kv-heads",
     .also = "num-key-value-heads num-query-groups"},
    {"head-size", FLAG_SIZE, AT(rank.model.head_size), "0", "Model", .argument = "N",
     .help = "Channels of a head; 0: the model's, or channels / heads.", .identity = FLAG_MODEL,
     .identity_if = "head-size", .also = "head-dim kv-channels"},
    {"ffn", FLAG_SIZE, AT(rank.model.ffn), "0", "Model", .argument = "N",
     .help = "Width of the MLP; 0: the model's, or four times the channels.",
     .identity = FLAG_MODEL, .identity_if = "ffn", .also = "intermediate-size ffn-hidden-size"},
    {"attention-window", FLAG_SIZE, AT(rank.model.window), "0", "Model", .argument = "N",
     .help = "A token sees itself and so many less one before it; 0: the model's, or all.",
     .identity = FLAG_MODEL, .identity_if = "attention-window", .also = "sliding-window"},
    {"sparse-attention", FLAG_STRING, AT(sparse_attention), "dense", "Model",
     .argument = "MODE[:KEY=VALUE,...]",
     .help = "Of the blocks of tokens before it, those that a token sees: dense (all), or fixed, "
             "variable, bigbird, bslongformer or local with DeepSpeed's parameters, as in "
             "fixed:block=64,num_local_blocks=8 (docs/sparse.md).",
     .identity = FLAG_MODEL, .identity_if = "sparse-attention!=dense"},
    {"positions", FLAG_SIZE, AT(rank.model.positions), "0", "Model", .argument = "N",
     .help = "Rows of gpt2's position embedding, at least --seq-len; 0: as many.",
     .identity = FLAG_MODEL, .identity_if = "positions"},
    {"norm-eps", FLAG_FLOAT, AT(rank.model.norm_eps), "0", "Model", .argument = "0<=X<=1",
     .help = "Added to the variance in norms; 0: the model's, or 1e-5.", .identity = FLAG_MODEL,
     .identity_if = "norm-eps"},
    {"rope-theta", FLAG_FLOAT, AT(rank.model.rope.theta), "0", "Model", .argument = "0<=X<=1e12",
     .help = "Base of rotary embedding's angles; 0: the model's, or 10000.", .identity = FLAG_MODEL,
     .identity_if = "rope-theta", .also = "rotary-base"},
    {"rope-scaling", FLAG_STRING, AT(rope_scaling), NULL, "Model", .argument = "TEXT",
     .help =
         "How rotary embedding is stretched: none, linear:FACTOR, llama3:FACTOR:LOW:HIGH:ORIGINAL "
         "or yarn:FACTOR:ORIGINAL[:FAST:SLOW:ATTENTION[:exact]]. Default: the model's.",
     .identity = FLAG_MODEL, .identity_if = "rope-scaling!=none"},
    {"tie", FLAG_CHOICE, AT(tie), "auto", "Model",
     .words = FLAG_WORDS([TIE_AUTO] = "auto", [TIE_ON] = "on", [TIE_OFF] = "off"),
     .help =
         "on: the head's matrix is the token embedding; off: it has its own. auto: as the model.",
     .identity = FLAG_MODEL, .identity_if = "tie"},
    {"seq-len", FLAG_SIZE, AT(rank.model.seq_len), "0", "Model", .argument = "N",
     .help = "Tokens in a sequence; 0: the model's, or less for a short text; with --init, of "
             "examples: as many as the longest has, at most 1024.",
     .identity = FLAG_MODEL,
     .also = "seq-length max-seq-length max-length context-length sequence-length block-size "
             "ctx-size n-ctx max-model-len"},
    {"freeze", FLAG_STRING, AT(freeze), "none", "Training", .argument = "PARTS",
     .help =
         "Parts of the model that are not trained: embeddings, head, layers:FIRST-LAST (from 0), "
         "with commas between; they take no gradient and no optimizer state. A head that is "
         "the token embedding is frozen with it (docs/finetune.md).",
     .identity = FLAG_RUN, .identity_if = "freeze!=none"},
    {"lora-rank", FLAG_SIZE, AT(rank.model.lora.rank), "0", "Training", .argument = "N<=4096",
     .help = "Trains adapters of this rank beside the matrices of the blocks, and nothing else: "
             "LoRA. Layers that --freeze names have none (docs/finetune.md). 0: trains the model.",
     .identity = FLAG_RUN, .identity_if = "lora-rank", .also = "lora-r"},
    {"lora-alpha", FLAG_FLOAT, AT(rank.model.lora.alpha), "0", "Training", .argument = "0<=X<=1e6",
     .help = "An adapter's product counts alpha / rank times. 0: twice the rank.",
     .identity = FLAG_RUN, .identity_if = "lora-rank"},
    {"lora-targets", FLAG_STRING, AT(lora_targets), "all", "Training", .argument = "LIST",
     .help = "The matrices that have adapters: attention, mlp, all, or PEFT's names (q_proj ... "
             "down_proj; of GPT-2 c_attn, c_proj, c_fc), with commas between.",
     .identity = FLAG_RUN, .identity_if = "lora-rank",
     .also = "lora-target-modules target-modules"},
    {"lora-dropout", FLAG_FLOAT, AT(rank.model.lora.dropout), "0", "Training",
     .argument = "0<=X<=0.99", .help = "The share of an adapter's input that is dropped in a step.",
     .identity = FLAG_RUN, .identity_if = "lora-rank"},
    {"base-dtype", FLAG_CHOICE, AT(rank.model.lora.base), "none", "Training", .words = qlora_words,
     .help = "How the weights of blocks are kept that adapters are for: int8; nf4, 4 bits (QLoRA); "
             "none: in --dtype. They are unpacked, layer by layer, where they are used.",
     .identity = FLAG_RUN, .identity_if = "base-dtype!=none"},
    {"steps", FLAG_SIZE, AT(schedule.steps), "1000", "Training", .argument = "N<=99999999",
     .help = "The step at which the run ends, resumed or not.",
     .also = "max-steps max-iters train-iters num-iterations"},
    {"epochs", FLAG_SIZE, AT(epochs), "0", "Training", .argument = "N<=1000000",
     .help = "Instead of --steps: so many times through the training data, of several sources all "
             "together. Without it --steps counts.",
     .also = "num-epochs num-train-epochs"},
    {"batch", FLAG_SIZE, AT(rank.batch), "8", "Training", .argument = "1<=N<=65536",
     .help =
         "Sequences in a micro-batch on each rank. Activations take memory in proportion to it. "
         "With --init by default fewer, where these would take more than half of the free memory.",
     .identity = FLAG_RANKS,
     .also = "micro-batch micro-batch-size batch-size per-device-train-batch-size "
             "train-micro-batch-size-per-gpu"},
    {"global-batch", FLAG_SIZE, AT(global_batch), "0", "Training", .argument = "N<=4294967296",
     .help = "Sequences in a step on all ranks, a multiple of --batch times the data-parallel "
             "ranks: the rest is accumulation. 0: one micro-batch.",
     .identity = FLAG_RUN,
     .also = "gradient-accumulation-steps gradient-accumulation grad-accum global-batch-size "
             "train-batch-size total-batch-size"},
    {"lr", FLAG_FLOAT, AT(schedule.lr), "6e-4", "Training", .argument = "0<=X<=1000",
     .help = "Learning rate, the highest of the schedule.", .identity = FLAG_RUN,
     .also = "learning-rate max-lr"},
    {"min-lr", FLAG_FLOAT, AT(schedule.min_lr), "0", "Training", .argument = "0<=X<=1000",
     .help = "Where a decaying schedule ends.", .identity = FLAG_RUN, .also = "min-learning-rate"},
    {"warmup", FLAG_SIZE, AT(schedule.warmup), "0", "Training", .argument = "N<=99999999",
     .help = "Steps in which the rate rises to --lr.", .identity = FLAG_RUN,
     .also = "warmup-steps warmup-iters lr-warmup-steps lr-warmup-iters"},
    {"schedule", FLAG_CHOICE, AT(schedule.kind), "constant", "Training", .words = schedule_words,
     .help = "After the warm-up: constant, cosine or linear to --min-lr at --steps, wsd (constant, "
             "then linear over --decay-share), or the shapes of DeepSpeed's WarmupLR, "
             "WarmupDecayLR and WarmupCosineLR.",
     .identity = FLAG_RUN, .also = "lr-scheduler lr-scheduler-type lr-decay-style"},
    {"warmup-type", FLAG_CHOICE, AT(schedule.linear), "log", "Training",
     .words = FLAG_WORDS([0] = "log", [1] = "linear"),
     .help =
         "How the rate rises in the shapes of DeepSpeed's schedules; in the others it is a line.",
     .identity = FLAG_RUN, .identity_if = "warmup-type"},
    {"decay-share", FLAG_FLOAT, AT(schedule.decay_share), "0.2", "Training", .argument = "0<=X<=1",
     .help = "wsd: the last share of the steps.", .identity = FLAG_RUN},
    {"beta1", FLAG_FLOAT, AT(adam.beta1), "0.9", "Training", .argument = "0<=X<=0.999999",
     .help = "AdamW's momentum.", .identity = FLAG_RUN, .also = "adam-beta1"},
    {"beta2", FLAG_FLOAT, AT(adam.beta2), "0.95", "Training", .argument = "0<=X<=0.999999",
     .help = "AdamW's decay of squared gradients.", .identity = FLAG_RUN, .also = "adam-beta2"},
    {"eps", FLAG_FLOAT, AT(adam.eps), "1e-8", "Training", .argument = "1e-30<=X<=1",
     .help = "Added to AdamW's denominator.", .identity = FLAG_RUN,
     .also = "adam-eps adam-epsilon"},
    {"weight-decay", FLAG_FLOAT, AT(adam.weight_decay), "0.1", "Training", .argument = "0<=X<=1000",
     .help = "Weight decay, of matrices alone.", .identity = FLAG_RUN},
    {"clip", FLAG_FLOAT, AT(adam.clip), "1", "Training", .argument = "0<=X<=1e30",
     .help = "Largest norm of the gradient; 0: any.", .identity = FLAG_RUN,
     .also = "max-grad-norm gradient-clipping grad-clip clip-grad"},
    {"dtype", FLAG_CHOICE, AT(rank.model.dtype), "auto", "Numbers", .words = dtype_words,
     .help = "Format of parameters and activations. auto: bf16 where the device has instructions "
             "for it, which are a GPU, and a CPU with AVX512_BF16; else fp32; a resumed run keeps "
             "its own. bf16 and fp16 take half the memory of fp32, and are faster where the device "
             "multiplies them natively; they keep fp32 master weights for the optimizer. fp16 "
             "needs a loss scale, and finds it while it trains.",
     .identity = FLAG_RUN, .also = "bf16 fp16 precision mixed-precision torch-dtype"},
    {"grad-dtype", FLAG_CHOICE, AT(rank.grad_dtype), "auto", "Numbers", .words = dtype_words,
     .help = "Format of gradients. auto: --dtype for one micro-batch, fp32 with accumulation, "
             "whose sums would lose digits in 16 bits.",
     .identity = FLAG_RANKS},
    {"loss-scale", FLAG_POWER, AT(rank.loss_scale.initial), "65536", "Numbers",
     .argument = "1<=N<=1099511627776",
     .help = "--dtype fp16: what the loss is multiplied by at first, a power of two.",
     .identity = FLAG_RUN, .identity_if = "dtype=fp16"},
    {"loss-scale-window", FLAG_SIZE, AT(rank.loss_scale.window), "1000", "Numbers", .argument = "N",
     .help =
         "--dtype fp16: steps in a row without an overflow that double the loss scale; 0: none do.",
     .identity = FLAG_RUN, .identity_if = "dtype=fp16"},
    {"loss-scale-hysteresis", FLAG_SIZE, AT(rank.loss_scale.hysteresis), "2", "Numbers",
     .argument = "1<=N<=1000000",
     .help =
         "--dtype fp16: the overflow that halves the loss scale, as do all after it in a window.",
     .identity = FLAG_RUN, .identity_if = "dtype=fp16"},
    {"loss-scale-min", FLAG_POWER, AT(rank.loss_scale.least), "1", "Numbers",
     .argument = "1<=N<=1099511627776",
     .help = "--dtype fp16: the least loss scale, a power of two.", .identity = FLAG_RUN,
     .identity_if = "dtype=fp16"},
    {"recompute", FLAG_CHOICE, AT(rank.recompute), "none", "Memory", .words = recompute_words,
     .help = "What the backward pass computes again instead of keeping it. In a block, none keeps "
             "every tensor (16C numbers a token); gelu keeps all but the GELU's output (12C); "
             "attention keeps the block's input, qkv, the stream after attention and the MLP's "
             "pre-activation (9C); mlp not even that (5C), at the cost of a product, about a tenth "
             "more time; block keeps its input alone (C), at the cost of a second forward pass, "
             "about a third more time. Results are unchanged.",
     .also = "activation-checkpointing gradient-checkpointing recompute-granularity"},
    {"device-mem", FLAG_SIZE, AT(rank.device_bytes), "0", "Memory", .argument = "BYTES",
     .help = "Capacity of the device's memory that a rank may use, in bytes: 24G or 24GB is 24e9, "
             "24Gi or 24GiB is 24 times 2^30; 0: all. Costs nothing; what does not fit is refused "
             "with what would."},
    {"device", FLAG_CHOICE, AT(rank.device), "auto", "Machine", .words = device_words,
     .help = "Where it computes. auto: cuda where this build and machine have a GPU that it can "
             "use, and in a plan with --device-mem, else cpu; a resumed run keeps its own. A GPU "
             "rounds differently than a CPU."},
    {"autotune", FLAG_BOOL, AT(rank.autotune), "false", "Machine",
     .help = "On a GPU: time the algorithms there are for each matrix product at its first use, "
             "and take the quickest; the first steps are slower. Checkpoints keep the choice; "
             "another run may choose other ones. Changes results."},
    {"check-launches", FLAG_BOOL, AT(rank.check_launches), "false", "Machine",
     .help = "On a GPU: wait after each kernel, and name the one that fails, its step and unit. "
             "Slower. Results are unchanged."},
    {"overlap", FLAG_CHOICE, AT(rank.one_queue), "on", "Machine",
     .words = FLAG_WORDS([0] = "on", [1] = "off"),
     .help = "off: one queue instead of four, so that nothing runs beside anything else on a "
             "device, and no step is queued before the last has ended. Results are unchanged.",
     .also = "overlap-comm"},
    {"threads", FLAG_INT, AT(rank.threads), "0", "Machine", .argument = "0<=N<=4096",
     .help = "CPU threads of a kernel; 0: one per core of the rank. Changing it changes how sums "
             "are rounded, and so the losses' last digits; a resume keeps it.",
     .identity = FLAG_RANKS, .identity_if = "device=cpu"},
    {"kernels", FLAG_STRING, AT(rank.kernels), NULL, "Machine", .argument = "NAME",
     .help = "The CPU's kernels: oracle, base, avx2, avx512, avx512bf16, amx. Default: the fastest "
             "that it runs. Each rounds in its own way; oracle is plain C, and very slow."},
    {"ranks", FLAG_INT, AT(rank.ranks), "1", "ZeRO", .argument = "1<=N<=16384",
     .help = "Ranks, as threads of this process, at most 1024. Under mpirun or srun each process "
             "is a rank. All are data-parallel, but for --tp. --plan --cluster: GPUs.",
     .also = "world-size num-gpus nproc-per-node"},
    {"zero", FLAG_CHOICE, AT(rank.stage), "0", "ZeRO", .words = zero_stage_words,
     .help = "Stage of ZeRO, what ranks keep in shards: 0 nothing; 1 optimizer state; 2 gradients "
             "too; 3 parameters too. With one micro-batch 1 and 2 send as much as 0, 3 half as "
             "much again, and results are unchanged; with more, 2 and 3 reduce each, which sends "
             "more and rounds differently.",
     .also = "stage zero-stage zero-optimization"},
    {"zero-shard-size", FLAG_SIZE, AT(rank.shard_size), "0", "ZeRO", .argument = "N<=1024",
     .help = "Ranks over which --zero cuts its shards, best those of a machine; the job's other "
             "ranks keep the same shards, replicas, and gradients are summed over them once a step "
             "(hybrid sharding). Weights are then gathered among few ranks, and take more memory. "
             "A divisor of --ranks / --tp; 0: all. Sums over ranks round differently.",
     .identity = FLAG_RANKS, .identity_if = "!whole-group", .also = "mics-shard-size"},
    {"zero-hpz-partition-size", FLAG_SIZE, AT(rank.hpz_size), "0", "ZeRO", .argument = "N<=1024",
     .help = "--zero 3: neighbouring ranks, such as those of a machine, of whose second partition "
             "of the weights all but a step's first gathering are made (ZeRO++'s hpZ). Costs the "
             "weights' memory divided by it. A divisor of --zero-shard-size; 0: no second "
             "partition. Results are unchanged."},
    {"zero-quantized-weights", FLAG_CHOICE, AT(rank.quantized_weights), "false", "ZeRO",
     .words = wire_weight_words,
     .help =
         "--zero 1 to 3: weights are gathered in 8 bits, in blocks of 256 with a scale each "
         "(ZeRO++'s qwZ), which sends half as much as bf16. Updates are made on the weights as "
         "they were. At stages 1 and 2 it takes the memory of a shard besides. Changes results.",
     .identity = FLAG_RANKS, .identity_if = "zero-quantized-weights",
     .deepspeed = "zero_optimization.zero_quantized_weights"},
    {"zero-quantized-gradients", FLAG_BOOL, AT(rank.quantized_gradients), "false", "ZeRO",
     .help = "--zero 1 to 3: gradients are reduced in 4 bits, in blocks of 256 with a scale each, "
             "in two hops: among the ranks of a node (--node-size), and between nodes (ZeRO++'s "
             "qgZ). Sends a quarter of bf16, less still between nodes. Changes results, with the "
             "nodes' size.",
     .identity = FLAG_RANKS, .identity_if = "zero-quantized-gradients",
     .deepspeed = "zero_optimization.zero_quantized_gradients"},
    {"tp", FLAG_SIZE, AT(rank.tp), "1", "ZeRO", .argument = "1<=N<=1024",
     .help = "Tensor parallelism: so many neighbouring ranks, best GPUs of one machine, have a "
             "part of every matrix each and compute a micro-batch together. A divisor of --ranks, "
             "of the heads, of the key heads and of the MLP's width; --ranks / --tp ranks are "
             "data-parallel. Sums over TP ranks round differently.",
     .also = "tensor-parallel-size tensor-model-parallel-size"},
    {"pp", FLAG_SIZE, AT(rank.pp), "1", "ZeRO", .argument = "1<=N<=1024",
     .help = "Pipeline parallelism: the layers lie in so many stages, each on ranks of its own, "
             "which take up micro-batches by turns (1F1B). --tp times this is a divisor of "
             "--ranks, and as many ranks are data-parallel as go into it. --global-batch makes the "
             "micro-batches, of which there are better more than stages. Results are unchanged, "
             "but for the order of a sum where the head is tied.",
     .also = "pipeline-parallel-size pipeline-model-parallel-size"},
    {"pp-split", FLAG_STRING, AT(rank.pp_split), NULL, "ZeRO", .argument = "N,N,... or auto",
     .help =
         "--pp: the layers of each stage, from the embedding's to the head's. auto, the default: "
         "so that the stage that computes most has the least to do, the head counted."},
    {"sequence-parallel", FLAG_BOOL, AT(rank.sequence_parallel), "false", "ZeRO",
     .help = "--tp: what lies between the products of a block, the residual stream and norms, is "
             "in parts, too: each TP rank has as many rows of it, and fewer activations. As "
             "many bytes are sent, and a half more going backward. --seq-len is a multiple of "
             "--tp. Norms' gradients round differently."},
    {"partition-activations", FLAG_BOOL, AT(rank.partition_activations), "false", "ZeRO",
     .help = "--tp: each TP rank keeps a part of what a block keeps for its backward pass, and all "
             "gather it there (ZeRO-R's partitioned activation checkpointing); with "
             "--offload-activations, so that parts leave the device, too. Expects --recompute "
             "block. Results are unchanged."},
    {"show-chain", FLAG_STRING, AT(rank.show_chain), NULL, "Plan", .argument = "GROUP",
     .help =
         "--plan: also print how the bytes of this group of parameters travel in a step, hop by "
         "hop: embedding, block.0 and so on, head (ends, where that is tied to the embedding)."},
    {"cluster", FLAG_STRING, AT(rank.cluster), NULL, "Plan", .argument = "FILE",
     .help = "--plan: for GPUs that are not here. The file says how many there are in how many "
             "nodes, and how fast links, disks and kernels are (docs/scaling.md); printed is what "
             "each GPU and node would hold, and the time of a step with what overlaps what. Up "
             "to 16384 --ranks."},
    {"fit", FLAG_CHOICE, AT(fit), "off", "ZeRO",
     .words = FLAG_WORDS([FIT_OFF] = "off", [FIT_AUTO] = "auto", [FIT_MASTERS] = "auto,masters",
                         [FIT_LORA] = "auto,lora"),
     .help = "auto: choose --zero, --recompute, --batch, what is offloaded and where, and whether "
             "master weights are split, as far as no flag says them: of what fits, what is "
             "forecast to train fastest, and of two within 1% the smaller change. auto,masters: "
             "--master-dtype bf16 and --adam-dtype bf16, too, which change results. auto,lora: if "
             "nothing fits that trains the model, --lora-rank 16, and at need --base-dtype int8 or "
             "nf4. A resumed run keeps its batch, masters, moments and adapters, and fits again "
             "only where the line says --fit.",
     .also = "autotuning"},
    {"node-size", FLAG_SIZE, AT(rank.node_size), "0", "ZeRO", .argument = "N<=1024",
     .help = "Ranks of a node: what is sent to other nodes is counted apart, by the plan and by "
             "the run. 0: as many as the launcher put on this machine; of threads, all.",
     .identity = FLAG_RANKS, .identity_if = "zero-quantized-gradients", .also = "gpus-per-node"},
    {"prefetch", FLAG_SIZE, AT(rank.prefetch), "1", "ZeRO", .argument = "N<=64",
     .help = "Units whose parameters, where they are in shards or offloaded, are fetched ahead of "
             "the one that computes. Each costs the memory of a block's weights. 0 also means one "
             "bucket: no reduction beside the next unit's backward pass."},
    {"comm-timeout", FLAG_FLOAT, AT(rank.timeout_s), "600", "ZeRO", .argument = "1<=X<=1e6",
     .help = "Seconds that a rank waits for the others in one collective before it ends the job. "
             "What rank 0 does alone meanwhile counts: finishing a checkpoint."},
    {"comm-chunk", FLAG_SIZE, AT(rank.comm_chunk), "4Mi", "ZeRO",
     .argument = "65536<=BYTES<=1073741824",
     .help = "Between processes: bytes that a rank receives at a time, from all others together."},
    {"reduce-order", FLAG_CHOICE, AT(rank.reduce_native), "ordered", "ZeRO",
     .words = FLAG_WORDS([0] = "ordered", [1] = "native"),
     .help = "Between GPUs: ordered sums gradients in the order of ranks, so that all stages agree "
             "to the bit; native leaves the order to NCCL.",
     .was = "reduce"},
    {"check-comm", FLAG_BOOL, AT(rank.check_comm), "true", "ZeRO",
     .help = "Between processes: compare before each collective that all ranks make the same. "
             "Costs a small exchange each."},
    {"offload-optimizer", FLAG_CHOICE, AT(rank.opt_tier), "none", "Offload", .words = tier_words,
     .help = "Where master weights and moments lie, and where they are updated: on the device; or "
             "cpu, nvme: by the CPU, beside the next forward pass. Gradients then go to the CPU's "
             "memory. Results are unchanged.",
     .also = "cpu-offload optimizer-cpu-offload"},
    {"offload-param", FLAG_CHOICE, AT(rank.param_tier), "none", "Offload", .words = tier_words,
     .help = "Where weights are kept while no unit needs them: the device has some units' at a "
             "time. Costs two crossings of the bus in a micro-batch. Results are unchanged."},
    {"offload-activations", FLAG_CHOICE, AT(rank.act_tier), "none", "Offload", .words = tier_words,
     .help = "Where the backward pass finds what --recompute keeps of each block. Costs a crossing "
             "of the bus each way. Results are unchanged.",
     .also = "cpu-checkpointing"},
    {"offload-ratio", FLAG_FLOAT, AT(rank.offload_ratio), "1", "Offload", .argument = "0.001<=X<=1",
     .help = "Of the optimizer's state, how much --offload-optimizer moves, in whole blocks; the "
             "device updates the rest."},
    {"delay-update", FLAG_BOOL, AT(rank.delayed), "false", "Offload",
     .help = "With --offload-optimizer: weights are those of one update earlier, so that an update "
             "has a whole step's time. Changes results."},
    {"delay-after", FLAG_SIZE, AT(rank.delay_after), "0", "Offload", .argument = "N",
     .help = "--delay-update: steps before updates begin to be late.", .identity = FLAG_RUN,
     .identity_if = "delay-update"},
    {"adam-dtype", FLAG_CHOICE, AT(rank.moments_dtype), "fp32", "Offload",
     .words = FLAG_WORDS([F32] = "fp32", [BF16] = "bf16"),
     .help = "Format of AdamW's two moments. bf16 has half the bytes. Changes results.",
     .identity = FLAG_RUN, .identity_if = "adam-dtype", .was = "moments"},
    {"master-dtype", FLAG_CHOICE, AT(rank.master_format), "fp32", "Offload",
     .words = FLAG_WORDS([MASTER_FP32] = "fp32", [MASTER_SPLIT] = "split", [MASTER_BF16] = "bf16"),
     .help = "How AdamW's master weights are kept beside weights of --dtype bf16. split: their "
             "lower halves alone, half the bytes and the same results. bf16: not at all, the "
             "weights are rounded at random. Changes results.",
     .identity = FLAG_RUN, .identity_if = "master-dtype", .also = "master-weights",
     .was = "master"},
    {"host-mem", FLAG_SIZE, AT(rank.host_bytes), "0", "Offload", .argument = "BYTES",
     .help = "Most that the ranks of a node (--node-size) may offload to its memory together, in "
             "bytes; 0: what there is."},
    {"host-mem-per-rank", FLAG_SIZE, AT(rank.rank_host_bytes), "0", "Offload", .argument = "BYTES",
     .help = "Most that each rank may offload to the CPU's memory, in bytes; 0: its node's."},
    {"nvme-path", FLAG_STRING, AT(rank.nvme.folder), NULL, "Offload", .argument = "FOLDER",
     .help = "Folder on an NVMe disk, for what is offloaded to nvme. Nothing stays there."},
    {"nvme-block", FLAG_SIZE, AT(rank.nvme.block_bytes), "1Mi", "Offload",
     .argument = "4096<=BYTES<=268435456", .help = "Bytes that the disk reads or writes at once."},
    {"nvme-depth", FLAG_SIZE, AT(rank.nvme.depth), "16", "Offload", .argument = "1<=N<=4096",
     .help =
         "Reads, and writes, that it is given at once. Each costs memory of --nvme-block bytes."},
    {"check-io", FLAG_BOOL, AT(rank.nvme.check), "false", "Offload",
     .help = "Compare checksums of what the disk gives back with what it was given. Costs CPU time "
             "for each byte."},
    {"save-every", FLAG_EVERY, AT(intervals.save_every), "0", "Run", .argument = "N|TIME",
     .help = "Steps between checkpoints, or a time such as 30m; 0: at the end alone. USR1 asks for "
             "one, too.",
     .also = "save-steps save-interval"},
    {"save-async", FLAG_BOOL, AT(rank.save_async), "false", "Run",
     .help = "Write checkpoints on the way while training goes on, from a snapshot. Takes memory "
             "of the CPU's: 12 bytes for each parameter of a rank's shard. Results are unchanged."},
    {"keep", FLAG_SIZE, AT(intervals.keep), "2", "Run", .argument = "N",
     .help = "Checkpoints to keep; 0: all."},
    {"keep-best", FLAG_BOOL, AT(intervals.keep_best), "false", "Run",
     .help = "Save also after each validation on the way that has a lower loss than all before, "
             "and keep that checkpoint beside those of --keep: --resume best takes it. Expects "
             "--val-every."},
    {"patience", FLAG_SIZE, AT(intervals.patience), "0", "Run", .argument = "N<=1000000",
     .help = "End the run after so many validations on the way in a row without a lower loss; 0: "
             "never. Expects --val-every."},
    {"time-limit", FLAG_TIME, AT(intervals.time_limit), "0", "Run", .argument = "TIME",
     .help = "So long after its start, such as 3h55m, the run saves and stops as after SIGTERM; 0: "
             "never."},
    {"breakdown", FLAG_BOOL, AT(rank.breakdown), "false", "Run",
     .help = "Tell where each step's time went: how long each queue was busy, and what compute "
             "waited for: weights, updates, data, gradients or activations. Costs half a "
             "microsecond for each operation."},
    {"hash-every", FLAG_SIZE, AT(intervals.hash_every), "0", "Run", .argument = "N",
     .help =
         "Steps between hashes of all weights in the log, by which scripts/dev/compare.sh finds "
         "where two runs part; 0: none. Each reads the master weights, also from where they "
         "are offloaded, while nothing else runs."},
    {"val-every", FLAG_SIZE, AT(intervals.val_every), "0", "Run", .argument = "N",
     .help = "Steps between validations; 0: at the end alone.", .also = "eval-steps eval-interval"},
    {"eval-every", FLAG_SIZE, AT(intervals.eval_every), "0", "Evaluation", .argument = "N",
     .help = "Steps between evaluations by --eval; 0: at the end alone."},
    {"kv-cache-dtype", FLAG_CHOICE, AT(rank.cache_dtype), "auto", "Samples", .words = dtype_words,
     .help = "Format of the keys and values that generation keeps of each token; auto: --dtype."},
    {"sample-every", FLAG_SIZE, AT(intervals.sample_every), "0", "Samples", .argument = "N",
     .help = "Steps between samples; 0: none."},
};
const size_t settings_count = sizeof settings_table / sizeof settings_table[0];

const char *device_kind_name(enum DeviceKind kind) {
    return device_words[kind];
}
