// The part of every tensor that each TP rank has.
//
// Recomputes, element by element, from the rules in model/params.h, which element of the whole
// tensor each element of a TP rank's group is; initial values and the hash must not depend on the
// number of TP ranks.
#include "model/params.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MODELS = 7, MOST_TP_SIZE = 4 };

// 24 heads of queries and 12 of keys, or 12 of both, which go into 1, 2, 3 and 4 parts; of
// vocabulary 61 the later TP ranks have no token.
static struct ModelConfig model_of(int i) {
    static const struct {
        enum FamilyKind kind;
        bool untied;
        size_t vocab;
    } models[MODELS] = {{FAMILY_GPT2, false, 61},   {FAMILY_GPT2, true, 130},
                        {FAMILY_LLAMA, false, 256}, {FAMILY_LLAMA, true, 61},
                        {FAMILY_QWEN2, false, 130}, {FAMILY_QWEN3, true, 193},
                        {FAMILY_MISTRAL, true, 128}};
    bool old = models[i].kind == FAMILY_GPT2;
    struct Error e;
    struct ModelConfig c = {.layers = 2,
                            .heads = old ? 12 : 24,
                            .kv_heads = 12,
                            .channels = 36,
                            .head_size = old ? 3 : 2,
                            .ffn = 60,
                            .seq_len = 7,
                            .vocab = models[i].vocab,
                            .kind = models[i].kind,
                            .untied = models[i].untied};
    assert_int_equal(model_config_finish(&c, &e), 0);
    return c;
}

static bool is_named(const struct Param *p, const char *a) {
    return strncmp(p->name, a, strlen(a)) == 0;
}

static size_t rows_of_the_part(size_t r, const size_t *part, int parts, size_t tp_rank,
                               size_t tp_size) {
    size_t whole = 0, here = 0;
    for (int i = 0; i < parts; i++) {
        size_t n = part[i] / tp_size;
        if (r < here + n)
            return whole + tp_rank * n + (r - here);
        whole += part[i];
        here += n;
    }
    fail();
    return 0;
}

// Returns the element of the tensor that is a TP rank's element i; UINT64_MAX: it is padding.
static uint64_t element_of(const struct ModelConfig *c, const struct Param *p, size_t i,
                           size_t tp_rank, size_t tp_size) {
    size_t q = c->heads * c->head_size, kv = c->kv_heads * c->head_size, C = c->channels;
    size_t heads[] = {q, kv, kv}, mlp[] = {c->ffn, c->ffn};
    int gates = c->family->mlp == MLP_SWIGLU ? 2 : 1;
    size_t row = i / p->cols, col = i % p->cols;
    if (is_named(p, "wte") || !strcmp(p->name, "weight")) {
        size_t first = (c->vocab + tp_size - 1) / tp_size;
        first = tp_size == 1 ? 0 : tp_rank * ((first + 63) / 64 * 64);
        return first + row < c->vocab ? (first + row) * C + col : UINT64_MAX;
    }
    if (is_named(p, "attention.qkv"))
        return rows_of_the_part(row, heads, 3, tp_rank, tp_size) * p->cols + col;
    if (is_named(p, "mlp.fc"))
        return rows_of_the_part(row, mlp, gates, tp_rank, tp_size) * p->cols + col;
    if (is_named(p, "attention.proj.weight"))
        return row * q + tp_rank * (q / tp_size) + col;
    if (is_named(p, "mlp.out.weight"))
        return row * c->ffn + tp_rank * (c->ffn / tp_size) + col;
    return i;
}

static bool all_have(const struct Param *p) {
    return !(is_named(p, "wte") || !strcmp(p->name, "weight") || is_named(p, "attention.qkv") ||
             is_named(p, "mlp.fc") || !strcmp(p->name, "attention.proj.weight") ||
             !strcmp(p->name, "mlp.out.weight"));
}

static const struct Param *param_at(const struct Group *g, size_t i) {
    const struct Param *p = g->param;
    while (i >= p->offset + p->rows * p->cols)
        p++;
    return p;
}

