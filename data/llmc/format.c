// llm.c's model file: see format.h.
#include "data/llmc/format.h"

#include <errno.h>
#include <string.h>

enum Field {
    MAGIC,
    VERSION,
    MAX_SEQ_LEN,
    VOCAB_SIZE,
    NUM_LAYERS,
    NUM_HEADS,
    CHANNELS,
    PADDED_VOCAB_SIZE,
    NFIELD
};
static const char *const field_name[NFIELD] = {"magic",      "version",          "max_seq_len",
                                               "vocab_size", "num_layers",       "num_heads",
                                               "channels",   "padded_vocab_size"};

static const int32_t magic = 20240326, version[NDTYPE] = {[F32] = 3, [BF16] = 5};

// The tensors, in the file's order.
enum Side { ONE, C, C3, C4, T, VP };
static const struct TensorRow {
    const char *param;
    bool in_layers;
    enum Side rows, cols;
} rows[] = {
    {"wte", false, VP, C},
    {"wpe", false, T, C},
    {"norm1.weight", true, C, ONE},
    {"norm1.bias", true, C, ONE},
    {"attention.qkv.weight", true, C3, C},
    {"attention.qkv.bias", true, C3, ONE},
    {"attention.proj.weight", true, C, C},
    {"attention.proj.bias", true, C, ONE},
    {"norm2.weight", true, C, ONE},
    {"norm2.bias", true, C, ONE},
    {"mlp.fc.weight", true, C4, C},
    {"mlp.fc.bias", true, C4, ONE},
    {"mlp.out.weight", true, C, C4},
    {"mlp.out.bias", true, C, ONE},
    {"norm.weight", false, C, ONE},
    {"norm.bias", false, C, ONE},
};
enum { NROW = sizeof rows / sizeof rows[0] };

// ---- sizes --------------------------------------------------------------------------------------

static uint64_t side_length(const struct LlmcShape *s, enum Side side) {
    const uint64_t sides[] = {
        [ONE] = 1,          [C] = s->channels,     [C3] = 3 * s->channels, [C4] = 4 * s->channels,
        [T] = s->positions, [VP] = s->vocab_padded};
    return sides[side];
}

// Counts the elements of a tensor in one layer, with padding.
static uint64_t count_elements(const struct LlmcShape *s, const struct TensorRow *r) {
    return side_length(s, r->rows) * side_length(s, r->cols);
}

// Counts the elements of a tensor in all its layers.
static uint64_t count_all_elements(const struct LlmcShape *s, const struct TensorRow *r) {
    return count_elements(s, r) * (r->in_layers ? s->layers : 1);
}

uint64_t llmc_bytes(const struct LlmcShape *s) {
    uint64_t count = 0;
    for (size_t i = 0; i < NROW; i++)
        count += count_all_elements(s, &rows[i]);
    return LLMC_HEADER_BYTES + count * dtype_size(s->dtype);
}

uint64_t llmc_find(const struct LlmcShape *s, int layer, const char *param, uint64_t *count) {
    uint64_t before = 0;
    for (size_t i = 0; i < NROW; before += count_all_elements(s, &rows[i]), i++) {
        const struct TensorRow *r = &rows[i];
        bool is_there = r->in_layers ? layer >= 0 && (size_t)layer < s->layers : layer == -1;
        if (strcmp(r->param, param) != 0 || !is_there)
            continue;
        *count = r->rows == VP ? s->vocab * s->channels : count_elements(s, r);
        if (r->in_layers)
            before += (uint64_t)layer * count_elements(s, r);
        return LLMC_HEADER_BYTES + before * dtype_size(s->dtype);
    }
    return 0;
}

// ---- the header ---------------------------------------------------------------------------------

