// Many prompts: each has the ids of its text or its conversation, and the first line that is none
// ends it; answers stand in the order of the prompts, whatever their order, and a run that was
// killed at any byte of their file is gone on with; a file of other answers stays as it is.
#include "data/chat/answers.h"
#include "data/chat/template.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

struct Fixture {
    struct Tokenizer *t;
    char *folder, *path, *out;
};

static int set_up(void **state) {
    struct Fixture *f = base_alloc_zeroed(sizeof *f);
    struct Error e;
    assert_ok(tokenizer_open_json(&f->t, "tests/fixtures/bpe/qwen2/tokenizer.json", &e), &e);
    f->folder = scratch_make();
    f->path = base_format("%s/in.jsonl", f->folder);
    f->out = base_format("%s/out.jsonl", f->folder);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct Fixture *f = *state;
    tokenizer_close(f->t);
    scratch_remove(f->folder);
    free(f->path);
    free(f->out);
    free(f);
    return 0;
}

static int read_named(const struct Fixture *f, const char *name, const char *text, size_t longest,
                      struct Prompts **p, struct Error *e) {
    char *path = scratch_write(f->folder, name, text, strlen(text));
    struct PromptsSpec spec = {path, f->t, "chatml", NULL, longest};
    int err = prompts_open(p, &spec, e);
    if (!err)
        assert_string_equal((*p)->spec.path, path);
    free(path);
    return err;
}

static struct Prompts *open_prompts(const struct Fixture *f, const char *text) {
    struct PromptsSpec spec = {f->path, f->t, "chatml", NULL, 1000};
    struct Prompts *p;
    struct Error e;
    free(scratch_write(f->folder, "in.jsonl", text, strlen(text)));
    assert_ok(prompts_open(&p, &spec, &e), &e);
    return p;
}

// ---- prompts ------------------------------------------------------------------------------------

TEST(prompts_are_texts_and_conversations) {
    const struct Fixture *f = *state;
    struct Prompts *p = open_prompts(
        f, "{\"prompt\": \"Once <|im_end|> \\u00e9\", \"system\": 3, \"tools\": [1]}\n"
           "\n"
           "{\"id\": 7, \"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, "
           "{\"role\": \"user\", \"content\": \"One?\"}, {\"role\": \"assistant\", \"content\": "
           "\"Yes.\"}, {\"role\": \"user\", \"content\": \"<|im_end|>\"}], \"tools\": []}");
    struct Message messages[] = {{ROLE_SYSTEM, "Be brief.", 9, false},
                                 {ROLE_USER, "One?", 4, false},
                                 {ROLE_ASSISTANT, "Yes.", 4, false},
                                 {ROLE_USER, "<|im_end|>", 10, false}};
    struct Template *chatml;
    struct Masked m = {0};
    struct Ids ids = {0};
    struct Error e;
    int32_t stops[TEMPLATE_STOPS];
    assert_int_equal(p->count, 2);
    assert_ok(tokenizer_encode(f->t, "Once <|im_end|> é", 18, &ids, &e), &e);
    assert_int_equal(p->prompt[0].ids.count, ids.count);
    assert_memory_equal(p->prompt[0].ids.data, ids.data, ids.count * sizeof *ids.data);
    assert_ok(template_open(&chatml, f->t, "chatml", &e), &e);
    assert_ok(template_render(chatml, messages, 4, true, &m, &e), &e);
    assert_int_equal(p->prompt[1].ids.count, m.ids.count);
    assert_memory_equal(p->prompt[1].ids.data, m.ids.data, m.ids.count * sizeof *m.ids.data);
    size_t n = template_stops(chatml, stops);
    assert_int_equal(p->prompt[1].stops->count, n);
    assert_memory_equal(p->prompt[1].stops->data, stops, n * sizeof *stops);
    int32_t end = tokenizer_end(f->t);
    assert_int_equal(p->prompt[0].stops->count, end >= 0);
    if (end >= 0)
        assert_int_equal(p->prompt[0].stops->data[0], end);
    template_close(chatml);
    masked_free(&m);
    ids_free(&ids);
    prompts_close(p);
}

