// tokenizer.json: ids are those of the reference implementation (tests/fixtures/bpe, made by
// scripts/gen/tokenizer_fixtures.py) for each pattern; threads change none; every character comes
// back; control tokens are found in a text, but not in what people wrote; and what is not built is
// refused with one line.
#include "data/bpe/read.h"
#include "data/text/tokenizer.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

#include <errno.h>

#define FIXTURES "tests/fixtures/bpe/"
static const char *const names[] = {"gpt2", "llama3", "qwen2", "smollm"};
enum { NAMES = 4, STRINGS = 2000 };

static struct Tokenizer *open_fixture(const char *name) {
    char *folder = base_format(FIXTURES "%s", name);
    struct TokenizerSpec spec;
    struct Tokenizer *t;
    struct Error e;
    assert_ok(tokenizer_parse(&spec, folder, &e), &e);
    assert_int_equal(spec.kind, TOKENIZER_JSON);
    assert_ok(tokenizer_open_spec(&t, &spec, &e), &e);
    free(folder);
    return t;
}

static unsigned count_at(const char *p) {
    return (uint8_t)p[0] | (unsigned)(uint8_t)p[1] << 8;
}

static void encode(const struct Tokenizer *t, const char *text, size_t n, struct Ids *ids) {
    struct Error e;
    ids->count = 0;
    assert_ok(tokenizer_encode(t, text, n, ids, &e), &e);
}

static void check_strings(const char *name, const char *strings, size_t bytes) {
    struct Tokenizer *t = open_fixture(name);
    char *file = base_format("%s.ids", name);
    size_t ids_bytes, texts = 0;
    char *want = scratch_read(FIXTURES, file, &ids_bytes);
    const char *w = want;
    struct Ids ids = {0};
    for (const char *s = strings; s < strings + bytes; s += 2 + count_at(s), texts++) {
        encode(t, s + 2, count_at(s), &ids);
        bool same = ids.count == count_at(w);
        w += 2;
        for (size_t i = 0; same && i < ids.count; i++)
            same = ids.data[i] == (int32_t)count_at(w + 2 * i);
        if (!same)
            fail_msg("%s, text %zu: '%.*s' has other ids", name, texts, (int)count_at(s), s + 2);
        w += 2 * ids.count;
    }
    assert_int_equal(texts, STRINGS);
    assert_ptr_equal(w, want + ids_bytes);
    ids_free(&ids);
    free(want);
    free(file);
    tokenizer_close(t);
}

TEST(ids_are_the_references) {
    size_t bytes;
    char *strings = scratch_read(FIXTURES, "strings.bin", &bytes);
    for (int i = 0; i < NAMES; i++)
        check_strings(names[i], strings, bytes);
    free(strings);
}

