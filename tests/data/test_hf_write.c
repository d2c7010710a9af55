// Writing a model's folder: two ranks write the ranges of what transformers saved, and the tensors'
// bytes are the same; shards, headers and index are as others expect them; values are rounded to
// the nearest. That a folder is complete or not there is test_hf_complete.c's.
#include "data/json.h"
#include "data/hf/pieces.h"
#include "tests/lib/hf_families.h"
#include "tests/lib/hf_out.h"
#include "tests/lib/test.h"

#include <cjson/cJSON.h>
#include <sys/syscall.h>

// ---- helpers ------------------------------------------------------------------------------------

// Not more than 1,000 bytes at once.
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) {
    return syscall(SYS_pwrite64, fd, bytes, size_min(n, 1000), at);
}

static char *read_text(const char *path, size_t *n) {
    FILE *f = fopen(path, "r");
    char *text = base_alloc_zeroed(1 << 17);
    assert_non_null(f);
    *n = fread(text, 1, (1 << 17) - 1, f);
    fclose(f);
    return text;
}

// Writes config.json, forces all to the disk, and names the folder.
static void finish(struct HfWriter *w) {
    struct Error e = {0};
    assert_ok(hf_writer_put(w, "config.json", "{}\n", 3, &e), &e);
    assert_ok(hf_writer_sync(w, &e), &e);
    assert_ok(hf_writer_commit(w, &e), &e);
}

static void remove_out(void) {
    char *command = base_format("rm -r '%s'", out);
    assert_int_equal(system(command), 0);
    free(command);
}

// ---- a model, through two writers ---------------------------------------------------------------

// All pieces of a family's parameters, one parameter behind the other.
struct Model {
    struct HfPiece piece[256];
    size_t nparam, first[129]; // of parameter i: pieces first[i] .. first[i + 1] - 1
};

static void list_words(struct Model *m, const struct Family *family, const char *words, int layer) {
    char word[64];
    int used;
    for (; sscanf(words, "%63s%n", word, &used) == 1; words += used) {
        size_t at = m->first[m->nparam];
        m->first[++m->nparam] =
            at + hf_pieces(family->family, word, layer, family->sizes, &m->piece[at]);
    }
}

static struct Model *list_model(const struct Family *family) {
    struct Model *m = base_alloc_zeroed(sizeof *m);
    list_words(m, family, family->ends, -1);
    for (int layer = 0; layer < 2; layer++)
        list_words(m, family, family->block, layer);
    return m;
}

static void open_writer(struct HfWriter *w, const struct Model *m, enum Dtype dtype,
                        uint64_t shard_bytes) {
    size_t n = m->first[m->nparam];
    struct HfOut *tensors = base_alloc(n * sizeof *tensors);
    for (size_t i = 0; i < n; i++)
        tensors[i] = hf_piece_out(&m->piece[i]);
    hf_writer_init(w, out, HF_MODEL_STEM, tensors, n, dtype, shard_bytes);
    free(tensors);
}

// Some columns of a matrix, in uneven parts.
static void copy_columns(const struct HfFolder *f, const struct HfPiece *piece, size_t first,
                         size_t cols, struct HfWriter *w) {
    struct Error e = {0};
    size_t all = piece->rows * cols;
    float *values = base_alloc(all * sizeof *values), *row = base_alloc(piece->cols * sizeof *row);
    for (size_t at = 0, step = 1; at < all; at += step, step = size_min(step * 2 + 3, all - at)) {
        struct WeightsRange range = {first, step, at, cols, piece->cols};
        assert_ok(hf_pieces_read(f, piece, 1, &range, values, &e), &e);
        assert_ok(hf_pieces_write(w, piece, 1, &range, values, &e), &e);
        for (size_t i = 0; i < step; i++) { // what a row is that was read whole
            size_t r = (at + i) / cols, c = (at + i) % cols;
            struct WeightsRange whole = {.at = r * piece->cols, .n = piece->cols};
            if (!i || !c)
                assert_ok(hf_pieces_read(f, piece, 1, &whole, row, &e), &e);
            assert_true(values[i] == row[first + c]);
        }
    }
    free(values);
    free(row);
}

