// Fuzzes the reader of JSONL: lines, forms from a file, and every known form. Whatever a file says,
// each example has a mask of zeros and ones, ids that the tokenizer knows, and something to learn.
// Built and run by scripts/fuzz.sh.
#include "data/chat/example.h"
#include "data/chat/form.h"
#include "tests/fuzz/memory_folder.h"
#include "tests/lib/toy_tokenizer.h"

static const char *const forms[] = {"chatml",     "qwen3",      "llama3.1",
                                    "mistral-v1", "mistral-v3", "zephyr"};
enum { FORMS = sizeof forms / sizeof forms[0] };

static const struct Toy toy = {
    .left = {'a', '\n', 's'},
    .right = {'s', '\n', 't'},
    .merges = 3,
    .control = {{259, "<|im_start|>"},
                {260, "<|im_end|>"},
                {261, "<|start_header_id|>"},
                {262, "<|end_header_id|>"},
                {263, "<|eot_id|>"},
                {264, "<s>"},
                {265, "</s>"},
                {266, "[INST]"},
                {267, "[/INST]"},
                {268, "</think>"}},
    .controls = 10,
    .begin = 264,
    .end = 265,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);

// Half of all inputs are made of what a file is made of; bytes alone seldom make a conversation.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    static const char *const words[] = {
        "{\"messages\": [",
        "{\"role\": \"user\", \"content\": \"a\"}",
        "{\"text\": \"as\"}",
        "{\"role\": \"assistant\", \"content\": \"\\n<|im_end|>\\u00e9\"}",
        ", ",
        "{\"role\": \"system\", \"content\": \" \\ud83d\\ude42 \"}",
        "]}",
        "{\"role\": \"tool\", \"content\": \"<tool_response>\"}",
        "\n",
        "{\"prompt\": \"</s>\", \"completion\": \"s",
        "\"}",
        "{\"user\": {\"prefix\": \"{bos}\", \"suffix\": \"</s>\"}, ",
        "}",
        "\"assistant\": {\"prefix\": \"<s>\", \"suffix\": \"s{eos}\"}"};
    if (seed % 2)
        return LLVMFuzzerMutate(data, size, max);
    size_t n = seed % 5 ? size : 1, count = sizeof words / sizeof words[0];
    for (unsigned i = 0, r = seed / 10; i < 1 + seed / 64 % 8;
         i++, r = r * 1664525u + 1013904223u) {
        const char *word = words[(r >> 16) % count];
        size_t length = strlen(word);
        if (n + length > max)
            break;
        memcpy(data + n, word, length);
        n += length;
    }
    return n;
}

static int take(void *context, const struct Example *x, struct Error *e) {
    size_t *taken = context, counted = 0;
    (void)e;
    for (size_t i = 0; i < x->count; i++) {
        CHECK(x->ids[i] >= 0 && x->ids[i] < 269, "id %d", x->ids[i]);
        CHECK(x->counts[i] < 2, "a mask of %d", x->counts[i]);
        counted += i && x->counts[i];
    }
    CHECK(counted, "an example of %zu ids teaches nothing", x->count);
    ++*taken;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char path[96], form[96];
    if (!path[0]) {
        snprintf(path, sizeof path, "%s/x.jsonl", memory_folder_open());
        snprintf(form, sizeof form, "%s/x.json", memory_folder_open());
    }
    size_t kind = size ? data[0] % (FORMS + 1) : 0, taken = 0;
    const char *file = kind == FORMS ? form : path;
    static const char conversation[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"as\"}, "
                                       "{\"role\": \"assistant\", \"content\": \"st\"}]}";
    if (kind == FORMS)
        memory_file_write(path, conversation, sizeof conversation - 1);
    memory_file_write(file, size ? data + 1 : data, size ? size - 1 : 0);
    struct ChatSpec chat = {.name = kind == FORMS ? form : forms[kind]};
    struct Error e = {{0}};
    int err = examples_read(path, "--data", (const struct Tokenizer *)(const void *)&toy, &chat,
                            take, &taken, &e);
    CHECK(err ? e.text[0] != 0 : taken > 0, "%zu examples: %d %s", taken, err, e.text);
    return 0;
}
