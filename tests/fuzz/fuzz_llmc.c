// Fuzzes the reader of llm.c's model files: any bytes are refused with one line, or are a file of
// which each parameter whose elements are finite can be read to its last one, and the parameters
// with their padding are all of it; and such a header is written again as it was. Built and run by
// scripts/dev/fuzz.sh.
#include "data/llmc/format.h"
#include "data/llmc/kind.h"
#include "tests/fuzz/memory_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room); // libFuzzer's own

enum { NFIELD = 8 };

static const char *const names[] = {"wte",
                                    "wpe",
                                    "attention.qkv.weight",
                                    "attention.proj.weight",
                                    "mlp.fc.weight",
                                    "mlp.out.weight",
                                    "norm.weight",
                                    "norm.bias",
                                    "norm1.weight",
                                    "norm1.bias",
                                    "norm2.weight",
                                    "norm2.bias",
                                    "attention.qkv.bias",
                                    "attention.proj.bias",
                                    "mlp.fc.bias",
                                    "mlp.out.bias"};

// The elements that are weights, of all layers.
static uint64_t read_param(const struct ImportSource *s, const struct LlmcShape *shape,
                           const char *name, size_t size) {
    struct Error e = {0};
    uint64_t all = 0, count;
    for (int layer = -1; layer < (int)shape->layers; layer++) {
        uint64_t begin = llmc_find(shape, layer, name, &count);
        if (!begin)
            continue;
        float *out = base_alloc(count * sizeof *out + 1);
        CHECK(begin + count * dtype_size(shape->dtype) <= size, "%s of layer %d ends behind %zu",
              name, layer, size);
        int err = s->read(s->context, layer, name,
                          &(struct WeightsRange){.at = 0, .n = (size_t)count}, out, &e);
        CHECK(!err || e.id == E_WEIGHT_NOT_FINITE, "%s", e.text);
        free(out);
        all += count;
    }
    return all;
}

static void read_all(const struct ImportSource *s, const char *path, const uint8_t *data,
                     size_t size) {
    struct LlmcShape shape;
    struct Error e = {0};
    uint8_t header[LLMC_HEADER_BYTES];
    CHECK(!llmc_read_header(path, data, size, &shape, &e), "%s", e.text);
    uint64_t count = (shape.vocab_padded - shape.vocab) * shape.channels;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        count += read_param(s, &shape, names[i], size);
    CHECK(LLMC_HEADER_BYTES + count * dtype_size(shape.dtype) == size, "%llu elements in %zu bytes",
          (unsigned long long)count, size);
    llmc_write_header(&shape, header);
    CHECK(memcmp(header, data, 4 * NFIELD) == 0, "another header is written");
    char *flags, *where;
    CHECK(!llmc_weights.flags(path, &flags, &where, &e) && *flags == '{', "no flags");
    free(flags);
    free(where);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *path = base_format("%s/m.bin", memory_folder_open());
    struct ImportSource s;
    struct Error e = {0};
    memory_file_write(path, data, size);
    if (llmc_weights.open(path, &s, &e)) {
        CHECK(e.text[0] && !strchr(e.text, '\n'), "a refusal without a word, or of many lines");
    } else {
        read_all(&s, path, data, size);
        s.close(s.context);
    }
    free(path);
    return 0;
}

static void put(uint8_t *data, int field, uint32_t value) {
    memcpy(data + 4 * field, &value, sizeof value);
}

// A small file that is right, but for what the bits of `seed` spoil.
static size_t good_file(uint8_t *data, size_t room, unsigned seed) {
    static const uint32_t odd[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 20240327};
    struct LlmcShape s = {.dtype = seed % 2 ? F32 : BF16,
                          .positions = 1 + seed / 2 % 4,
                          .vocab = 1 + seed / 8 % 5,
                          .layers = 1 + seed / 40 % 3,
                          .heads = 1 + seed / 120 % 2,
                          .channels = 2 * (1 + seed / 240 % 3)};
    s.vocab_padded = s.vocab + seed / 720 % 3;
    size_t bytes = (size_t)llmc_bytes(&s) + (seed % 31 == 3) - (seed % 37 == 4);
    if (bytes > room)
        return 0;
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(seed * i);
    llmc_write_header(&s, data);
    if (seed % 3 == 0)
        put(data, (int)(seed / 3 % NFIELD), odd[seed / 24 % 6]);
    return bytes;
}

// Blind mutation would seldom keep header and length together.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    unsigned kind = seed % 4;
    size_t made = kind < 3 ? good_file(data, room, seed / 4) : 0;
    if (made && kind == 1)
        put(data, (int)(seed / 4 % NFIELD), seed / 32);
    return made && kind < 2 ? made : LLVMFuzzerMutate(data, made ? made : size, room);
}
