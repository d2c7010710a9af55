// Normalizers and pre-tokenizers of a tokenizer.json: see read.h.
//
// A pattern for which split.h has a scanner uses that scanner; so does "Digits" followed by GPT-2's
// pattern.
#include "data/bpe/read.h"
#include "data/json.h"

#include <errno.h>
#include <string.h>

enum { DEPTH_MAX = 8 };

// ---- normalizers ----

static int refuse_too_many(const char *path, const char *what, int most, struct Error *e) {
    return error_set(e, -EINVAL, E_BPE_UNSUPPORTED,
                     "%s: more than %d %s are not supported; give token shards as --data", path,
                     most, what);
}

static int read_replace(struct Bpe *b, const cJSON *n, struct NormalStep *step, const char *path,
                        struct Error *e) {
    const char *text = json_text(json_member(n, "pattern"), "String");
    if (!*text || !cJSON_IsString(json_member(n, "content")))
        return error_set(e, -EINVAL, E_BPE_STEP,
                         "%s: a normalizer \"Replace\" lacks a \"String\" or a \"content\"; add "
                         "them, or give token shards as --data",
                         path);
    step->text = base_format("%s", text);
    step->with = base_format("%s", json_text(n, "content"));
    b->one_stretch = b->one_stretch || text[1]; // a cut might lie inside of the pattern
    return 0;
}

static int read_normalizer(struct Bpe *b, const cJSON *n, int depth, const char *path,
                           struct Error *e) {
    static const char expected[] = "none, \"NFC\", \"Prepend\" or \"Replace\"";
    const cJSON *list = json_has_type(n, "Sequence") ? json_member(n, "normalizers") : NULL, *item;
    if (depth == DEPTH_MAX || (json_has_type(n, "Sequence") && !cJSON_IsArray(list)))
        return bpe_refuse(path, "normalizer", n, expected, e);
    if (list) {
        int err = 0;
        cJSON_ArrayForEach(item, list) if (!err) err = read_normalizer(b, item, depth + 1, path, e);
        return err;
    }
    if (b->normal.count == NORMAL_MAX)
        return refuse_too_many(path, "normalizers", NORMAL_MAX, e);
    struct NormalStep *step = &b->normal.step[b->normal.count++];
    if (json_has_type(n, "NFC")) {
        step->kind = NORMAL_NFC;
        return 0;
    }
    if (json_has_type(n, "Prepend")) {
        step->kind = NORMAL_PREPEND;
        step->text = base_format("%s", json_text(n, "prepend"));
        return 0;
    }
    step->kind = NORMAL_REPLACE;
    return json_has_type(n, "Replace") ? read_replace(b, n, step, path, e)
                                       : bpe_refuse(path, "normalizer", n, expected, e);
}

int bpe_read_normalizer(struct Bpe *b, const cJSON *n, const char *path, struct Error *e) {
    return !n || cJSON_IsNull(n) ? 0 : read_normalizer(b, n, 0, path, e);
}

// ---- pre-tokenizers ----

static struct Step *add_step(struct Bpe *b, enum StepKind kind) {
    CHECK(b->steps.count < STEPS_MAX, "%zu steps", b->steps.count);
    struct Step *s = &b->steps.step[b->steps.count++];
    *s = (struct Step){.kind = kind, .behavior = ISOLATED};
    return s;
}

static int read_behavior(struct Step *s, const cJSON *p, const char *path, struct Error *e) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *name = json_text(p, "behavior");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            s->behavior = (enum Behavior)i;
            return 0;
        }
    return error_set(e, -EINVAL, E_BPE_UNSUPPORTED,
                     "%s: the behavior \"%s\" is not supported; expected \"Removed\", "
                     "\"Isolated\", \"MergedWithPrevious\", \"MergedWithNext\" or \"Contiguous\"",
                     path, json_shown(name).text);
}

static int read_regex(struct Bpe *b, struct Step *s, const char *path, struct Error *e) {
    struct Error why;
    int err = pattern_open(&s->pattern, s->text, s->bytes, &why);
    if (!err)
        err = regex_open(&s->regex, &s->pattern.bytes, &why);
    b->one_stretch = b->one_stretch || s->pattern.looks_back;
    return err ? error_set(e, -EINVAL, why.id,
                           "%s: the pattern %s: %s; %sencode the text with the tokenizer's own "
                           "library and give token shards as --data",
                           path, json_shown(s->text).text, why.text, err == -ENOTSUP ? "or " : "")
               : 0;
}

static int read_split(struct Bpe *b, const cJSON *p, const char *path, struct Error *e) {
    const char *regex = json_text(json_member(p, "pattern"), "Regex");
    const char *string = json_text(json_member(p, "pattern"), "String");
    struct Step *s = add_step(b, *regex ? STEP_REGEX : STEP_STRING);
    s->invert = cJSON_IsTrue(json_member(p, "invert"));
    s->text = base_format("%s", *regex ? regex : string);
    s->bytes = strlen(s->text);
    int err = read_behavior(s, p, path, e);
    if (err)
        return err;
    if (!s->bytes)
        return error_set(e, -EINVAL, E_BPE_STEP,
                         "%s: a \"Split\" has neither a \"Regex\" nor a \"String\"; add one", path);
    // Each of split_patterns matches every character, so nothing lies between its matches.
    bool isolated = s->behavior == (s->invert ? REMOVED : ISOLATED);
    for (int k = 0; k < NSPLIT && *regex && isolated; k++)
        if (split_patterns[k] && !strcmp(regex, split_patterns[k])) {
            s->kind = STEP_SCAN;
            s->scan = (enum SplitKind)k;
            return 0;
        }
    return *regex ? read_regex(b, s, path, e) : 0;
}

