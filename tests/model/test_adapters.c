// Adapters of every family against PEFT: logits, losses, the gradient of every A and B, and three
// AdamW steps of the adapters in tests/fixtures/peft, which scripts/gen/peft_fixtures.py made (it
// says what is there), in every kernel table of this CPU, and on a GPU, or in the simulator, where
// this build has one. The base comes in as --init hf:DIR brings it, and the adapter as
// --init-adapter does; the base stays as it was. What is merged is PEFT's, and in fp64 the formula;
// what is written is read again, bit by bit. With --lora-dropout there is no other program to
// compare with: gradients are held against the slopes of the loss.
#include "data/peft/adapter.h"
#include "data/peft/kind.h"
#include "tests/lib/hf_case.h"
#include "tests/lib/scratch.h"
#include "zero/weights/weights.h"

static const char *const folders[] = {"gpt2", "llama", "mistral", "qwen2", "qwen3"};
enum { NFOLDER = sizeof folders / sizeof folders[0] };

static bool is_gpt2(const struct Case *c) {
    return strcmp(c->folder, "gpt2") == 0;
}

static void open_files(struct Case *c) {
    struct Error e = {0};
    char *root = base_format("tests/fixtures/peft/%s", c->folder);
    c->base = base_format("tests/fixtures/hf/%s", c->folder);
    c->dir = base_format("%s/adapter", root);
    char *adapter = base_format("%s/adapter_model.safetensors", c->dir);
    CHECKED(hf_model_flags(c->base, &c->flags, &e));
    CHECKED(hf_model_open(&c->model, c->base, &e));
    CHECKED(safetensors_open(adapter, &c->file, &e));
    open_reference(c, root);
    free(adapter);
    free(root);
}

static void close_case(struct Case *c) {
    close_rank(c);
    safetensors_close(&c->file);
    free(c->base);
    free(c->dir);
    free(c->flags);
}

static void read_adapter(struct Case *c, const char *dir) {
    struct Error e = {0};
    struct ImportSource from;
    CHECKED(peft_source_open(dir, c->flags, &from, &e));
    CHECKED(import_check(&c->rank.model.config, &from, &e));
    CHECKED(import_weights(&c->rank.zero, &from, &e));
    from.close(from.context);
}

// False where this CPU lacks the table's instructions.
static bool open_case(struct Case *c) {
    struct Error e = {0};
    struct PeftConfig config;
    struct ModelConfig model;
    open_files(c);
    CHECKED(hf_rank_config(c->base, T, c->dtype, &model, &e));
    CHECKED(peft_config_read(&config, c->dir, is_gpt2(c), &e));
    model.lora = (struct Lora){.rank = config.rank,
                               .alpha = config.alpha,
                               .dropout = c->dropout,
                               .targets = config.targets};
    if (!open_rank(c, &model)) {
        close_case(c);
        return false;
    }
    read_adapter(c, c->dir);
    return true;
}

// ---- the matrices of an adapter ----

// The next matrix from group *g and parameter *i on; NULL: there is none. *name is PEFT's; free()
// it.
static const struct Param *next_matrix(struct Case *c, int *g, int *i, char **name) {
    const struct Params *p = &c->rank.params;
    for (; *g < p->ngroup; ++*g, *i = -1)
        while (p->group[*g].kind == GROUP_ADAPTER && ++*i < p->group[*g].nparam) {
            const struct Param *param = &p->group[*g].param[*i];
            struct PeftName n = {.layer = (size_t)params_layer(p, *g)};
            if (!param->real)
                continue;
            assert_true(lora_param_read(param->name, &n.target, &n.matrix));
            *name = peft_name(&n, is_gpt2(c));
            return param;
        }
    return NULL;
}

enum What { WEIGHTS, GRADIENTS };
static float *fetch(struct Case *c, int g, const struct Param *p, enum What what) {
    struct Rank *r = &c->rank;
    const void *from =
        what == GRADIENTS ? r->zero.state[g].grad.mem : (void *)zero_master(&r->zero, g);
    return hf_rank_fetch(r, dtype_at(from, F32, p->offset), F32, p->real);
}