// ---- a body of the tests, for every model and number of TP ranks ----

struct Case {
    struct ModelConfig c;
    size_t tp_rank, tp_size;
    struct Params whole, p;
};

typedef void Body(struct Case *k);

static void for_all(Body *body) {
    for (int i = 0; i < MODELS; i++)
        for (size_t tp_size = 1; tp_size <= MOST_TP_SIZE; tp_size++)
            for (size_t tp_rank = 0; tp_rank < tp_size; tp_rank++) {
                struct Case k = {.c = model_of(i), .tp_rank = tp_rank, .tp_size = tp_size};
                params_layout(&k.c, 3, 0, 1, &k.whole);
                params_layout(&k.c, 3, tp_rank, tp_size, &k.p);
                body(&k);
                params_free(&k.whole);
                params_free(&k.p);
            }
}

// ---- tests ----

// Any range, cut anywhere, has its elements in order, each with its index in the tensor.
static void check_range(const struct Case *k, const struct Group *g, size_t begin, size_t end) {
    struct Piece piece[MAX_PIECES];
    int n = params_pieces(g, begin, end, piece), at = 0;
    size_t in = 0;
    for (size_t i = begin; i < end && i < g->numel; i++) {
        const struct Param *p = param_at(g, i);
        uint64_t want = element_of(&k->c, p, i - p->offset, k->tp_rank, k->tp_size);
        if (want == UINT64_MAX)
            continue;
        assert_in_range(at, 0, n - 1);
        assert_ptr_equal(piece[at].param, p);
        assert_int_equal(piece[at].begin + in, i);
        assert_int_equal(weights_at(&piece[at].range, in), want);
        assert_in_range(weights_beside(&piece[at].range, in), 1, piece[at].range.n - in);
        if (weights_beside(&piece[at].range, in) > 1)
            assert_int_equal(weights_at(&piece[at].range, in + 1), want + 1);
        in = in + 1 < piece[at].range.n ? in + 1 : 0;
        at += in == 0;
    }
    assert_int_equal(at, n);
}

static void check_pieces(struct Case *k) {
    for (int g = 0; g < k->p.ngroup; g++) {
        const struct Group *group = &k->p.group[g];
        check_range(k, group, 0, group->padded);
        for (size_t begin = 0, n = 1; begin < group->padded; begin += n, n = n * 3 % 509 + 1)
            check_range(k, group, begin, size_min(begin + n, group->padded));
    }
}

TEST(elements_are_where_they_belong) {
    for_all(check_pieces);
}

static void check_find(struct Case *k) {
    for (int g = 0; g < k->p.ngroup; g++)
        for (int i = 0; i < k->p.group[g].nparam; i++) {
            const struct Param *p = &k->p.group[g].param[i];
            size_t n = p->whole_rows * p->whole_cols;
            size_t *here = base_alloc((n + 1) * sizeof *here); // 1 + where it lies; 0: not here
            memset(here, 0, (n + 1) * sizeof *here);
            for (size_t j = 0; j < p->real; j++)
                here[element_of(&k->c, p, j, k->tp_rank, k->tp_size)] = 1 + p->offset + j;
            for (size_t from = 0; from < n; from++) {
                uint64_t at = from;
                size_t element, want = from, beside = params_find(p, &at, &element);
                while (want < n && !here[want])
                    want++;
                if (want == n) {
                    assert_true(!beside || at >= n);
                    continue;
                }
                assert_int_equal(at, want);
                assert_int_equal(element + 1, here[want]);
                for (size_t j = 0; j < beside && want + j < n; j++)
                    assert_int_equal(here[want + j], here[want] + j);
                bool ends = want + beside >= n || here[want + beside] != here[want] + beside;
                assert_true(beside >= 1 && ends);
            }
            free(here);
        }
}

TEST(elements_are_found) {
    for_all(check_find);
}

