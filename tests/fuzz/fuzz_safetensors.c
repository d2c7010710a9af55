// Fuzzes the readers of Hugging Face folders: any bytes are refused with one line, or are a
// safetensors file of which every byte behind the header belongs to one tensor and every tensor can
// be read. What is accepted is read once more as a folder, under config.json and an index that are
// part of the input. Built and run by scripts/dev/fuzz.sh.
#include "data/hf/folder.h"
#include "tests/fuzz/memory_folder.h"

#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room); // libFuzzer's own

static void expect_one_line(const struct Error *e) {
    CHECK(e->text[0] && !strchr(e->text, '\n'), "a refusal without a word, or of many lines");
}

// All elements, in two parts; then the tensors' bytes are what the file has behind its header.
static void read_all(const struct Safetensors *f, size_t size) {
    struct Error e = {0};
    uint64_t covered = 0, first = size;
    for (size_t i = 0; i < f->ntensor; i++) {
        const struct Tensor *t = &f->tensor[i];
        covered += t->end - t->begin;
        first = t->begin < first ? t->begin : first;
        CHECK(t->end <= size, "tensor %s ends at %llu", t->name, (unsigned long long)t->end);
        CHECK(safetensors_find(f, t->name) == t, "tensor %s is not found", t->name);
        if (!t->is_float) {
            CHECK(safetensors_read(f, t, 0, 0, NULL, &e) == -EINVAL, "%s is read", t->spelled);
            continue;
        }
        CHECK(t->count <= size, "%llu elements in %zu bytes", (unsigned long long)t->count, size);
        size_t n = (size_t)t->count, half = n / 2;
        float *x = base_alloc((n + 1) * sizeof *x); // no byte more than is asked for is written
        CHECK(!safetensors_read(f, t, 0, half, x, &e), "%s", e.text);
        CHECK(!safetensors_read(f, t, half, n - half, x + half, &e), "%s", e.text);
        free(x);
    }
    CHECK(!f->ntensor || covered + first == size, "%llu bytes of tensors from %llu of %zu",
          (unsigned long long)covered, (unsigned long long)first, size);
}

// The same file as the only shard of a folder whose index says what the first tensor's name says.
static void read_folder(const char *folder, const char *index) {
    struct HfFolder f;
    struct Error e = {0};
    size_t left, asked = 0;
    char *path = base_format("%s/model.safetensors.index.json", folder);
    memory_file_write(path, index, strlen(index));
    free(path);
    if (hf_folder_open(&f, folder, &e)) {
        expect_one_line(&e);
        CHECK(!f.path && !f.file && !f.tensor, "half open");
        return;
    }
    hf_folder_unasked(&f, &left);
    CHECK(left <= f.ntensor, "%zu of %zu", left, f.ntensor);
    for (size_t i = 0; i < f.ntensor; i++)
        asked += hf_folder_ask(&f, f.tensor[i].tensor->name) == &f.tensor[i];
    CHECK(asked == f.ntensor && !hf_folder_unasked(&f, NULL), "%zu were asked for", asked);
    hf_folder_close(&f);
}

// The input: a safetensors file; where a line "index" is in it, the index is what follows that.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char mark[] = "\nindex\n";
    const char *folder = memory_folder_open();
    const uint8_t *split = memmem(data, size, mark, sizeof mark - 1);
    size_t n = split ? (size_t)(split - data) : size;
    char *path = base_format("%s/a.safetensors", folder);
    char *config = base_format("%s/config.json", folder);
    struct Safetensors f;
    struct Error e = {0};
    memory_file_write(path, data, n);
    memory_file_write(config, "{}", 2);
    if (safetensors_open(path, &f, &e)) {
        expect_one_line(&e);
        CHECK(!f.path && !f.tensor && f.fd < 0, "half open");
    } else {
        read_all(&f, n);
        safetensors_close(&f);
    }
    char *index = split ? base_format("%.*s", (int)(size - n - (sizeof mark - 1)),
                                      (const char *)split + sizeof mark - 1)
                        : base_format("{\"weight_map\":{\"a\":\"a.safetensors\"}}");
    read_folder(folder, index);
    free(index);
    free(config);
    free(path);
    return 0;
}

// ---- good files, and damage ---------------------------------------------------------------------

// A file of up to 4 tensors that is right, but for what the bits of `seed` spoil.
static size_t good_file(uint8_t *data, size_t room, unsigned seed) {
    static const char *const names[] = {"a", "model.b", "h.0.attn.bias", "\\u0061\\n", "a", "é"};
    static const char *const dtypes[] = {"F32", "BF16", "F16", "I64", "F4", "BOOL"};
    static const unsigned bytes[] = {4, 2, 2, 8, 1, 1};
    char header[512] = "{\"__metadata__\":{\"format\":\"pt\"}";
    size_t n = strlen(header), at = 0;
    for (unsigned i = 0, bits = seed; i < 1 + seed % 4; i++, bits /= 7) {
        unsigned kind = bits / 4 % 6, rows = bits / 11 % 5, begin = (unsigned)at;
        at += bytes[kind] * rows * 2;
        unsigned end = (unsigned)at + (bits % 41 == 7) - (bits % 43 == 7);
        n += (size_t)snprintf(
            header + n, sizeof header - n,
            ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%u,2],\"data_offsets\":[%u,%u]}",
            names[bits % 37 == 5 ? 4 : (i + seed / 13) % 6], dtypes[kind], rows, begin, end);
    }
    n += (size_t)snprintf(header + n, sizeof header - n, "}");
    if (8 + n + at > room)
        return 0;
    memset(data, 0, 8 + n + at);
    data[0] = (uint8_t)n, data[1] = (uint8_t)(n >> 8);
    memcpy(data + 8, header, n);
    for (size_t i = 0; i < at; i++)
        data[8 + n + i] = (uint8_t)(seed * i);
    return 8 + n + at;
}

// Blind mutation would seldom keep the length that stands in front of the header, so that it is
// often put right again; and half of the inputs are put together anew.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    static const char *const indices[] = {
        "\nindex\n{\"weight_map\":{\"a\":\"a.safetensors\",\"model.b\":\"a.safetensors\"}}",
        "\nindex\n{\"weight_map\":{\"a\":\"../a.safetensors\"}}",
        "\nindex\n{\"weight_map\":{\"a\":\"b.safetensors\"}}",
        "\nindex\n{\"weight_map\":{\"h.0.attn.bias\":\"a.safetensors\",\"b\":3}}"};
    unsigned kind = seed % 4;
    seed /= 4;
    if (kind < 2) {
        size_t made = good_file(data, room, seed);
        const char *index = indices[seed / 64 % 4];
        if (made && seed % 5 == 0 && made + strlen(index) <= room) {
            memcpy(data + made, index, strlen(index));
            made += strlen(index);
        }
        return made && kind == 0 ? made : LLVMFuzzerMutate(data, made ? made : size, room);
    }
    size = LLVMFuzzerMutate(data, size, room);
    const uint8_t *end = size > 8 ? memrchr(data + 8, '}', size - 8) : NULL;
    if (kind == 2 && end) {
        size_t n = (size_t)(end - data) + 1 - 8;
        memset(data, 0, 8);
        data[0] = (uint8_t)n, data[1] = (uint8_t)(n >> 8);
    }
    return size;
}