// The words of texts, with "|" between two: what the reference's pre-tokenizers give. (Few merges
// of the fixtures reach across the ends of words, so that ids alone would not show them.)
TEST(words_are_the_references) {
    static const struct {
        enum SplitKind kind;
        const char *words;
    } rows[] = {
        {SPLIT_GPT2, "it|'|\305\277a|'|LLx|'|rEd| '|S"},
        {SPLIT_GPT2, " | a|\012\012| b| \011\015\012| c|  "},
        {SPLIT_GPT2, "12345| 6\302\275\340\271\227"},
        {SPLIT_GPT2, ".|\012|\012|!|x| _|a|\302\240|b"},
        {SPLIT_GPT2, "a|\302\240\343\200\200|\302\240|c| \012"},
        {SPLIT_GPT2, "don|'t|'s|x"},
        {SPLIT_GPT2, " '|\305\277s"},
        {SPLIT_LLAMA3, "it|'\305\277|a|'LL|x|'rE|d| '|S"},
        {SPLIT_LLAMA3, " | a|\012\012| b| \011\015\012| c|  "},
        {SPLIT_LLAMA3, "123|45| |6\302\275\340\271\227"},
        {SPLIT_LLAMA3, ".\012\012|!x| _|a|\302\240b"},
        {SPLIT_LLAMA3, "a|\302\240\343\200\200|\302\240c| \012"},
        {SPLIT_LLAMA3, "don|'t|'s|x"},
        {SPLIT_LLAMA3, " '|\305\277s"},
        {SPLIT_QWEN2, "it|'\305\277|a|'LL|x|'rE|d| '|S"},
        {SPLIT_QWEN2, " | a|\012\012| b| \011\015\012| c|  "},
        {SPLIT_QWEN2, "1|2|3|4|5| |6|\302\275|\340\271\227"},
        {SPLIT_QWEN2, ".\012\012|!x| _|a|\302\240b"},
        {SPLIT_QWEN2, "a|\302\240\343\200\200|\302\240c| \012"},
        {SPLIT_QWEN2, "don|'t|'s|x"},
        {SPLIT_QWEN2, " '|\305\277s"},
        {SPLIT_SMOLLM, "it|'|\305\277a|'|LLx|'|rEd| '|S"},
        {SPLIT_SMOLLM, " | a|\012\012| b| \011\015\012| c|  "},
        {SPLIT_SMOLLM, "1|2|3|4|5| |6|\302\275|\340\271\227"},
        {SPLIT_SMOLLM, ".|\012|\012|!|x| _|a|\302\240|b"},
        {SPLIT_SMOLLM, "a|\302\240\343\200\200|\302\240|c| \012"},
        {SPLIT_SMOLLM, "don|'t|'s|x"},
        {SPLIT_SMOLLM, " '|\305\277s"},
    };
    struct Unicode u;
    unicode_open(&u);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *text = base_format("%s", rows[i].words), *got = base_format("%s", "");
        size_t n = 0;
        for (const char *p = rows[i].words; *p; p++)
            if (*p != '|')
                text[n++] = *p;
        struct Split s = split_begin(&u, rows[i].kind, (const uint8_t *)text, n);
        const uint8_t *word;
        while ((word = split_next(&s, &n))) {
            char *longer =
                base_format("%s%s%.*s", got, *got ? "|" : "", (int)n, (const char *)word);
            free(got);
            got = longer;
        }
        assert_string_equal(got, rows[i].words);
        free(got);
        free(text);
    }
    unicode_close(&u);
}

// ---- threads ----

static int append(void *all, const struct Ids *ids, size_t done, struct Error *e) {
    (void)done, (void)e;
    for (size_t i = 0; i < ids->count; i++)
        ids_append(all, ids->data[i]);
    return 0;
}

// All texts of the fixtures, over and over with a line's end behind each, of some 5 MB.
static char *large_text(size_t *n) {
    size_t bytes, room = 5 << 20, at = 0;
    char *strings = scratch_read(FIXTURES, "strings.bin", &bytes),
         *text = base_alloc(room + (1 << 16));
    const char *s = strings;
    while (at < room) {
        memcpy(text + at, s + 2, count_at(s));
        at += count_at(s);
        text[at++] = '\n';
        s += 2 + count_at(s);
        if (s == strings + bytes)
            s = strings;
    }
    free(strings);
    *n = at;
    return text;
}

TEST(threads_change_no_id) {
    size_t n;
    char *text = large_text(&n);
    for (int k = 0; k < NAMES; k++) {
        struct Tokenizer *t = open_fixture(names[k]);
        struct Ids whole = {0};
        encode(t, text, n, &whole);
        for (size_t threads = 1; threads <= 5; threads += 4) {
            struct Ids ids = {0};
            struct Error e;
            assert_ok(tokenizer_encode_text(t, text, n, threads, append, &ids, &e), &e);
            size_t first = tokenizer_begin(t) >= 0;
            if (first)
                assert_int_equal(ids.data[0], tokenizer_begin(t));
            assert_int_equal(ids.count - first, whole.count);
            assert_memory_equal(ids.data + first, whole.data, whole.count * sizeof *ids.data);
            ids_free(&ids);
        }
        ids_free(&whole);
        tokenizer_close(t);
    }
    free(text);
}

