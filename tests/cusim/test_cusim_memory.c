// What every kernel asks of a GPU's memory, held to a limit (tests/lib/moved.h runs them and
// counters.cc counts), and docs/gpu.md, which has the table. With "table" as its argument the
// program prints that, for scripts/bench/gpu_tables.sh.
//
// An operation of several kernels, each of which keeps to what it touches, has a row of its own
// where together they may move more than the operation must.
//
// A limit is what a kernel needs as it is. Where one becomes better, its limit and the table
// follow.
#include "tests/lib/moved.h"
#include "tests/lib/test.h"

#include <ctype.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What sets a kernel's pace: memory, arithmetic, or nothing but its launch, as it moves some KB.
enum Pace { MEMORY, ARITHMETIC, LAUNCH };

// The most of sectors moved and asked for, to those that it must move, and of passes over the banks
// of shared memory, to as many as there would be without conflicts (0: it has no shared memory).
// Memory-bound kernels keep to MOST_MOVED; `why` says why one does not.
struct Limit {
    const char *kernel;
    enum Pace pace;
    double moved, asked, passes;
    const char *why;
};

static const double MOST_MOVED = 1.1, MOST_EVER = 1.5;
enum { MOST_ABOVE = 3 };

static const struct Limit limits[] = {
    {"norm_forward_kernel", MEMORY, 1.02, 2.01, 0, NULL},
    {"norm_backward_rows_kernel", MEMORY, 1.02, 1.05, 1.10, NULL},
    {"norm_backward_sums_kernel", MEMORY, 1.00, 1.00, 1.00, NULL},
    {"gelu_forward_kernel", MEMORY, 1.00, 1.00, 0, NULL},
    {"gelu_slope_kernel", MEMORY, 1.00, 1.00, 0, NULL},
    {"dropout_kernel", MEMORY, 1.00, 1.00, 0, NULL},
    {"swiglu_forward_kernel", MEMORY, 1.00, 1.00, 0, NULL},
    {"swiglu_backward_kernel", MEMORY, 1.00, 1.00, 0, NULL},
    {"embed_forward_kernel", MEMORY, 1.01, 1.21, 0, NULL},
    {"embed_backward", MEMORY, 1.33, 1.35, 1.00,
     "its kernels together read dout twice, by token and by position; of text, where fewer tokens "
     "differ than places, that weighs more"},
    {"embed_backward_tiles_kernel", MEMORY, 1.02, 1.02, 1.00, NULL},
    {"embed_backward_parts_kernel", LAUNCH, 3.00, 3.00, 0, NULL},
    {"embed_backward_positions_kernel", MEMORY, 1.00, 1.00, 0, NULL},
    {"embed_zero_kernel", MEMORY, 1.00, 1.00, 0, NULL},
    {"embed_positions_kernel", LAUNCH, 1.00, 1.00, 0, NULL},
    {"embed_sort_count_kernel", LAUNCH, 1.19, 3.23, 8.85, NULL},
    {"embed_sort_scan_kernel", LAUNCH, 1.00, 1.50, 1.00, NULL},
    {"embed_sort_move_kernel", LAUNCH, 3.21, 4.48, 1.18, NULL},
    {"classifier_kernel", MEMORY, 1.49, 1.51, 1.00,
     "it goes through each row twice, and a row is more than the L1 cache has for a block; the "
     "second time it is in the L2 cache (classifier.cu)"},
    {"classifier_part_kernel", MEMORY, 1.01, 1.02, 1.00, NULL},
    {"classifier_gradients_kernel", MEMORY, 1.01, 1.02, 1.00, NULL},
    {"classifier_losses_kernel", LAUNCH, 1.00, 3.67, 0, NULL},
    {"sum_chunks_kernel", MEMORY, 1.01, 1.01, 1.00, NULL},
    {"sum_total_kernel", LAUNCH, 1.00, 1.00, 0, NULL},
    {"step_clip_kernel", LAUNCH, 1.09, 3.71, 0, NULL},
    {"adamw_kernel", MEMORY, 1.00, 1.18, 0, NULL},
    {"cast_kernel", MEMORY, 1.00, 1.00, 0, NULL},
    {"fill_normal_kernel", MEMORY, 1.00, 1.00, 0, NULL},
    {"rank_sum_kernel", MEMORY, 1.00, 1.00, 0, NULL},
    {"rank_gather_kernel", MEMORY, 1.00, 1.00, 0, NULL},
    {"quantize_kernel", MEMORY, 1.05, 1.05, 0, NULL},
    {"dequantize_kernel", MEMORY, 1.00, 1.08, 0, NULL},
    {"requantize_kernel", MEMORY, 1.05, 1.22, 0, NULL},
    {"nf4_quantize_kernel", MEMORY, 1.04, 1.04, 1.00, NULL},
    {"nf4_dequantize_kernel", MEMORY, 1.00, 1.05, 1.00, NULL},
    {"rotate_forward_kernel", MEMORY, 1.00, 1.28, 0, NULL},
    {"rotate_backward_kernel", MEMORY, 1.00, 1.21, 1.20, NULL},
    {"rotate_sums_kernel", MEMORY, 1.00, 1.00, 1.00, NULL},
    {"attention_forward_mma_kernel", ARITHMETIC, 1.50, 1.75, 1.00, NULL},
    {"attention_backward", ARITHMETIC, 2.27, 2.76, 1.01, NULL},
    {"attention_backward_dq_mma_kernel", ARITHMETIC, 1.34, 1.83, 1.00, NULL},
    {"attention_backward_dkv_mma_kernel", ARITHMETIC, 1.50, 1.84, 1.00, NULL},
    {"attention_forward_plain_kernel", ARITHMETIC, 1.76, 1.76, 1.01, NULL},
    {"attention_backward_dq_plain_kernel", ARITHMETIC, 1.52, 1.52, 1.01, NULL},
    {"attention_backward_dkv_plain_kernel", ARITHMETIC, 1.51, 1.70, 1.01, NULL},
    {"cached_store_kernel", LAUNCH, 1.05, 1.05, 0, NULL},
    {"attention_cached_kernel", MEMORY, 1.00, 1.00, 1.00, NULL},
    {"matmul_column_sums_kernel", MEMORY, 1.00, 1.00, 1.00, NULL},
    {"matmul_sum_pieces_kernel", MEMORY, 1.00, 1.00, 1.00, NULL},
    {"matmul_row_sums_kernel", MEMORY, 1.03, 1.03, 0, NULL},
    {"matmul_add_row_sums_kernel", MEMORY, 1.00, 1.00, 0, NULL},
    {"matmul_finish_kernel", MEMORY, 1.00, 1.00, 0, NULL},
};
enum { NLIMIT = sizeof limits / sizeof limits[0] };

