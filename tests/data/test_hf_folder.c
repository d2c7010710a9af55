// Folders of models: those that transformers wrote for each family have every tensor that our
// parameters are made of, in the right shape, and none besides; a parameter's elements are the same
// however they are cut; and folders that lack a part, or have one twice, are refused by its name.
#include "data/hf/pieces.h"
#include "data/json.h"
#include "tests/lib/hf_families.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

#include <cjson/cJSON.h>
#include <errno.h>

// ---- the families -------------------------------------------------------------------------------

// Reads a parameter in one go and in uneven parts: the same. Rows behind the last piece are 0.
static void expect_same_in_parts(const struct HfFolder *f, const struct HfPiece *piece, size_t n) {
    const struct HfPiece *last = &piece[n - 1];
    size_t cols = size_max(last->cols, 1), have = (last->row + last->rows) * cols;
    size_t all = have + 3 * cols;
    float *whole = base_alloc(all * sizeof *whole), *part = base_alloc(all * sizeof *part);
    struct Error e = {0};
    assert_ok(hf_pieces_read(f, piece, n, &(struct WeightsRange){.at = 0, .n = all}, whole, &e),
              &e);
    for (size_t at = 0, step = 1; at < all; at += step, step = size_min(step * 2 + 5, all - at)) {
        memset(part, 0xff, all * sizeof *part);
        assert_ok(
            hf_pieces_read(f, piece, n, &(struct WeightsRange){.at = at, .n = step}, part, &e), &e);
        assert_memory_equal(part, whole + at, step * sizeof *part);
        assert_true(part[step] != part[step] || at + step == all); // a NaN still
    }
    for (size_t i = have; i < all; i++)
        assert_true(whole[i] == 0);
    free(whole);
    free(part);
}

// Calls for each word of `params`.
static void ask_params(struct HfFolder *f, const struct Family *family, const char *params,
                       int layer) {
    char word[64];
    int used;
    for (; sscanf(params, "%63s%n", word, &used) == 1; params += used) {
        struct HfPiece piece[HF_PIECES_MAX];
        struct Error e = {0};
        size_t n = hf_pieces(family->family, word, layer, family->sizes, piece);
        assert_true(n > 0);
        assert_ok(hf_pieces_ask(f, piece, n, &e), &e);
        expect_same_in_parts(f, piece, n);
    }
}

TEST(families_are_read_whole) {
    for (size_t i = 0; i < NFAMILY; i++) {
        char *path = base_format(FIXTURES "%s", families[i].folder);
        struct HfFolder f;
        struct Error e = {0};
        size_t left;
        assert_ok(hf_folder_open(&f, path, &e), &e);
        assert_non_null(cJSON_GetObjectItemCaseSensitive(f.config, "model_type"));
        assert_true(f.nfile > 2);
        assert_non_null(hf_folder_unasked(&f, &left));
        assert_int_equal(left, f.ntensor);
        ask_params(&f, &families[i], families[i].ends, -1);
        for (int layer = 0; layer < 2; layer++)
            ask_params(&f, &families[i], families[i].block, layer);
        const char *unasked = hf_folder_unasked(&f, NULL);
        if (unasked)
            fail_msg("%s: nobody asked for %s", path, unasked);
        hf_folder_close(&f);
        free(path);
    }
}

// Element (row, col) of ours is element (col, row) of GPT-2's.
TEST(transposed_matrices_are_turned) {
    struct HfFolder f;
    struct HfPiece piece[HF_PIECES_MAX];
    struct Error e = {0};
    assert_ok(hf_folder_open(&f, FIXTURES "gpt2", &e), &e);
    assert_int_equal(hf_pieces("gpt2", "attention.qkv.weight", 1, &gpt2_sizes, piece), 1);
    const struct HfTensor *t = hf_folder_find(&f, "transformer.h.1.attn.c_attn.weight");
    float *ours = base_alloc(64 * 192 * sizeof *ours),
          *theirs = base_alloc(64 * 192 * sizeof *ours);
    assert_ok(
        hf_pieces_read(&f, piece, 1, &(struct WeightsRange){.at = 0, .n = 64 * 192}, ours, &e), &e);
    assert_ok(safetensors_read(t->file, t->tensor, 0, 64 * 192, theirs, &e), &e);
    for (size_t row = 0; row < 192; row++)
        for (size_t col = 0; col < 64; col++)
            assert_true(ours[row * 64 + col] == theirs[col * 192 + row]);
    free(ours);
    free(theirs);
    hf_folder_close(&f);
}