// All of them, of which the file has no more.
static void expect_matrices(struct Case *c, const char *prefix, enum What what, double tolerance) {
    const struct Param *p;
    char *name;
    size_t seen = 0;
    for (int g = 0, i = -1; (p = next_matrix(c, &g, &i, &name)); seen++) {
        float *got = fetch(c, g, p, what);
        expect_tensor(c, prefix, name, got, p->real, tolerance);
        free(got);
        free(name);
    }
    assert_int_equal(seen, c->file.ntensor);
}

// They have the bits of the file's.
static void expect_file(struct Case *c, const struct Safetensors *file) {
    const struct Param *p;
    char *name;
    size_t seen = 0, count;
    for (int g = 0, i = -1; (p = next_matrix(c, &g, &i, &name)); seen++) {
        float *got = fetch(c, g, p, WEIGHTS), *want = tensor_of(file, "", name, &count);
        assert_int_equal(count, p->real);
        if (memcmp(got, want, count * sizeof *got) != 0)
            fail_msg("%s: %s is not that of %s", c->folder, name, file->path);
        free(got);
        free(want);
        free(name);
    }
    assert_int_equal(seen, file->ntensor);
}

// ---- against PEFT ----

static void check(struct Case c, double tolerance, double after) {
    if (!open_case(&c))
        return;
    uint64_t base = zero_base_hash(&c.rank.zero);
    expect_file(&c, &c.file);
    if (micros(&c) == 1)
        expect_logits(&c, tolerance);
    for (int step = 0; step <= STEPS; step++) {
        struct StepResult r = run_step(&c, 1e-3, 0);
        double norm = json_number(c.facts, "gradient_norm");
        expect_loss(&c, step, &r);
        if (step == 0) {
            expect_matrices(&c, "gradient.", GRADIENTS, tolerance);
            assert_true(fabs((double)r.grad_norm - norm) <= tolerance * norm);
        }
        if (step == STEPS - 1 && after > 0)
            expect_matrices(&c, "after.", WEIGHTS, after);
    }
    assert_true(zero_base_hash(&c.rank.zero) == base);
    close_case(&c);
}

static const struct Models models = {folders, NFOLDER, 0.04, check};

TEST(test_fp32) {
    check_fp32(&models);
}

TEST(test_recompute) {
    check_recompute(&models);
}

// The second adds to the gradients of the first.
TEST(test_micro_batches) {
    for (int i = 0; i < NFOLDER; i++)
        check((struct Case){.folder = folders[i], .kernels = "base", .nmicro = 2, .threads = 1},
              1e-5, 1e-5);
}

TEST(test_bf16) {
    check_bf16(&models);
}

TEST(test_gpu) {
    check_gpu(&models);
}

// ---- merged ----

// The model's parameters as they are exported, by index in the whole model.
struct Exported {
    const struct Params *params;
    float *values;
    uint8_t *writes;
};

static const struct Param *param_of(const struct Params *p, int layer, const char *name) {
    for (int g = 0; g < p->ngroup; g++)
        for (int i = 0; i < p->group[g].nparam; i++)
            if (p->group[g].kind != GROUP_ADAPTER && params_layer(p, g) == layer &&
                strcmp(p->group[g].param[i].name, name) == 0)
                return &p->group[g].param[i];
    CHECK(false, "no %s in layer %d", name, layer);
    return NULL;
}

static int keep(void *context, int layer, const char *name, const struct WeightsRange *range,
                const float *values, struct Error *e) {
    const struct Exported *x = context;
    uint64_t index = param_of(x->params, layer, name)->index;
    (void)e;
    for (size_t i = 0; i < range->n; i++) {
        x->values[index + weights_at(range, i)] = values[i];
        x->writes[index + weights_at(range, i)]++;
    }
    return 0;
}

static int no_error(void *context, struct Error *e) {
    (void)context, (void)e;
    return 0;
}

