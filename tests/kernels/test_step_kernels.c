// A step kernel by kernel (step_kernels.h): measured in the simulator, and on paper.
//
// The times of a simulator mean nothing, but all else does: which rows there are, their operations
// and bytes, which follow from the model's sizes, and their launches, which the simulator counts,
// too. The step on paper must agree with them, and docs/gpu.md with what the program prints of it.
#include "kernels/trace.h"
#include "tests/cusim/sim.h"
#include "tests/lib/scratch.h"
#include "tests/bench/step_kernels.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"

#include <stdlib.h>
#include <string.h>
// cmocka.h and cJSON want the headers above them.
#include <cjson/cJSON.h>

enum { B = 2, T = 80, C = 128, NH = 2, L = 2, V = 300, VP = 384, R = B * T, STEPS = 4 };

static struct RankSettings settings(void) {
    struct RankSettings s = tiny_settings(BF16);
    struct Error e;
    s.model = (struct ModelConfig){
        .layers = L, .heads = NH, .channels = C, .seq_len = T, .vocab = V, .dtype = BF16};
    s.batch = B;
    s.nmicro = 1;
    s.grad_dtype = BF16;
    s.device = DEVICE_CUDA;
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    assert_int_equal(s.model.vocab_padded, VP);
    return s;
}

// Parameters of the matrices that a token is multiplied with: six operations each and step.
static const double MATRICES = 12.0 * L * C * C + (double)VP * C;
static const double ATTENTION = (double)L * B * T * T * C; // half of a product T x T x C

// All parameters, with their padding.
static double padded(const struct RankSettings *s) {
    struct Params p;
    params_layout(&s->model, 1, 0, 1, &p);
    double n = (double)p.padded;
    params_free(&p);
    return n;
}

// The rows of a name and those of its parts, "NAME PART"; on all queues that compute.
static struct StepRow all_of(const struct StepRows *rows, const char *name) {
    struct StepRow sum = {.name = name};
    size_t length = strlen(name);
    for (size_t i = 0; i < rows->n; i++) {
        const struct StepRow *r = &rows->row[i];
        if (strncmp(r->name, name, length) != 0 || (r->name[length] && r->name[length] != ' '))
            continue;
        sum.count += r->count;
        sum.launches += r->launches;
        sum.flops += r->flops;
        sum.bytes += r->bytes;
        sum.seconds += r->seconds;
    }
    return sum;
}

// ---- measured ----

// Whether our own kernels make bias gradients on this GPU.
static bool sums_apart(const struct StepMeasured *m) {
    return strstr(m->products, "epilogue dbias: by our own kernels") != NULL;
}