// The rows of queries, keys and values, and of gate and up, in this order.
TEST(stacked_matrices_are_in_order) {
    static const struct {
        const char *param, *name;
        size_t row, rows;
    } want[] = {
        {"attention.qkv.weight", "model.layers.11.self_attn.q_proj.weight", 0, 96},
        {"attention.qkv.weight", "model.layers.11.self_attn.k_proj.weight", 96, 48},
        {"attention.qkv.weight", "model.layers.11.self_attn.v_proj.weight", 144, 48},
        {"mlp.fc.weight", "model.layers.11.mlp.gate_proj.weight", 0, 96},
        {"mlp.fc.weight", "model.layers.11.mlp.up_proj.weight", 96, 96},
        {"attention.k_norm.weight", "model.layers.11.self_attn.k_norm.weight", 0, 24},
        {"mlp.out.weight", "model.layers.11.mlp.down_proj.weight", 0, 64},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct HfPiece piece[HF_PIECES_MAX] = {{{0}, 0, 0, 0, false}};
        size_t found = 0;
        hf_pieces("qwen3", want[i].param, 11, &qwen3_sizes, piece);
        for (size_t j = 0; j < HF_PIECES_MAX; j++)
            found += !strcmp(piece[j].name, want[i].name) && piece[j].row == want[i].row &&
                     piece[j].rows == want[i].rows && !piece[j].transposed;
        assert_int_equal(found, 1);
    }
    struct HfPiece piece[HF_PIECES_MAX];
    assert_int_equal(hf_pieces("llama", "wpe", 0, &small, piece), 0);
}

// ---- folders made here --------------------------------------------------------------------------

static char *folder;

static int set_up(void **state) {
    (void)state;
    folder = scratch_make();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    scratch_remove(folder);
    return 0;
}

static void put(const char *name, const char *text) {
    free(scratch_write(folder, name, text, strlen(text)));
}

// A file of tensors of one element each, whose names are the words of `names`; the first one's
// value is 1.
static void put_tensors(const char *file, const char *names) {
    char header[2048] = "{", word[64], bytes[4096] = {0};
    size_t n = 1, count = 0;
    int used;
    for (; sscanf(names, "%63s%n", word, &used) == 1; names += used, count++)
        n += (size_t)snprintf(
            header + n, sizeof header - n,
            "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
            count ? "," : "", word, 4 * count, 4 * count + 4);
    n += (size_t)snprintf(header + n, sizeof header - n, "}");
    bytes[0] = (char)(n & 0xff), bytes[1] = (char)(n >> 8);
    memcpy(bytes + 8, header, n);
    for (size_t i = 0; i < count; i++) {
        float value = (float)(i + 1);
        memcpy(bytes + 8 + n + 4 * i, &value, 4);
    }
    free(scratch_write(folder, file, bytes, 8 + n + 4 * count));
}

static void empty_folder(void) {
    char *command = base_format("rm -rf '%s' && mkdir '%s'", folder, folder);
    assert_int_equal(system(command), 0);
    free(command);
}

static void expect_refused(int want, const char *part) {
    struct HfFolder f;
    struct Error e = {0};
    assert_error(hf_folder_open(&f, folder, &e), want, &e, part);
    assert_true(!f.path && !f.file && !f.config);
}