// Reads the elements of each parameter in uneven parts, and hands them to the two writers by turns.
// Every second matrix goes by its columns, as four places of tensor parallelism have them.
static void copy_params(const struct HfFolder *f, const struct Model *m, struct HfWriter w[2]) {
    struct Error e = {0};
    for (size_t p = 0, turn = 0; p < m->nparam; p++) {
        const struct HfPiece *piece = &m->piece[m->first[p]];
        size_t n = m->first[p + 1] - m->first[p];
        const struct HfPiece *last = &piece[n - 1];
        size_t all = (last->row + last->rows) * size_max(last->cols, 1);
        float *values = base_alloc((all + 50) * sizeof *values);
        bool columns = p % 2 && n == 1 && piece->cols && piece->cols % 4 == 0;
        for (size_t place = 0; columns && place < 4; place++)
            copy_columns(f, piece, place * (piece->cols / 4), piece->cols / 4, &w[place % 2]);
        all = columns ? 0 : all; // those are copied
        // The last part goes beyond: padding, which is written nowhere.
        for (size_t at = 0, step = 7; at < all; at += step, step = step * 2 + 3, turn ^= 1) {
            size_t take = size_min(step, all + 50 - at);
            struct WeightsRange range = {.at = at, .n = take};
            assert_ok(hf_pieces_read(f, piece, n, &range, values, &e), &e);
            assert_ok(hf_pieces_write(&w[turn], piece, n, &range, values, &e), &e);
        }
        free(values);
    }
}

// Every tensor of `f` is in `g`, with the same shape, dtype and bytes.
static void expect_same_tensors(const struct HfFolder *f, const struct HfFolder *g) {
    assert_int_equal(f->ntensor, g->ntensor);
    for (size_t i = 0; i < f->ntensor; i++) {
        const struct Tensor *a = f->tensor[i].tensor, *b = g->tensor[i].tensor;
        size_t bytes = (size_t)(a->end - a->begin);
        assert_string_equal(a->name, b->name);
        assert_string_equal(a->spelled, b->spelled);
        assert_true(a->ndim == b->ndim && !memcmp(a->shape, b->shape, sizeof a->shape));
        char *x = base_alloc(bytes), *y = base_alloc(bytes);
        assert_int_equal(pread(f->tensor[i].file->fd, x, bytes, (off_t)a->begin), bytes);
        assert_int_equal(pread(g->tensor[i].file->fd, y, bytes, (off_t)b->begin), bytes);
        assert_memory_equal(x, y, bytes);
        free(x);
        free(y);
    }
}

TEST(families_are_written_as_they_were) {
    for (size_t i = 0; i < NFAMILY; i++) {
        char *path = base_format(FIXTURES "%s", families[i].folder);
        struct Model *m = list_model(&families[i]);
        struct HfFolder f, g;
        struct HfWriter w[2];
        struct Error e = {0};
        size_t n;
        char *config = scratch_read(path, "config.json", &n);
        assert_ok(hf_folder_open(&f, path, &e), &e);
        for (int rank = 0; rank < 2; rank++)
            open_writer(&w[rank], m, f.tensor->tensor->dtype, 50000);
        assert_ok(hf_writer_make(&w[0], &e), &e);
        assert_ok(hf_writer_join(&w[1], &e), &e);
        assert_ok(hf_writer_put(&w[0], "config.json", config, n, &e), &e);
        copy_params(&f, m, w);
        assert_false(is_there(out));
        for (int rank = 0; rank < 2; rank++)
            assert_ok(hf_writer_sync(&w[rank], &e), &e);
        assert_ok(hf_writer_commit(&w[0], &e), &e);
        assert_true(is_there(out) && !is_there(aside));
        assert_int_equal(scratch_count_files(out), w[0].nfile + 2); // no marker stays
        assert_ok(hf_folder_open(&g, out, &e), &e);
        assert_true(g.nfile > 2 && cJSON_Compare(g.config, f.config, true));
        expect_same_tensors(&f, &g);
        for (int rank = 0; rank < 2; rank++)
            hf_writer_free(&w[rank]);
        hf_folder_close(&f);
        hf_folder_close(&g);
        free(m);
        free(config);
        free(path);
        remove_out();
    }
}