// Holds one tensor of the files, and so the rows of ours that it is, against W + s B A in fp64, to
// the rounding of fp32; and against PEFT's where the reference has it. Returns how many are held
// so.
static int expect_merged(struct Case *c, const struct HfPiece *piece, const float *got,
                         const float *base) {
    size_t cols = piece->cols ? piece->cols : 1, n, count = 0, rank = 0;
    const struct Lora *l = &c->rank.model.config.lora;
    char *stem = base_format("base_model.model.%.*s", (int)(strlen(piece->name) - 7), piece->name);
    char *a_name = base_format("%s.lora_A.weight", stem);
    char *b_name = base_format("%s.lora_B.weight", stem);
    char *merged = base_format("merged.%s", piece->name);
    bool has = safetensors_find(&c->file, a_name), held = safetensors_find(&c->reference, merged);
    float *a = has ? tensor_of(&c->file, "", a_name, &n) : NULL;
    float *b = has ? tensor_of(&c->file, "", b_name, &n) : NULL;
    float *peft = held ? tensor_of(&c->reference, "", merged, &n) : NULL;
    rank = has ? l->rank : 0;
    for (size_t row = 0; row < piece->rows; row++)
        for (size_t col = 0; col < cols; col++, count++) {
            size_t at = (piece->row + row) * cols + col;
            double want = (double)base[at], sum = 0, size = fabs(want), x = (double)got[at];
            for (size_t k = 0; k < rank; k++) {
                double term = (double)b[row * rank + k] * (double)a[k * cols + col];
                sum += term;
                size += l->alpha / (double)rank * fabs(term);
            }
            want += rank ? l->alpha / (double)rank * sum : 0;
            if (!(fabs(x - want) <= (rank ? 4 * 0x1p-24 * size : 0)))
                fail_msg("%s: %s(%zu, %zu) is %.9g, should be %.9g", c->folder, piece->name, row,
                         col, x, want);
            size_t there = piece->transposed ? col * piece->rows + row : row * cols + col;
            if (held && !(fabs(x - (double)peft[there]) <= 5 * 0x1p-24 * size))
                fail_msg("%s: %s(%zu, %zu) is %.9g, PEFT says %.9g", c->folder, piece->name, row,
                         col, x, (double)peft[there]);
        }
    assert_true(!held || n == count);
    char *const all[] = {stem, a_name, b_name, merged};
    for (int i = 0; i < 4; i++)
        free(all[i]);
    free(a);
    free(b);
    free(peft);
    return held;
}

static void check_merged(struct Case c) {
    struct Error e = {0};
    if (!open_case(&c))
        return;
    const struct Params *p = &c.rank.params;
    struct Exported x = {p, base_alloc_zeroed(p->real * sizeof(float)), base_alloc_zeroed(p->real)};
    struct ImportSource from = hf_model_source(&c.model);
    struct ExportSink to = {
        .write = keep, .make = no_error, .sync = no_error, .commit = no_error, .context = &x};
    int held = 0;
    CHECKED(export_weights(&c.rank.zero, &to, false, &e));
    for (int g = 0; g < p->ngroup; g++)
        for (int i = 0; i < p->group[g].nparam; i++) {
            const struct Param *param = &p->group[g].param[i];
            struct HfPiece piece[HF_PIECES_MAX];
            int layer = params_layer(p, g);
            bool model = p->group[g].kind != GROUP_ADAPTER && param->real;
            for (size_t k = 0; k < param->real; k++)
                assert_int_equal(x.writes[param->index + k], model);
            if (!model)
                continue;
            struct WeightsRange all = {.n = param->real};
            float *base = base_alloc(param->real * sizeof *base);
            CHECKED(from.read(from.context, layer, param->name, &all, base, &e));
            size_t n = hf_pieces(c.model.family, param->name, layer, &c.model.sizes, piece);
            for (size_t k = 0; k < n; k++)
                held += expect_merged(&c, &piece[k], x.values + param->index, base);
            free(base);
        }
    assert_int_equal(held, 2);
    free(x.values);
    free(x.writes);
    close_case(&c);
}

TEST(merged_weights_are_peft_s) {
    for (int i = 0; i < NFOLDER; i++)
        check_merged((struct Case){.folder = folders[i], .kernels = "base", .threads = 1});
}

// ---- written and read again ----

static void write_adapter(struct Case *c, const char *dir) {
    struct Error e = {0};
    const struct Lora *l = &c->rank.model.config.lora;
    struct PeftConfig s = {.rank = l->rank, .alpha = l->alpha, .dropout = l->dropout};
    struct ExportSink to;
    CHECKED(peft_sink_open(dir, c->flags, &s, c->base, &to, &e));
    CHECKED(params_visit(&c->rank.model.config, true, to.list, to.context, &e));
    CHECKED(to.check_room(to.context, &e));
    CHECKED(export_weights(&c->rank.zero, &to, false, &e));
    to.close(to.context);
}

