// Lines of chat data: what of them counts, and what is wrong with one is told with its number.
//
//   test_chat_lines FORM FILE     reads a file, for tests/data/test_chat_asked.sh
#include "tests/lib/chat_fixture.h"
#include "tests/lib/examples_text.h"

static int read_bytes(struct Fixture *f, const struct Toy *toy, const char *name, const void *bytes,
                      size_t n, char **all, struct Error *e) {
    char *path = scratch_write(f->folder, "x.jsonl", bytes, n);
    struct ChatSpec chat = {.name = name};
    *all = base_format("%s", "");
    int err = examples_read(path, "--data", toy_tokenizer(toy), &chat, examples_text_take, all, e);
    free(path);
    return err;
}

static void texts_and_completions_count_as_they_should(void **state) {
    struct Fixture *f = *state;
    struct Toy toy = chat_form(f, "mistral-v1")->toy; // <s> 600, </s> 601
    toy.merges = 0;
    const char *lines = "{\"text\": \"ab\", \"id\": [1, {\"a\": null}], \"prompt\": null}\n"
                        "\n \t\r\n"
                        "{\"prompt\": \"a\", \"completion\": \"b\"}\r\n"
                        "{\"prompt\": \"a</s>\", \"completion\": \"\"}\n"
                        "{\"text\": \"<s>\\u00e9\\ud83d\\ude42</s>\"}";
    const char *expected = "600* 97* 98* 601*|600 97 98* 601*|600 97 601 601*|"
                           "600* 195* 169* 240* 159* 153* 130* 601*|";
    struct Error e;
    char *all;
    assert_ok(read_bytes(f, &toy, NULL, lines, strlen(lines), &all, &e), &e);
    assert_string_equal(all, expected);
    free(all);
    toy.begin = toy.end = -1;
    lines = "{\"text\": \"ab\"}\n{\"prompt\": \"a\", \"completion\": \"\"}";
    assert_int_equal(read_bytes(f, &toy, NULL, lines, strlen(lines), &all, &e), -EINVAL);
    assert_string_equal(all, "97* 98*|");
    assert_non_null(strstr(e.text, "line 2: nothing of it counts: the answer is empty"));
    free(all);
}