static struct MovedRows rows;

static const struct Limit *limit_of(const char *kernel) {
    for (size_t i = 0; i < NLIMIT; i++)
        if (!strcmp(limits[i].kernel, kernel))
            return &limits[i];
    return NULL;
}

static bool has_run(const char *kernel) {
    for (int i = 0; i < rows.n; i++)
        if (!strcmp(rows.row[i].kernel, kernel))
            return true;
    return false;
}

static double share(uint64_t n, const struct Moved *m) {
    return (double)n / m->least;
}

static double passes(const struct SimCounts *c) {
    return c->ideal ? (double)c->passes / (double)c->ideal : 0;
}

// ---- the table ----

static void print_table(FILE *f) {
    fprintf(f, "| kernel | operands | must move, KB | touched | moved | again | asked | passes |\n"
               "|---|---|---:|---:|---:|---:|---:|---:|\n");
    for (size_t k = 0; k < NLIMIT; k++)
        for (int i = 0; i < rows.n; i++) {
            const struct Moved *m = &rows.row[i];
            const struct SimCounts *c = &m->counts;
            if (strcmp(m->kernel, limits[k].kernel) != 0)
                continue;
            fprintf(f, "| `%s` | %s | %.1f%s | %.2f | %.2f | %.2f | %.2f |", m->kernel, m->operands,
                    m->least * 32 / 1e3, m->by_cost ? "" : "*", share(c->touched, m),
                    share(c->moved, m), share(c->again, m), share(c->asked, m));
            fprintf(f, c->ideal ? " %.2f |\n" : "  |\n", passes(c));
        }
    fprintf(f, "\nAbove %.1f, though memory sets their pace:\n\n", MOST_MOVED);
    for (size_t k = 0; k < NLIMIT; k++)
        if (limits[k].why)
            fprintf(f, "- `%s`: %s.\n", limits[k].kernel, limits[k].why);
}

// ---- tests ----

// The name of the kernel that is defined behind `at`: the first that ends in _kernel.
static const char *kernel_name(const char *at, char name[MOVED_TEXT]) {
    const char *end = strstr(at, "_kernel(");
    if (!end)
        fail_msg("a __global__ function whose name does not end in _kernel: %.80s", at);
    const char *begin = end;
    while (isalnum((unsigned char)begin[-1]) || begin[-1] == '_')
        begin--;
    snprintf(name, MOVED_TEXT, "%.*s", (int)(end - begin + strlen("_kernel")), begin);
    return end;
}