// ---- form ---------------------------------------------------------------------------------------

TEST(one_file_has_no_index) {
    struct HfWriter w;
    struct Error e = {0};
    size_t n;
    char *path = base_format("%s/model.safetensors", out);
    hf_writer_init(&w, out, HF_MODEL_STEM, two, 2, F32, 64);
    assert_ok(hf_writer_make(&w, &e), &e);
    assert_ok(hf_write_range(&w, 0, 0, 10, counted, &e), &e);
    assert_ok(hf_write_range(&w, 1, 0, 6, counted, &e), &e);
    finish(&w);
    assert_int_equal(scratch_count_files(out), 2);
    char *text = read_text(path, &n);
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"first.weight\":{\"dtype\":\"F32\",\"shape\":[10],\"data_offsets\":[0,40]},"
        "\"second.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[40,64]}}";
    size_t padded = round_up(strlen(header), 8);
    assert_true(padded > strlen(header));
    assert_int_equal((uint8_t)text[0] + 256 * text[1], padded);
    assert_memory_equal(text + 8, header, strlen(header));
    assert_int_equal(text[8 + padded - 1], ' ');
    assert_memory_equal(text + 8 + padded, counted, 40);
    assert_int_equal(n, 8 + padded + 64);
    assert_int_equal(hf_writer_bytes(&w), n);
    hf_writer_free(&w);
    free(text);
    free(path);
}