static int32_t read_field(const uint8_t *header, enum Field field) {
    const uint8_t *p = header + 4 * field;
    return (int32_t)(p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

static void write_field(uint8_t *header, enum Field field, size_t value) {
    for (int i = 0; i < 4; i++)
        header[4 * (int)field + i] = (uint8_t)(value >> 8 * i);
}

static int refuse_field(const char *path, const uint8_t *header, enum Field field,
                        const char *expected, struct Error *e) {
    return error_set(e, -EINVAL, E_LLMC_HEADER,
                     "%s: %s %d in its header: expected %s; give a model file of today's llm.c",
                     path, field_name[field], read_field(header, field), expected);
}

// Checks the magic number, and sets the dtype that the version stands for.
static int read_dtype(const char *path, const uint8_t *header, enum Dtype *dtype, struct Error *e) {
    if (read_field(header, MAGIC) != magic)
        return refuse_field(path, header, MAGIC, "20240326", e);
    for (*dtype = F32; *dtype < NDTYPE; ++*dtype)
        if (version[*dtype] && version[*dtype] == read_field(header, VERSION))
            return 0;
    return refuse_field(path, header, VERSION, "3 (fp32) or 5 (bf16)", e);
}

// Checks that the sizes are positive and fit together, and that there are fewer than 2^56 elements,
// so that no offset in bytes overflows.
static int check_sizes(const char *path, const uint8_t *header, struct Error *e) {
    for (enum Field field = MAX_SEQ_LEN; field < NFIELD; field++)
        if (read_field(header, field) <= 0)
            return refuse_field(path, header, field, "a number above 0", e);
    if (read_field(header, CHANNELS) % read_field(header, NUM_HEADS))
        return refuse_field(path, header, NUM_HEADS, "a divisor of channels", e);
    if (read_field(header, PADDED_VOCAB_SIZE) < read_field(header, VOCAB_SIZE))
        return refuse_field(path, header, PADDED_VOCAB_SIZE, "at least vocab_size", e);
    double channels = read_field(header, CHANNELS), layers = read_field(header, NUM_LAYERS);
    double ends =
        (double)read_field(header, MAX_SEQ_LEN) + read_field(header, PADDED_VOCAB_SIZE) + 2;
    if (channels * (ends + layers * (12 * channels + 13)) < 0x1p56)
        return 0;
    return error_set(e, -EINVAL, E_LLMC_HEADER,
                     "%s: num_layers %d, channels %d are too large; expected a model file of llm.c",
                     path, read_field(header, NUM_LAYERS), read_field(header, CHANNELS));
}

int llmc_read_header(const char *path, const uint8_t header[LLMC_HEADER_BYTES], uint64_t file_bytes,
                     struct LlmcShape *out, struct Error *e) {
    enum Dtype dtype = F32;
    int err = read_dtype(path, header, &dtype, e);
    if (!err)
        err = check_sizes(path, header, e);
    if (err)
        return err;
    *out = (struct LlmcShape){.dtype = dtype,
                              .positions = (size_t)read_field(header, MAX_SEQ_LEN),
                              .vocab = (size_t)read_field(header, VOCAB_SIZE),
                              .vocab_padded = (size_t)read_field(header, PADDED_VOCAB_SIZE),
                              .layers = (size_t)read_field(header, NUM_LAYERS),
                              .heads = (size_t)read_field(header, NUM_HEADS),
                              .channels = (size_t)read_field(header, CHANNELS)};
    uint64_t right = llmc_bytes(out);
    if (file_bytes == right)
        return 0;
    return error_set(e, -EINVAL, E_LLMC_SIZE,
                     "%s: %llu bytes: %s; its header asks for %llu: copy the file again", path,
                     (unsigned long long)file_bytes,
                     file_bytes < right ? "it is truncated" : "it is too long",
                     (unsigned long long)right);
}

void llmc_write_header(const struct LlmcShape *s, uint8_t header[LLMC_HEADER_BYTES]) {
    memset(header, 0, LLMC_HEADER_BYTES);
    write_field(header, MAGIC, (size_t)magic);
    write_field(header, VERSION, (size_t)version[s->dtype]);
    write_field(header, MAX_SEQ_LEN, s->positions);
    write_field(header, VOCAB_SIZE, s->vocab);
    write_field(header, NUM_LAYERS, s->layers);
    write_field(header, NUM_HEADS, s->heads);
    write_field(header, CHANNELS, s->channels);
    write_field(header, PADDED_VOCAB_SIZE, s->vocab_padded);
}
