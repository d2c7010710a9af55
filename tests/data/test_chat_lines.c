// Lines of chat data: what of them counts, and what is wrong with one is told with its number.
//
//   test_chat_lines FORM FILE     reads a file, for tests/data/test_chat_asked.sh
#include "tests/lib/chat_fixture.h"
#include "tests/lib/examples_text.h"
#include "tests/lib/refused.h"
#include "tests/lib/test.h"

static int read_bytes(struct Fixture *f, const struct Toy *toy, const char *name, const void *bytes,
                      size_t n, char **all, struct Error *e) {
    char *path = scratch_write(f->folder, "x.jsonl", bytes, n);
    struct ChatSpec chat = {.name = name};
    *all = base_format("%s", "");
    int err = examples_read(path, "--data", toy_tokenizer(toy), &chat, examples_text_take, all, e);
    free(path);
    return err;
}

TEST(texts_and_completions_count_as_they_should) {
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
    assert_true(error_is(&e, "E_EXAMPLE_EMPTY line 2"));
    free(all);
}

static const struct {
    const char *lines, *error, *form;
} bad[] = {
    {"{\"text\": \"a\"}\n{\"text\": \"a\"\n", "E_JSON_SYNTAX line 2: byte 13", NULL},
    {"{\"text\": \"a", "E_JSON_SYNTAX line 1: byte 12", NULL},
    {"{\"text\": 'a'}", "E_JSON_SYNTAX line 1: byte 10", NULL},
    {"\n\n[1]\n", "E_JSON_SYNTAX line 3: byte 1", NULL},
    {"{\"text\": \"a\"} {}", "E_JSON_SYNTAX byte 15", NULL},
    {"{\"text\": \"a\\u0000b\"}", "E_JSON_SYNTAX a zero byte (\\u0000)", NULL},
    {"{\"text\": \"a\\ud800b\"}", "E_JSON_SYNTAX", NULL},
    {"{\"text\": \"a\\udc00b\"}", "E_JSON_SYNTAX", NULL},
    {"{\"text\": \"a\\x\"}", "E_JSON_SYNTAX", NULL},
    {"{\"text\": \"a\tb\"}", "E_JSON_SYNTAX", NULL},
    {"{\"text\": \"\xff\"}", "E_UTF8 line 1: byte 11", NULL},
    {"{\"text\": 5}", "E_EXAMPLE_TYPE \"text\"", NULL},
    {"{\"text\": \"a\", \"text\": \"b\"}", "E_JSON_DUPLICATE_KEY \"text\"", NULL},
    {"{\"text\": \"a\", \"x\": 01}", "E_JSON_SYNTAX", NULL},
    {"{\"text\": \"a\", \"x\": nul}", "E_JSON_SYNTAX", NULL},
    {"{\"text\": \"a\", \"prompt\": \"b\"}", "E_EXAMPLE_KIND \"text\", \"prompt\"", NULL},
    {"{\"prompt\": \"a\"}", "E_EXAMPLE_KIND \"prompt\"", NULL},
    {"{\"completion\": \"a\"}", "E_EXAMPLE_KIND \"completion\"", NULL},
    {"{\"prompt\": [], \"completion\": \"a\"}", "E_EXAMPLE_TYPE \"prompt\"", NULL},
    {"{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"completion\": \"b\"}",
     "E_EXAMPLE_TYPE \"prompt\"", NULL},
    {"{\"prompt\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"completion\": [{\"role\": "
     "\"user\", \"content\": \"a\"}]}",
     "E_CONVERSATION_ANSWER", NULL},
    {"{\"prompt\": [{\"role\": \"user\", \"content\": 5}], \"completion\": \"b\"}",
     "E_MESSAGE_CONTENT message 1", NULL},
    {"{\"a\": 1}", "E_EXAMPLE_KIND \"a\"", NULL},
    {"{\"data\": [{\"text\": \"a\"}], \"n\": [1]}", "E_EXAMPLE_KIND \"data\"", NULL},
    {"{\"question\": \"a\", \"answers\": \"b\"}", "E_EXAMPLE_KIND \"question\", \"answers\"", NULL},
    {"{\"question\": \"a\", \"answer\": \"b\", \"context\": \"c\"}", "E_EXAMPLE_KIND", NULL},
    {"{\"question\": \"a\", \"answer\": \"b\", \"text\": \"c\"}", "E_EXAMPLE_KIND", NULL},
    {"{\"messages\": [], \"conversations\": []}", "E_EXAMPLE_KIND", NULL},
    {"{\"messages\": [], \"prompt\": \"a\", \"completion\": \"b\"}", "E_EXAMPLE_KIND", NULL},
    {"{\"messages\": [], \"text\": \"a\"}", "E_EXAMPLE_KIND", NULL},
    {"{\"instruction\": \"a\", \"output\": [\"b\"]}", "E_EXAMPLE_TYPE \"output\"", NULL},
    {"{\"prompt\": \"a\", \"completion\": \"b\", \"label\": false}",
     "E_EXAMPLE_PREFERENCE \"label\"", NULL},
    {"{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}",
     "E_EXAMPLE_PREFERENCE \"chosen\"", NULL},
    {"{\"text\": \"a\", \"rejected\": []}", "E_EXAMPLE_PREFERENCE \"rejected\"", NULL},
    {"{\"tools\": [{}], \"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}",
     "E_EXAMPLE_UNSUPPORTED \"tools\"", NULL},
    {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"functions\": \"[1]\"}",
     "E_EXAMPLE_UNSUPPORTED \"functions\"", NULL},
    {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"c\", \"d\"]]}",
     "E_EXAMPLE_UNSUPPORTED \"history\"", NULL},
    {"{\"text\": null}", "E_EXAMPLE_KIND \"text\"", NULL},
    {"{}", "E_EXAMPLE_KIND", NULL},
    {"\xef\xbb\xbf\xef\xbb\xbf{\"text\": \"a\"}", "E_JSON_SYNTAX line 1: byte 1", NULL},
    {"{\"messages\": {}}", "E_EXAMPLE_TYPE \"messages\"", NULL},
    {"{\"messages\": []}", "E_CONVERSATION_ANSWER", NULL},
    {"{\"messages\": [1]}", "E_JSON_SYNTAX", NULL},
    {"{\"messages\": [{\"role\": \"user\"}]}", "E_MESSAGE_MEMBER message 1", NULL},
    {"{\"messages\": [{\"content\": \"a\"}]}", "E_MESSAGE_MEMBER message 1", NULL},
    {"{\"messages\": [{\"role\": \"user\", \"content\": [\"a\"]}]}", "E_JSON_SYNTAX", NULL},
    {"{\"messages\": [{\"role\": \"user\", \"content\": {}}]}", "E_MESSAGE_CONTENT message 1",
     NULL},
    {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}",
     "E_MESSAGE_CONTENT message 1", NULL},
    {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"text\": \"a\"}]}]}",
     "E_MESSAGE_CONTENT message 1", NULL},
    {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\", "
     "\"image\": \"b\"}]}]}",
     "E_MESSAGE_CONTENT message 1", NULL},
    {"{\"messages\": \"[]\"}", "E_EXAMPLE_TYPE \"messages\"", NULL},
    {"{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{}]}]}",
     "E_MESSAGE_MEMBER \"tool_calls\"", NULL},
    {"{\"messages\": [{\"role\": \"human\", \"content\": \"a\"}]}", "E_MESSAGE_ROLE message 1",
     NULL},
    {"{\"conversations\": [{\"from\": \"bing\", \"value\": \"a\"}]}", "E_MESSAGE_ROLE message 1",
     NULL},
    {"{\"messages\": [{\"role\": \"user\", \"content\": null}]}", "E_MESSAGE_CONTENT message 1",
     NULL},
    {"{\"messages\": [{\"role\": \"user\", \"role\": \"user\", \"content\": \"a\"}]}",
     "E_JSON_SYNTAX", NULL},
    {"{\"messages\": [{\"role\": \"bot\", \"content\": \"a\"}]}", "E_MESSAGE_ROLE message 1", NULL},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"weight\": 0}]}",
     "E_MESSAGE_MEMBER message 1", NULL},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", "E_CONVERSATION_ANSWER line 1",
     NULL},
    {"{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}, {\"role\": \"assistant\", "
     "\"content\": \"a\"}]}",
     "E_CHAT_TEMPLATE_TURNS message 1", "chatml"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
     "\"content\": \"<think>a</think>b\"}]}",
     "E_CHAT_TEMPLATE_THOUGHTS message 2", "qwen3"},
    {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}",
     "E_CHAT_TEMPLATE_TURNS mistral-v1", "mistral-v1"},
    {"{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}, {\"role\": \"user\", "
     "\"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}",
     "E_CHAT_TEMPLATE_TURNS mistral-v3", "mistral-v3"},
    {"{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}, {\"role\": \"user\", "
     "\"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}",
     "E_CHAT_TEMPLATE_TURNS mistral-v0.2", "mistral-v0.2"},
    {"\n \n", "E_EXAMPLES_NONE", NULL},
    {"", "E_EXAMPLES_NONE", NULL},
};