TEST(names_without_their_first_word) {
    empty_folder();
    put("config.json", "{\"model_type\": \"gpt2\"}");
    put_tensors("model.safetensors", "h.0.ln_1.bias layers.0.x transformer.wpe lm_head.weight");
    struct HfFolder f;
    struct Error e = {0};
    assert_ok(hf_folder_open(&f, folder, &e), &e);
    assert_non_null(hf_folder_ask(&f, "transformer.h.0.ln_1.bias"));
    assert_non_null(hf_folder_ask(&f, "model.layers.0.x"));
    assert_non_null(hf_folder_ask(&f, "transformer.wpe"));
    assert_null(hf_folder_find(&f, "wpe")); // the other way round is nobody's spelling
    assert_null(hf_folder_find(&f, "transformer.h.0.ln_1"));
    assert_string_equal(hf_folder_unasked(&f, NULL), "lm_head.weight");
    assert_string_equal(cJSON_GetObjectItemCaseSensitive(f.config, "model_type")->valuestring,
                        "gpt2");
    hf_folder_close(&f);
}

TEST(masks_are_passed_over) {
    empty_folder();
    put("config.json", "{}");
    put_tensors("model.safetensors", "h.0.attn.bias transformer.h.1.attn.masked_bias "
                                     "model.layers.0.self_attn.rotary_emb.inv_freq");
    struct HfFolder f;
    struct Error e = {0};
    size_t left;
    assert_ok(hf_folder_open(&f, folder, &e), &e);
    assert_null(hf_folder_unasked(&f, &left));
    assert_int_equal(left, 0);
    hf_folder_close(&f);
    put_tensors("model.safetensors", "h.0.attn.c_attn.bias h.0.attn.bias2 self_attn.bias");
    assert_ok(hf_folder_open(&f, folder, &e), &e);
    assert_string_equal(hf_folder_unasked(&f, &left), "h.0.attn.bias2");
    assert_int_equal(left, 3);
    hf_folder_close(&f);
}

TEST(shards_by_their_index) {
    empty_folder();
    put("config.json", "{}");
    put_tensors("b.safetensors", "two three");
    put_tensors("a.safetensors", "one more");
    put("model.safetensors.index.json",
        "{\"weight_map\": {\"two\": \"b.safetensors\", \"one\": \"a.safetensors\","
        "\"three\": \"b.safetensors\"}}");
    struct HfFolder f;
    struct Error e = {0};
    float x = 0;
    assert_ok(hf_folder_open(&f, folder, &e), &e);
    assert_int_equal(f.nfile, 2);
    assert_int_equal(f.ntensor, 4); // what the index does not name is found, too
    const struct HfTensor *t = hf_folder_find(&f, "three");
    assert_ok(safetensors_read(t->file, t->tensor, 0, 1, &x, &e), &e);
    assert_true(x == 2);
    hf_folder_close(&f);
}

TEST(bad_indices_are_refused) {
    static const struct {
        const char *index, *part;
        int code;
    } bad[] = {
        {"{}", "E_HF_INDEX", -EINVAL},
        {"{\"weight_map\": {}}", "E_HF_INDEX", -EINVAL},
        {"{\"weight_map\": {\"one\": \"c.safetensors\"}}", "E_FILE_READ c.safetensors", -ENOENT},
        {"{\"weight_map\": {\"one\": \"b.safetensors\"}}", "E_HF_INDEX one", -EINVAL},
        {"{\"weight_map\": {\"one\": \"x/a.safetensors\"}}", "E_HF_INDEX \"x/a.safetensors\"",
         -EINVAL},
        {"{\"weight_map\": {\"one\": \"../a.safetensors\"}}", "E_HF_INDEX", -EINVAL},
        {"{\"weight_map\": {\"one\": \"..\"}}", "E_HF_INDEX", -EINVAL},
        {"{\"weight_map\": {\"one\": 1}}", "E_HF_INDEX", -EINVAL},
        {"{\"weight_map\": {\"one\": \"a.safetensors\", \"two\": \"double.safetensors\"}}",
         "E_HF_TENSOR_TWICE one", -EINVAL},
        {"{\"weight_map\": {\"one\": \"a.safetensors\", \"one\": \"a.safetensors\"}}",
         "E_HF_INDEX one", -EINVAL},
        {"{\"weight_map\": 5}", "E_HF_INDEX", -EINVAL},
        {"[]", "E_JSON_SYNTAX", -EINVAL},
    };
    empty_folder();
    put("config.json", "{}");
    put_tensors("a.safetensors", "one");
    put_tensors("b.safetensors", "two");
    put_tensors("double.safetensors", "two one");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put("model.safetensors.index.json", bad[i].index);
        expect_refused(bad[i].code, bad[i].part);
    }
}

