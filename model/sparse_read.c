// Reads and prints the text of a sparse attention pattern: see sparse.h.
#include "model/sparse.h"

#include "kernels/layout.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const modes[NSPARSE] = {
    [SPARSE_DENSE] = "dense",     [SPARSE_FIXED] = "fixed", [SPARSE_VARIABLE] = "variable",
    [SPARSE_BIGBIRD] = "bigbird", [SPARSE_LOCAL] = "local", [SPARSE_BSLONGFORMER] = "bslongformer",
};

// The keys, the modes that have them, and their defaults in each mode; "": an empty list.
enum Kind { NUMBER, SWITCH, LIST };
static const struct SparseKey {
    const char *name;
    enum Kind kind;
    size_t offset, least, most;
    const char *usual[NSPARSE];
} keys[] = {
#define AT(field) offsetof(struct Sparse, field)
    {"block", NUMBER, AT(block), LAYOUT_CELL, 1 << 16, {NULL, "16", "16", "16", "16", "16"}},
    {"different_layout_per_head",
     SWITCH,
     AT(per_head),
     0,
     1,
     {NULL, "false", "false", "false", "false", NULL}},
    {"num_local_blocks", NUMBER, AT(local), 1, SPARSE_MOST_BLOCKS, {[SPARSE_FIXED] = "4"}},
    {"num_global_blocks",
     NUMBER,
     AT(global),
     1,
     SPARSE_MOST_BLOCKS,
     {[SPARSE_FIXED] = "1", [SPARSE_BIGBIRD] = "1"}},
    {"num_different_global_patterns",
     NUMBER,
     AT(patterns),
     1,
     SPARSE_MOST_BLOCKS,
     {[SPARSE_FIXED] = "1"}},
    {"num_random_blocks",
     NUMBER,
     AT(random),
     0,
     SPARSE_MOST_RANDOM,
     {[SPARSE_VARIABLE] = "0", [SPARSE_BIGBIRD] = "1"}},
    {"num_sliding_window_blocks",
     NUMBER,
     AT(sliding),
     1,
     SPARSE_MOST_BLOCKS,
     {[SPARSE_BIGBIRD] = "3", [SPARSE_BSLONGFORMER] = "3", [SPARSE_LOCAL] = "3"}},
    {"local_window_blocks", LIST, AT(windows), 1, SPARSE_MOST_BLOCKS, {[SPARSE_VARIABLE] = "4"}},
    {"global_block_indices",
     LIST,
     AT(indices),
     0,
     SPARSE_MOST_BLOCKS,
     {[SPARSE_VARIABLE] = "0", [SPARSE_BSLONGFORMER] = "0"}},
    {"global_block_end_indices",
     LIST,
     AT(ends),
     1,
     SPARSE_MOST_BLOCKS,
     {[SPARSE_VARIABLE] = "", [SPARSE_BSLONGFORMER] = ""}},
#undef AT
};
enum { NKEY = sizeof keys / sizeof keys[0] };

// ---- one value ----

static bool read_number(const struct SparseKey *k, const char **text, size_t *out) {
    char *end;
    errno = 0;
    unsigned long long n = strtoull(*text, &end, 10);
    bool digits = **text >= '0' && **text <= '9';
    *out = (size_t)n;
    *text = end;
    return digits && !errno && n >= k->least && n <= k->most;
}

static bool read_list(const struct SparseKey *k, const char **text, struct SparseList *list) {
    list->n = 0;
    do {
        *text += list->n > 0; // the +
        if (list->n == SPARSE_LIST || !read_number(k, text, &list->at[list->n++]))
            return false;
    } while (**text == '+');
    return true;
}

static bool read_switch(const char **text, size_t *out) {
    static const char *const words[] = {"false", "true"};
    for (size_t i = 0; i < 2; i++)
        if (strncmp(*text, words[i], strlen(words[i])) == 0) {
            *text += strlen(words[i]);
            *out = i;
            return true;
        }
    return false;
}

static bool read_value(struct Sparse *s, const struct SparseKey *k, const char **text) {
    void *at = (char *)s + k->offset;
    if (k->kind == LIST)
        return read_list(k, text, at);
    return k->kind == SWITCH ? read_switch(text, at) : read_number(k, text, at);
}

static void set_usual(struct Sparse *s) {
    for (size_t i = 0; i < NKEY; i++) {
        const char *text = keys[i].usual[s->mode];
        if (text && *text)
            read_value(s, &keys[i], &text);
    }
}

// ---- the whole ----

__attribute__((format(printf, 3, 4))) static int refuse(const char *text, struct Error *e,
                                                        const char *format, ...) {
    char expected[400];
    va_list args;
    va_start(args, format);
    vsnprintf(expected, sizeof expected, format, args);
    va_end(args);
    return error_set(e, -EINVAL, E_SPARSE_ATTENTION, "--sparse-attention %.200s: expected %s", text,
                     expected);
}

static int refuse_key(const struct Sparse *s, const char *text, struct Error *e) {
    char list[400] = "";
    for (size_t i = 0, used = 0; i < NKEY; i++)
        if (keys[i].usual[s->mode])
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                                     keys[i].name);
    return refuse(text, e, "KEY=VALUE with a key of %s, one of %s", modes[s->mode], list);
}

