// The flags of ./train that are not a rank's settings: see options.h. A row is name, type, field,
// default, topic, value, help and so on (kernels/flag.h).
#include "data/flags/options.h"

#include "data/chat/map.h"
#include "data/file.h"
#include "data/text/text.h"
#include "kernels/dtype.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT(field) offsetof(struct Options, field)
const struct Flag options_table[] = {
    {"vocab", FLAG_SIZE, AT(vocab), "0", "Model", .argument = "N",
     .help = "Vocabulary, for token shards; 0: the tokenizer's, or 50257."},
    {"data", FLAG_LIST, AT(data), NULL, "Data", .argument = "WHAT[:WEIGHT]",
     .help = "A text file, a folder of them, a pipe, a glob of token shards, a .jsonl or .json "
             "file of examples, a URL, tinyshakespeare, fineweb10B, or random. Text and examples "
             "may be packed: .gz, .zst. Given several times, samples come from all, as often as "
             "the weights say: a.jsonl:3 thrice as often as b.jsonl:1.",
     .also = "dataset data-path train-file"},
    {"val-data", FLAG_STRING, AT(val_data), NULL, "Data", .argument = "WHAT",
     .help = "Validation data, like one --data. Without it, the last tenth of each text, or of the "
             "examples.",
     .also = "valid-data validation-file"},
    {"pack", FLAG_CHOICE, AT(pack), "auto", "Data",
     .words = FLAG_WORDS([PACK_AUTO] = "auto", [PACK_ON] = "on", [PACK_OFF] = "off"),
     .help = "on: several examples of JSONL share a sequence, and none attends to another; off: "
             "each has its own, the rest of which is wasted. auto: on, where there are examples."},
    {"tokenizer", FLAG_STRING, AT(tokenizer), NULL, "Data", .argument = "WHAT",
     .help = "train:N trains N pieces on the training text, byte, a tokenizer.json (BPE) or "
             "SentencePiece .model file, or a folder that has one. Default: that of the folder of "
             "--init hf:; else what fits the text, from byte for less than 256 KiB to train:8192 "
             "from 4 MiB on.",
     .also = "tokenizer-path tokenizer-model"},
    {"chat-template", FLAG_STRING, AT(chat_template), NULL, "Data", .argument = "NAME|FILE",
     .help = "How conversations become text: chatml, llama3.1, zephyr and others (docs/finetune.md "
             "lists them), or FILE.json with each role's prefix and suffix. Default: what came "
             "with the tokenizer, if it is one of these."},
    {"data-map", FLAG_STRING, AT(data_map), NULL, "Data", .argument = "TARGET=MEMBER,...",
     .help = "Which member of a line of JSONL is what, where they have names of their own: "
             "prompt=question,completion=reply; or text=MEMBER; messages and system; or "
             "instruction, input, output and system. Other members are not read. Default: by their "
             "names (docs/finetune.md)."},
    {"cache", FLAG_STRING, AT(cache), NULL, "Data", .argument = "DIR",
     .help = "Folder for downloads, tokenizers, token shards and measurements. Default "
             "~/.cache/zero.c."},
    {"prepare-only", FLAG_BOOL, AT(prepare_only), NULL, "Data",
     .help =
         "Fetch, encode and pack what the run would train on into --cache, print where it lies, "
         "and exit. The run then begins at once. Of shards that are fetched it is as many as "
         "--steps and --global-batch need: for a job of more ranks than this one has, give "
         "--global-batch or --ranks, too.",
     .identity = FLAG_NOW},
    {"init", FLAG_STRING, AT(init), NULL, "Model", .argument = "KIND:PATH",
     .help =
         "Where weights come from that are not random: hf:DIR, a model's folder as Hugging Face "
         "has it; run:DIR, another run's --out, or a checkpoint's folder; llmc:FILE, a model of "
         "llm.c. They say what the model is. Of --lr, --weight-decay and --warmup each that is not "
         "given is then 1e-5, 0 and 3% of the steps. A checkpoint of this run goes before.",
     .also = "model-name-or-path pretrained"},
    {"init-adapter", FLAG_STRING, AT(init_adapter), NULL, "Model", .argument = "DIR",
     .help =
         "An adapter of PEFT's (LoRA) for the model of --init, to be trained on or used. It says "
         "what --lora-rank, --lora-alpha and --lora-targets are.",
     .also = "adapter adapter-name-or-path"},
    {"export-adapter", FLAG_STRING, AT(export_adapter), NULL, "Run", .argument = "DIR",
     .help = "When the last step is done, write the adapters to a new folder as PEFT has it. "
             "--export writes the whole model, with the adapters merged.",
     .identity = FLAG_NOW},
    {"export", FLAG_STRING, AT(export), NULL, "Run", .argument = "KIND:PATH",
     .help = "When the last step is done, write the weights to hf:DIR, a new folder as Hugging "
             "Face has it, or llmc:FILE, a new file as llm.c has it (gpt2 alone; fp32, bf16). A "
             "run that is done already is exported by --resume auto.",
     .identity = FLAG_NOW},
    {"export-dtype", FLAG_CHOICE, AT(export_dtype), "auto", "Run",
     .words = FLAG_WORDS([F32] = "fp32", [BF16] = "bf16", [F16] = "fp16", [NDTYPE] = "auto"),
     .help = "Format of exported weights. auto: that of the files of --init, else --dtype.",
     .identity = FLAG_NOW},
    {"seed", FLAG_SIZE, AT(seed), "1", "Training", .argument = "N",
     .help = "Of initial weights, order of data and samples.", .identity = FLAG_RUN},
    {"plan", FLAG_BOOL, AT(plan), NULL, "Plan",
     .help = "Print the memory that the run would take, what each rank would send and move, and "
             "with offload the time that a step takes at least; and exit. --data may be left out.",
     .identity = FLAG_NOW},
    {"json", FLAG_BOOL, AT(json), NULL, "Plan", .help = "--plan: as one JSON object, in bytes."},
    {"html", FLAG_STRING, AT(html), NULL, "Plan", .argument = "FILE",
     .help =
         "--plan: as a calculator, one web page with the plans of all models, on 1 to 64 ranks, "
         "for every stage, micro-batches of 1 to 8, bf16 and fp32, without offload, with the "
         "optimizer's, and with all to the CPU. What the line says of these is so in all; so "
         "are its other flags. It plans for a GPU, unless --device says otherwise.",
     .identity = FLAG_NOW},
    {"params", FLAG_SIZE, AT(params), "0", "Plan", .argument = "N<=100000000000000",
     .help = "--plan: the model states of so many parameters, such as 7.5G, instead of a model's "
             "memory; 0: a model's."},
    {"out", FLAG_STRING, AT(out), "out", "Run", .argument = "DIR",
     .help = "Folder for log, checkpoints and configuration.", .also = "output-dir out-dir"},
    {"backup-dir", FLAG_STRING, AT(backup_dir), NULL, "Run", .argument = "DIR",
     .help = "A second folder, best on another disk, where a checkpoint goes that --out has no "
             "room for. --resume auto looks in both.",
     .was = "save-also"},
    {"resume", FLAG_STRING, AT(resume), NULL, "Run", .argument = "auto|best|DIR",
     .help = "auto: go on from the newest checkpoint in --out that is intact, or start; or a "
             "checkpoint's folder; best: what --keep-best keeps, for --export, --eval-only or "
             "--sample-only. Flags that are not given are taken from --out's config.json.",
     .identity = FLAG_NOW, .also = "resume-from-checkpoint load"},
    {"config", FLAG_STRING, AT(config), NULL, "Run", .argument = "FILE",
     .help = "Read flags from a config.json.", .identity = FLAG_NOW},
    {"deepspeed", FLAG_STRING, AT(deepspeed), NULL, "Run", .argument = "FILE",
     .help = "Read flags from a configuration file of DeepSpeed's. Each key is honoured, or it is "
             "said why it need not be, or refused; what the line says otherwise is refused.",
     .identity = FLAG_NOW, .also = "deepspeed-config"},
    {"val-batches", FLAG_SIZE, AT(val_batches), "20", "Run", .argument = "1<=N<=1000000",
     .help = "Micro-batches of a validation on the way."},
    {"eval", FLAG_STRING, AT(eval), NULL, "Evaluation", .argument = "WHAT[,WHAT...]",
     .help = "What to evaluate at the end, behind validation: ppl, the perplexity of the whole "
             "validation data; hellaswag:FILE, the data set's JSONL or llm.c's .bin; several with "
             "a comma between two; none."},
    {"eval-limit", FLAG_SIZE, AT(eval_limit), "0", "Evaluation", .argument = "N",
     .help = "Items of a file, or sequences of ppl, to evaluate; 0: all."},
    {"eval-only", FLAG_BOOL, AT(eval_only), NULL, "Evaluation",
     .help = "With --resume, or --init: evaluate, print the results, on standard output nothing "
             "else, and exit.",
     .identity = FLAG_NOW},
    {"log-every", FLAG_SIZE, AT(log_every), "10", "Run", .argument = "N",
     .help = "Steps between lines where there is no terminal.",
     .also = "logging-steps log-interval", .deepspeed = "steps_per_print"},
    {"peak-tflops", FLAG_FLOAT, AT(peak_tflops), "0", "Run", .argument = "0<=X<=1e6",
     .help = "What the maker says that each rank's device does of --dtype's products in a second, "
             "in 10^12 operations: with it the model FLOPs utilisation (MFU) is told, too; 0: only "
             "the share of the speed that was measured."},
    {"trace", FLAG_STRING, AT(trace), NULL, "Run", .argument = "FILE",
     .help = "Write what every queue did in the last step, as Chrome trace JSON; rank N > 0 writes "
             "FILE.N.",
     .also = "profile"},
    {"trace-zero", FLAG_STRING, AT(trace_zero), NULL, "Run", .argument = "FILE",
     .help = "Write what became of every block of memory in the last step: what it held, which "
             "hops and units wrote and read it, in which order and why (docs/trace.md); rank N > 0 "
             "writes FILE.N."},
    {"tensorboard", FLAG_BOOL, AT(tensorboard), "true", "Run",
     .help = "Write a TensorBoard event file into --out.", .deepspeed = "tensorboard.enabled"},
    {"sample-only", FLAG_BOOL, AT(sample_only), NULL, "Samples",
     .help = "With --resume, or --init: print a sample, and on standard output nothing else, and "
             "exit. --seed says which one; the model sees --seq-len tokens (docs/chat.md).",
     .identity = FLAG_NOW, .also = "sample generate inference"},
    {"prompt", FLAG_STRING, AT(prompt), "\n", "Samples", .argument = "TEXT",
     .help = "What a sample begins with."},
    {"chat", FLAG_OPTIONAL, AT(chat), NULL, "Samples", .argument = "[TEXT]",
     .help = "--sample-only: ask the model TEXT as its chat template has it, and print the answer "
             "alone. Without TEXT a conversation, a question a line (docs/chat.md)."},
    {"system", FLAG_STRING, AT(system), NULL, "Samples", .argument = "TEXT",
     .help = "With --chat: the system message in front of the question; with --prompts: of "
             "conversations that have none. Default: the template's own."},
    {"prompts", FLAG_STRING, AT(prompts), NULL, "Samples", .argument = "FILE.jsonl",
     .help = "--sample-only, with --answers: answer all prompts of a file, up to --batch at a "
             "time: a line {\"prompt\": TEXT}, which is continued, or {\"messages\": [...]}, "
             "which is answered by the chat template.",
     .identity = FLAG_NOW},
    {"answers", FLAG_STRING, AT(answers), NULL, "Samples", .argument = "FILE.jsonl",
     .help = "Where the answers to --prompts go: its lines, with \"answer\" and "
             "\"finish_reason\" (stop or length). A file that has some of them already is gone "
             "on with.",
     .identity = FLAG_NOW},
    {"sample-tokens", FLAG_SIZE, AT(sample_tokens), "200", "Samples", .argument = "1<=N<=1000000",
     .help = "Length of a sample, at most.",
     .also = "max-tokens max-new-tokens max-completion-tokens n-predict"},
    {"temperature", FLAG_FLOAT, AT(temperature), "0.8", "Samples", .argument = "0<=X<=1000",
     .help = "0: always the likeliest token."},
    {"top-k", FLAG_SIZE, AT(top_k), "50", "Samples", .argument = "N",
     .help = "Draw among the k likeliest tokens; 0: all."},
    {"top-p", FLAG_FLOAT, AT(top_p), "1", "Samples", .argument = "0<X<=1",
     .help = "Nucleus sampling: of these, draw among the fewest likeliest tokens whose "
             "probabilities come to X; 1: all."},
    {"min-p", FLAG_FLOAT, AT(min_p), "0", "Samples", .argument = "0<=X<=1",
     .help = "Of these, leave out tokens that have less than X times the likeliest's probability."},
    {"repetition-penalty", FLAG_FLOAT, AT(repetition_penalty), "1", "Samples",
     .argument = "0.001<=X<=1000",
     .help = "Divide the logits of tokens that the prompt or the sample has by X, and multiply "
             "negative ones; 1: leave them, more: repeat less. Also at --temperature 0.",
     .also = "repeat-penalty"},
    {"help", FLAG_OPTIONAL, AT(help), NULL, "Help", .argument = "[TOPIC|all|FLAG]",
     .help = "Print the flags of TOPIC, or of all topics, or one flag by its name; without it the "
             "names of all flags; and exit.",
     .identity = FLAG_NOW},
    {"version", FLAG_BOOL, AT(version), NULL, "Help",
     .help = "Print version and libraries, and exit.", .identity = FLAG_NOW},
};
const size_t options_count = sizeof options_table / sizeof options_table[0];