TEST(folders_without_a_part_are_refused) {
    empty_folder();
    expect_refused(-ENOENT, "E_FILE_READ config.json");
    put("config.json", "{\"a\": 1");
    expect_refused(-EINVAL, "E_JSON_SYNTAX config.json");
    put("config.json", "{\"a\": 1, \"b\": 2, \"a\": 3}");
    expect_refused(-EINVAL, "E_JSON_DUPLICATE_KEY \"a\"");
    put("config.json", "{}");
    put("pytorch_model.bin", "x");
    expect_refused(-ENOENT, "E_HF_WEIGHTS_MISSING model.safetensors.index.json");
    put("model.safetensors", "x");
    expect_refused(-EINVAL, "E_SAFETENSORS_HEADER model.safetensors: this");
}

TEST(wrong_shapes_are_refused) {
    struct HfFolder f;
    struct HfPiece piece[HF_PIECES_MAX];
    struct HfSizes other = small;
    struct Error e = {0};
    assert_ok(hf_folder_open(&f, FIXTURES "llama", &e), &e);
    other.kv_heads = 4;
    size_t n = hf_pieces("llama", "attention.qkv.weight", 0, &other, piece);
    assert_error(hf_pieces_ask(&f, piece, n, &e), -EINVAL, &e, "E_HF_TENSOR_SHAPE [32, 64]");
    n = hf_pieces("llama", "norm1.weight", 2, &small, piece);
    assert_error(hf_pieces_ask(&f, piece, n, &e), -EINVAL, &e,
                 "E_HF_TENSOR_MISSING model.layers.2.input_layernorm.weight");
    n = hf_pieces("llama", "attention.qkv.bias", 0, &small, piece);
    assert_error(hf_pieces_ask(&f, piece, n, &e), -EINVAL, &e, "E_HF_TENSOR_MISSING");
    hf_folder_close(&f);
}

// The value of tensor i is i + 1, and 20,000 values are 0 but for a last one.
TEST(copies_are_compared) {
    empty_folder();
    put("config.json", "{}");
    put_tensors("a.safetensors", "one two");
    put_tensors("b.safetensors", "uno");
    static const char header[] =
        "{\"x\":{\"dtype\":\"BF16\",\"shape\":[20000],\"data_offsets\":[0,40000]},"
        "\"y\":{\"dtype\":\"BF16\",\"shape\":[20000],\"data_offsets\":[40000,80000]},"
        "\"z\":{\"dtype\":\"BF16\",\"shape\":[200,100],\"data_offsets\":[80000,120000]}}";
    size_t n = 8 + strlen(header);
    char *bytes = base_alloc_zeroed(n + 120000);
    bytes[0] = (char)(uint8_t)strlen(header);
    memcpy(bytes + 8, header, n - 8);
    put("model.safetensors.index.json",
        "{\"weight_map\": {\"two\": \"a.safetensors\", \"uno\": \"b.safetensors\","
        "\"x\": \"c.safetensors\"}}");
    for (int last = 0; last < 2; last++) {
        bytes[n + 79999] = (char)last;
        free(scratch_write(folder, "c.safetensors", bytes, n + 120000));
        static const struct {
            const char *a, *b;
            bool same[2];
        } pairs[] = {{"one", "uno", {true, true}},
                     {"two", "uno", {false, false}},
                     {"x", "y", {true, false}},
                     {"x", "z", {false, false}}};
        struct HfFolder f;
        struct Error e = {0};
        assert_ok(hf_folder_open(&f, folder, &e), &e);
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
            bool same;
            assert_ok(hf_folder_compare(hf_folder_find(&f, pairs[i].a),
                                        hf_folder_find(&f, pairs[i].b), &same, &e),
                      &e);
            assert_int_equal(same, pairs[i].same[last]);
        }
        hf_folder_close(&f);
    }
    free(bytes);
}

AROUND_ALL(set_up, tear_down);