TEST(a_measured_step_does_what_it_must) {
    static struct StepMeasured m = {0};
    struct RankSettings s = settings();
    struct Error e;
    assert_int_equal(step_measure(&s, STEPS, &m, &e), 0);
    assert_true(all_of(&m.rows, "matmul").flops == 6 * R * MATRICES);
    assert_int_equal(all_of(&m.rows, "matmul").launches, 12 * L + 3 + (sums_apart(&m) ? 8 * L : 0));
    assert_true(sim_is_real() || sums_apart(&m)); // the simulator's GPU is one of 9.0
    assert_true(all_of(&m.rows, "attention_forward").flops == 2 * ATTENTION);
    assert_true(all_of(&m.rows, "attention_backward").flops == 5 * ATTENTION);
    assert_true(all_of(&m.rows, "adamw").bytes == 28 * padded(&s));
    assert_true(all_of(&m.rows, "gelu_forward").bytes == 2.0 * 2 * L * R * 4 * C);
    const char *parts[] = {"norm_backward sums",     "attention_backward dq",
                           "attention_backward dkv", "embed_backward sort",
                           "embed_backward tokens",  "embed_backward positions"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        assert_true(all_of(&m.rows, parts[i]).launches > 0);
    assert_true(m.step_s > 0 && m.busy_s > 0 && m.traced_s > 0.9 * m.busy_s);
    unsigned launches = 0;
    for (size_t i = 0; i < m.rows.n; i++) {
        launches += m.rows.row[i].launches;
        assert_true(m.rows.row[i].launches > 0 && m.rows.row[i].seconds > 0);
    }
    if (!sim_is_real())
        assert_int_equal(launches, m.launches);
}

TEST(a_table_names_speed_rows_and_gaps) {
    static struct StepMeasured m = {0};
    struct RankSettings s = settings();
    struct Error e;
    struct Device *d;
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    double tokens, ms;
    assert_int_equal(device_open_cuda(&d, 0, &e), 0);
    struct StepCeilings c = step_ceilings(d, 1 << 12, 16);
    device_close(d);
    assert_true(c.copy > 0 && c.product > 0);
    assert_int_equal(step_measure(&s, STEPS, &m, &e), 0);
    step_print(f, "small", &s, &m, &c);
    fclose(f);
    assert_int_equal(sscanf(text, "small batch 2: %lf tokens/s, %lf ms a step\n", &tokens, &ms), 2);
    assert_true(fabs(tokens * ms / 1e3 / R - 1) < 0.02);
    const char *wanted[] = {
        "\nmatmul ", "160 x 512 x 128 TN bias", "\nadamw ", "\nsum ", "\ngaps ", "TFLOP/s", "GB/s",
        "\n  in ",   "\nproducts:\nm ",         ", split "};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (!strstr(text, wanted[i]))
            fail_msg("no %s in\n%s", wanted[i], text);
    free(text);
    free(m.products);
}

// ---- the file of a trace ----

static void write_traced(void *context, struct Rank *r) {
    struct Error e;
    tiny_step(r);
    assert_int_equal(rank_write_trace(r, context, &e), 0);
}

static void write_second(void *context, struct Rank *r) {
    tiny_step(r);
    write_traced(context, r);
}

static double number(const cJSON *event, const char *name) {
    return cJSON_GetObjectItem(cJSON_GetObjectItem(event, "args"), name)->valuedouble;
}

// The trace that `write` leaves at the path that is its context. cJSON_Delete() it.
static cJSON *trace_of(const struct RankSettings *s, RankBody *write) {
    char *folder = scratch_make(), *path = base_format("%s/trace.json", folder), *text;
    size_t n;
    struct Error e;
    tiny_ranks(s, write, path);
    assert_int_equal(file_read(path, 4 << 20, &text, &n, &e), 0);
    cJSON *json = cJSON_Parse(text);
    assert_non_null(json);
    free(text);
    free(path);
    scratch_remove(folder);
    return json;
}

TEST(a_trace_says_what_kernels_must_do) {
    struct RankSettings s = settings();
    double flops = 0;
    int biased = 0, waits = 0;
    s.traced = true;
    cJSON *json = trace_of(&s, write_traced), *event;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(json, "traceEvents")) {
        waits += !strcmp(cJSON_GetObjectItem(event, "name")->valuestring, "wait: backward done") &&
                 !strcmp(cJSON_GetObjectItem(event, "ph")->valuestring, "X");
        if (strcmp(cJSON_GetObjectItem(event, "name")->valuestring, "matmul") != 0)
            continue;
        const cJSON *args = cJSON_GetObjectItem(event, "args");
        const char *shape = cJSON_GetObjectItem(args, "shape")->valuestring;
        flops += number(event, "flops");
        assert_true(number(event, "launches") == 1);
        if (strcmp(shape, "160 x 512 x 128 TN bias") != 0)
            continue;
        biased++;
        assert_true(number(event, "bytes") == 2.0 * (160 * 128 + 512 * 128 + 160 * 512 + 512));
    }
    assert_true(flops == 6 * R * MATRICES);
    assert_int_equal(biased, L);
    assert_int_equal(waits, L + 1); // the stream's, one for each group
    cJSON_Delete(json);
}

// The host updates, and its queues are timed by the host's clock.
TEST(the_host_and_the_gpu_share_a_clock) {
    struct RankSettings s = settings();
    int host = 0;
    s.traced = true;
    s.opt_tier = TIER_CPU;
    cJSON *json = trace_of(&s, write_second), *event;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(json, "traceEvents")) {
        if (strcmp(cJSON_GetObjectItem(event, "ph")->valuestring, "X") != 0)
            continue;
        host += cJSON_GetObjectItem(event, "tid")->valuedouble >= NQUEUE;
        assert_true(cJSON_GetObjectItem(event, "ts")->valuedouble < 60e6);
    }
    assert_true(host > 0);
    cJSON_Delete(json);
}

// ---- on paper ----