static void expect_same_shapes(const struct Safetensors *got, const struct Safetensors *want) {
    assert_int_equal(got->ntensor, want->ntensor);
    for (size_t i = 0; i < want->ntensor; i++) {
        assert_string_equal(got->tensor[i].name, want->tensor[i].name);
        assert_int_equal(got->tensor[i].ndim, want->tensor[i].ndim);
        for (int d = 0; d < want->tensor[i].ndim; d++)
            assert_int_equal(got->tensor[i].shape[d], want->tensor[i].shape[d]);
    }
}

// After a step, so that it is none of the fixture's.
static void check_written(struct Case c, char *folder) {
    struct Error e = {0};
    struct Safetensors written;
    struct PeftConfig is, was;
    struct Case again = c;
    assert_true(open_case(&c) && open_case(&again));
    char *dir = base_format("%s/%s", folder, c.folder);
    char *path = base_format("%s/adapter_model.safetensors", dir);
    run_step(&c, 1e-3, 0);
    write_adapter(&c, dir);
    CHECKED(safetensors_open(path, &written, &e));
    expect_same_shapes(&written, &c.file);
    expect_file(&c, &written);
    read_adapter(&again, dir);
    expect_file(&again, &written);
    assert_true(zero_weights_hash(&again.rank.zero) == zero_weights_hash(&c.rank.zero));
    CHECKED(peft_config_read(&is, dir, is_gpt2(&c), &e));
    CHECKED(peft_config_read(&was, c.dir, is_gpt2(&c), &e));
    assert_true(is.rank == was.rank && is.alpha == was.alpha && is.targets == was.targets);
    assert_true(is.dropout == c.dropout);
    safetensors_close(&written);
    free(path);
    free(dir);
    close_case(&c);
    close_case(&again);
}

TEST(what_is_written_is_read_again) {
    char *folder = scratch_make();
    for (int i = 0; i < NFOLDER; i++)
        check_written((struct Case){.folder = folders[i],
                                    .kernels = "base",
                                    .threads = 1,
                                    .dropout = i % 2 ? 0.125 : 0},
                      folder);
    scratch_remove(folder);
}

// ---- dropout ----

static double trained_loss(struct Case *c, uint64_t first_row) {
    return run_step(c, 0, first_row).loss_sum / (B * T);
}

static void move(struct Case *c, int g, const struct Param *p, const float *from,
                 const float *direction, float by) {
    float *w = device_alloc_host(c->rank.device, STATE_CHUNK * sizeof *w);
    assert_true(p->real <= STATE_CHUNK);
    zero_sync(&c->rank.zero); // the last update has been made
    for (size_t i = 0; i < p->real; i++)
        w[i] = from[i] + by * direction[i];
    zero_write_state(&c->rank.zero, g, STATE_MASTER, p->offset, p->real, w);
    zero_store_params(&c->rank.zero, false);
    device_free_host(c->rank.device, w);
}

// Along the gradient of each matrix the loss rises as the gradient says.
static void check_slopes(struct Case c) {
    const struct Param *p;
    char *name;
    assert_true(open_case(&c));
    for (int g = 0, i = -1; (p = next_matrix(&c, &g, &i, &name)); free(name)) {
        trained_loss(&c, 5);
        float *slope = fetch(&c, g, p, GRADIENTS), *w = fetch(&c, g, p, WEIGHTS);
        double square = 0, loss[4];
        for (size_t k = 0; k < p->real; k++)
            square += (double)slope[k] * (double)slope[k];
        float h = 0.02f / (float)sqrt(square); // a step of 0.02 in all
        for (int k = 0; k < 4; k++) {
            static const float steps[] = {-2, -1, 1, 2};
            move(&c, g, p, w, slope, steps[k] * h);
            loss[k] = trained_loss(&c, 5);
        }
        move(&c, g, p, w, slope, 0);
        double is = (8 * (loss[2] - loss[1]) - (loss[3] - loss[0])) / (12 * (double)h);
        if (!(fabs(is - square) <= 5e-4 * square))
            fail_msg("%s: %s: the loss rises by %.6g, its gradient says %.6g", c.folder, name, is,
                     square);
        free(slope);
        free(w);
    }
    close_case(&c);
}