int options_print(const struct Flags *f, const struct Options *o, const char *features,
                  struct Error *e) {
    if (!o->help) {
        printf("zero.c 0.1\n\n%s", features);
        return 0;
    }
    if (*o->help) {
        int err = flags_print_help(f, o->help, stdout, e);
        if (!err && strcmp(o->help, "deepspeed") == 0)
            deepspeed_print_rows(f, stdout);
        return err;
    }
    fputs("Usage: ./train --data WHAT [--FLAG VALUE ...]\n\n"
          "Trains a GPT on text, or asks one. Four examples:\n\n"
          "  ./train --data README.md --steps 50\n"
          "  ./train --out out --resume auto --sample-only --prompt \"zero.c \"\n"
          "  ./train --data random --model gpt2 --dtype bf16 --batch 4 --seq-len 512 --plan\n"
          "  ./train --init hf:FOLDER --chat \"Is water wet?\"\n\n"
          "The flags by topic; --help TOPIC says what they do and cost, --help all says all:\n\n",
          stdout);
    return flags_print_help(f, o->help, stdout, e);
}

enum Mode options_mode(const struct Options *o) {
    const bool asked[] = {[MODE_HELP] = o->help != NULL,
                          [MODE_VERSION] = o->version,
                          [MODE_PLAN_PARAMETERS] = o->params != 0,
                          [MODE_PLAN] = o->plan,
                          [MODE_PREPARE] = o->prepare_only,
                          [MODE_SAMPLE] = o->sample_only,
                          [MODE_EVAL] = o->eval_only,
                          [MODE_EXPORT] = options_only(o) != NULL};
    enum Mode mode = MODE_HELP;
    while (mode < MODE_TRAIN && !asked[mode])
        mode++;
    return mode;
}