static const struct {
    const char *lines, *error, *form;
} bad[] = {
    {"{\"text\": \"a\"}\n{\"text\": \"a\"\n", "line 2: byte 13: expected , or }", NULL},
    {"{\"text\": \"a", "line 1: byte 12: the line ends inside a text", NULL},
    {"{\"text\": 'a'}", "line 1: byte 10: a value is none of JSON's", NULL},
    {"\n\n[1]\n", "line 3: byte 1: it is no JSON object", NULL},
    {"{\"text\": \"a\"} {}", "byte 15: something stands behind the object", NULL},
    {"{\"text\": \"a\\u0000b\"}", "a zero byte (\\u0000)", NULL},
    {"{\"text\": \"a\\ud800b\"}", "stands for no letter", NULL},
    {"{\"text\": \"a\\udc00b\"}", "stands for no letter", NULL},
    {"{\"text\": \"a\\x\"}", "a backslash", NULL},
    {"{\"text\": \"a\tb\"}", "a control character", NULL},
    {"{\"text\": \"\xff\"}", "line 1: byte 11: it is no UTF-8", NULL},
    {"{\"text\": 5}", "\"text\" is a number; expected a text", NULL},
    {"{\"text\": \"a\", \"text\": \"b\"}", "\"text\" is there twice", NULL},
    {"{\"text\": \"a\", \"x\": 01}", "none of JSON's", NULL},
    {"{\"text\": \"a\", \"x\": nul}", "none of JSON's", NULL},
    {"{\"text\": \"a\", \"prompt\": \"b\"}",
     "two things at once: it has \"text\", \"prompt\"; --data-map says", NULL},
    {"{\"prompt\": \"a\"}", "it has \"prompt\" and nothing to learn from", NULL},
    {"{\"completion\": \"a\"}", "it has \"completion\" and nothing to learn from", NULL},
    {"{\"prompt\": [], \"completion\": \"a\"}", "\"prompt\" is a list; expected a text", NULL},
    {"{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"completion\": \"b\"}",
     "\"prompt\" is a list; expected a text", NULL},
    {"{\"prompt\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"completion\": [{\"role\": "
     "\"user\", \"content\": \"a\"}]}",
     "the conversation has no answer", NULL},
    {"{\"prompt\": [{\"role\": \"user\", \"content\": 5}], \"completion\": \"b\"}",
     "message 1: its content is a number", NULL},
    {"{\"a\": 1}", "it has \"a\" and nothing to learn from that is known; expected \"messages\", ",
     NULL},
    {"{\"data\": [{\"text\": \"a\"}], \"n\": [1]}",
     "where \"data\" is the list of examples, write it alone into a file, as jq '.\"data\"' does",
     NULL},
    {"{\"question\": \"a\", \"answers\": \"b\"}", "it has \"question\", \"answers\" and", NULL},
    {"{\"question\": \"a\", \"answer\": \"b\", \"context\": \"c\"}", "two things at once", NULL},
    {"{\"question\": \"a\", \"answer\": \"b\", \"text\": \"c\"}", "two things at once", NULL},
    {"{\"messages\": [], \"conversations\": []}", "two things at once", NULL},
    {"{\"messages\": [], \"prompt\": \"a\", \"completion\": \"b\"}", "two things at once", NULL},
    {"{\"messages\": [], \"text\": \"a\"}", "two things at once", NULL},
    {"{\"instruction\": \"a\", \"output\": [\"b\"]}", "\"output\" is a list; expected a text",
     NULL},
    {"{\"prompt\": \"a\", \"completion\": \"b\", \"label\": false}",
     "\"label\" is false: an answer that is not to be learned, for preference tuning (KTO)", NULL},
    {"{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}",
     "it has \"chosen\", for preference tuning (DPO)", NULL},
    {"{\"text\": \"a\", \"rejected\": []}", "it has \"rejected\", for preference tuning", NULL},
    {"{\"tools\": [{}], \"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}",
     "it has \"tools\", which is not supported", NULL},
    {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"functions\": \"[1]\"}",
     "it has \"functions\", which is not supported", NULL},
    {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"c\", \"d\"]]}",
     "it has \"history\", which is not supported", NULL},
    {"{\"text\": null}", "it has \"text\" and nothing to learn from", NULL},
    {"{}", "it has no member and nothing to learn from", NULL},
    {"\xef\xbb\xbf\xef\xbb\xbf{\"text\": \"a\"}", "line 1: byte 1: it is no JSON", NULL},
    {"{\"messages\": {}}", "\"messages\" is an object; expected a list of messages", NULL},
    {"{\"messages\": []}", "the conversation is empty", NULL},
    {"{\"messages\": [1]}", "a message is no object", NULL},
    {"{\"messages\": [{\"role\": \"user\"}]}", "message 1 has no \"content\"", NULL},
    {"{\"messages\": [{\"content\": \"a\"}]}", "message 1 has no \"role\"", NULL},
    {"{\"messages\": [{\"role\": \"user\", \"content\": [\"a\"]}]}",
     "a part of a content is no object", NULL},
    {"{\"messages\": [{\"role\": \"user\", \"content\": {}}]}",
     "message 1: its content is an object; expected a text", NULL},
    {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}",
     "message 1: a part of its content is no text", NULL},
    {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"text\": \"a\"}]}]}",
     "message 1: a part of its content is no text", NULL},
    {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\", "
     "\"image\": \"b\"}]}]}",
     "message 1: a part of its content has \"image\", which is not supported", NULL},
    {"{\"messages\": \"[]\"}", "\"messages\" is a text; expected a list of messages", NULL},
    {"{\"messages\": [{\"role\": \"human\", \"content\": \"a\"}]}",
     "message 1 has the unknown role \"human\"; expected system, user, assistant or tool", NULL},
    {"{\"conversations\": [{\"from\": \"bing\", \"value\": \"a\"}]}",
     "message 1 has the unknown role \"bing\"; expected human, gpt, system", NULL},
    {"{\"messages\": [{\"role\": \"user\", \"content\": null}]}",
     "message 1: its content is null; expected a text", NULL},
    {"{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{}]}]}",
     "message 1 has \"tool_calls\", which is not supported", NULL},
    {"{\"messages\": [{\"role\": \"user\", \"role\": \"user\", \"content\": \"a\"}]}", "two roles",
     NULL},
    {"{\"messages\": [{\"role\": \"bot\", \"content\": \"a\"}]}",
     "message 1 has the unknown role \"bot\"; expected system, user, assistant or tool", NULL},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"weight\": 0}]}",
     "message 1 has \"weight\", which is not supported", NULL},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
     "line 1: the conversation has no answer", NULL},
    {"{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}, {\"role\": \"assistant\", "
     "\"content\": \"a\"}]}",
     "message 1 has the role tool, which chat template chatml does not know; expected system, "
     "user, assistant",
     "chatml"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
     "\"content\": \"<think>a</think>b\"}]}",
     "message 2 holds thoughts", "qwen3"},
    {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}",
     "message 1 has the role assistant where chat template mistral-v1 expects user", "mistral-v1"},
    {"{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}, {\"role\": \"user\", "
     "\"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}",
     "chat template mistral-v3 leaves a system message out", "mistral-v3"},
    {"{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}, {\"role\": \"user\", "
     "\"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}",
     "chat template mistral-v0.2 does not know; expected user, assistant", "mistral-v0.2"},
    {"\n \n", "there is no example in it", NULL},
    {"", "there is no example in it", NULL},
};