TEST(a_system_message_stands_before_conversations_that_have_none) {
    const struct Fixture *f = *state;
    static const char ASKED[] = "{\"role\": \"user\", \"content\": \"One?\"}",
                      TOLD[] = "{\"role\": \"system\", \"content\": \"Be brief.\"}";
    char *text =
        base_format("{\"messages\": [%s]}\n{\"messages\": [%s, %s]}\n{\"prompt\": \"One?\"}", ASKED,
                    TOLD, ASKED);
    struct Prompts *bare = open_prompts(f, text), *p;
    struct Error e;
    struct PromptsSpec spec = {f->path, f->t, "chatml", "Be brief.", 1000};
    assert_ok(prompts_open(&p, &spec, &e), &e);
    for (size_t i = 0; i < 3; i++) {
        const struct Ids *got = &p->prompt[i].ids, *want = &bare->prompt[i ? i : 1].ids;
        assert_int_equal(got->count, want->count);
        assert_memory_equal(got->data, want->data, want->count * sizeof *want->data);
    }
    assert_true(bare->prompt[0].ids.count < bare->prompt[1].ids.count);
    prompts_close(p);
    prompts_close(bare);
    free(text);
}

TEST(a_bad_line_is_named) {
    const struct Fixture *f = *state;
    static const struct {
        const char *line, *error;
    } rows[] = {
        {"{\"prompt\": \"a\"", "E_JSON_SYNTAX line 3: byte 15"},
        {"[1]", "E_JSON_SYNTAX line 3"},
        {"{\"prompt\": 7}", "E_PROMPTS_LINE line 3: its \"prompt\" is a number"},
        {"{\"prompt\": null}", "E_PROMPTS_LINE line 3: its \"prompt\" is null"},
        {"{\"prompt\": x}", "E_JSON_SYNTAX line 3: byte 12"},
        {"{\"prompt\": \"a\"} {}", "E_JSON_SYNTAX line 3"},
        {"{\"prompt\": \"a\xff\"}", "E_UTF8 line 3: byte 14"},
        {"{\"prompt\": \"\"}", "E_PROMPT_EMPTY line 3"},
        {"{}", "E_PROMPTS_LINE line 3: it has no \"prompt\" and no \"messages\""},
        {"{\"text\": \"a\"}", "E_PROMPTS_LINE line 3"},
        {"{\"prompt\": \"a\", \"prompt\": \"b\"}", "E_JSON_DUPLICATE_KEY line 3: \"prompt\""},
        {"{\"prompt\": \"a\", \"messages\": []}", "E_PROMPTS_LINE line 3: it has \"prompt\" and"},
        {"{\"prompt\": \"a\", \"answer\": \"b\"}", "E_PROMPTS_LINE line 3: it has \"answer\""},
        {"{\"prompt\": \"a\", \"finish_reason\": null}", "E_PROMPTS_LINE \"finish_reason\""},
        {"{\"messages\": []}", "E_PROMPTS_LINE line 3: its messages are empty"},
        {"{\"prompt\": \"a\", \"temperature\": 0}",
         "E_EXAMPLE_UNSUPPORTED line 3: it has \"temperature\", but"},
        {"{\"body\": {\"prompt\": \"a\", \"max_tokens\": 9}}",
         "E_EXAMPLE_UNSUPPORTED line 3: it has \"max_tokens\", but"},
        {"{\"prompt\": \"a\", \"stop\": [\"b\"]}", "E_EXAMPLE_UNSUPPORTED line 3: it has \"stop\""},
        {"{\"body\": {\"body\": {\"prompt\": \"a\"}}}", "E_PROMPTS_LINE line 3: it has no"},
        {"{\"prompt\": \"a\", \"body\": {\"prompt\": \"b\"}}", "E_JSON_DUPLICATE_KEY line 3"},
        {"{\"body\": {\"prompt\": \"a\"}", "E_JSON_SYNTAX line 3: byte 25"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
         "\"content\": \"b\"}]}",
         "E_PROMPTS_LINE line 3: its messages end with the role assistant"},
        {"{\"messages\": [{\"role\": \"nobody\", \"content\": \"a\"}]}", "E_MESSAGE_ROLE line 3"},
        {"{\"messages\": [{\"role\": \"user\"}]}", "E_MESSAGE_MEMBER line 3"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{}]}",
         "E_EXAMPLE_UNSUPPORTED line 3: it has \"tools\""},
        {"{\"system\": \"b\", \"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
         "E_EXAMPLE_UNSUPPORTED line 3: it has \"system\""},
    };
    struct Prompts *p;
    struct Error e;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = base_format("{\"prompt\": \"a\"}\n\n%s\n{\"prompt\": \"b\"}\n", rows[i].line);
        int err = read_named(f, "bad.jsonl", text, 1000, &p, &e);
        if (err != -EINVAL || !error_is(&e, rows[i].error) || !strstr(e.text, "--prompts "))
            fail_msg("%s: %d: %s [%s]", rows[i].line, err, e.text, error_name(e.id));
        assert_null(p);
        free(text);
    }
    assert_error(read_named(f, "bad.jsonl", "\n\n", 1000, &p, &e), -EINVAL, &e,
                 "E_EXAMPLES_NONE --prompts");
    struct PromptsSpec spec = {"/nowhere.jsonl", f->t, "chatml", NULL, 1000};
    assert_error(prompts_open(&p, &spec, &e), -ENOENT, &e, "E_FILE_READ --prompts /nowhere.jsonl");
    spec = (struct PromptsSpec){f->folder, f->t, "nobody", NULL, 1000};
    assert_error(prompts_open(&p, &spec, &e), -EINVAL, &e, "E_CHAT_TEMPLATE nobody");
}

