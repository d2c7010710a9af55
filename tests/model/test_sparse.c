// Patterns of sparse attention: they are DeepSpeed's, block by block (layouts.txt, which
// DeepSpeed's own classes wrote); random blocks are as many as asked for, and follow the head; each
// row sees its own block; shorter sequences see the same; parts of a model have their heads'
// patterns; shares are counts; and what a text may say. What kernels make of a layout is
// test_kernels_sparse.c's.
#include "kernels/layout.h"
#include "model/config.h"
#include "tests/lib/refused.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 }; // blocks of a sequence here

static struct Sparse sparse_of(const char *text) {
    struct Sparse s;
    struct Error e = {0};
    if (sparse_read(&s, text, &e))
        fail_msg("%s: %s", text, e.text);
    return s;
}

// ---- DeepSpeed's ----

// The next row's columns, as "10011 " has them.
static const char *read_row(const char *at, size_t row, bool *seen) {
    for (size_t c = 0; c <= row; c++, at++) {
        assert_true(*at == '0' || *at == '1');
        seen[c] = *at == '1';
    }
    return at + (*at == ' ');
}

static void expect_layout(const struct Sparse *s, size_t head, const char *rows, size_t blocks) {
    bool want[MOST], is[MOST];
    for (size_t row = 0; row < blocks; row++) {
        rows = read_row(rows, row, want);
        sparse_row(s, head, row, is);
        for (size_t c = 0; c <= row; c++)
            if (is[c] != want[c])
                fail_msg("%s: block %zu of head %zu %s block %zu; DeepSpeed's does not agree",
                         s->text, row, head, is[c] ? "sees" : "does not see", c);
    }
    assert_int_equal(*rows, '\n');
}

TEST(the_patterns_are_deepspeeds) {
    FILE *f = fopen("tests/fixtures/deepspeed/layouts.txt", "r");
    char *line = NULL, text[400];
    size_t room = 0, heads, blocks, layouts = 0;
    assert_non_null(f);
    while (getline(&line, &room, f) > 0) {
        assert_int_equal(sscanf(line, "%399s %zu %zu", text, &heads, &blocks), 3);
        assert_true(blocks <= MOST);
        struct Sparse s = sparse_of(text);
        for (size_t head = 0; head < heads; head++) {
            assert_true(getline(&line, &room, f) > 0);
            expect_layout(&s, head, line, blocks);
            layouts++;
        }
    }
    free(line);
    fclose(f);
    assert_true(layouts >= 25);
}

// ---- random blocks ----

static size_t count(const bool *seen, size_t n) {
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += seen[i];
    return sum;
}

// Alone they are the row's own block and `random` different ones, of which its own may be one.
TEST(random_blocks_are_as_many_as_asked_for) {
    struct Sparse s = sparse_of("variable:different_layout_per_head=true,num_random_blocks=3,"
                                "local_window_blocks=1,global_block_indices=0");
    s.indices.n = 0; // none global, which no text says
    size_t hits[MOST] = {0}, rows = 0;
    for (size_t head = 0; head < 200; head++)
        for (size_t row = 0; row < MOST; row++) {
            bool seen[MOST];
            sparse_row(&s, head, row, seen);
            size_t n = count(seen, row + 1), some = size_min(3, row + 1);
            assert_true(seen[row]);
            assert_in_range(n, some, some + (row >= 3));
            if (row == MOST - 1)
                for (size_t c = 0; c < row; c++)
                    hits[c] += seen[c];
            rows += row == MOST - 1;
        }
    for (size_t c = 0; c + 1 < MOST; c++) // 3 in 64 of 200 rows: 9.4, give or take 3
        assert_in_range(hits[c], 1, 24);
    assert_int_equal(rows, 200);
}

TEST(heads_differ_where_they_are_to) {
    struct Sparse apart = sparse_of("bigbird:different_layout_per_head=true"), one = apart;
    one.per_head = 0;
    size_t differ = 0;
    for (size_t row = 8; row < MOST; row++) {
        bool a[MOST], b[MOST];
        sparse_row(&apart, 0, row, a);
        sparse_row(&apart, 1, row, b);
        differ += memcmp(a, b, row + 1) != 0;
        sparse_row(&one, 7, row, b);
        assert_memory_equal(a, b, row + 1);
    }
    assert_true(differ > 20);
}

// ---- layouts ----

static const char *const texts[] = {
    "fixed",
    "fixed:num_local_blocks=4,num_different_global_patterns=4,different_layout_per_head=true",
    "variable:num_random_blocks=2,local_window_blocks=1+3,block=32",
    "bigbird:block=48",
    "bslongformer:global_block_indices=1+4,block=64",
    "local:num_sliding_window_blocks=1"};