TEST(paper_agrees_with_the_run) {
    static struct StepMeasured m = {0};
    static struct StepPaper p;
    struct RankSettings s = settings();
    struct Error e;
    assert_int_equal(step_measure(&s, STEPS, &m, &e), 0);
    assert_int_equal(step_count(&s, sums_apart(&m), &p, &e), 0);
    assert_true(p.rows.n > 20);
    for (size_t i = 0; i < p.rows.n; i++) {
        const char *name = p.rows.row[i].name;
        struct StepRow paper = all_of(&p.rows, name), run = all_of(&m.rows, name);
        if (!strcmp(name, "copy"))
            paper.launches++; // a run's tokens
        if (paper.launches != run.launches || paper.flops != run.flops)
            fail_msg("%s: %u launches and %.0f operations on paper, a run has %u and %.0f", name,
                     paper.launches, paper.flops, run.launches, run.flops);
    }
}

TEST(paper_follows_settings) {
    static struct StepPaper p;
    struct RankSettings s = settings();
    struct Error e;
    for (int apart = 0; apart < 2; apart++) { // dy of four products, 3C, C, 4C, C; and their sums
        assert_int_equal(step_count(&s, apart, &p, &e), 0);
        struct StepRow sums = all_of(&p.rows, "matmul dbias");
        assert_true(sums.bytes == 2.0 * L * (R + 1) * 9 * C * apart);
        assert_int_equal(sums.launches, 2 * 4 * L * apart);
    }
    assert_true(p.logits_bytes == 2.0 * R * VP);
    s.recompute = RECOMPUTE_BLOCK; // all products of a block's forward pass but the last
    s.moments_dtype = BF16;
    assert_int_equal(step_count(&s, true, &p, &e), 0);
    assert_true(all_of(&p.rows, "matmul").flops == 6 * R * MATRICES + 2.0 * R * 8 * C * C * L);
    assert_true(all_of(&p.rows, "attention_forward").flops == 4 * ATTENTION);
    assert_true(all_of(&p.rows, "adamw").bytes == 20 * padded(&s));
}

TEST(a_wrong_budget_is_refused) {
    static char *const lines[][5] = {{"gpt3", "1"},
                                     {"gpt2", "many"},
                                     {"gpt2"},
                                     {"gpt2", "1", "--gpu", "v100"},
                                     {"gpt2", "1", "--gpu", "a100", "--hopper-attention"},
                                     {"gpt2-xl", "65536"}};
    static const char *const said[] = {"E_MODEL_NAME --model gpt3",
                                       "E_FLAG_INTEGER --batch",
                                       "E_FLAG_STRAY_WORD",
                                       "E_FLAG_STRAY_WORD v100",
                                       "E_GPU_CAPABILITY --hopper-attention",
                                       "E_MEMORY_REFUSED"};
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        struct Error e = {0};
        int argc = 0;
        while (argc < 5 && lines[i][argc])
            argc++;
        assert_true(step_budget(stdout, argc, (char **)lines[i], &e) < 0);
        if (!error_is(&e, said[i]))
            fail_msg("line %zu: %s", i, e.text);
    }
}

// ---- docs/gpu.md ----

// What the program prints for the words of a line.
static char *printed(char *line) {
    char *words[16], *text = NULL;
    size_t bytes;
    int n = 0;
    FILE *f = open_memstream(&text, &bytes);
    struct Error e = {0};
    for (char *word = strtok(line, " "); word && n < 16; word = strtok(NULL, " "))
        words[n++] = word;
    if (n == 1 && !strcmp(words[0], "limits"))
        step_limits(f);
    else if (n == 0 || strcmp(words[0], "budget") != 0 || step_budget(f, n - 1, words + 1, &e))
        fail_msg("docs/gpu.md: step_kernels %s ...: %s", n ? words[0] : "", e.text);
    fclose(f);
    return text;
}

// A block stands between "<!-- step_kernels WORDS -->" and "<!-- end -->".
TEST(the_documentation_has_this_budget) {
    static char text[1 << 20];
    FILE *f = fopen("docs/gpu.md", "r");
    int blocks = 0;
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    const char *mark = "<!-- step_kernels ";
    for (char *at = strstr(text, mark), *end; at; at = strstr(end, mark), blocks++) {
        char *line = at + strlen(mark), *body = strstr(line, " -->\n\n");
        end = strstr(line, "<!-- end -->");
        assert_true(body && end && body < end);
        *body = 0;
        body += strlen(" -->\n\n");
        char *now = printed(line);
        size_t bytes = (size_t)(end - body) - 1; // an empty line goes before the end
        if (bytes != strlen(now) || memcmp(now, body, bytes) != 0)
            fail_msg("docs/gpu.md: block %d is not what step_kernels prints now:\n%s", blocks, now);
        free(now);
    }
    assert_int_equal(blocks, 5);
}