// At every place where a text may be cut, both parts have the ids of the whole.
TEST(cuts_change_no_id) {
    size_t n, cuts = 0;
    char *text = large_text(&n);
    struct Error e;
    n = 3000;
    while (((uint8_t)text[n] & 0xc0) == 0x80)
        n--;
    for (int k = 1; k < NAMES; k++) { // gpt2's has a token that takes white space: it is not cut
        struct Tokenizer *t = open_fixture(names[k]);
        struct BpeWork *work = tokenizer_work_open(t);
        struct Ids whole = {0}, parts = {0};
        encode(t, text, n, &whole);
        for (size_t wanted = 1; wanted < n; wanted++) {
            size_t cut = tokenizer_cut(t, text, n, wanted);
            if (cut != wanted)
                continue;
            cuts++;
            parts.count = 0;
            assert_ok(tokenizer_encode_part(t, work, &(struct TextPart){text, cut, n - cut, 0},
                                            &parts, &e),
                      &e);
            assert_ok(tokenizer_encode_part(
                          t, work, &(struct TextPart){text + cut, n - cut, 0, cut}, &parts, &e),
                      &e);
            if (parts.count != whole.count ||
                memcmp(parts.data, whole.data, whole.count * sizeof *whole.data))
                fail_msg("%s: a cut at %zu changes ids", names[k], cut);
        }
        ids_free(&whole);
        ids_free(&parts);
        bpe_work_close(work);
        tokenizer_close(t);
    }
    assert_true(cuts > 300);
    free(text);
}

// ---- text and back ----

static size_t put_point(char *at, uint32_t c) {
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        at[i] = (char)(0x80 | (c & 0x3f));
    at[0] = (char)(n == 1 ? c : (0xf00u >> n & 0xffu) | c);
    return n;
}

TEST(every_character_comes_back) {
    char *text = base_alloc(4 * UNICODE_POINTS);
    size_t n = 0, got_n;
    for (uint32_t c = 0; c < UNICODE_POINTS; c++)
        n += c >= 0xd800 && c < 0xe000 ? 0 : put_point(text + n, c);
    for (int k = 1; k < NAMES; k += 2) { // gpt2's strips, qwen2's composes
        struct Tokenizer *t = open_fixture(names[k]);
        struct Ids ids = {0};
        encode(t, text, n, &ids);
        char *got = tokenizer_decode(t, ids.data, ids.count, &got_n);
        assert_int_equal(got_n, n);
        assert_memory_equal(got, text, n);
        free(got);
        ids_free(&ids);
        tokenizer_close(t);
    }
    free(text);
}

TEST(text_that_is_none_is_refused) {
    struct Tokenizer *t = open_fixture("llama3");
    struct Ids ids = {0};
    struct Error e;
    assert_error(tokenizer_encode(t, "ab\xff", 3, &ids, &e), -EINVAL, &e, "E_UTF8 byte 2");
    assert_error(tokenizer_encode_plain(t, "\xe2\x82", 2, &ids, &e), -EINVAL, &e, "E_UTF8 byte 0");
    assert_int_equal(ids.count, 0);
    tokenizer_close(t);
}

// ---- control tokens ----

static void check_ends(const char *name, const char *begin, const char *end, bool template) {
    struct Tokenizer *t = open_fixture(name);
    assert_int_equal(tokenizer_begin(t), begin ? tokenizer_control(t, begin) : -1);
    assert_int_equal(tokenizer_end(t), tokenizer_control(t, end));
    assert_true(tokenizer_end(t) >= 0);
    assert_int_equal(tokenizer_control(t, "<nobody>"), -1);
    assert_int_equal(tokenizer_control(t, "e"), -1);
    assert_int_equal(tokenizer_chat_template(t) != NULL, template);
    if (template)
        assert_non_null(strstr(tokenizer_chat_template(t), "<|im_start|>"));
    tokenizer_close(t);
}

TEST(texts_begin_and_end_as_the_files_say) {
    check_ends("gpt2", NULL, "<|endoftext|>", false);
    check_ends("llama3", "<|begin_of_text|>", "<|eot_id|>", false);
    check_ends("qwen2", NULL, "<|im_end|>", true);
    check_ends("smollm", NULL, "<|im_end|>", true);
}

