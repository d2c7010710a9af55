// The shapes that data sets come in: each gives the ids of apply_chat_template, and tasks without a
// template those of Alpaca's prompt. The expected values are in tests/fixtures/shapes, made with
// transformers by scripts/shape_fixtures.py.
#include "tests/lib/chat_fixture.h"
#include "tests/lib/examples_text.h"

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

static bool check_file(struct Fixture *f, const char *name, const char *ending, const char *form) {
    struct Toy toy = chat_form(f, "chatml")->toy;
    struct ChatSpec chat = {.name = strcmp(form, "none") ? form : NULL};
    char *expected = expected_of(name, form), *all = base_format("%s", "");
    char *path = base_format(SHAPES "%s.%s", name, ending);
    struct Error e = {{0}};
    bool any = *expected != 0;
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

static void each_shape_gives_what_transformers_gives(void **state) {
    size_t rendered = 0, plain = 0;
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        rendered += check_file(*state, shapes[i].name, "jsonl", "chatml");
        plain += check_file(*state, shapes[i].name, "jsonl", "none");
    }
    assert_int_equal(rendered, SHAPE_COUNT);
    assert_int_equal(plain, 5);
}

// Reads lines of one kind each with chatml, and returns what was logged; free() it.
static char *logged(struct Fixture *f, const char *lines, const char *map) {
    struct Toy toy = chat_form(f, "chatml")->toy;
    unsigned told = 0;
    toy.merges = 0;
    struct ChatSpec chat = {.name = "chatml", .map = map, .told = &told};
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

static void the_shape_is_told_with_its_first_example(void **state) {
    struct Fixture *f = *state;
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        char *path = base_format(SHAPES "%s.jsonl", shapes[i].name), *line = NULL;
        char *start = base_format("--data %s/told.jsonl: %s, by the chat template chatml; line 1, ",
                                  f->folder, shapes[i].told);
        size_t room = 0;
        FILE *file = open_fixture(path);
        assert_true(getline(&line, &room, file) > 1);
        fclose(file);
        char *log = logged(f, line, NULL);
        if (strncmp(log, start, strlen(start)) != 0 || strchr(log, '\n') != log + strlen(log) - 1)
            fail_msg("%s: expected %s", log, start);
        free(log);
        free(line);
        free(start);
        free(path);
    }
    // Each kind once, whatever stands in an example; bytes that no line has are shown as others.
    char *log = logged(f,
                       "{\"text\": \"a\\n\\u001b[1m\\u00e9\"}\n{\"text\": \"b\"}\n\n"
                       "{\"prompt\": \"c\", \"completion\": \"d\"}\n",
                       NULL);
    assert_non_null(strstr(log, ": text; line 1, 9 tokens of which 8 count: \"a\\n?[1m\u00e9\"\n"));
    assert_non_null(
        strstr(log, ": prompt and completion; line 4, 3 tokens of which 2 count: \"cd\"\n"));
    assert_null(strstr(log, "\"b\""));
    free(log);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_shape_gives_what_transformers_gives),
        cmocka_unit_test(the_shape_is_told_with_its_first_example),
    };
    return cmocka_run_group_tests(tests, chat_set_up, chat_tear_down);
}
