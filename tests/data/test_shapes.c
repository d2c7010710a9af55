// The shapes that data sets come in: each gives the ids of apply_chat_template, and tasks without a
// template those of Alpaca's prompt. The expected values are in tests/fixtures/shapes, made with
// transformers by scripts/gen/shape_fixtures.py.
#include "tests/lib/chat_fixture.h"
#include "tests/lib/examples_text.h"
#include "tests/lib/refused.h"
#include "tests/lib/test.h"

#define SHAPES "tests/fixtures/shapes/"

static const struct {
    const char *name, *told; // how the log calls it
} shapes[] = {{"alpaca", "instruction and output (Alpaca)"},
              {"dolly", "instruction and response (Dolly)"},
              {"prompt_response", "prompt and response"},
              {"question_answer", "question and answer"},
              {"openorca", "question and response (OpenOrca)"},
              {"sharegpt", "conversations (ShareGPT)"},
              {"sharegpt_roles", "conversations (ShareGPT)"},
              {"messages", "messages"},
              {"prompt_messages", "prompt and completion of messages"},
              {"ultrachat", "messages"},
              {"parts", "messages"},
              {"developer", "messages"},
              {"system_beside", "conversations (ShareGPT)"}};
enum { SHAPE_COUNT = sizeof shapes / sizeof shapes[0] };

// The expected examples of a shape in a form, as examples_text has them; empty: there are none.
static char *expected_of(const char *name, const char *form) {
    FILE *f = open_fixture(SHAPES "expected.txt");
    char *line = NULL, *all = base_format("%s", ""), *begin = base_format("%s %s ", name, form);
    size_t room = 0;
    while (getline(&line, &room, f) > 1) {
        if (strncmp(line, begin, strlen(begin)) != 0)
            continue;
        line[strcspn(line, "\n")] = 0;
        char *longer = base_format("%s%s|", all, line + strlen(begin));
        free(all);
        all = longer;
    }
    fclose(f);
    free(line);
    free(begin);
    return all;
}

// `packed`: through gzip.
static bool check_file(struct Fixture *f, const char *name, const char *ending, const char *form,
                       bool packed) {
    struct Toy toy = chat_form(f, "chatml")->toy;
    struct ChatSpec chat = {.name = strcmp(form, "none") ? form : NULL};
    char *expected = expected_of(name, form), *all = base_format("%s", "");
    char *path = base_format(SHAPES "%s.%s", name, ending);
    struct Error e = {0};
    bool any = *expected != 0;
    if (packed) {
        char *gz = base_format("%s/%s.%s.gz", f->folder, name, ending);
        char *command = base_format("gzip -c %s >%s", path, gz);
        assert_int_equal(system(command), 0);
        free(command);
        free(path);
        path = gz;
    }
    if (any &&
        examples_read(path, "--data", toy_tokenizer(&toy), &chat, examples_text_take, &all, &e))
        fail_msg("%s", e.text);
    if (any)
        assert_string_equal(all, expected);
    free(path);
    free(all);
    free(expected);
    return any;
}

TEST(each_shape_gives_what_transformers_gives) {
    size_t rendered = 0, plain = 0;
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        rendered += check_file(*state, shapes[i].name, "jsonl", "chatml", false);
        plain += check_file(*state, shapes[i].name, "jsonl", "none", false);
    }
    assert_int_equal(rendered, SHAPE_COUNT);
    assert_int_equal(plain, 5);
}

TEST(a_list_gives_what_lines_give) {
    size_t rendered = 0;
    for (size_t i = 0; i < SHAPE_COUNT; i++)
        rendered += check_file(*state, shapes[i].name, "json", "chatml", false);
    assert_int_equal(rendered, SHAPE_COUNT);
}

TEST(both_may_be_packed) {
    size_t rendered = 0;
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        rendered += check_file(*state, shapes[i].name, "jsonl", "chatml", true);
        rendered += check_file(*state, shapes[i].name, "json", "chatml", true);
    }
    assert_int_equal(rendered, 2 * SHAPE_COUNT);
}