// Members that mean nothing, or are empty, may stand there; a batch of OpenAI's has all in "body".
TEST(a_batch_of_openais_is_read) {
    const struct Fixture *f = *state;
    struct Prompts *p = open_prompts(
        f, "{\"messages\": [{\"role\": \"user\", \"content\": \"One?\"}]}\n"
           "{\"custom_id\": \"a\", \"url\": \"/v1\", \"body\": {\"model\": \"m\", \"max_tokens\": "
           "null, "
           "\"stop\": [], \"messages\": [{\"role\": \"user\", \"content\": \"One?\"}]}, \"n\": 1}\n"
           "{\"prompt\": \"One?\", \"body\": \"a text\"}");
    const struct Ids *a = &p->prompt[0].ids, *b = &p->prompt[1].ids;
    assert_int_equal(p->count, 3);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->data, b->data, a->count * sizeof *a->data);
    prompts_close(p);
}

TEST(a_prompt_leaves_room_for_an_answer) {
    const struct Fixture *f = *state;
    static const char text[] = "{\"prompt\": \"One, two, three and four\"}";
    struct Prompts *p;
    struct Error e;
    assert_ok(read_named(f, "a.jsonl", text, 1000, &p, &e), &e);
    size_t n = p->prompt[0].ids.count;
    prompts_close(p);
    assert_ok(read_named(f, "a.jsonl", text, n + 1, &p, &e), &e);
    prompts_close(p);
    char *error = base_format("E_PROMPT_TOO_LONG line 1: it has %zu tokens, but the model sees at "
                              "most %zu",
                              n, n);
    assert_error(read_named(f, "a.jsonl", text, n, &p, &e), -EINVAL, &e, error);
    free(error);
}

// ---- answers ------------------------------------------------------------------------------------

static const char three[] = "{\"prompt\": \"A\", \"id\": 12345678901234567890}\n"
                            " {\"x\":{\"a\":[1]},\"prompt\":\"\\u0042\" }\r\n"
                            "\n"
                            "{\"prompt\":\"C\"}";
static const char answered[] =
    "{\"prompt\": \"A\", \"id\": 12345678901234567890,\"answer\":\"Ä \\\"1\\\"\\n\","
    "\"finish_reason\":\"stop\"}\n"
    "{\"x\":{\"a\":[1]},\"prompt\":\"\\u0042\" ,\"answer\":\"\",\"finish_reason\":\"length\"}\n"
    "{\"prompt\":\"C\",\"answer\":\"\xef\xbf\xbd\\u0001\xef\xbf\xbd\",\"finish_reason\":\"stop\"}"
    "\n";
static const struct {
    const char *text;
    size_t bytes;
    bool cut;
} answers[] = {{"Ä \"1\"\n", 7, false}, {"", 0, true}, {"\xff\x01\0", 3, false}};

static struct Answers *open_answers(const struct Fixture *f, const struct Prompts *p) {
    struct Answers *a;
    struct Error e;
    assert_ok(answers_open(&a, p, f->out, &e), &e);
    return a;
}