// True for --resume DIR or best without an --init on the line, if --family is set: --config is then
// the run's own configuration, which describes the model, so its --init is not read again.
static bool is_described_by_checkpoint(const struct Flags *f, const struct Options *o) {
    struct FlagsSaid said = flags_said(f);
    return o->resume && strcmp(o->resume, "auto") != 0 && !flag_is_on_line(&said, "init") &&
           flags_was_set(f, "family");
}

int options_read(struct Flags *f, struct Options *o, int argc, char **argv, struct Error *e) {
    int err = flags_parse(f, argc, argv, e);
    if (argc == 1)
        o->help = "";
    if (err || o->help || o->version)
        return err;
    o->sample_only |= o->chat || o->prompts;
    char *saved = base_format("%s/config.json", o->out);
    bool has_saved = o->resume && !o->config && access(saved, F_OK) == 0;
    if (has_saved)
        err = flags_load_json(f, saved, e);
    bool begins = !err && !has_saved && o->init && !is_described_by_checkpoint(f, o);
    if (begins)
        init_lower_learning_rate(f);
    if (!err && o->deepspeed)
        err = deepspeed_read_flags(f, o->deepspeed, o->processes, o->resolved, e);
    if (!err && begins)
        err = init_read_flags(f, o->kinds, o->init, e);
    if (begins && !err && o->init_adapter)
        err = init_read_adapter(f, o->init_adapter, e);
    o->from_model = begins;
    free(saved);
    return err;
}

