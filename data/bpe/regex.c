// See regex.h.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/bpe/regex.h"

#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>

// Limits of one match; the reference's engine allows the same number of its own steps.
enum { MATCH_LIMIT = 10000000, STACK_FIRST = 64 << 10, STACK_MAX = 16 << 20 };

struct Regex {
    pcre2_code *code;
    bool compiled; // to machine code
};

struct RegexWork {
    pcre2_match_data *data;
    const size_t *place; // the offsets of the match
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

int regex_open(struct Regex **out, const struct Bytes *pattern, struct Error *e) {
    int number;
    size_t at;
    *out = NULL;
    pcre2_code *code =
        pcre2_compile(pattern->data, pattern->count, PCRE2_NO_UTF_CHECK, &number, &at, NULL);
    if (!code) {
        char why[128];
        pcre2_get_error_message(number, (PCRE2_UCHAR *)why, sizeof why);
        return error_set(e, -EINVAL, E_BPE_PATTERN, "PCRE2 refuses it: %s", why);
    }
    *out = base_alloc(sizeof **out);
    (*out)->code = code;
    (*out)->compiled = !pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    return 0;
}

void regex_close(struct Regex *x) {
    if (!x)
        return;
    pcre2_code_free(x->code);
    free(x);
}

struct RegexWork *regex_work_open(void) {
    struct RegexWork *w = base_alloc(sizeof *w);
    w->data = pcre2_match_data_create(1, NULL);
    w->context = pcre2_match_context_create(NULL);
    w->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_MAX, NULL);
    if (!w->data || !w->context)
        base_out_of_memory(0, "a regular expression");
    w->place = pcre2_get_ovector_pointer(w->data);
    pcre2_set_match_limit(w->context, MATCH_LIMIT);
    if (w->stack) // a PCRE2 without a compiler for this CPU makes none
        pcre2_jit_stack_assign(w->context, NULL, w->stack);
    return w;
}

void regex_work_close(struct RegexWork *w) {
    if (!w)
        return;
    pcre2_match_data_free(w->data);
    pcre2_match_context_free(w->context);
    pcre2_jit_stack_free(w->stack);
    free(w);
}

enum RegexFound regex_find(const struct Regex *x, struct RegexWork *w, const uint8_t *text,
                           size_t n, size_t from, bool open, size_t at[2]) {
    uint32_t options = open ? PCRE2_PARTIAL_HARD : 0;
    int found = x->compiled ? pcre2_jit_match(x->code, text, n, from, options, w->data, w->context)
                            : pcre2_match(x->code, text, n, from, options, w->data, w->context);
    at[0] = w->place[0];
    at[1] = w->place[1];
    if (found >= 0)
        return REGEX_FOUND;
    if (found == PCRE2_ERROR_NOMATCH)
        return REGEX_NONE;
    return found == PCRE2_ERROR_PARTIAL ? REGEX_OPEN : REGEX_LIMIT;
}
