// See zero_trace.h.
#include "tests/lib/zero_trace.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"

#include <cjson/cJSON.h>
#include <math.h>

static const char *const tags[NTAG] = {"param",      "grad",      "optimizer",
                                       "activation", "workspace", "comm"};

void zero_trace_note(const struct Rank *r, struct ZeroTraceOf *out) {
    for (int kind = 0; kind < NTIER; kind++)
        memcpy(out->used[kind], r->tier[kind].used, sizeof out->used[kind]);
    out->sent = 0;
    for (int c = 0; c < NCOLLECTIVE; c++)
        out->sent += r->step_traffic.bytes[c];
    out->moved = r->step_moved;
    out->moved_known = r->moved_known;
}

cJSON *zero_trace_read(const char *path) {
    char *text;
    size_t n;
    struct Error e;
    if (file_read(path, 64 << 20, &text, &n, &e))
        fail_msg("%s", e.text);
    cJSON *file = cJSON_ParseWithLength(text, n);
    assert_non_null(file);
    free(text);
    return file;
}

// ---- reading ----

static const cJSON *get(const cJSON *of, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(of, key);
}

static double number(const cJSON *of, const char *key, double otherwise) {
    const cJSON *item = get(of, key);
    return item ? item->valuedouble : otherwise;
}

static const char *text_of(const cJSON *of, const char *key) {
    const cJSON *item = get(of, key);
    return item ? item->valuestring : "";
}

static int word_of(const char *word, const char *const words[], int n) {
    int i = 0;
    while (i < n && strcmp(word, words[i]) != 0)
        i++;
    assert_true(i < n);
    return i;
}

static enum TierKind tier_of(const cJSON *block) {
    const char *const names[] = {"device", "cpu", "nvme"};
    return (enum TierKind)word_of(text_of(block, "tier"), names, NTIER);
}

// ---- blocks and lives ----

void zero_trace_check_blocks(const cJSON *file, const struct ZeroTraceOf *of) {
    const cJSON *blocks = get(file, "blocks"), *block;
    size_t sum[NTIER][NTAG] = {{0}}, total = 0;
    cJSON_ArrayForEach(block, blocks) {
        int tag = word_of(text_of(block, "tag"), tags, NTAG);
        if (!get(block, "freed"))
            sum[tier_of(block)][tag] += (size_t)number(block, "bytes", 0);
    }
    for (int kind = 0; kind < NTIER; kind++) {
        const cJSON *account = get(get(file, "accounts"), tier_name((enum TierKind)kind));
        for (int tag = 0; tag < NTAG; tag++) {
            assert_int_equal(sum[kind][tag], of->used[kind][tag]);
            assert_int_equal(sum[kind][tag], (size_t)number(account, tags[tag], -1));
            total += sum[kind][tag];
        }
    }
    assert_true(total > 0);
}

struct Life {
    int block;
    double offset, end, from, until; // from, until: times
};