// Flags that do not go together. --params plans without a model and a text, so flags of these are
// refused.
static const struct FlagRule rules[] = {
    {E_PLAN_MISSING, "json|params|html !plan", "it is a way of planning; add --plan"},
    {E_PARAMS_FLAG,
     "+model|+layers|+heads|+channels|+seq-len|+vocab|+data|+tokenizer|+fit|+cluster|+pp params",
     "--params plans a number of parameters without a model; leave out one of the two"},
    {E_PARAMS_FLAG, "offload-ratio<1 offload-optimizer params",
     "without a model there are no blocks to choose from; expected --offload-ratio 1"},
    {E_PARAMS_FLAG, "tp>1 params",
     "--params has no matrices to split; leave out --tp, or give --model in its place"},
    {E_SHOW_CHAIN, "+show-chain json", "it prints lines, not JSON; leave out one of the two"},
    {E_HTML, "html json|params|show-chain|cluster|fit|resume",
     "a page has the plans of many runs, not of this one; leave out one of the two"},
    {E_HTML, "html launched", "one process alone writes a page; start it without mpirun or srun"},
    {E_ONLY_CONFLICT, "sample-only eval-only", "expected one of the two"},
    {E_ONLY_CONFLICT, "prepare-only sample-only|eval-only|plan|export|trace|trace-zero",
     "it prepares data and does nothing else; leave out one of the two"},
    {E_ONLY_CONFLICT, "prepare-only data=random",
     "random ids need no preparation; leave out --prepare-only"},
    {E_ONLY_CONFLICT,
     "+eval|+eval-every|+eval-limit|+val-every|+sample-every|+save-every|"
     "+keep-best|+patience|+hash-every sample-only",
     "a sample is all that is made; leave out one of the two"},
    {E_EVAL_MISSING, "eval-only !eval", "it needs --eval; add --eval ppl"},
    {E_EVAL_MISSING, "+eval-every|+eval-limit !eval !plan",
     "it has no effect without --eval; add --eval ppl"},
    {E_PROMPTS_FLAG, "+prompts !answers !resume !init !plan",
     "it needs a file for the answers, and a model; add --answers FILE.jsonl, and --resume auto "
     "for that of --out or --init KIND:PATH"},
    {E_ONLY_CHECKPOINT, "chat|+chat|prompts|sample-only|eval-only !resume !init !plan",
     "it needs a model; add --resume auto for that of --out, or --init KIND:PATH"},
    {E_ONLY_CONFLICT, "trace sample-only|eval-only", "no step is run; leave out --trace"},
    {E_ONLY_CONFLICT, "trace export resume=best", "no step is run; leave out --trace"},
    {E_ONLY_CONFLICT, "trace-zero sample-only|eval-only", "no step is run; leave out --trace-zero"},
    {E_ONLY_CONFLICT, "trace-zero export resume=best", "no step is run; leave out --trace-zero"},
    {E_ONLY_CONFLICT, "export sample-only|eval-only", "nothing is trained; leave out --export"},
    {E_RESUME_BEST, "resume=best !export !export-adapter !eval-only !sample-only",
     "expected --export, --eval-only or --sample-only too; to continue a run use --resume auto"},
    {E_CHAT_FLAG, "+chat !chat !bare-chat", "the question is empty; give a text"},
    {E_CHAT_FLAG, "chat|+chat +prompt", "both say what is sampled; leave out one of the two"},
    {E_CHAT_FLAG, "+system !chat !+chat !prompts",
     "it has no effect without --chat or --prompts; add one of the two"},
    {E_PROMPTS_FLAG, "+prompts !answers", "the answers need a file; add --answers FILE.jsonl"},
    {E_PROMPTS_FLAG, "+answers !prompts", "it answers a file's prompts; add --prompts FILE.jsonl"},
    {E_PROMPTS_FLAG, "prompts chat|+chat|+prompt",
     "both say what is sampled; leave out one of the two"},
    {E_LORA, "init-adapter !init !resume", "an adapter is for a model; add --init hf:DIR"},
    {E_LORA, "export-adapter !lora-rank", "there are no adapters; give --lora-rank, such as 16"},
    {E_LORA, "init-adapter|export-adapter freeze!=none",
     "an adapter of PEFT's has all layers; leave out one of the two"},
    {E_ONLY_CONFLICT, "export-adapter sample-only|eval-only|prepare-only",
     "nothing is trained; leave out --export-adapter"},
    {E_ONLY_CONFLICT, "trace|trace-zero export-adapter resume=best",
     "no step is run; leave out the trace"},
    {E_EXPORT_DTYPE, "+export-dtype !export", "it is for --export; add --export hf:DIR"},
};