enum { NTEXT = sizeof texts / sizeof texts[0] };

// The cells that a layout lists, one side's and the other's.
static void expand(const struct Layout *l, enum LayoutSide side, size_t head, size_t cells,
                   bool *map) {
    size_t own_cells = LAYOUT_OWN / LAYOUT_CELL, passing = LAYOUT_TILE / LAYOUT_CELL;
    memset(map, 0, cells * cells * sizeof *map);
    for (size_t own = 0; own < l->owners * own_cells; own += own_cells) {
        struct LayoutList list = layout_list(l, side, head, own * LAYOUT_CELL);
        size_t before = SIZE_MAX;
        for (; list.tile < list.end; list.tile++) {
            size_t at = list.tile->at / LAYOUT_CELL;
            assert_true(list.tile->cells && list.tile->at % LAYOUT_TILE == 0);
            assert_true(before == SIZE_MAX || at > before); // in order, and each once
            before = at;
            for (size_t i = 0; i < own_cells * passing; i++) {
                size_t r = own + i / passing, c = at + i % passing;
                if (!(list.tile->cells >> i & 1))
                    continue;
                assert_true(r < cells && c < cells);
                map[side == LAYOUT_KEYS ? r * cells + c : c * cells + r] = true;
            }
        }
    }
}

// Both sides list the cells that the pattern has and no others, for any length, and the lists of a
// shorter sequence are those that a longer one begins with.
TEST(layouts_list_the_patterns_cells) {
    static const size_t lengths[] = {1, 16, 63, 64, 65, 128, 300, 513};
    for (size_t i = 0; i < NTEXT; i++)
        for (size_t j = 0; j < sizeof lengths / sizeof lengths[0]; j++) {
            struct Sparse s = sparse_of(texts[i]);
            struct SparseHeads heads = {&s, 5};
            struct Layout l = {0};
            size_t bytes, t = lengths[j], cells = ceil_div(t, LAYOUT_CELL);
            size_t tables = sparse_tables(&s, 3);
            uint32_t *lists = layout_make(&l, t, tables, sparse_cells, &heads, &bytes);
            bool keys[40 * 40], queries[40 * 40], seen[40];
            l.begin = lists;
            assert_int_equal(l.tables, tables);
            for (size_t head = 0; head < 3; head++) {
                expand(&l, LAYOUT_KEYS, head, cells, keys);
                expand(&l, LAYOUT_QUERIES, head, cells, queries);
                assert_memory_equal(keys, queries, cells * cells);
                for (size_t r = 0; r < cells; r++) {
                    sparse_row(&s, 5 + head, r * LAYOUT_CELL / s.block, seen);
                    for (size_t c = 0; c < cells; c++)
                        assert_int_equal(keys[r * cells + c],
                                         c <= r && seen[c * LAYOUT_CELL / s.block]);
                }
            }
            free(lists);
        }
}

static double counted_share(const struct Sparse *s, size_t first, size_t heads, size_t t,
                            size_t window) {
    size_t n = 0;
    for (size_t head = first; head < first + heads; head++)
        for (size_t i = 0; i < t; i++) {
            bool seen[MOST * 4];
            sparse_row(s, head, i / s->block, seen);
            for (size_t j = 0; j <= i; j++)
                n += seen[j / s->block] && (!window || i - j < window);
        }
    return (double)n / (double)(heads * t * (t + 1) / 2);
}

TEST(shares_are_counts) {
    static const size_t windows[] = {0, 1, 16, 40, 100, 300};
    for (size_t i = 0; i < NTEXT; i++)
        for (size_t j = 0; j < sizeof windows / sizeof windows[0]; j++) {
            struct Sparse s = sparse_of(texts[i]);
            double want = counted_share(&s, 2, 3, 300, windows[j]);
            double is = sparse_share(&s, 2, 3, 300, windows[j]);
            if (!(is > want * (1 - 1e-9) && is < want * (1 + 1e-9)))
                fail_msg("%s, window %zu: the share is %.9g, counted %.9g", s.text, windows[j], is,
                         want);
        }
}