static void a_wrong_line_is_told_with_its_number(void **state) {
    struct Fixture *f = *state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *form = bad[i].form ? bad[i].form : "chatml";
        struct Error e = {0};
        char *all;
        int err = read_bytes(f, &chat_form(f, form)->toy, form, bad[i].lines, strlen(bad[i].lines),
                             &all, &e);
        assert_int_equal(err, -EINVAL);
        if (!strstr(e.text, bad[i].error) || !strstr(e.text, "--data "))
            fail_msg("%s: expected ... %s", e.text, bad[i].error);
        free(all);
    }
    struct Error e = {0};
    char *all;
    assert_int_equal(
        read_bytes(f, &chat_form(f, "chatml")->toy, NULL, "{\"text\":\"a\0\"}", 13, &all, &e),
        -EINVAL);
    assert_non_null(strstr(e.text, "line 1: byte 11: a zero byte"));
    free(all);
}

static const struct {
    const char *map, *lines, *ids, *error;
} mapped[] = {
    {"prompt=a,completion=b", "{\"a\": \"c\", \"b\": \"d\", \"text\": 5, \"chosen\": 1}",
     "99 100* 601*|", NULL},
    {"prompt=prompt,completion=chosen",
     "{\"prompt\": \"c\", \"chosen\": \"d\", \"rejected\": \"e\"}", "99 100* 601*|", NULL},
    {"text=\303\251 x", "{\"\\u00e9 x\": \"c\", \"label\": false}", "99* 601*|", NULL},
    {"messages=chat",
     "{\"chat\": [{\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", \"content\": "
     "\"d\"}]}",
     "600 117 115 101 114 10 99 601 10 600 97 115 115 105 115 116 97 110 116 10 100* 601* 10|",
     NULL},
    {"output=o,instruction=i,input=in,system=s",
     "{\"i\": \"c\", \"in\": \"d\", \"o\": \"e\", \"s\": null}",
     "600 117 115 101 114 10 99 10 100 601 10 600 97 115 115 105 115 116 97 110 116 10 101* 601* "
     "10|",
     NULL},
    {"prompt=a,completion=b", "{\"a\": \"c\", \"b\": \"d\"}\n\n{\"a\": \"c\", \"c\": \"d\"}",
     "99 100* 601*|",
     "line 3: it has no \"b\", which --data-map takes for completion; it has \"a\", \"c\""},
    {"prompt=a,completion=b", "{\"a\": \"c\", \"b\": null}", "", "line 1: it has no \"b\", which"},
    {"instruction=a,output=b,input=c", "{\"a\": \"c\", \"b\": \"d\"}", "",
     "line 1: it has no \"c\", which --data-map takes for input"},
    {"text=a", "{\"a\": [1]}", "", "line 1: \"a\" is a list; expected a text"},
    {"text=a", "{\"a\": \"b\", \"a\": \"c\"}", "", "\"a\" is there twice"},
    {"messages=a", "{\"a\": \"b\"}", "", "\"a\" is a text; expected a list of messages"},
    {"messages=a", "{\"a\": [{\"role\": \"assistant\", \"content\": \"d\"}], \"tools\": [1]}", "",
     "it has \"tools\", which is not supported"},
    {"prompt=a,prompt=b", "", "",
     "--data-map prompt=b: that target is mapped twice; expected TARGET"},
    {"prompt=a,completion=a", "", "", "completion=a: that member is mapped twice"},
    {"prompt", "", "", "--data-map prompt: it names no member"},
    {"prompt=", "", "", "--data-map prompt=: it names no member"},
    {"", "", "", "--data-map : it names no member"},
    {"text=a,", "", "", "--data-map : it names no member"},
    {"question=a", "", "", "question=a: that target is not known"},
    {"system_prompt=a", "", "", "system_prompt=a: that target is not known"},
    {"=a", "", "", "=a: that target is not known"},
    {"prompt=a", "", "", "--data-map prompt=a: together they make no example"},
    {"text=a,completion=b", "", "", "together they make no example"},
    {"prompt=a,completion=b,system=c", "", "", "together they make no example"},
    {"text=a,prompt=b,completion=c,messages=d,output=e", "", "", "too many targets"},
};