TEST(gradients_of_dropout_are_slopes) {
    for (int i = 0; i < NFOLDER; i++)
        check_slopes(
            (struct Case){.folder = folders[i], .kernels = "base", .threads = 1, .dropout = 0.3});
}

// With a B of zeros what follows does not know what was dropped, and its gradient is a sum over u:
// so its mean over many draws is that without dropout.
static void add_gradients(struct Case *c, float *sum, float times) {
    const struct Param *p;
    char *name;
    size_t at = 0;
    for (int g = 0, i = -1; (p = next_matrix(c, &g, &i, &name)); free(name)) {
        float *got = fetch(c, g, p, GRADIENTS);
        for (size_t k = 0; k < p->real && i >= ADAPTER_B; k++)
            sum[at++] += times * got[k];
        free(got);
    }
}

static void clear_b(struct Case *c) {
    const struct Param *p;
    char *name;
    for (int g = 0, i = -1; (p = next_matrix(c, &g, &i, &name)); free(name)) {
        float *zeros = base_alloc_zeroed(p->real * sizeof *zeros);
        if (i >= ADAPTER_B)
            move(c, g, p, zeros, zeros, 0);
        free(zeros);
    }
}

TEST(the_mean_over_draws_is_without_dropout) {
    enum { DRAWS = 100 };
    for (int i = 0; i < NFOLDER; i++) {
        struct Case none = {.folder = folders[i], .kernels = "base", .threads = 1};
        struct Case c = none;
        c.dropout = 0.3;
        assert_true(open_case(&none) && open_case(&c));
        size_t n = c.rank.params.padded;
        float *want = base_alloc_zeroed(n * sizeof *want),
              *mean = base_alloc_zeroed(n * sizeof *mean);
        double dot = 0, square = 0;
        clear_b(&none);
        clear_b(&c);
        run_step(&none, 0, 0);
        add_gradients(&none, want, 1);
        for (int k = 0; k < DRAWS; k++) {
            run_step(&c, 0, (uint64_t)k * B * T);
            add_gradients(&c, mean, 1.0f / DRAWS);
        }
        for (size_t k = 0; k < n; k++) {
            dot += (double)mean[k] * (double)want[k];
            square += (double)want[k] * (double)want[k];
        }
        if (!(fabs(dot - square) <= 0.03 * square))
            fail_msg("%s: of the gradient without dropout the mean has %g", c.folder, dot / square);
        free(want);
        free(mean);
        close_case(&none);
        close_case(&c);
    }
}

struct Dropped {
    double loss;
    float *gradient;
    size_t n;
};

static struct Dropped dropped(struct Case c, uint64_t first_row) {
    const struct Param *p;
    char *name;
    struct Dropped d = {0};
    assert_true(open_case(&c));
    expect_logits(&c, 1e-5); // nothing is dropped where nothing is trained
    d.loss = trained_loss(&c, first_row);
    for (int g = 0, i = -1; (p = next_matrix(&c, &g, &i, &name)); free(name)) {
        float *got = fetch(&c, g, p, GRADIENTS);
        d.gradient = base_realloc(d.gradient, (d.n + p->real) * sizeof *got, "gradients");
        memcpy(d.gradient + d.n, got, p->real * sizeof *got);
        d.n += p->real;
        free(got);
    }
    close_case(&c);
    return d;
}

static bool is_same(struct Dropped a, struct Dropped b) {
    bool same = a.loss == b.loss && a.n == b.n &&
                memcmp(a.gradient, b.gradient, a.n * sizeof *a.gradient) == 0;
    free(b.gradient);
    return same;
}

// The same elements are dropped at each level of recomputation, and others of other data.
TEST(dropout_is_of_the_place_in_the_data) {
    for (int i = 0; i < NFOLDER; i++) {
        struct Case c = {.folder = folders[i], .kernels = "base", .threads = 1, .dropout = 0.3};
        struct Case none = c;
        struct Dropped first = dropped(c, 2 * T);
        none.dropout = 0;
        assert_false(is_same(first, dropped(none, 2 * T)));
        assert_false(is_same(first, dropped(c, 3 * T)));
        for (c.recompute = 0; c.recompute < NRECOMPUTE; c.recompute++)
            if (!is_same(first, dropped(c, 2 * T)))
                fail_msg("%s: --recompute %s drops others", c.folder, recompute_name(c.recompute));
        free(first.gradient);
    }
}