// A part's heads have their numbers in the whole model.
TEST(parts_have_their_heads_patterns) {
    struct ModelConfig whole = {
        .layers = 1, .heads = 8, .channels = 64, .seq_len = 300, .vocab = 9};
    struct Error e = {0};
    whole.sparse = sparse_of("bigbird:different_layout_per_head=true");
    assert_int_equal(model_config_finish(&whole, &e), 0);
    assert_true(whole.sparse_share > 0.1 && whole.sparse_share < 0.9);
    double share = 0;
    for (size_t tp_rank = 0; tp_rank < 4; tp_rank++) {
        struct ModelConfig part = model_config_part(&whole, tp_rank, 4);
        struct SparseHeads heads = {&part.sparse, part.first_head};
        assert_int_equal(part.first_head, 2 * tp_rank);
        for (size_t table = 0; table < 2; table++)
            for (size_t row = 0; row < 18; row++) {
                bool is[MOST], want[MOST];
                sparse_cells(&heads, table, row, is);
                sparse_row(&whole.sparse, 2 * tp_rank + table, row, want);
                assert_memory_equal(is, want, row + 1);
            }
        share += sparse_share(&part.sparse, part.first_head, part.heads, 300, 0) / 4;
    }
    assert_true(share > whole.sparse_share - 1e-12 && share < whole.sparse_share + 1e-12);
}

// ---- texts ----

TEST(a_text_is_completed) {
    static const char *const pairs[][2] = {
        {"dense", "dense"},
        {"fixed", "fixed:block=16,different_layout_per_head=false,num_local_blocks=4,"
                  "num_global_blocks=1,num_different_global_patterns=1"},
        {"local:attention=unidirectional,block=64", "local:block=64,num_sliding_window_blocks=3"},
        {"variable:global_block_end_indices=2+9,global_block_indices=0+7,local_window_blocks=1+2",
         "variable:block=16,different_layout_per_head=false,num_random_blocks=0,"
         "local_window_blocks=1+2,global_block_indices=0+7,global_block_end_indices=2+9"},
        {"bigbird:num_random_blocks=0", "bigbird:block=16,different_layout_per_head=false,"
                                        "num_global_blocks=1,num_random_blocks=0,"
                                        "num_sliding_window_blocks=3"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct Sparse s = sparse_of(pairs[i][0]), again = sparse_of(pairs[i][1]);
        assert_string_equal(s.text, pairs[i][1]);
        assert_string_equal(again.text, s.text);
    }
}

TEST(what_is_no_pattern_is_refused) {
    static const char *const rows[][2] = {
        {"strided", "E_SPARSE_ATTENTION"},
        {"dense:block=16", "E_SPARSE_ATTENTION"},
        {"fixed:", "E_SPARSE_ATTENTION"},
        {"fixed:num_random_blocks=1", "E_SPARSE_ATTENTION"},
        {"local:different_layout_per_head=true", "E_SPARSE_ATTENTION"},
        {"fixed:block", "E_SPARSE_ATTENTION 16 to 65536"},
        {"fixed:block=", "E_SPARSE_ATTENTION 16 to 65536"},
        {"fixed:block=8", "E_SPARSE_ATTENTION 16 to 65536"},
        {"fixed:block=24", "E_SPARSE_ATTENTION 16, not 24"},
        {"fixed:block=16x", "E_SPARSE_ATTENTION"},
        {"fixed:block=-16", "E_SPARSE_ATTENTION"},
        {"fixed:block=99999999999999999999999", "E_SPARSE_ATTENTION"},
        {"fixed:block=16,", "E_SPARSE_ATTENTION"},
        {"fixed:block=16,num_local_blocks=8,block=32", "E_SPARSE_ATTENTION"},
        {"fixed:num_local_blocks=5,num_global_blocks=2", "E_SPARSE_ATTENTION 5"},
        {"fixed:num_different_global_patterns=5,different_layout_per_head=true",
         "E_SPARSE_ATTENTION 4, not 5"},
        {"fixed:num_different_global_patterns=2", "E_SPARSE_ATTENTION"},
        {"fixed:different_layout_per_head=1", "E_SPARSE_ATTENTION"},
        {"fixed:attention=bidirectional", "E_SPARSE_ATTENTION"},
        {"variable:local_window_blocks=0", "E_SPARSE_ATTENTION 16"},
        {"variable:local_window_blocks=1+", "E_SPARSE_ATTENTION 16"},
        {"variable:local_window_blocks=1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1", "E_SPARSE_ATTENTION 16"},
        {"variable:num_random_blocks=257", "E_SPARSE_ATTENTION 0 to 256"},
        {"bslongformer:global_block_indices=1+4,global_block_end_indices=9",
         "E_SPARSE_ATTENTION 2"},
        {"bslongformer:global_block_indices=4,global_block_end_indices=4",
         "E_SPARSE_ATTENTION index 4, not 4"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct Sparse s = {.block = 7};
        struct Error e = {0};
        assert_int_not_equal(sparse_read(&s, rows[i][0], &e), 0);
        assert_int_equal(s.block, 7); // untouched
        if (!error_is(&e, rows[i][1]) || !strstr(e.text, "--sparse-attention"))
            fail_msg("%s: %s; expected %s", rows[i][0], e.text, rows[i][1]);
    }
}