TEST(what_people_wrote_has_no_control_token) {
    static const char text[] = "a<|im_end|>b<tool_call>";
    struct Tokenizer *t = open_fixture("qwen2");
    struct Ids ids = {0};
    struct Error e;
    size_t controls = 0, calls = 0;
    encode(t, text, sizeof text - 1, &ids);
    assert_int_equal(ids.count, 4);
    assert_int_equal(ids.data[1], tokenizer_control(t, "<|im_end|>"));
    int32_t call = ids.data[3];
    assert_int_equal(tokenizer_control(t, "<tool_call>"), -1); // an added token, and not special
    ids.count = 0;
    assert_ok(tokenizer_encode_plain(t, text, sizeof text - 1, &ids, &e), &e);
    for (size_t i = 0; i < ids.count; i++) {
        controls += ids.data[i] == tokenizer_control(t, "<|im_end|>");
        calls += ids.data[i] == call;
    }
    assert_int_equal(controls, 0);
    assert_int_equal(calls, 1);
    size_t n;
    char *back = tokenizer_decode(t, ids.data, ids.count, &n);
    assert_string_equal(back, text);
    free(back);
    ids_free(&ids);
    tokenizer_close(t);
}

// At the first place where any token begins, the longest is found.
TEST(the_longest_added_token_is_found) {
    static char texts[][6] = {"<a", "<a>", "<a>bc", "b"};
    static const char text[] = "x<a>bd<a<a>bcb";
    static const size_t begins[] = {1, 4, 6, 8, 13}, found[] = {1, 3, 0, 2, 3};
    struct Added tokens[4] = {0};
    struct AddedSet set;
    for (size_t i = 0; i < 4; i++)
        tokens[i] = (struct Added){.text = texts[i], .bytes = strlen(texts[i]), .id = (int32_t)i};
    added_sort(&set, tokens, 4, false);
    size_t from = 0, begin;
    for (size_t i = 0; i < 5; i++) {
        const struct Added *a =
            added_find(&set, (const uint8_t *)text, sizeof text - 1, from, &begin);
        assert_ptr_equal(a, &tokens[found[i]]);
        assert_int_equal(begin, begins[i]);
        from = begin + a->bytes;
    }
    assert_null(added_find(&set, (const uint8_t *)text, sizeof text - 1, from, &begin));
    added_free(&set);
}

// ---- what is refused ----

// The fixture's file with `old` replaced once by `new`.
static void refuse(const char *name, const char *old, const char *new, const char *part) {
    char *file = base_format("%s/tokenizer.json", name);
    size_t n;
    char *text = scratch_read(FIXTURES, file, &n);
    size_t before = 0;
    while (before < n && strncmp(text + before, old, strlen(old)))
        before++;
    if (before == n)
        fail_msg("%s has no %s", file, old);
    char *changed = base_format("%.*s%s%s", (int)before, text, new, text + before + strlen(old));
    struct Bpe b;
    struct Error e = {0};
    assert_error(bpe_parse(&b, changed, strlen(changed), "x.json", &e), -EINVAL, &e, part);
    assert_null(b.piece);
    free(changed);
    free(text);
    free(file);
}

