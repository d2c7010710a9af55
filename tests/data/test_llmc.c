// llm.c's model files are read, held against a file that is laid out by hand: every parameter comes
// from where llm.c puts it, and what cannot be right is refused.
#include "data/hf/folder.h"
#include "data/hf/kind.h"
#include "tests/lib/llmc_by_hand.h"
#include "tests/lib/test.h"

#include <errno.h>

// ---- reading ------------------------------------------------------------------------------------

static void expect_values(void *source, int layer, const char *param, size_t begin, size_t count) {
    const struct ImportSource *s = source;
    struct Error e = {0};
    float out[64];
    size_t half = count / 2;
    assert_ok(
        s->read(s->context, layer, param, &(struct WeightsRange){.at = 0, .n = half}, out, &e), &e);
    assert_ok(s->read(s->context, layer, param,
                      &(struct WeightsRange){.at = half, .n = count - half}, out + half, &e),
              &e);
    for (size_t i = 0; i < count; i++)
        if (out[i] != value(begin + i))
            fail_msg("%s of layer %d, element %zu: %g, not %g", param, layer, i, (double)out[i],
                     (double)value(begin + i));
}

TEST(parameters_are_where_llm_c_puts_them) {
    for (int32_t version = 3; version <= 5; version += 2) {
        struct ImportSource s;
        struct Error e = {0};
        write_version(version);
        assert_ok(llmc_weights.open(path, &s, &e), &e);
        assert_int_equal(s.dtype, version == 3 ? F32 : BF16);
        for_all(expect_values, &s);
        s.close(s.context);
    }
}

TEST(the_header_is_told_as_flags) {
    char *text, *where;
    struct Error e = {0};
    write_version(3);
    assert_ok(llmc_weights.flags(path, &text, &where, &e), &e);
    assert_string_equal(text, "{\"family\":\"gpt2\",\"layers\":2,\"heads\":2,\"channels\":4,"
                              "\"vocab\":5,\"positions\":3,\"seq-len\":3,\"tie\":\"on\"}");
    assert_string_equal(where, path);
    free(text);
    free(where);
}

static void refused(const int32_t head[256], long more, const char *line) {
    struct ImportSource s;
    struct Error e = {0};
    char *text, *where;
    write_by_hand(head, false, more);
    assert_error(llmc_weights.open(path, &s, &e), -EINVAL, &e, line);
    assert_error(llmc_weights.flags(path, &text, &where, &e), -EINVAL, &e, line);
}