static const struct {
    const char *file, *ids, *error;
} lists[] = {
    {"[{\"text\": \"a\"},{\"text\":\"b\"}]", "97* 601*|98* 601*|", NULL},
    {" [\n{\"text\"\n:\"a]}\\\"[\"\n} \r\n,\t{\"x\": [[{}], 1, null], \"text\": \"b\"} ] \n ",
     "97* 93* 125* 34* 91* 601*|98* 601*|", NULL},
    {"{\"text\": \"a\"}\n\n{\"text\":\n\"b\"}{\"text\":\"c\"}", "97* 601*|98* 601*|99* 601*|",
     NULL},
    {"[]", "", "E_EXAMPLES_NONE"},
    {"[{\"text\": \"a\"}", "97* 601*|", "E_JSON_SYNTAX byte 15 (line 1"},
    {"[\n", "", "E_JSON_SYNTAX byte 3 (line 2"},
    {"[{\"text\": \"a\"}\n,\n{\"text\": \"b", "97* 601*|", "E_JSON_SYNTAX element 2 (line 3"},
    {"[{\"text\": \"a\"},]", "97* 601*|", "E_JSON_SYNTAX byte 16 (line 1"},
    {"[,{\"text\": \"a\"}]", "", "E_JSON_SYNTAX element 1 (line 1"},
    {"[{\"text\": \"a\"} {\"text\": \"b\"}]", "97* 601*|", "E_JSON_SYNTAX byte 16 (line 1"},
    {"[{\"text\": \"a\"}]\n[]", "97* 601*|", "E_JSON_SYNTAX byte 17 (line 2"},
    {"[{\"text\": \"a\"}, 5, {\"text\": \"b\"}]", "97* 601*|", "E_JSON_SYNTAX element 2 (line 1"},
    {"[{\"text\": \"a\"}, [1]]", "97* 601*|", "E_JSON_SYNTAX element 2 (line 1"},
    {"{\"text\": \"a\"}, {\"text\": \"b\"}", "97* 601*|", "E_JSON_SYNTAX value 2 (line 1"},
    {"{\"text\": \"a\"]", "", "E_JSON_SYNTAX value 1 (line 1"},
    {"{\"text\": \"a\"}]", "97* 601*|", "E_JSON_SYNTAX value 2 (line 1"},
    {"\xef\xbb\xbf[{\"text\": \"a\"}]", "97* 601*|", NULL},
    {"\xef\xbb\xbf", "", "E_EXAMPLES_NONE"},
};

TEST(a_list_is_read_strictly) {
    struct Fixture *f = *state;
    struct Toy toy = chat_form(f, "chatml")->toy;
    struct ChatSpec chat = {0};
    toy.merges = 0;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        char *path = scratch_write(f->folder, "x.json", lists[i].file, strlen(lists[i].file));
        expect_examples(path, toy_tokenizer(&toy), &chat, lists[i].ids, lists[i].error);
        free(path);
    }
}

// Elements are read across the pieces that the file comes in, and no longer than lines may be.
TEST(a_long_element_is_read_whole) {
    struct Fixture *f = *state;
    struct Toy toy = chat_form(f, "chatml")->toy;
    struct ChatSpec chat = {0};
    enum { LONG = 700000 };
    char *list = base_alloc(LONG + 100), *all = base_format("%s", "");
    size_t n = (size_t)sprintf(list, "[{\"text\": \"a\", \"x\": [\"\\\"");
    memset(list + n, '{', LONG); // inside of a text
    n += LONG;
    n += (size_t)sprintf(list + n, "\"]}, {\"text\": 1}]");
    char *path = scratch_write(f->folder, "long.json", list, n);
    struct Error e;
    assert_int_equal(
        examples_read(path, "--data", toy_tokenizer(&toy), &chat, examples_text_take, &all, &e),
        -EINVAL);
    assert_true(error_is(&e, "E_EXAMPLE_TYPE element 2 (line 1"));
    assert_true(error_is(&e, "E_EXAMPLE_TYPE \"text\""));
    assert_string_equal(all, "97* 601*|");
    assert_int_equal(truncate(path, 3), 0);
    assert_int_equal(truncate(path, 65 << 20), 0);
    assert_int_equal(
        examples_read(path, "--data", toy_tokenizer(&toy), &chat, examples_text_take, &all, &e),
        -EFBIG);
    assert_true(error_is(&e, "E_LINE_TOO_LONG element 1 (line 1"));
    free(all);
    free(list);
    free(path);
}