static int kernels_of(const char *path) {
    static char text[1 << 17];
    char name[MOVED_TEXT];
    int n = 0;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    for (const char *at = text; (at = strstr(at, "__global__")); n++) {
        at = kernel_name(at, name);
        if (!has_run(name) || !limit_of(name))
            fail_msg("%s of %s is not counted: it wants a case in tests/lib/moved.c and a limit "
                     "here",
                     name, path);
    }
    return n;
}

TEST(every_kernel_is_counted) {
    glob_t files;
    int n = 0, wanted = 0;
    assert_int_equal(glob("kernels/cuda/*.cu*", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++)
        n += kernels_of(files.gl_pathv[i]);
    globfree(&files);
    for (size_t i = 0; i < NLIMIT; i++)
        wanted += strstr(limits[i].kernel, "_kernel") != NULL;
    assert_int_equal(n, wanted);
}

static void keep(const struct Moved *m, const char *what, double is, double most) {
    if (!(is < most + 0.005)) // as the table has it
        fail_msg("%s, %s: %s %.3f, at most %.2f", m->kernel, m->operands, what, is, most);
}

TEST(kernels_keep_to_their_limits) {
    for (int i = 0; i < rows.n; i++) {
        const struct Moved *m = &rows.row[i];
        const struct Limit *l = limit_of(m->kernel);
        assert_non_null(l);
        keep(m, "moved", share(m->counts.moved, m), l->moved);
        keep(m, "asked", share(m->counts.asked, m), l->asked);
        keep(m, "passes", passes(&m->counts), l->passes);
        // What it must move it touches, but where rows end inside of a sector.
        if (m->by_cost && !(share(m->counts.touched, m) > 0.99))
            fail_msg("%s, %s: touches %.3f", m->kernel, m->operands, share(m->counts.touched, m));
    }
}

static void expect_tight(const struct Limit *l, const char *what, double most, double limit) {
    if (limit > most + 0.015)
        fail_msg("%s: %s at most %.3f by now: its limit of %.2f is too high", l->kernel, what, most,
                 limit);
}

TEST(limits_are_no_higher_than_needed) {
    for (size_t k = 0; k < NLIMIT; k++) {
        double moved = 0, asked = 0, most_passes = 0;
        for (int i = 0; i < rows.n; i++) {
            const struct Moved *m = &rows.row[i];
            if (strcmp(m->kernel, limits[k].kernel) != 0)
                continue;
            moved = fmax(moved, share(m->counts.moved, m));
            asked = fmax(asked, share(m->counts.asked, m));
            most_passes = fmax(most_passes, passes(&m->counts));
        }
        expect_tight(&limits[k], "moved", moved, limits[k].moved);
        expect_tight(&limits[k], "asked", asked, limits[k].asked);
        expect_tight(&limits[k], "passes", most_passes, limits[k].passes);
    }
}

TEST(few_move_more_than_they_must) {
    int above = 0;
    for (size_t i = 0; i < NLIMIT; i++) {
        const struct Limit *l = &limits[i];
        bool is_above = l->pace == MEMORY && l->moved > MOST_MOVED;
        above += is_above;
        if (is_above != (l->why != NULL) || (is_above && l->moved > MOST_EVER))
            fail_msg("%s: a limit of %.2f %s a reason", l->kernel, l->moved,
                     l->why ? "with" : "without");
    }
    assert_true(above <= MOST_ABOVE);
}

TEST(the_documentation_has_this_table) {
    static char text[1 << 18];
    const char *mark = "<!-- test_cusim_memory table -->\n\n";
    char *now = NULL;
    size_t bytes;
    FILE *f = fopen("docs/gpu.md", "r"), *out = open_memstream(&now, &bytes);
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    print_table(out);
    fclose(out);
    const char *body = strstr(text, mark), *end = body ? strstr(body, "\n<!-- end -->") : NULL;
    assert_non_null(end);
    body += strlen(mark);
    if ((size_t)(end - body) != bytes || memcmp(now, body, bytes) != 0)
        fail_msg("docs/gpu.md has another table (scripts/bench/gpu_tables.sh writes it):\n%s", now);
    free(now);
}

static int run_all(void **state) {
    (void)state;
    moved_all(&rows);
    return 0;
}

AROUND_ALL(run_all, NULL);

int main(int argc, char **argv) {
    if (argc < 2)
        return run_all_tests();
    if (argc > 2 || strcmp(argv[1], "table") != 0) {
        fprintf(stderr, "test_cusim_memory: %s: give nothing, or table\n", argv[1]);
        return 2;
    }
    moved_all(&rows);
    print_table(stdout);
    return 0;
}