static int put(struct Answers *a, size_t i, struct Error *e) {
    return answers_put(a, i, answers[i].text, answers[i].bytes, answers[i].cut, e);
}

static void close_answers(struct Answers *a) {
    struct Error e;
    assert_ok(answers_close(a, &e), &e);
}

// The file of answers has the first so many lines of what is expected, and nothing else.
static void assert_lines(const struct Fixture *f, size_t lines) {
    size_t bytes, n = 0;
    char *text = scratch_read(f->folder, "out.jsonl", &bytes);
    for (; lines; lines--)
        n = (size_t)(strchr(answered + n, '\n') + 1 - answered);
    if (bytes != n || memcmp(text, answered, n))
        fail_msg("'%s'", text);
    free(text);
}

TEST(answers_stand_in_the_order_of_the_prompts) {
    const struct Fixture *f = *state;
    static const size_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                        {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const size_t done[6][3] = {{1, 2, 3}, {1, 1, 3}, {0, 2, 3},
                                      {0, 0, 3}, {0, 1, 3}, {0, 0, 3}};
    struct Prompts *p = open_prompts(f, three);
    struct Error e;
    for (size_t o = 0; o < 6; o++) {
        unlink(f->out);
        struct Answers *a = open_answers(f, p);
        assert_int_equal(answers_done(a), 0);
        for (size_t i = 0; i < 3; i++) {
            assert_ok(put(a, orders[o][i], &e), &e);
            assert_int_equal(answers_done(a), done[o][i]);
            assert_lines(f, done[o][i]);
        }
        close_answers(a);
    }
    struct Answers *a = open_answers(f, p); // nothing is left to do
    assert_int_equal(answers_done(a), 3);
    close_answers(a);
    assert_lines(f, 3);
    prompts_close(p);
}

TEST(a_run_that_was_killed_is_gone_on_with) {
    const struct Fixture *f = *state;
    struct Prompts *p = open_prompts(f, three);
    struct Error e;
    for (size_t n = 0; n < sizeof answered; n++) {
        free(scratch_write(f->folder, "out.jsonl", answered, n));
        size_t lines = 0;
        for (size_t i = 0; i < n; i++)
            lines += answered[i] == '\n';
        struct Answers *a = open_answers(f, p);
        assert_int_equal(answers_done(a), lines);
        assert_lines(f, lines);
        for (size_t i = lines; i < 3; i++)
            assert_ok(put(a, i, &e), &e);
        close_answers(a);
        assert_lines(f, 3);
    }
    prompts_close(p);
}

TEST(other_files_stay_as_they_are) {
    const struct Fixture *f = *state;
    static const char *const others[] = {
        "a text without a line break",
        "a text\n",
        "\n",
        "{",
        "{\"prompt\":\"C\"}", // the prompts themselves
        "{\"prompt\":\"C\"}\n",
        "{\"prompt\":\"C\",\"answer\":7,\"finish_reason\":\"stop\"}\n",
        "{\"prompt\":\"C\",\"answer\":\"a\",\"finish_reason\":\"no\"}\n",
        "{\"prompt\":\"C\",\"answer\":\"a\",\"finish_reason\":\"stop\",\"x\":1}\n",
        "{\"prompt\":\"C\",\"answer\":\"a\"}\n",
        "{\"prompt\":\"C\",\"answer\":\"a\",\"finish_reason\":\"stop\"} {}\n",
        "{\"prompt\":\"D\",\"answer\":\"a\",\"finish_reason\":\"stop\"}\n",
        "{\"prompt\":\"D\",\"answ",
        "{\"prompt\":\"C\",\"answer\":\"a\",\"finish_reason\":\"stop\"}\n{\"prompt\":\"C\"",
    };
    struct Prompts *p = open_prompts(f, "{\"prompt\":\"C\"}");
    struct Answers *a;
    struct Error e;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        bool allowed = strcmp(others[i], "{") == 0; // it may be half a line
        free(scratch_write(f->folder, "out.jsonl", others[i], strlen(others[i])));
        int err = answers_open(&a, p, f->out, &e);
        if (allowed) {
            assert_ok(err, &e);
            close_answers(a);
            continue;
        }
        if (err != -EEXIST || !error_is(&e, "E_ANSWERS_OTHER out.jsonl"))
            fail_msg("%s: %d", others[i], err);
        assert_null(a);
        size_t bytes;
        char *text = scratch_read(f->folder, "out.jsonl", &bytes);
        assert_string_equal(text, others[i]);
        free(text);
    }
    assert_true(error_is(&e, "E_ANSWERS_OTHER it has more lines than"));
    unlink(f->out);
    prompts_close(p);
}