// Reads lines in a form and returns what was logged; free() it. `end`: the tokenizer's own.
static char *logged_in(struct Fixture *f, const char *form, bool end, const char *lines) {
    struct Toy toy = chat_form(f, form)->toy;
    unsigned told = 0;
    toy.merges = 0;
    toy.end = end ? toy.end : -1;
    struct ChatSpec chat = {.name = form, .logged = &told};
    char *path = scratch_write(f->folder, "told.jsonl", lines, strlen(lines));
    char *log = base_format("%s/log", f->folder), *text = base_alloc_zeroed(4096);
    char *all = base_format("%s", "");
    struct Error e;
    int kept = dup(2);
    assert_non_null(freopen(log, "w", stderr));
    int err =
        examples_read(path, "--data", toy_tokenizer(&toy), &chat, examples_text_take, &all, &e);
    fflush(stderr);
    dup2(kept, 2);
    close(kept);
    assert_ok(err, &e);
    FILE *file = fopen(log, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, 4095, file) < 4095);
    fclose(file);
    free(path);
    free(log);
    free(all);
    return text;
}

static char *logged(struct Fixture *f, const char *lines) {
    return logged_in(f, "chatml", true, lines);
}

TEST(the_shape_is_told_with_its_first_example) {
    struct Fixture *f = *state;
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        char *path = base_format(SHAPES "%s.jsonl", shapes[i].name), *line = NULL;
        char *start = base_format("--data %s/told.jsonl: %s, by the chat template chatml; line 1, ",
                                  f->folder, shapes[i].told);
        size_t room = 0;
        FILE *file = open_fixture(path);
        assert_true(getline(&line, &room, file) > 1);
        fclose(file);
        char *log = logged(f, line);
        if (strncmp(log, start, strlen(start)) != 0 || strchr(log, '\n') != log + strlen(log) - 1)
            fail_msg("%s: expected %s", log, start);
        free(log);
        free(line);
        free(start);
        free(path);
    }
    // Each kind once, whatever stands in an example; bytes that no line has are shown as others.
    char *log = logged(f, "{\"text\": \"a\\n\\u001b[1m\\u00e9\"}\n{\"text\": \"b\"}\n\n"
                          "{\"prompt\": \"c\", \"completion\": \"d\"}\n");
    assert_non_null(strstr(log, ": text; line 1, 9 tokens of which 8 count: \"a\\n?[1m\u00e9\"\n"));
    assert_non_null(
        strstr(log, ": prompt and completion; line 4, 3 tokens of which 2 count: \"cd\"\n"));
    assert_null(strstr(log, "\"b\""));
    free(log);
}

static const struct {
    const char *form, *lines, *told; // NULL: nothing
    bool end;
} endless[] = {
    // Answers end in <|im_end|> there, and texts in <|endoftext|>.
    {"qwen2.5-base",
     "{\"text\": \"<|im_start|>user\\nq<|im_end|>\\n<|im_start|>assistant\\na<|im_end|>\\n\"}\n"
     "{\"text\": \"<|im_start|>user\\nq\\n<|im_start|>assistant\\na\"}\n"
     "{\"text\": \"<|im_start|>user\\nq<|im_end|>\\n<|im_start|>assistant\\na<|im_end|> b\"}\n"
     "{\"text\": \"no chat\"}\n{\"text\": \"<|im_start|>a<|endoftext|>\"}\n"
     "{\"prompt\": \"<|im_start|>a<|im_end|>\", \"completion\": \"b<|im_end|>\"}\n",
     "2 of 6 texts (line 2 is the first) are chats that do not end in the token that ends an "
     "answer: a model that learns from them may not stop",
     true},
    {"qwen2.5-base", "{\"text\": \"no chat\"}\n{\"text\": \"a<|im_end|>\"}\n", NULL, true},
    {"chatml", "{\"text\": \"<|im_start|>a\"}\n", NULL, true}, // it is added
    {"chatml", "{\"text\": \"a<|im_end|>\"}\n{\"prompt\": \"a\", \"completion\": \"b\"}\n",
     "1 of 2 texts (line 2 is the first) have no end token, as the tokenizer has none", false},
    {"chatml", "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}\n", NULL, false},
};

TEST(texts_without_an_end_are_told) {
    for (size_t i = 0; i < sizeof endless / sizeof endless[0]; i++) {
        char *log = logged_in(*state, endless[i].form, endless[i].end, endless[i].lines);
        bool said = strstr(log, "may not stop") != NULL;
        if (said != (endless[i].told != NULL) || (endless[i].told && !strstr(log, endless[i].told)))
            fail_msg("%s: expected %s", log, endless[i].told);
        free(log);
    }
}

AROUND_ALL(chat_set_up, chat_tear_down);