// Chooses --data. Samples and evaluations take that of the run in --out, unless it is given; with a
// pretrained model they need data for ppl alone.
static int find_data(struct Options *o, struct Error *e) {
    const char *only = options_only(o);
    if (only && !o->prepare_only && o->init && !o->resume && !o->data && !o->evals_ppl)
        o->data = "random";
    if (only && !o->data && o->resume && strcmp(o->resume, "auto") == 0)
        return error_set(e, -ENOENT, E_RUN_MISSING,
                         "%s: --out %s holds no run; name a run's folder by --out", only, o->out);
    if (o->plan && !o->data)
        o->data = "random"; // and so the model's own vocabulary and sequence length
    if (o->resume && !o->data)
        return error_set(e, -EINVAL, E_DATA_MISSING,
                         "--data is missing: --resume takes it from %s/config.json, which does not "
                         "exist; name the run's folder by --out, or add --data",
                         o->out);
    if (!o->data || !*o->data)
        return error_set(e, -EINVAL, E_DATA_MISSING,
                         "--data is missing: expected a text file, a folder, token shards, a URL, "
                         "tinyshakespeare, fineweb10B or random");
    return 0;
}

// Returns the length of a path without the slashes at its end.
static size_t trimmed_length(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

// True if both paths name one file or folder. What does not exist yet is compared by its path.
static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    if (!stat(a, &x) && !stat(b, &y))
        return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    a += strncmp(a, "./", 2) ? 0 : 2;
    b += strncmp(b, "./", 2) ? 0 : 2;
    return trimmed_length(a) == trimmed_length(b) && !memcmp(a, b, trimmed_length(a));
}