TEST(shards_hold_what_fits) {
    static const struct {
        uint64_t limit;
        size_t nfile, file[3];
    } cases[] = {{72, 1, {0, 0, 0}},
                 {71, 2, {0, 0, 1}},
                 {32, 2, {0, 1, 1}},
                 {31, 3, {0, 1, 2}},
                 {1, 3, {0, 1, 2}}};
    static const struct HfOut three[] = {{"a", 1, {10}}, {"b", 2, {2, 3}}, {"c", 2, {1, 2}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct HfWriter w;
        hf_writer_init(&w, out, HF_MODEL_STEM, three, 3, F32, cases[i].limit);
        assert_int_equal(w.nfile, cases[i].nfile);
        for (int j = 0; j < 3; j++)
            assert_int_equal(w.entry[j].file, cases[i].file[j]);
        assert_true((w.index != NULL) == (w.nfile > 1));
        if (w.nfile == 3) {
            struct Error e = {0};
            cJSON *tree = json_parse_object(w.index, strlen(w.index), "index", &e);
            const cJSON *map = cJSON_GetObjectItemCaseSensitive(tree, "weight_map");
            const cJSON *meta = cJSON_GetObjectItemCaseSensitive(tree, "metadata");
            assert_int_equal(cJSON_GetArraySize(map), 3);
            assert_string_equal(cJSON_GetObjectItemCaseSensitive(map, "b")->valuestring,
                                "model-00002-of-00003.safetensors");
            assert_true(cJSON_GetObjectItemCaseSensitive(meta, "total_size")->valuedouble == 72);
            cJSON_Delete(tree);
        }
        hf_writer_free(&w);
    }
}

// Beyond 4 GiB all offsets hold; nothing of it is written here.
TEST(large_models_are_laid_out) {
    static const struct HfOut large[] = {{"a", 2, {100000, 100000}}, {"b", 2, {70000, 100000}}};
    struct HfWriter w;
    hf_writer_init(&w, out, HF_MODEL_STEM, large, 2, BF16, HF_SHARD_BYTES);
    assert_int_equal(w.nfile, 2);
    static const char offsets[] = "\"data_offsets\":[0,20000000000]";
    assert_non_null(memmem(w.file[0].header, w.file[0].header_bytes, offsets, sizeof offsets - 1));
    assert_int_equal(w.file[1].bytes - w.file[1].header_bytes, 14000000000);
    hf_writer_free(&w);
}

TEST(values_are_rounded_to_the_nearest) {
    // Ties in bf16 (1 + 2^-8, 1 + 3 * 2^-8) and in fp16 (1 + 2^-11, 1 + 3 * 2^-11); what fp16 has
    // not, in whose place it gets its largest.
    static const float all[10] = {0x1.01p0f,     0x1.03p0f, 0x1.002p0f, 0x1.006p0f,  -0x1.01p0f,
                                  0x1.010002p0f, 70000.0f,  1e-7f,      0x1.fep127f, -0.0f};
    static const float bf16[10] = {1, 0x1.04p0f, 1, 1, -1, 0x1.02p0f, 70144.0f, 0, 0x1.fep127f, 0};
    static const float f16[4] = {0x1.01p0f, 0x1.03p0f, 1, 0x1.008p0f};
    for (int half = 0; half < 2; half++) {
        struct HfWriter w;
        struct HfFolder f;
        struct Error e = {0};
        float values[10], got[10];
        for (int i = 0; i < 10; i++)
            values[i] = half && all[i] > 65504 ? 65504 : all[i];
        hf_writer_init(&w, out, HF_MODEL_STEM, two, 2, half ? F16 : BF16, HF_SHARD_BYTES);
        assert_ok(hf_writer_make(&w, &e), &e);
        assert_ok(hf_write_range(&w, 0, 0, 10, values, &e), &e);
        finish(&w);
        assert_ok(hf_folder_open(&f, out, &e), &e);
        const struct HfTensor *t = hf_folder_find(&f, "first.weight");
        assert_ok(safetensors_read(t->file, t->tensor, 0, 10, got, &e), &e);
        for (int i = 0; i < (half ? 4 : 10); i++)
            assert_true(got[i] == (half ? f16[i] : bf16[i]) || (!half && i == 7));
        for (int i = 0; i < 10; i++)
            assert_int_equal(f32_bits(got[i]),
                             f32_bits(half ? f32_from_f16(f16_from_f32(values[i]))
                                           : f32_from_bf16(bf16_from_f32(values[i]))));
        t = hf_folder_find(&f, "second.weight"); // written by nobody
        assert_ok(safetensors_read(t->file, t->tensor, 0, 6, got, &e), &e);
        for (int i = 0; i < 6; i++)
            assert_true(got[i] == 0);
        assert_ok(hf_pieces_read(&f, NULL, 0, &(struct WeightsRange){.at = 3, .n = 6}, got + 1, &e),
                  &e); // a parameter of padding
        for (int i = 0; i < 7; i++)
            assert_true(got[i] == 0);
        hf_folder_close(&f);
        hf_writer_free(&w);
        remove_out();
    }
}

// More than is rounded at once, and from the middle on.
TEST(long_ranges_are_written) {
    enum { N = 50000, FROM = 4321 };
    static const struct HfOut one[] = {{"long.weight", 1, {N}}};
    static float values[N], got[N];
    struct HfWriter w;
    struct HfFolder f;
    struct Error e = {0};
    for (int i = 0; i < N; i++)
        values[i] = f32_from_bf16((uint16_t)(i % 32000));
    hf_writer_init(&w, out, HF_MODEL_STEM, one, 1, BF16, HF_SHARD_BYTES);
    assert_ok(hf_writer_make(&w, &e), &e);
    assert_ok(hf_write_range(&w, 0, FROM, N - FROM, values + FROM, &e), &e);
    assert_ok(hf_write_range(&w, 0, 0, FROM, values, &e), &e);
    finish(&w);
    assert_ok(hf_folder_open(&f, out, &e), &e);
    assert_ok(safetensors_read(f.tensor->file, f.tensor->tensor, 0, N, got, &e), &e);
    assert_memory_equal(got, values, sizeof got);
    hf_folder_close(&f);
    hf_writer_free(&w);
}

AROUND_EACH(set_up, tear_down);