TEST(a_wrong_line_is_told_with_its_number) {
    struct Fixture *f = *state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *form = bad[i].form ? bad[i].form : "chatml";
        struct Error e = {0};
        char *all;
        int err = read_bytes(f, &chat_form(f, form)->toy, form, bad[i].lines, strlen(bad[i].lines),
                             &all, &e);
        assert_int_equal(err, -EINVAL);
        if (!error_is(&e, bad[i].error) || !strstr(e.text, "--data "))
            fail_msg("%s: expected ... %s", e.text, bad[i].error);
        free(all);
    }
    struct Error e = {0};
    char *all;
    assert_int_equal(
        read_bytes(f, &chat_form(f, "chatml")->toy, NULL, "{\"text\":\"a\0\"}", 13, &all, &e),
        -EINVAL);
    assert_true(error_is(&e, "E_ZERO_BYTE line 1: byte 11"));
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
     "99 100* 601*|", "E_EXAMPLE_MEMBER \"a\", \"c\""},
    {"prompt=a,completion=b", "{\"a\": \"c\", \"b\": null}", "", "E_EXAMPLE_MEMBER line 1"},
    {"instruction=a,output=b,input=c", "{\"a\": \"c\", \"b\": \"d\"}", "",
     "E_EXAMPLE_MEMBER line 1"},
    {"text=a", "{\"a\": [1]}", "", "E_EXAMPLE_TYPE line 1"},
    {"text=a", "{\"a\": \"b\", \"a\": \"c\"}", "", "E_JSON_DUPLICATE_KEY \"a\""},
    {"messages=a", "{\"a\": \"b\"}", "", "E_EXAMPLE_TYPE \"a\""},
    {"messages=a", "{\"a\": [{\"role\": \"assistant\", \"content\": \"d\"}], \"tools\": [1]}", "",
     "E_EXAMPLE_UNSUPPORTED \"tools\""},
    {"prompt=a,prompt=b", "", "", "E_DATA_MAP --data-map prompt=b"},
    {"prompt=a,completion=a", "", "", "E_DATA_MAP completion=a"},
    {"prompt", "", "", "E_DATA_MAP --data-map prompt"},
    {"prompt=", "", "", "E_DATA_MAP --data-map prompt="},
    {"", "", "", "E_DATA_MAP --data-map"},
    {"text=a,", "", "", "E_DATA_MAP --data-map"},
    {"question=a", "", "", "E_DATA_MAP question=a"},
    {"system_prompt=a", "", "", "E_DATA_MAP system_prompt=a"},
    {"=a", "", "", "E_DATA_MAP =a"},
    {"prompt=a", "", "", "E_DATA_MAP --data-map prompt=a"},
    {"text=a,completion=b", "", "", "E_DATA_MAP"},
    {"prompt=a,completion=b,system=c", "", "", "E_DATA_MAP"},
    {"text=a,prompt=b,completion=c,messages=d,output=e", "", "", "E_DATA_MAP"},
};