TEST(answers_go_into_a_regular_file_of_one_process) {
    const struct Fixture *f = *state;
    struct Prompts *p = open_prompts(f, three);
    struct Answers *a, *b;
    struct Error e;
    unlink(f->out);
    a = open_answers(f, p);
    assert_error(answers_open(&b, p, f->out, &e), -EBUSY, &e, "E_ANSWERS_BUSY out.jsonl");
    assert_ok(put(a, 0, &e), &e);
    close_answers(a);
    char *link = base_format("%s/link", f->folder), *pipe = base_format("%s/pipe", f->folder);
    assert_int_equal(symlink(f->out, link), 0);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_error(answers_open(&b, p, link, &e), -EINVAL, &e, "E_FILE_KIND it is a link");
    assert_error(answers_open(&b, p, pipe, &e), -EINVAL, &e, "E_FILE_KIND it is a pipe");
    assert_error(answers_open(&b, p, f->folder, &e), -EINVAL, &e, "E_FILE_KIND it is a folder");
    static const char *const names[] = {"-", "/nowhere/a.jsonl.gz", "a.zst"};
    for (size_t i = 0; i < 3; i++) {
        assert_error(answers_open(&b, p, names[i], &e), -EINVAL, &e, "E_FILE_KIND FILE.jsonl");
        assert_int_not_equal(access(names[i], F_OK), 0);
    }
    assert_error(answers_open(&b, p, "/nowhere/a", &e), -ENOENT, &e, "E_FILE_WRITE /nowhere/a");
    assert_lines(f, 1);
    unlink(link);
    unlink(pipe);
    free(link);
    free(pipe);
    prompts_close(p);
}

TEST(a_full_disk_leaves_no_half_line) {
    const struct Fixture *f = *state;
    struct Prompts *p = open_prompts(f, three);
    struct rlimit all, few;
    struct Error e;
    signal(SIGXFSZ, SIG_IGN);
    unlink(f->out);
    struct Answers *a = open_answers(f, p);
    assert_ok(put(a, 0, &e), &e);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    few = (struct rlimit){(rlim_t)(strchr(answered, '\n') - answered + 20), all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    int err = put(a, 1, &e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    assert_error(err, -EFBIG, &e, "E_FILE_WRITE out.jsonl");
    assert_lines(f, 1);
    assert_ok(put(a, 2, &e), &e);
    close_answers(a);
    assert_lines(f, 3);
    prompts_close(p);
}

// A list of objects that are spread over lines: each answer is one line.
TEST(prompts_may_be_a_list) {
    const struct Fixture *f = *state;
    struct Prompts *p;
    struct Answers *a;
    struct Error e;
    size_t bytes;
    assert_ok(read_named(f, "in.json",
                         "[\n {\n  \"prompt\": \"A\",\n  \"id\": 1\n },\n"
                         " {\"prompt\": \"B\"}\n]\n",
                         1000, &p, &e),
              &e);
    unlink(f->out);
    a = open_answers(f, p);
    assert_ok(answers_put(a, 0, "a", 1, false, &e), &e);
    close_answers(a);
    char *text = scratch_read(f->folder, "out.jsonl", &bytes);
    assert_string_equal(text, "{   \"prompt\": \"A\",   \"id\": 1  ,\"answer\":\"a\","
                              "\"finish_reason\":\"stop\"}\n");
    a = open_answers(f, p);
    assert_int_equal(answers_done(a), 1);
    close_answers(a);
    prompts_close(p);
    assert_error(
        read_named(f, "in.json", "[{\"prompt\": \"A\"},\n{\"prompt\": \"\"}]", 1000, &p, &e),
        -EINVAL, &e, "E_PROMPT_EMPTY element 2 (line 2)");
    free(text);
}

AROUND_ALL(set_up, tear_down);