TEST(what_is_not_built_is_refused) {
    refuse("gpt2", "\"BPE\"", "\"Unigram\"", "E_BPE_UNSUPPORTED model \"Unigram\"");
    refuse("gpt2", "\"BPE\"", "\"WordPiece\"", "E_BPE_UNSUPPORTED model \"WordPiece\"");
    refuse("gpt2", "\"dropout\":null", "\"dropout\":0.5", "E_BPE_UNSUPPORTED");
    refuse("gpt2", "\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"",
           "E_BPE_UNSUPPORTED end_of_word_suffix");
    refuse("gpt2", "\"single_word\":false", "\"single_word\":true", "E_BPE_ADDED_TOKEN");
    refuse("gpt2", "\"normalizer\":null", "\"normalizer\":{\"type\":\"Lowercase\"}",
           "E_BPE_UNSUPPORTED normalizer \"Lowercase\"");
    refuse("gpt2", "\"post_processor\":{\"type\":\"ByteLevel\"",
           "\"post_processor\":{\"type\":\"RobertaProcessing\"",
           "E_BPE_UNSUPPORTED \"RobertaProcessing\"");
    refuse("qwen2", "\"NFC\"", "\"NFKC\"", "E_BPE_UNSUPPORTED normalizer \"NFKC\"");
    refuse("qwen2", "|\\\\p{N}|", "|\\\\p{Greek}|", "E_BPE_PATTERN (?i:'s|'t");
    refuse("qwen2", "\"Isolated\"", "\"Mirrored\"", "E_BPE_UNSUPPORTED \"Mirrored\"");
    refuse("smollm", "\"Digits\"", "\"UnicodeScripts\"", "E_BPE_UNSUPPORTED \"UnicodeScripts\"");
    refuse("smollm", "\"Digits\"", "\"ByteLevel\"", "E_BPE_UNSUPPORTED");
    refuse("gpt2", "\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"CTC\"",
           "E_BPE_UNSUPPORTED decoder \"CTC\"");
    refuse("llama3", "{\"Sequence\":{\"id\":\"A\"",
           "{\"SpecialToken\":{\"id\":\"<|begin_of_text|>\"", "E_BPE_TEMPLATE");
}

TEST(what_is_broken_is_refused) {
    refuse("gpt2", "\"!\":0", "\"!\":1", "E_BPE_VOCAB");
    refuse("gpt2", "\"!\":0,", "", "E_BPE_VOCAB");
    refuse("gpt2", "\"#\":", "\"!\":", "E_BPE_VOCAB");
    refuse("gpt2", "\"merges\":[\"", "\"merges\":[\"q ", "E_BPE_MERGES merges[0]");
    refuse("gpt2", "\"merges\":[\"", "\"merges\":[7,\"", "E_BPE_MERGES merges[0]");
    refuse("llama3", "\"merges\":[[", "\"merges\":[[\"a\",", "E_BPE_MERGES merges[0]");
    refuse("gpt2", "\"id\":597", "\"id\":700", "E_BPE_ADDED_TOKEN than 597");
    refuse("gpt2", "<mask>", "<|endoftext|>", "E_BPE_ADDED_TOKEN");
    refuse("gpt2", "\"content\":\"<mask>\"", "\"content\":\"\"", "E_BPE_ADDED_TOKEN");
    refuse("gpt2", "<mask>", "a\\u0000b", "E_ZERO_BYTE");
    refuse("gpt2", "\"version\"", "version", "E_JSON_SYNTAX");
    refuse("gpt2", "<mask>", "\xe2\x82", "E_UTF8");
    refuse("gpt2", "\"vocab\"", "\"words\"", "E_BPE_VOCAB");
    refuse("qwen2", "\"Regex\"", "\"Rex\"", "E_BPE_STEP");
}

// Its tokenizer.json goes before its tokenizer.model, as in transformers.
TEST(a_folder_stands_for_its_tokenizer) {
    char *folder = scratch_make();
    struct TokenizerSpec spec;
    struct Error e;
    struct Tokenizer *t;
    assert_ok(tokenizer_parse(&spec, folder, &e), &e);
    assert_error(tokenizer_open_spec(&t, &spec, &e), -ENOENT, &e, "E_FILE_READ tokenizer.json");
    char *model = scratch_write(folder, "tokenizer.model", "x", 1);
    char *file = tokenizer_file(&spec);
    assert_string_equal(file, model);
    assert_ok(tokenizer_parse(&spec, folder, &e), &e);
    assert_int_equal(spec.kind, TOKENIZER_MODEL);
    char *json = scratch_write(folder, "tokenizer.json", "{}", 2);
    assert_ok(tokenizer_parse(&spec, folder, &e), &e);
    assert_int_equal(spec.kind, TOKENIZER_JSON);
    assert_error(tokenizer_open_spec(&t, &spec, &e), -EINVAL, &e,
                 "E_BPE_UNSUPPORTED tokenizer.json: model");
    free(file);
    free(model);
    free(json);
    scratch_remove(folder);
}
