// Fuzzes the reader of JSONL and of lists of JSON: lines of every shape, with and without a map,
// forms from a file, every known form and none. Whatever a file says, each example has a mask of
// zeros and ones, ids that the tokenizer knows, and something to learn; and lines that are examples
// are the same ones as elements of a list. Built and run by scripts/dev/fuzz.sh.
#include "data/chat/example.h"
#include "data/chat/form.h"
#include "kernels/hash.h"
#include "tests/fuzz/memory_folder.h"
#include "tests/lib/toy_tokenizer.h"

static const char *const forms[] = {"chatml",     "qwen3",  "llama3.1", "mistral-v1",
                                    "mistral-v3", "zephyr", NULL};
static const char *const maps[] = {"prompt=input,completion=output", "text=value",
                                   "messages=conversations,system=text",
                                   "instruction=prompt,output=text,input=input"};
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
        "\"assistant\": {\"prefix\": \"<s>\", \"suffix\": \"s{eos}\"}",
        "{\"conversations\": [",
        "{\"from\": \"human\", \"value\": \"a\"}",
        "{\"from\": \"gpt\", \"value\": [{\"type\": \"text\", \"text\": \"a\"}, ",
        "{\"text\": \"\\n\", \"type\": \"text\"}]}",
        "{\"role\": \"developer\", \"content\": [{\"type\": \"text\", \"text\": \"s",
        "{\"instruction\": \"a\", \"input\": \"\\t\", \"output\": \"t\"",
        "{\"question\": \"s\", \"answer\": \"t\"",
        "{\"prompt\": \"s\", \"response\": \"t\"",
        ", \"system\": \"a\"",
        ", \"tools\": [ ]",
        ", \"text\": null",
        "{\"prompt\": [",
        "], \"completion\": [",
        "[",
        "]",
        ", \"label\": false"};
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

struct Taken {
    size_t examples;
    struct Hash64 hash; // of all of them
};

static int take(void *context, const struct Example *x, struct Error *e) {
    struct Taken *taken = context;
    size_t counted = 0;
    (void)e;
    for (size_t i = 0; i < x->count; i++) {
        CHECK(x->ids[i] >= 0 && x->ids[i] < 269, "id %d", x->ids[i]);
        CHECK(x->counts[i] < 2, "a mask of %d", x->counts[i]);
        counted += i && x->counts[i];
    }
    CHECK(counted, "an example of %zu ids teaches nothing", x->count);
    hash64_update(&taken->hash, x->ids, x->count * sizeof *x->ids);
    hash64_update(&taken->hash, x->counts, x->count);
    taken->examples++;
    return 0;
}

static int read_file(const char *path, const struct ChatSpec *chat, struct Taken *taken) {
    struct Error e = {0};
    *taken = (struct Taken){0};
    hash64_init(&taken->hash, 0);
    int err = examples_read(path, "--data", (const struct Tokenizer *)(const void *)&toy, chat,
                            take, taken, &e);
    CHECK(err ? e.text[0] != 0 : taken->examples > 0, "%zu examples: %d %s", taken->examples, err,
          e.text);
    return err;
}

// The lines, none of which was refused, as a list.
static void write_list(const char *path, const char *lines, size_t bytes) {
    char *list = base_alloc(2 * bytes + 2);
    size_t n = 0, elements = 0;
    for (size_t at = 0, end; at < bytes; at = end + 1) {
        const char *newline = memchr(lines + at, '\n', bytes - at);
        end = newline ? (size_t)(newline - lines) : bytes;
        size_t space = at;
        while (space < end && strchr(" \t\r", lines[space]))
            space++;
        if (space == end)
            continue;
        list[n++] = elements++ ? ',' : '[';
        memcpy(list + n, lines + at, end - at);
        n += end - at;
    }
    list[n++] = ']';
    memory_file_write(path, list, n);
    free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char path[96], json[96], form[96];
    if (!path[0]) {
        snprintf(path, sizeof path, "%s/x.jsonl", memory_folder_open());
        snprintf(json, sizeof json, "%s/list.json", memory_folder_open());
        snprintf(form, sizeof form, "%s/x.json", memory_folder_open());
    }
    size_t kind = size ? data[0] % (FORMS + 1) : 0, way = size ? data[0] / (FORMS + 1) : 0;
    const char *text = (const char *)data + (size > 0), *map = way % 8 < 4 ? maps[way % 8] : NULL;
    size_t bytes = size - (size > 0);
    static const char conversation[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"as\"}, "
                                       "{\"role\": \"assistant\", \"content\": \"st\"}]}";
    struct ChatSpec chat = {.name = kind == FORMS ? form : forms[kind],
                            .map = kind == FORMS ? NULL : map};
    struct Taken lines, list;
    if (kind == FORMS)
        memory_file_write(path, conversation, sizeof conversation - 1);
    memory_file_write(kind == FORMS ? form : path, text, bytes);
    int err = read_file(path, &chat, &lines);
    if (kind == FORMS)
        return 0;
    if (err)
        memory_file_write(json, text, bytes);
    else
        write_list(json, text, bytes);
    int again = read_file(json, &chat, &list);
    CHECK(err || (!again && hash64_final(&lines.hash) == hash64_final(&list.hash)),
          "%zu lines are not %zu elements", lines.examples, list.examples);
    return 0;
}