static int check_data_map(const char *text, struct Error *e) {
    char *copy = base_format("%s", text);
    struct DataMap map;
    int err = data_map_read(&map, copy, e);
    free(copy);
    return err;
}

// A prompt must be UTF-8: a model never sees other text, because --data refuses it.
static int check_prompt(const char *flag, const char *prompt, struct Error *e) {
    size_t bytes = prompt ? strlen(prompt) : 0, bad = text_find_invalid(prompt, bytes);
    return bad == bytes
               ? 0
               : error_set(e, -EINVAL, E_UTF8,
                           "%s: byte %zu (0x%02x) is not UTF-8; convert the text, for example with "
                           "iconv",
                           flag, bad, (unsigned char)prompt[bad]);
}

int options_resolve(const struct Flags *f, struct Options *o, struct Error *e) {
    const struct FlagsSaid said = flags_said(f);
    const struct FlagFact facts[] = {
        {"bare-chat", flags_is_bare(f, "chat")}, {"launched", o->processes > 0}, {0}};
    const struct FlagValues values = {f->table, f->n, f->options, &said, facts};
    if (o->eval && strcmp(o->eval, "none") == 0) // replaces the --eval of a resumed run
        o->eval = NULL;
    int err = flag_rules_check(rules, sizeof rules / sizeof rules[0], &values, e);
    if (!err && !o->sample_only && !o->plan)
        err = evals_check(o->eval, &o->evals_ppl, e);
    err = err ? err : check_prompt("--prompt", o->prompt, e);
    err = err ? err : check_prompt("--system", o->system, e);
    err = err ? err : find_data(o, e);
    if (err)
        return err;
    const char *path;
    if (o->export && !init_kind(o->kinds, INIT_TO, o->export, &path))
        return init_refuse(o->kinds, INIT_TO, o->export, e);
    if (o->export && o->export_adapter && strncmp(o->export, "hf:", 3) == 0 &&
        is_same_file(o->export + 3, o->export_adapter))
        return error_set(e, -EINVAL, E_EXPORT_NAME,
                         "--export-adapter %s: it is the folder of --export; expected another one",
                         o->export_adapter);
    if (o->data_map)
        err = check_data_map(o->data_map, e);
    if (!err && o->backup_dir)
        err = is_same_file(o->backup_dir, o->out)
                  ? error_set(e, -EINVAL, E_BACKUP_DIR,
                              "--backup-dir %s: it is the same as --out; expected another folder",
                              o->backup_dir)
                  : file_check_folder(o->backup_dir, "--backup-dir", e);
    if (!err && o->trace)
        err = file_check_place(o->trace, "--trace", e);
    if (!err && o->trace_zero)
        err = file_check_place(o->trace_zero, "--trace-zero", e);
    if (!err && o->trace && o->trace_zero && is_same_file(o->trace, o->trace_zero))
        err = error_set(e, -EINVAL, E_TRACE_ZERO,
                        "--trace-zero %s: it is the same as --trace; expected another file",
                        o->trace_zero);
    return err;
}