TEST(a_map_says_what_is_what) {
    struct Fixture *f = *state;
    struct Toy toy = chat_form(f, "chatml")->toy;
    toy.merges = 0;
    for (size_t i = 0; i < sizeof mapped / sizeof mapped[0]; i++) {
        struct ChatSpec chat = {.name = "chatml", .map = mapped[i].map};
        char *path = scratch_write(f->folder, "x.jsonl", mapped[i].lines, strlen(mapped[i].lines));
        expect_examples(path, toy_tokenizer(&toy), &chat, mapped[i].ids, mapped[i].error);
        free(path);
    }
}

// Lines are read across the pieces that the file comes in, whatever their lengths.
TEST(long_lines_are_read_whole) {
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
    assert_true(error_is(&e, "E_EXAMPLE_TYPE line 3"));
    free(all);
    free(lines);
}

TEST(a_line_without_end_is_refused) {
    struct Fixture *f = *state;
    char *path = scratch_write(f->folder, "long.jsonl", "\n", 1), *all = base_format("%s", "");
    struct ChatSpec chat = {0};
    struct Error e;
    assert_int_equal(truncate(path, 65 << 20), 0);
    assert_int_equal(examples_read(path, "--data", toy_tokenizer(&f->form[0].toy), &chat,
                                   examples_text_take, &all, &e),
                     -EFBIG);
    assert_true(error_is(&e, "E_LINE_TOO_LONG 64"));
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
        fprintf(stderr, "train: %s [%s]\n", e.text, error_name(e.id));
    else
        printf("%zu ids\n", ids);
    chat_tear_down((void **)&f);
    return err ? 2 : 0;
}

AROUND_ALL(chat_set_up, chat_tear_down);

int main(int argc, char **argv) {
    return argc == 3 ? read_file(argv[1], argv[2]) : run_all_tests();
}