static int read_byte_level(struct Bpe *b, const cJSON *p, const char *path, struct Error *e) {
    if (b->byte_level)
        return error_set(
            e, -EINVAL, E_BPE_UNSUPPORTED,
            "%s: two pre-tokenizers \"ByteLevel\" are not supported; give token shards as --data",
            path);
    if (!cJSON_IsFalse(json_member(p, "add_prefix_space"))) {
        b->one_stretch = b->one_stretch || b->steps.count; // a part that follows a cut gets none
        add_step(b, STEP_PREFIX);
    }
    if (!cJSON_IsFalse(json_member(p, "use_regex")))
        add_step(b, STEP_SCAN)->scan = SPLIT_GPT2;
    add_step(b, STEP_LETTERS);
    b->byte_level = true;
    return 0;
}

static int read_metaspace(struct Bpe *b, const cJSON *p, const char *path, struct Error *e) {
    const char *scheme = json_text(p, "prepend_scheme"), *mark = json_text(p, "replacement");
    bool never = strcmp(scheme, "never") == 0;
    if (!*mark || (!never && cJSON_IsFalse(json_member(p, "add_prefix_space"))))
        return error_set(e, -EINVAL, E_BPE_STEP,
                         "%s: a \"Metaspace\" needs a \"replacement\", and \"add_prefix_space\" "
                         "false only with a \"prepend_scheme\" of \"never\"",
                         path);
    b->one_stretch = b->one_stretch || (!never && b->steps.count); // as for ByteLevel's space
    struct Step *s = add_step(b, STEP_MARK);
    s->prepend = never                          ? PREPEND_NEVER
                 : strcmp(scheme, "first") == 0 ? PREPEND_FIRST
                                                : PREPEND_ALWAYS;
    s->text = base_format("%s", mark);
    s->bytes = strlen(mark);
    if (cJSON_IsFalse(json_member(p, "split")))
        return 0;
    s = add_step(b, STEP_STRING);
    s->behavior = MERGED_WITH_NEXT;
    s->text = base_format("%s", mark);
    s->bytes = strlen(mark);
    return 0;
}

static struct Step *add_class(struct Bpe *b, uint8_t mask, enum Behavior behavior) {
    struct Step *s = add_step(b, STEP_CLASS);
    s->mask = mask;
    s->behavior = behavior;
    return s;
}

static int read_step(struct Bpe *b, const cJSON *p, int depth, const char *path, struct Error *e) {
    static const char expected[] = "\"ByteLevel\", \"Split\", \"Digits\", \"Punctuation\", "
                                   "\"Whitespace\", \"Metaspace\" or a sequence of them";
    const cJSON *list = json_has_type(p, "Sequence") ? json_member(p, "pretokenizers") : NULL,
                *item;
    if (depth == DEPTH_MAX || (json_has_type(p, "Sequence") && !cJSON_IsArray(list)))
        return bpe_refuse(path, "pre-tokenizer", p, expected, e);
    int err = 0;
    if (list) {
        cJSON_ArrayForEach(item, list) if (!err) err = read_step(b, item, depth + 1, path, e);
        return err;
    }
    if (b->steps.count + 4 > STEPS_MAX) // one adds 3 at most, and bpe_use_marks one
        return refuse_too_many(path, "pre-tokenizers", STEPS_MAX - 4, e);
    if (json_has_type(p, "ByteLevel"))
        return read_byte_level(b, p, path, e);
    if (json_has_type(p, "Split"))
        return read_split(b, p, path, e);
    if (json_has_type(p, "Metaspace"))
        return read_metaspace(b, p, path, e);
    if (json_has_type(p, "Digits"))
        add_class(b, UNICODE_DIGIT,
                  cJSON_IsTrue(json_member(p, "individual_digits")) ? ISOLATED : CONTIGUOUS);
    else if (json_has_type(p, "Punctuation"))
        err = read_behavior(add_class(b, UNICODE_PUNCTUATION, ISOLATED), p, path, e);
    else if (json_has_type(p, "WhitespaceSplit"))
        add_class(b, UNICODE_WHITE, REMOVED);
    else if (json_has_type(p, "Whitespace"))
        add_step(b, STEP_WORDS);
    else
        err = bpe_refuse(path, "pre-tokenizer", p, expected, e);
    return err;
}

// Replaces single digits followed by GPT-2's pattern with SmolLM2's scanner, which does both.
static void join_digits(struct Steps *s) {
    for (size_t i = 0; i + 1 < s->count; i++) {
        struct Step *first = &s->step[i], *next = &s->step[i + 1];
        if (first->kind != STEP_CLASS || first->mask != UNICODE_DIGIT ||
            first->behavior != ISOLATED || next->kind != STEP_SCAN || next->scan != SPLIT_GPT2)
            continue;
        next->scan = SPLIT_SMOLLM;
        memmove(first, next, (s->count - i - 1) * sizeof *first);
        s->count--;
    }
}

int bpe_read_steps(struct Bpe *b, const cJSON *p, const char *path, struct Error *e) {
    int err = !p || cJSON_IsNull(p) ? 0 : read_step(b, p, 0, path, e);
    if (err)
        return err;
    struct Steps *s = &b->steps;
    if (s->count && s->step[s->count - 1].kind == STEP_LETTERS)
        s->count--; // words stay bytes, so the last step need not write letters
    join_digits(s);
    b->kind = s->count == 1 && s->step[0].kind == STEP_SCAN ? split_names[s->step[0].scan]
              : b->byte_level                               ? "bytes"
                                                            : "characters";
    return 0;
}