void options_fill_vocab(struct Options *o, size_t vocab) {
    if (o->data && strcmp(o->data, "random") == 0 && !o->vocab)
        o->vocab = vocab;
}

// Appends a line for a flag. Checkpoints have the flag's oldest name.
static void add_flag(char **text, const struct Flags *f, const struct Flag *flag) {
    char *value = flags_value(f, flag->name);
    base_append(text, "--%s %s\n", flag->was ? flag->was : flag->name, value);
    free(value);
}

// True if shards are cut over all data-parallel ranks: --zero-shard-size is --ranks / --tp.
static bool has_shards_over_all_ranks(const struct Flags *f) {
    size_t ranks = (size_t)flags_number(f, "ranks"), tp = (size_t)flags_number(f, "tp");
    return (size_t)flags_number(f, "zero-shard-size") == ranks / size_max(1, tp);
}

// The identity has all flags that shape the weights but --steps, and the content of --data.
char *options_identity(const struct Flags *resolved, size_t vocab, uint64_t fingerprint,
                       const char *kernels) {
    const struct FlagFact facts[] = {{"whole-group", has_shards_over_all_ranks(resolved)}, {0}};
    const struct FlagValues values = {resolved->table, resolved->n, resolved->options, NULL, facts};
    char *text = base_format("vocabulary %zu\ntext of --data, --val-data, --tokenizer %016llx\n"
                             "--%s %s\n",
                             vocab, (unsigned long long)fingerprint,
                             strcmp(kernels, "cuda") ? "kernels" : "device", kernels);
    for (const struct Flag *f = values.table; f < values.table + values.n; f++)
        if (f->identity != FLAG_FREE && f->identity != FLAG_NOW &&
            (!f->identity_if || flag_terms_hold(&values, f->identity_if)))
            add_flag(&text, resolved, f);
    return text;
}