static int refuse_value(const struct SparseKey *k, const char *text, struct Error *e) {
    if (k->kind == SWITCH)
        return refuse(text, e, "%s=true or false", k->name);
    return refuse(text, e, "%s= with %s from %zu to %zu", k->name,
                  k->kind == LIST ? "up to 16 numbers, joined by +, each" : "a number", k->least,
                  k->most);
}

// Reads the KEY=VALUE at *at, and sets *at to its end. given: a bit for each key that was read
// before. text: the whole pattern, for errors.
static int read_pair(struct Sparse *s, const char **at, unsigned *given, const char *text,
                     struct Error *e) {
    static const char CAUSAL[] = "attention=unidirectional";
    size_t n = strcspn(*at, "=");
    if (strncmp(*at, "attention=", 10) == 0) {
        if (strncmp(*at, CAUSAL, strlen(CAUSAL)) != 0)
            return refuse(text, e, "%s: a language model must not attend to later tokens", CAUSAL);
        *at += strlen(CAUSAL);
        return 0;
    }
    for (size_t i = 0; i < NKEY; i++) {
        const struct SparseKey *k = &keys[i];
        if (!k->usual[s->mode] || strlen(k->name) != n || strncmp(k->name, *at, n) != 0)
            continue;
        if (*given & 1u << i)
            return refuse(text, e, "each key once, but %s is given twice", k->name);
        *given |= 1u << i;
        *at += n + ((*at)[n] == '=');
        if (!read_value(s, k, at) || (**at && **at != ','))
            return refuse_value(k, text, e);
        return 0;
    }
    return refuse_key(s, text, e);
}

static int check_global(const struct Sparse *s, const char *text, struct Error *e) {
    if (s->ends.n && s->ends.n != s->indices.n)
        return refuse(text, e,
                      "as many global_block_end_indices as global_block_indices, which are %zu",
                      s->indices.n);
    for (size_t i = 0; i < s->ends.n; i++)
        if (s->ends.at[i] <= s->indices.at[i])
            return refuse(text, e,
                          "each of global_block_end_indices to be above its index %zu, not %zu",
                          s->indices.at[i], s->ends.at[i]);
    return 0;
}

static int check_keys(const struct Sparse *s, const char *text, struct Error *e) {
    if (s->mode == SPARSE_DENSE)
        return 0;
    if (s->block % LAYOUT_CELL)
        return refuse(text, e, "block=N with a multiple of %d, not %zu", LAYOUT_CELL, s->block);
    if (s->mode != SPARSE_FIXED)
        return check_global(s, text, e);
    if (s->local % s->global)
        return refuse(text, e, "num_local_blocks=%zu to be a multiple of num_global_blocks=%zu",
                      s->local, s->global);
    if (s->patterns > s->local / s->global)
        return refuse(text, e, "num_different_global_patterns=N with at most %zu, not %zu",
                      s->local / s->global, s->patterns);
    if (s->patterns > 1 && !s->per_head)
        return refuse(
            text, e,
            "different_layout_per_head=true together with num_different_global_patterns=%zu",
            s->patterns);
    return 0;
}

// Prints every key with its value, so that all spellings of a pattern become one text.
static void write_text(struct Sparse *s) {
    char *text = base_format("%s", modes[s->mode]), before = ':';
    for (size_t i = 0; i < NKEY; i++) {
        const struct SparseKey *k = &keys[i];
        const void *at = (const char *)s + k->offset;
        const struct SparseList *list = at;
        if (!k->usual[s->mode] || (k->kind == LIST && list->n == 0))
            continue;
        base_append(&text, "%c%s=", before, k->name);
        before = ',';
        if (k->kind == SWITCH)
            base_append(&text, "%s", *(const size_t *)at ? "true" : "false");
        else if (k->kind == NUMBER)
            base_append(&text, "%zu", *(const size_t *)at);
        for (size_t j = 0; k->kind == LIST && j < list->n; j++)
            base_append(&text, "%s%zu", j ? "+" : "", list->at[j]);
    }
    CHECK(strlen(text) < sizeof s->text, "a pattern of %zu letters", strlen(text));
    strcpy(s->text, text);
    free(text);
}

int sparse_read(struct Sparse *out, const char *text, struct Error *e) {
    struct Sparse s = {.mode = SPARSE_DENSE};
    size_t n = strcspn(text, ":");
    while (s.mode < NSPARSE && (strlen(modes[s.mode]) != n || strncmp(text, modes[s.mode], n) != 0))
        s.mode++;
    if (s.mode == NSPARSE || (s.mode == SPARSE_DENSE && text[n]))
        return refuse(text, e,
                      "dense, fixed, variable, bigbird, bslongformer or local; all but dense may "
                      "add :KEY=VALUE,KEY=VALUE, for example fixed:block=64,num_local_blocks=8");
    set_usual(&s);
    int err = 0;
    unsigned given = 0;
    for (const char *at = text + n; *at && !err;) {
        at++; // the colon, then commas
        err = read_pair(&s, &at, &given, text, e);
        if (!err && *at && *at != ',')
            err = refuse_key(&s, text, e);
    }
    if (!err)
        err = check_keys(&s, text, e);
    if (!err)
        write_text(&s);
    if (!err)
        *out = s;
    return err;
}