static int compare_lives(const void *a, const void *b) {
    const struct Life *x = a, *y = b;
    if (x->block != y->block)
        return x->block - y->block;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static double time_of(const cJSON *const *operation, double id, const char *key, double otherwise) {
    return id < 0 ? otherwise : number(operation[(int)id], key, NAN);
}

static const cJSON **list_of(const cJSON *array, int *n) {
    const cJSON *item;
    int i = 0;
    *n = cJSON_GetArraySize(array);
    const cJSON **list = base_alloc(((size_t)*n + 1) * sizeof(cJSON *));
    cJSON_ArrayForEach(item, array) list[i++] = item;
    return list;
}

void zero_trace_check_lives(const cJSON *file) {
    int n, noperation, nblock, k = 0, turns = 0;
    const cJSON **operation = list_of(get(file, "operations"), &noperation);
    const cJSON **block = list_of(get(file, "blocks"), &nblock);
    const cJSON *life;
    n = cJSON_GetArraySize(get(file, "lives"));
    assert_true(n > 0);
    struct Life *lives = base_alloc((size_t)n * sizeof *lives);
    cJSON_ArrayForEach(life, get(file, "lives")) {
        struct Life *l = &lives[k++];
        double from = number(life, "from", -2), until = number(life, "until", -2);
        *l = (struct Life){.block = (int)number(life, "block", -1)};
        assert_true(l->block >= 0 && l->block < nblock && from < noperation && until < noperation);
        l->offset = number(life, "offset", -1);
        l->end = l->offset + number(life, "bytes", 0);
        l->from = time_of(operation, from, "begin", -INFINITY);
        l->until = time_of(operation, until, "end", INFINITY);
        assert_true(l->offset >= 0 && l->end > l->offset);
        assert_true(l->end <= number(block[l->block], "bytes", 0));
        assert_true(l->from < l->until);
    }
    qsort(lives, (size_t)n, sizeof *lives, compare_lives);
    for (int i = 0; i < n; i++)
        for (int j = i + 1;
             j < n && lives[j].block == lives[i].block && lives[j].offset < lives[i].end;
             j++, turns++)
            if (lives[i].from < lives[j].until - 0.002 && lives[j].from < lives[i].until - 0.002)
                fail_msg("block %d (%s): lives at %.0f and %.0f, from %.3f to %.3f and from %.3f "
                         "to %.3f",
                         lives[i].block, text_of(block[lives[i].block], "purpose"), lives[i].offset,
                         lives[j].offset, lives[i].from, lives[i].until, lives[j].from,
                         lives[j].until);
    assert_true(turns > 0);
    free(lives);
    free(operation);
    free(block);
}

// ---- operations ----

void zero_trace_check_times(const cJSON *file) {
    int n, edges = 0;
    double first = INFINITY; // hop or unit; what else there is may be of the step before
    const cJSON **operation = list_of(get(file, "operations"), &n), *id;
    for (int i = 0; i < n; i++) {
        assert_int_equal((int)number(operation[i], "id", -1), i);
        if (strcmp(text_of(operation[i], "kind"), "other") != 0)
            first = fmin(first, number(operation[i], "begin", -1));
        cJSON_ArrayForEach(id, get(operation[i], "after")) {
            assert_true(id->valuedouble >= 0 && id->valuedouble < i);
            double end = number(operation[(int)id->valuedouble], "end", NAN);
            edges++;
            if (!(end <= number(operation[i], "begin", NAN) + 0.002))
                fail_msg("operation %d (%s) begins at %.3f, but is after %d (%s), which ends at "
                         "%.3f",
                         i, text_of(operation[i], "name"), number(operation[i], "begin", NAN),
                         (int)id->valuedouble, text_of(operation[(int)id->valuedouble], "name"),
                         end);
        }
    }
    assert_true(first == 0);
    assert_true(edges > n / 2);
    free(operation);
}

void zero_trace_check_bytes(const cJSON *file, const struct ZeroTraceOf *of) {
    const cJSON *operation;
    double sent = 0, in = 0, out = 0, read = 0, written = 0;
    cJSON_ArrayForEach(operation, get(file, "operations")) {
        const cJSON *moved = get(operation, "moved");
        sent += number(moved, "sent", 0);
        in += number(moved, "in", 0);
        out += number(moved, "out", 0);
        read += number(moved, "read", 0);
        written += number(moved, "written", 0);
    }
    if (sent != (double)of->sent)
        fail_msg("%.0f bytes are sent, the rank counted %.0f", sent, (double)of->sent);
    assert_true(of->moved_known);
    if (in != (double)of->moved.in || out != (double)of->moved.out ||
        read != (double)of->moved.read || written != (double)of->moved.written)
        fail_msg("in %.0f, out %.0f, read %.0f, written %.0f; the rank counted %.0f, %.0f, %.0f, "
                 "%.0f",
                 in, out, read, written, (double)of->moved.in, (double)of->moved.out,
                 (double)of->moved.read, (double)of->moved.written);
}

// ---- order ----

struct Use {
    int block, operation;
    double offset, end;
    bool writes;
};

static int compare_uses(const void *a, const void *b) {
    const struct Use *x = a, *y = b;
    if (x->block != y->block)
        return x->block - y->block;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static size_t add_uses(const cJSON *operation, int i, const char *key, bool writes,
                       struct Use *out) {
    const cJSON *use;
    size_t n = 0;
    cJSON_ArrayForEach(use, get(operation, key)) {
        double offset = cJSON_GetArrayItem(use, 1)->valuedouble;
        if (out)
            out[n] = (struct Use){(int)cJSON_GetArrayItem(use, 0)->valuedouble, i, offset,
                                  offset + cJSON_GetArrayItem(use, 2)->valuedouble, writes};
        n++;
    }
    return n;
}

static struct Use *list_uses(const cJSON *const *operation, int n, size_t *count) {
    struct Use *use = NULL;
    *count = 0;
    for (int turn = 0; turn < 2; turn++) {
        size_t at = 0;
        for (int i = 0; i < n; i++) {
            at += add_uses(operation[i], i, "reads", false, use ? use + at : NULL);
            at += add_uses(operation[i], i, "writes", true, use ? use + at : NULL);
        }
        if (!use)
            use = base_alloc((at + 1) * sizeof *use);
        *count = at;
    }
    qsort(use, *count, sizeof *use, compare_uses);
    return use;
}

// Row i of the result has a bit for each operation that a path of `after` puts before i.
static uint64_t *list_before(const cJSON *const *operation, int n, size_t words) {
    uint64_t *before = base_alloc_zeroed(((size_t)n + 1) * words * sizeof *before);
    const cJSON *id;
    for (int i = 0; i < n; i++)
        cJSON_ArrayForEach(id, get(operation[i], "after")) {
            size_t k = (size_t)id->valuedouble;
            for (size_t w = 0; w < words; w++)
                before[(size_t)i * words + w] |= before[k * words + w];
            before[(size_t)i * words + k / 64] |= UINT64_C(1) << k % 64;
        }
    return before;
}

struct Unordered zero_trace_unordered(const cJSON *file) {
    int n;
    size_t uses;
    struct Unordered found = {0};
    const cJSON **operation = list_of(get(file, "operations"), &n);
    size_t words = (size_t)n / 64 + 1;
    uint64_t *before = list_before(operation, n, words);
    struct Use *use = list_uses(operation, n, &uses);
    for (size_t i = 0; i < uses; i++)
        for (size_t j = i + 1;
             j < uses && use[j].block == use[i].block && use[j].offset < use[i].end; j++) {
            int first = use[i].operation < use[j].operation ? use[i].operation : use[j].operation;
            int last = use[i].operation + use[j].operation - first;
            if (first == last || !(use[i].writes || use[j].writes))
                continue;
            found.checked++;
            if (before[(size_t)last * words + (size_t)first / 64] >> first % 64 & 1)
                continue;
            if (!found.pairs++)
                snprintf(found.text, sizeof found.text,
                         "block %d at %.0f: operation %d (%s, %s) and %d (%s, %s)", use[i].block,
                         use[j].offset, first, text_of(operation[first], "name"),
                         text_of(operation[first], "queue"), last, text_of(operation[last], "name"),
                         text_of(operation[last], "queue"));
        }
    free(use);
    free(before);
    free(operation);
    return found;
}

void zero_trace_check(const cJSON *file, const struct ZeroTraceOf *of) {
    assert_int_equal((int)number(file, "lost", -1), 0);
    zero_trace_check_blocks(file, of);
    zero_trace_check_times(file);
    zero_trace_check_lives(file);
    zero_trace_check_bytes(file, of);
    struct Unordered u = zero_trace_unordered(file);
    if (u.pairs)
        fail_msg("%zu pairs without an order, the first: %s", u.pairs, u.text);
    assert_true(u.checked > 100);
}

// ---- a run ----

enum { STEPS = 4 };

struct Traced {
    char *path;
    struct ZeroTraceOf of[ZERO_TRACE_RANKS];
};

static void train(void *context, struct Rank *r) {
    struct Traced *t = context;
    struct Error e;
    for (int i = 0; i < STEPS; i++)
        tiny_step(r);
    zero_trace_note(r, &t->of[r->all->rank]);
    CHECK(!rank_write_trace_zero(r, "tiny", t->path, &e), "%s", e.text);
}

void zero_trace_check_run(const struct RankSettings *s, const char *folder) {
    struct RankSettings traced = *s;
    struct Traced t = {.path = base_format("%s/trace", folder)};
    traced.traced = traced.traced_zero = true;
    tiny_ranks(&traced, train, &t);
    for (int rank = 0; rank < s->ranks; rank++) {
        char *path = rank ? base_format("%s.%d", t.path, rank) : base_format("%s", t.path);
        cJSON *file = zero_trace_read(path);
        zero_trace_check(file, &t.of[rank]);
        cJSON_Delete(file);
        free(path);
    }
    free(t.path);
}