TEST(what_cannot_be_right_is_refused) {
    static const struct {
        int field;
        int32_t value;
        const char *line;
    } cases[] = {
        {0, 20240520, "E_LLMC_HEADER m.bin: magic 20240520"},
        {1, 1, "E_LLMC_HEADER m.bin: version 1"},
        {1, 0, "E_LLMC_HEADER m.bin: version 0"},
        {2, 0, "E_LLMC_HEADER m.bin: max_seq_len 0"},
        {3, -5, "E_LLMC_HEADER m.bin: vocab_size -5"},
        {4, INT32_MIN, "E_LLMC_HEADER m.bin: num_layers -2147483648"},
        {5, 3, "E_LLMC_HEADER m.bin: num_heads 3"},
        {5, 0, "E_LLMC_HEADER m.bin: num_heads 0"},
        {6, INT32_MAX - 1, "E_LLMC_HEADER layers 2, channels 2147483646"},
        {7, 4, "E_LLMC_HEADER m.bin: padded_vocab_size 4"},
        {7, 8, "E_LLMC_SIZE m.bin: 3168"},
        {2, 2, "E_LLMC_SIZE m.bin: 3168"},
        {1, 5, "E_LLMC_SIZE m.bin: 3168"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t head[256];
        memcpy(head, header, sizeof head);
        head[cases[i].field] = cases[i].value;
        refused(head, 0, cases[i].line);
    }
    refused(header, -1, "E_LLMC_SIZE m.bin: 3167");
    refused(header, 1, "E_LLMC_SIZE m.bin: 3169");
    refused(header, -2145, "E_LLMC_SIZE m.bin: 1023");
    refused(header, -3168, "E_LLMC_SIZE m.bin: 0");
    struct ImportSource s;
    struct Error e = {0};
    assert_error(llmc_weights.open("/nowhere", &s, &e), -ENOENT, &e, "E_FILE_READ /nowhere");
    assert_error(llmc_weights.open(folder, &s, &e), -EISDIR, &e, "E_FILE_KIND");
}

// ---- into a folder of Hugging Face, whose matrices are the other way round ----------------------

struct Copy {
    struct ImportSource from;
    struct ExportSink to;
};

static void list_one(void *copy, int layer, const char *param, size_t begin, size_t count) {
    struct Copy *c = copy;
    struct Error e = {0};
    (void)begin, (void)count;
    assert_ok(c->to.list(c->to.context, layer, param, &e), &e);
}

static void copy_range(struct Copy *c, int layer, const char *param,
                       const struct WeightsRange *range) {
    struct Error e = {0};
    float values[64];
    assert_ok(c->from.read(c->from.context, layer, param, range, values, &e), &e);
    assert_ok(c->to.write(c->to.context, layer, param, range, values, &e), &e);
}

// A matrix that places of tensor parallelism have columns of goes by its columns.
static void copy_one(void *copy, int layer, const char *param, size_t begin, size_t count) {
    size_t cols = !strcmp(param, "attention.proj.weight") ? C
                  : !strcmp(param, "mlp.out.weight")      ? 4 * C
                                                          : 0;
    (void)begin;
    if (!cols)
        copy_range(copy, layer, param, &(struct WeightsRange){.at = 0, .n = count});
    for (size_t first = 0; first < cols; first += cols / 2)
        for (size_t n, at = 0; at < count / 2; at += n) { // begins and ends anywhere
            n = size_min(3, count / 2 - at);
            copy_range(copy, layer, param, &(struct WeightsRange){first, n, at, cols / 2, cols});
        }
}

static void expect_tensor(const struct HfFolder *f, const char *name, size_t rows, size_t cols,
                          size_t begin, size_t row, size_t col) {
    const struct HfTensor *t = hf_folder_find(f, name);
    struct Error e = {0};
    float out[64];
    assert_non_null(t);
    assert_int_equal(t->tensor->count, rows * cols);
    assert_ok(safetensors_read(t->file, t->tensor, 0, rows * cols, out, &e), &e);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            if (out[r * cols + c] != value(begin + r * row + c * col))
                fail_msg("%s, element (%zu, %zu): %g", name, r, c, (double)out[r * cols + c]);
}

TEST(a_folder_of_it_has_the_same_values) {
    struct Copy c;
    struct HfFolder f;
    struct Error e = {0};
    char *out = base_format("%s/hf", folder);
    write_version(3);
    assert_ok(llmc_weights.open(path, &c.from, &e), &e);
    const struct ExportModel model = {.flags = model_flags, .dtype = F32, .from = &c.from};
    assert_ok(hf_weights.make(out, &model, &c.to, &e), &e);
    for_all(list_one, &c);
    assert_ok(c.to.make(c.to.context, &e), &e);
    for_all(copy_one, &c);
    assert_ok(c.to.sync(c.to.context, &e), &e);
    assert_ok(c.to.commit(c.to.context, &e), &e);
    c.to.close(c.to.context);
    c.from.close(c.from.context);
    assert_ok(hf_folder_open(&f, out, &e), &e);
    assert_int_equal(f.ntensor, 4 + 12 * L); // the head is tied
    expect_tensor(&f, "transformer.wte.weight", V, C, 0, C, 1);
    expect_tensor(&f, "transformer.wpe.weight", T, C, 28, C, 1);
    expect_tensor(&f, "transformer.h.1.attn.c_attn.weight", C, 12, 56 + 48, 1, C);
    expect_tensor(&f, "transformer.h.0.mlp.c_fc.weight", C, 16, 232, 1, C);
    expect_tensor(&f, "transformer.h.1.mlp.c_proj.weight", 16, C, 392 + 64, 1, 16);
    expect_tensor(&f, "transformer.h.1.ln_2.bias", 1, C, 224 + 4, C, 1);
    expect_tensor(&f, "transformer.ln_f.bias", 1, C, 532, C, 1);
    hf_folder_close(&f);
    free(out);
}

AROUND_EACH(set_up, tear_down);