// Over all TP ranks each weight is counted once, and has its index.
TEST(weights_are_counted_once) {
    for (int i = 0; i < MODELS; i++)
        for (size_t tp_size = 1; tp_size <= MOST_TP_SIZE; tp_size++) {
            struct ModelConfig c = model_of(i);
            struct Params whole;
            params_layout(&c, 1, 0, 1, &whole);
            uint8_t *counted = base_alloc_zeroed(whole.real), *had = base_alloc_zeroed(whole.real);
            for (size_t tp_rank = 0; tp_rank < tp_size; tp_rank++) {
                struct Params p;
                struct Piece piece[MAX_PIECES];
                params_layout(&c, 1, tp_rank, tp_size, &p);
                assert_int_equal(p.real, whole.real);
                for (int g = 0; g < p.ngroup; g++)
                    for (int n = params_pieces(&p.group[g], 0, p.group[g].padded, piece); n-- > 0;)
                        for (size_t j = 0; j < piece[n].range.n; j++) {
                            uint64_t at = piece[n].param->index + weights_at(&piece[n].range, j);
                            assert_in_range(at, 0, p.real - 1);
                            counted[at] += params_counts(&p, piece[n].param);
                            had[at]++;
                            if (all_have(piece[n].param))
                                assert_int_equal(had[at], tp_rank + 1);
                        }
                params_free(&p);
            }
            for (uint64_t at = 0; at < whole.real; at++)
                assert_true(counted[at] == 1 && (had[at] == 1 || had[at] == tp_size));
            free(counted);
            free(had);
            params_free(&whole);
        }
}

static void check_counted(struct Case *k) {
    for (int g = 0; g < k->p.ngroup; g++) {
        const struct Group *group = &k->p.group[g];
        for (size_t begin = 0, n = 5; begin < group->padded; begin += n, n = n * 7 % 1999 + 1) {
            struct Span span[MAX_PARAM];
            size_t end = size_min(begin + n, group->padded);
            int spans = params_counted(&k->p, g, begin, end, span), at = 0;
            for (size_t i = begin; i < end; i++) {
                bool counts = !k->tp_rank || (i < group->numel && !all_have(param_at(group, i)));
                while (at < spans && i >= span[at].end)
                    at++;
                bool is = at < spans && i >= span[at].begin;
                if (is != counts)
                    fail_msg("%s, element %zu at TP rank %zu", group->name, i, k->tp_rank);
            }
            for (int i = 0; i < spans; i++)
                assert_true(span[i].begin < span[i].end && span[i].begin >= begin &&
                            span[i].end <= end && (!i || span[i - 1].end < span[i].begin));
        }
    }
}

TEST(counted_elements_are_spans) {
    for_all(check_counted);
}

// ---- values ----

static struct Device *device;

static int open_device(void **state) {
    (void)state;
    struct Error e;
    return device_open_cpu(&device, 1, NULL, &e);
}

static int close_device(void **state) {
    (void)state;
    device_close(device);
    return 0;
}

static float *values_of(const struct Params *p, int g) {
    size_t n = p->group[g].padded;
    float *mem = device_alloc_host(device, n * sizeof *mem);
    params_init(p, g, 0, n, 42, device, mem);
    device_sync_queue(device, QUEUE_COMPUTE);
    return mem;
}

// A TP rank's values, whether made at once or in odd ranges, are those of the whole.
static void check_values(struct Case *k) {
    for (int g = 0; g < k->p.ngroup; g++) {
        const struct Group *group = &k->p.group[g];
        float *whole = values_of(&k->whole, g), *mine = values_of(&k->p, g);
        for (size_t i = 0; i < group->padded; i++) {
            const struct Param *p = i < group->numel ? param_at(group, i) : NULL;
            uint64_t at =
                p ? element_of(&k->c, p, i - p->offset, k->tp_rank, k->tp_size) : UINT64_MAX;
            float want = 0;
            if (at != UINT64_MAX)
                want = whole[k->whole.group[g].param[p - group->param].offset + at];
            if (f32_bits(want) != f32_bits(mine[i]))
                fail_msg("%s, element %zu: %g, not %g", group->name, i, (double)mine[i],
                         (double)want);
        }
        float part[911];
        for (size_t n, i = 0; i < group->padded; i += n) {
            n = size_min(911, group->padded - i);
            params_init(&k->p, g, i, i + n, 42, device, part);
            device_sync_queue(device, QUEUE_COMPUTE);
            assert_memory_equal(part, mine + i, n * sizeof *part);
        }
        device_free_host(device, whole);
        device_free_host(device, mine);
    }
}