static void a_map_says_what_is_what(void **state) {
    struct Fixture *f = *state;
    struct Toy toy = chat_form(f, "chatml")->toy;
    toy.merges = 0;
    for (size_t i = 0; i < sizeof mapped / sizeof mapped[0]; i++) {
        struct ChatSpec chat = {.name = "chatml", .map = mapped[i].map};
        char *path = scratch_write(f->folder, "x.jsonl", mapped[i].lines, strlen(mapped[i].lines));
        char *all = base_format("%s", "");
        struct Error e = {0};
        int err =
            examples_read(path, "--data", toy_tokenizer(&toy), &chat, examples_text_take, &all, &e);
        if (err != (mapped[i].error ? -EINVAL : 0) ||
            (mapped[i].error && !strstr(e.text, mapped[i].error)))
            fail_msg("%s: %s: expected ... %s", mapped[i].map, e.text, mapped[i].error);
        assert_string_equal(all, mapped[i].ids);
        free(all);
        free(path);
    }
}

// Lines are read across the pieces that the file comes in, whatever their lengths.
static void long_lines_are_read_whole(void **state) {
    struct Fixture *f = *state;
    struct Toy toy = chat_form(f, "mistral-v1")->toy;
    enum { LONG = 700000 };
    char *lines = base_alloc(2 * LONG);
    size_t n = 0;
    toy.merges = 0;
    n += (size_t)sprintf(lines, "{\"text\": \"a\", \"x\": \"");
    memset(lines + n, 'x', LONG);
    n += LONG;
    n += (size_t)sprintf(lines + n, "\"}\n{\"text\": \"b\"}\n{\"text\": 1}\n");
    struct Error e;
    char *all;
    assert_int_equal(read_bytes(f, &toy, NULL, lines, n, &all, &e), -EINVAL);
    assert_string_equal(all, "600* 97* 601*|600* 98* 601*|");
    assert_non_null(strstr(e.text, "line 3: \"text\" is a number"));
    free(all);
    free(lines);
}

static void a_line_without_end_is_refused(void **state) {
    struct Fixture *f = *state;
    char *path = scratch_write(f->folder, "long.jsonl", "\n", 1), *all = base_format("%s", "");
    struct ChatSpec chat = {0};
    struct Error e;
    assert_int_equal(truncate(path, 65 << 20), 0);
    assert_int_equal(examples_read(path, "--data", toy_tokenizer(&f->form[0].toy), &chat,
                                   examples_text_take, &all, &e),
                     -EFBIG);
    assert_non_null(strstr(e.text, "line 2: longer than 64 MiB"));
    free(all);
    free(path);
}

static int count(void *context, const struct Example *example, struct Error *e) {
    (void)e;
    *(size_t *)context += example->count;
    return 0;
}

static int read_file(const char *form, const char *path) {
    struct Fixture *f;
    struct ChatSpec chat = {.name = form};
    struct Error e;
    size_t ids = 0;
    chat_set_up((void **)&f);
    int err = examples_read(path, "--data", toy_tokenizer(&chat_form(f, form)->toy), &chat, count,
                            &ids, &e);
    if (err)
        fprintf(stderr, "train: %s\n", e.text);
    else
        printf("%zu ids\n", ids);
    chat_tear_down((void **)&f);
    return err ? 2 : 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_completions_count_as_they_should),
        cmocka_unit_test(a_wrong_line_is_told_with_its_number),
        cmocka_unit_test(a_map_says_what_is_what),
        cmocka_unit_test(long_lines_are_read_whole),
        cmocka_unit_test(a_line_without_end_is_refused),
    };
    return argc == 3 ? read_file(argv[1], argv[2])
                     : cmocka_run_group_tests(tests, chat_set_up, chat_tear_down);
}
