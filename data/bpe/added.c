// See added.h.
#include "data/bpe/added.h"

#include <stdlib.h>
#include <string.h>

static int compare_tokens(const void *a, const void *b) {
    const struct Added *x = *(const struct Added *const *)a, *y = *(const struct Added *const *)b;
    int order = memcmp(x->text, y->text, size_min(x->bytes, y->bytes));
    return order ? order : x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

void added_sort(struct AddedSet *s, const struct Added *tokens, size_t count, bool normalized) {
    *s = (struct AddedSet){.token = base_alloc((count + 1) * sizeof *s->token)};
    for (size_t i = 0; i < count; i++)
        if (tokens[i].normalized == normalized) {
            s->token[s->count++] = &tokens[i];
            s->begins[(uint8_t)tokens[i].text[0]] = true;
        }
    qsort(s->token, s->count, sizeof *s->token, compare_tokens);
}

void added_free(struct AddedSet *s) {
    free(s->token);
    *s = (struct AddedSet){0};
}

const struct Added *added_with_text(const struct AddedSet *s, const char *text, size_t bytes) {
    struct Added wanted = {.text = (char *)text, .bytes = bytes}, *key = &wanted;
    const struct Added *const *found =
        s->count ? bsearch(&key, s->token, s->count, sizeof *s->token, compare_tokens) : NULL;
    return found ? *found : NULL;
}

// Returns the index of the first of token[lo] .. token[hi - 1] whose byte `at` is at least `byte`;
// hi: there is none. Their first `at` bytes are the same, and they are longer.
static size_t first_from(const struct AddedSet *s, size_t lo, size_t hi, size_t at, unsigned byte) {
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((uint8_t)s->token[mid]->text[at] < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

// Returns the longest token that the n bytes of text begin with; NULL: there is none.
static const struct Added *longest_token(const struct AddedSet *s, const uint8_t *text, size_t n) {
    const struct Added *found = NULL;
    size_t lo = 0, hi = s->count;
    for (size_t at = 0; lo < hi; at++) { // these tokens begin with the text's first `at` bytes
        if (s->token[lo]->bytes == at)
            found = s->token[lo++];
        if (at == n)
            break;
        lo = first_from(s, lo, hi, at, text[at]);
        hi = first_from(s, lo, hi, at, text[at] + 1u);
    }
    return found;
}

const struct Added *added_find(const struct AddedSet *s, const uint8_t *text, size_t n, size_t from,
                               size_t *begin) {
    for (size_t i = from; s->count && i < n; i++) {
        const struct Added *found = s->begins[text[i]] ? longest_token(s, text + i, n - i) : NULL;
        if (found) {
            *begin = i;
            return found;
        }
    }
    return NULL;
}