TEST(initial_values_are_those_of_the_whole) {
    for_all(check_values);
}

static uint64_t hash_of(const struct Params *p, bool in_two) {
    uint64_t hash = 0;
    for (int g = 0; g < p->ngroup; g++) {
        float *w = values_of(p, g);
        size_t end = p->group[g].padded, cut = in_two ? end / 3 : 0;
        hash += params_hash(p, g, 0, cut, w) + params_hash(p, g, cut, end, w + cut);
        device_free_host(device, w);
    }
    return hash;
}

TEST(hashes_add_up) {
    for (int i = 0; i < MODELS; i++) {
        struct ModelConfig c = model_of(i);
        uint64_t whole = 0;
        for (size_t tp_size = 1; tp_size <= MOST_TP_SIZE; tp_size++) {
            uint64_t sum = 0;
            for (size_t tp_rank = 0; tp_rank < tp_size; tp_rank++) {
                struct Params p;
                params_layout(&c, 1, tp_rank, tp_size, &p);
                sum += hash_of(&p, tp_size > 1);
                params_free(&p);
            }
            whole = tp_size == 1 ? sum : whole;
            assert_true(sum == whole);
        }
    }
}

// ---- the shape ----

TEST(a_part_has_its_share) {
    struct ModelConfig c = model_of(4), whole = model_config_part(&c, 0, 1);
    static const size_t tokens[MOST_TP_SIZE + 1][MOST_TP_SIZE] = {
        [2] = {128, 2}, [3] = {64, 64, 2}, [4] = {64, 64, 2, 0}};
    assert_true(whole.heads == c.heads && whole.kv_heads == c.kv_heads && whole.ffn == c.ffn);
    assert_true(whole.vocab == c.vocab && whole.vocab_padded == c.vocab_padded);
    for (size_t tp_size = 2; tp_size <= MOST_TP_SIZE; tp_size++)
        for (size_t tp_rank = 0; tp_rank < tp_size; tp_rank++) {
            struct ModelConfig part = model_config_part(&c, tp_rank, tp_size);
            assert_int_equal(part.heads, 24 / tp_size);
            assert_int_equal(part.kv_heads, 12 / tp_size);
            assert_int_equal(part.ffn, 60 / tp_size);
            assert_int_equal(part.channels, 36);
            assert_int_equal(part.head_size, 2);
            assert_int_equal(part.vocab_padded, tp_size == 2 ? 128 : 64);
            assert_int_equal(part.vocab, tokens[tp_size][tp_rank]);
        }
}

TEST(what_does_not_divide_is_refused) {
    struct ModelConfig c = model_of(2);
    struct Error e;
    for (size_t tp_size = 1; tp_size <= MOST_TP_SIZE; tp_size++)
        assert_int_equal(model_config_check_parts(&c, tp_size, &e), 0);
    static const size_t wrong[] = {0, 5, 8, 24};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[160];
        snprintf(text, sizeof text,
                 "--tp %zu: expected a common divisor of --heads 24, --kv-heads 12 and --ffn 60, "
                 "one of 1, 2, 3, 4, 6, 12",
                 wrong[i]);
        assert_int_equal(model_config_check_parts(&c, wrong[i], &e), -EINVAL);
        assert_string_equal(e.text, text);
    }
}

AROUND_ALL(open_device, close_device);
