// Chat data: every known template gives the ids of apply_chat_template, masks are those of a
// reference made without it, no message's text becomes a control token, and what is wrong with a
// line is told with its number. Expected values: scripts/chat_fixtures.py.
#include "data/chat/ask.h"
#include "data/chat/example.h"
#include "data/chat/template.h"
#include "tests/lib/scratch.h"
#include "tests/lib/toy_tokenizer.h"

enum { CONVERSATIONS = 500 };
#define FIXTURES "tests/fixtures/chat/"

// ---- what transformers gives --------------------------------------------------------------------

struct Expected {
    char form[32];
    struct Toy toy;
    char *whole[CONVERSATIONS]; // ids, where * behind one says that it counts
    bool taken[CONVERSATIONS], asks[CONVERSATIONS];
    uint32_t hash[CONVERSATIONS], asked[CONVERSATIONS];
};

struct Fixture {
    struct Expected form[32];
    size_t forms;
    struct Line conversation[CONVERSATIONS];
    char *line[CONVERSATIONS], *folder;
};

static FILE *open_fixture(const char *name) {
    FILE *f = fopen(name, "r");
    if (!f)
        fail_msg("%s is not there", name);
    return f;
}

static void read_merges(struct Toy *toy) {
    FILE *f = open_fixture(FIXTURES "merges.txt");
    while (fscanf(f, "%d %d", &toy->left[toy->merges], &toy->right[toy->merges]) == 2)
        toy->merges++;
    fclose(f);
    assert_int_equal(toy->merges, 344);
}

static void read_conversations(struct Fixture *f) {
    FILE *file = open_fixture(FIXTURES "conversations.jsonl");
    struct Error e;
    for (size_t i = 0; i < CONVERSATIONS; i++) {
        size_t room = 0;
        ssize_t n = getline(&f->line[i], &room, file);
        assert_true(n > 1);
        if (line_read(&f->conversation[i], f->line[i], (size_t)n - 1, &e))
            fail_msg("conversation %zu: %s", i, e.text);
    }
    fclose(file);
}

static void read_expected_line(struct Fixture *f, const struct Toy *merges, char *line) {
    struct Expected *x = f->forms ? &f->form[f->forms - 1] : NULL;
    char word[16], text[32];
    int at = 0, id;
    size_t i;
    assert_int_equal(sscanf(line, "%15s %n", word, &at), 1);
    line += at;
    if (!strcmp(word, "form")) {
        x = &f->form[f->forms++];
        x->toy = *merges;
        assert_int_equal(sscanf(line, "%31s", x->form), 1);
    } else if (!strcmp(word, "control")) {
        assert_int_equal(sscanf(line, "%d %31s", &id, text), 2);
        x->toy.control[x->toy.controls].id = id;
        strcpy(x->toy.control[x->toy.controls++].text, text);
    } else if (!strcmp(word, "begin")) {
        x->toy.begin = atoi(line);
    } else if (!strcmp(word, "end")) {
        x->toy.end = atoi(line);
    } else {
        i = strtoul(line, &line, 10);
        line[strcspn(line, "\n")] = 0;
        assert_true(i < CONVERSATIONS);
        if (!strcmp(word, "whole"))
            x->whole[i] = base_format("%s", line + 1);
        x->taken[i] |= !strcmp(word, "all") && line[1] != '-';
        x->asks[i] |= !strcmp(word, "asked");
        if (!strcmp(word, "all"))
            x->hash[i] = (uint32_t)strtoul(line, NULL, 16);
        if (!strcmp(word, "asked"))
            x->asked[i] = (uint32_t)strtoul(line, NULL, 16);
    }
}

static int set_up(void **state) {
    struct Fixture *f = base_alloc_zeroed(sizeof *f);
    struct Toy *merges = base_alloc_zeroed(sizeof *merges);
    char *line = NULL;
    size_t room = 0;
    read_merges(merges);
    read_conversations(f);
    FILE *file = open_fixture(FIXTURES "expected.txt");
    while (getline(&line, &room, file) > 1)
        read_expected_line(f, merges, line);
    fclose(file);
    free(line);
    free(merges);
    f->folder = scratch_make();
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct Fixture *f = *state;
    for (size_t i = 0; i < CONVERSATIONS; i++) {
        line_free(&f->conversation[i]);
        free(f->line[i]);
        for (size_t k = 0; k < f->forms; k++)
            free(f->form[k].whole[i]);
    }
    scratch_remove(f->folder);
    free(f);
    return 0;
}

static struct Expected *form_of(struct Fixture *f, const char *name) {
    for (size_t i = 0; i < f->forms; i++)
        if (!strcmp(f->form[i].form, name))
            return &f->form[i];
    fail_msg("%s is not in the fixtures", name);
    return NULL;
}

static uint32_t hash_of(const struct Masked *m, bool masks) {
    uint64_t h = 0xcbf29ce484222325;
    for (size_t i = 0; i < m->ids.count; i++) {
        uint32_t id = (uint32_t)m->ids.data[i];
        for (int b = 0; b < 4; b++, id >>= 8)
            h = (h ^ (id & 0xff)) * 0x100000001b3;
        if (masks)
            h = (h ^ m->counts[i]) * 0x100000001b3;
    }
    return (uint32_t)h;
}

// As "ID ID* ...". free() it.
static char *spell(const struct Masked *m) {
    char *text = base_format("%s", "");
    for (size_t i = 0; i < m->ids.count; i++) {
        char *longer =
            base_format("%s%s%d%s", text, i ? " " : "", m->ids.data[i], m->counts[i] ? "*" : "");
        free(text);
        text = longer;
    }
    return text;
}

// ---- templates and masks ------------------------------------------------------------------------

static void check_conversation(const struct Template *t, const struct Expected *x,
                               const struct Line *line, size_t i) {
    struct Masked m = {0};
    struct Error e = {{0}};
    int err = template_render(t, line->messages, line->count, false, &m, &e);
    if ((err == 0) != x->taken[i])
        fail_msg("%s, conversation %zu: %s", x->form, i, err ? e.text : "taken");
    if (x->whole[i]) {
        char *text = spell(&m);
        assert_string_equal(text, x->whole[i]);
        free(text);
    }
    if (!err && hash_of(&m, true) != x->hash[i])
        fail_msg("%s, conversation %zu: other ids or another mask", x->form, i);
    masked_free(&m);
}

static void check_question(const struct Template *t, const struct Expected *x,
                           const struct Line *line, size_t i) {
    struct Masked m = {0};
    struct Error e = {{0}};
    size_t n = line->count;
    while (n && line->messages[n - 1].role == ROLE_ASSISTANT)
        n--;
    assert_ok(template_render(t, line->messages, n, true, &m, &e), &e);
    if (hash_of(&m, false) != x->asked[i])
        fail_msg("%s, question %zu: other ids", x->form, i);
    masked_free(&m);
}

static void templates_and_masks_are_those_of_transformers(void **state) {
    struct Fixture *f = *state;
    assert_int_equal(f->forms, 16);
    for (size_t k = 0; k < f->forms; k++) {
        const struct Expected *x = &f->form[k];
        struct Template *t;
        struct Error e;
        size_t taken = 0, asked = 0;
        assert_ok(template_open(&t, toy_tokenizer(&x->toy), x->form, &e), &e);
        for (size_t i = 0; i < CONVERSATIONS; i++) {
            check_conversation(t, x, &f->conversation[i], i);
            if (x->asks[i])
                check_question(t, x, &f->conversation[i], i);
            taken += x->taken[i];
            asked += x->asks[i];
        }
        assert_true(taken >= 50);
        assert_int_equal(asked, 50);
        template_close(t);
    }
}

// A template's text, with its newlines as letters or as escapes, is its form; any other is none.
static void templates_are_known_by_their_text(void **state) {
    struct Fixture *f = *state;
    const char *texts[] = {
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
        "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|im_start|>assistant\n' }}{% endif %}",
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
        "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|im_start|>assistant\\n' }}{% endif %}\n"};
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(form_of_template(texts[i])->name, "chatml");
    struct Toy toy = form_of(f, "chatml")->toy;
    struct Template *t;
    struct Error e;
    toy.chat_template = texts[0];
    assert_ok(template_open(&t, toy_tokenizer(&toy), NULL, &e), &e);
    template_close(t);
    toy.chat_template = "{{ messages }}";
    assert_int_equal(template_open(&t, toy_tokenizer(&toy), NULL, &e), -EINVAL);
    assert_non_null(strstr(e.text, "none of the known ones; expected --chat-template NAME"));
    assert_non_null(strstr(e.text, "llama3.1"));
    toy.chat_template = NULL;
    assert_int_equal(template_open(&t, toy_tokenizer(&toy), NULL, &e), -EINVAL);
    assert_int_equal(template_open(&t, toy_tokenizer(&toy), "llama3", &e), -EINVAL);
    assert_non_null(strstr(e.text, "chat template llama3 needs the control token {bos}"));
    assert_int_equal(template_open(&t, toy_tokenizer(&toy), "nobody", &e), -EINVAL);
    assert_non_null(strstr(e.text, "--chat-template nobody: it is not known"));
}

static void a_message_never_becomes_a_control_token(void **state) {
    struct Fixture *f = *state;
    for (size_t k = 0; k < f->forms; k++) {
        const struct Expected *x = &f->form[k];
        char *all = base_format("%s", "");
        for (size_t c = 0; c < x->toy.controls; c++) {
            char *longer = base_format("%s%s\n", all, x->toy.control[c].text);
            free(all);
            all = longer;
        }
        bool thinks = strstr(all, "</think>") != NULL;
        struct Message with[] = {
            {ROLE_USER, all, strlen(all)},
            {ROLE_ASSISTANT, thinks ? "<think>" : all, thinks ? 7 : strlen(all)}};
        struct Message without[] = {{ROLE_USER, "x", 1}, {ROLE_ASSISTANT, "y", 1}};
        struct Masked m[2] = {0};
        struct Template *t;
        struct Error e;
        size_t controls[2] = {0};
        assert_ok(template_open(&t, toy_tokenizer(&x->toy), x->form, &e), &e);
        assert_ok(template_render(t, with, 2, false, &m[0], &e), &e);
        assert_ok(template_render(t, without, 2, false, &m[1], &e), &e);
        for (int i = 0; i < 2; i++) {
            for (size_t j = 0; j < m[i].ids.count; j++)
                controls[i] += m[i].ids.data[j] >= 256 + (int)x->toy.merges;
            masked_free(&m[i]);
        }
        assert_true(controls[0] > 0);
        assert_int_equal(controls[0], controls[1]);
        template_close(t);
        free(all);
    }
}

// A tokenizer that changes the text: whose each token is follows the changed text.
static void masks_follow_a_text_that_is_normalised(void **state) {
    struct Fixture *f = *state;
    struct Toy toy = form_of(f, "chatml")->toy;
    struct Message messages[] = {{ROLE_USER, "AAA", 3}, {ROLE_ASSISTANT, "AbA", 3}};
    struct Masked m = {0};
    struct Template *t;
    struct Error e;
    toy.folds = true;
    toy.merges = 0;
    assert_ok(template_open(&t, toy_tokenizer(&toy), "chatml", &e), &e);
    assert_ok(template_render(t, messages, 2, false, &m, &e), &e);
    char counted[32] = "";
    for (size_t i = 0; i < m.ids.count; i++)
        if (m.counts[i])
            snprintf(counted + strlen(counted), 8, "%c", m.ids.data[i] < 256 ? m.ids.data[i] : '.');
    assert_string_equal(counted, "a''ba''.");
    masked_free(&m);
    template_close(t);
}

// ---- files --------------------------------------------------------------------------------------

// What examples_read gives, as "ID ID*|..."; free() it.
static int take(void *context, const struct Example *example, struct Error *e) {
    (void)e;
    char **all = context;
    for (size_t i = 0; i < example->count; i++) {
        char *longer = base_format("%s%s%d%s", *all, i ? " " : "", example->ids[i],
                                   example->counts[i] ? "*" : "");
        free(*all);
        *all = longer;
    }
    char *longer = base_format("%s|", *all);
    free(*all);
    *all = longer;
    return strlen(longer) > 100000 ? -E2BIG : 0;
}

static int read_bytes(struct Fixture *f, const struct Toy *toy, const char *name, const void *bytes,
                      size_t n, char **all, struct Error *e) {
    char *path = scratch_write(f->folder, "x.jsonl", bytes, n);
    struct ChatSpec chat = {name};
    *all = base_format("%s", "");
    int err = examples_read(path, "--data", toy_tokenizer(toy), &chat, take, all, e);
    free(path);
    return err;
}

static void texts_and_completions_count_as_they_should(void **state) {
    struct Fixture *f = *state;
    struct Toy toy = form_of(f, "mistral-v1")->toy; // <s> 600, </s> 601
    toy.merges = 0;
    const char *lines = "{\"text\": \"ab\", \"id\": [1, {\"a\": null}]}\n"
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
    {"{\"text\": 'a'}", "line 1: byte 10: \"text\" is no text", NULL},
    {"\n\n[1]\n", "line 3: byte 1: it is no JSON object", NULL},
    {"{\"text\": \"a\"} {}", "byte 15: something stands behind the object", NULL},
    {"{\"text\": \"a\\u0000b\"}", "a zero byte (\\u0000)", NULL},
    {"{\"text\": \"a\\ud800b\"}", "stands for no letter", NULL},
    {"{\"text\": \"a\\udc00b\"}", "stands for no letter", NULL},
    {"{\"text\": \"a\\x\"}", "a backslash", NULL},
    {"{\"text\": \"a\tb\"}", "a control character", NULL},
    {"{\"text\": \"\xff\"}", "line 1: byte 11: it is no UTF-8", NULL},
    {"{\"text\": 5}", "\"text\" is no text", NULL},
    {"{\"text\": \"a\", \"text\": \"b\"}", "\"text\" is there twice", NULL},
    {"{\"text\": \"a\", \"x\": 01}", "none of JSON's", NULL},
    {"{\"text\": \"a\", \"x\": nul}", "none of JSON's", NULL},
    {"{\"text\": \"a\", \"prompt\": \"b\"}", "two things at once", NULL},
    {"{\"prompt\": \"a\"}", "it has no \"completion\"", NULL},
    {"{\"completion\": \"a\"}", "it has no \"prompt\"", NULL},
    {"{\"prompt\": [], \"completion\": \"a\"}", "\"prompt\" is no text", NULL},
    {"{\"a\": 1}", "nothing to learn from; expected {\"text\"}", NULL},
    {"{\"messages\": {}}", "\"messages\" is no list", NULL},
    {"{\"messages\": []}", "the conversation is empty", NULL},
    {"{\"messages\": [1]}", "a message is no object", NULL},
    {"{\"messages\": [{\"role\": \"user\"}]}", "message 1 has no \"content\"", NULL},
    {"{\"messages\": [{\"content\": \"a\"}]}", "message 1 has no \"role\"", NULL},
    {"{\"messages\": [{\"role\": \"user\", \"content\": [\"a\"]}]}", "content is no text", NULL},
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
        struct Error e = {{0}};
        char *all;
        int err = read_bytes(f, &form_of(f, form)->toy, form, bad[i].lines, strlen(bad[i].lines),
                             &all, &e);
        assert_int_equal(err, -EINVAL);
        if (!strstr(e.text, bad[i].error) || !strstr(e.text, "--data "))
            fail_msg("%s: expected ... %s", e.text, bad[i].error);
        free(all);
    }
    struct Error e = {{0}};
    char *all;
    assert_int_equal(
        read_bytes(f, &form_of(f, "chatml")->toy, NULL, "{\"text\":\"a\0\"}", 13, &all, &e),
        -EINVAL);
    assert_non_null(strstr(e.text, "line 1: byte 11: a zero byte"));
    free(all);
}

// Lines are read across the pieces that the file comes in, whatever their lengths.
static void long_lines_are_read_whole(void **state) {
    struct Fixture *f = *state;
    struct Toy toy = form_of(f, "mistral-v1")->toy;
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
    assert_non_null(strstr(e.text, "line 3: byte 10:"));
    free(all);
    free(lines);
}

// ---- forms of one's own, and questions ----------------------------------------------------------

static void a_form_can_be_a_file(void **state) {
    struct Fixture *f = *state;
    static const struct {
        const char *text, *error;
    } broken[] = {
        {"[]", "it is no JSON object"},
        {"{\"user\": {\"prefix\": \"\", \"suffix\": \"\"}}", "no \"user\", or no \"assistant\""},
        {"{\"user\": {\"prefix\": \"\"}}", "lacks its prefix or its suffix"},
        {"{\"human\": {}}", "an unknown member"},
        {"{\"user\": {\"prefix\": \"\", \"suffix\": \"\"}, \"assistant\": {\"prefix\": \"\", "
         "\"suffix\": \"\\n\"}}",
         "nothing would end an answer"},
        {"{\"user\": {\"prefix\": \"\", \"suffix\": \"\"}, \"assistant\": {\"prefix\": \"\", "
         "\"suffix\": \"{eos}\"}, \"begin\": \"{bos}\", \"default_system\": \"a\"}",
         "\"default_system\" and no \"system\""},
    };
    const struct Toy *toy = &form_of(f, "zephyr")->toy;
    static const char zephyr[] =
        "{\"system\": {\"prefix\": \"<|system|>\\n\", \"suffix\": \"{eos}\\n\"}, \"user\": "
        "{\"prefix\": \"<|user|>\\n\", \"suffix\": \"</s>\\n\"}, \"assistant\": {\"prefix\": "
        "\"<|assistant|>\\n\", \"suffix\": \"{eos}\\n\"}}";
    char *path = scratch_write(f->folder, "form.json", zephyr, strlen(zephyr));
    struct Template *t;
    struct Error e;
    assert_ok(template_open(&t, toy_tokenizer(toy), path, &e), &e);
    for (size_t i = 0; i < CONVERSATIONS; i++)
        check_conversation(t, form_of(f, "zephyr"), &f->conversation[i], i);
    template_close(t);
    free(path);
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        path = scratch_write(f->folder, "form.json", broken[i].text, strlen(broken[i].text));
        assert_int_equal(template_open(&t, toy_tokenizer(toy), path, &e), -EINVAL);
        if (!strstr(e.text, broken[i].error) || !strstr(e.text, path))
            fail_msg("%s: expected ... %s", e.text, broken[i].error);
        free(path);
    }
    assert_int_equal(template_open(&t, toy_tokenizer(toy), "/nowhere/x.json", &e), -ENOENT);
}

static void a_question_ends_where_its_answer_begins(void **state) {
    struct Fixture *f = *state;
    const struct Toy *toy = &form_of(f, "llama3.2")->toy;
    const struct Tokenizer *t = toy_tokenizer(toy);
    struct Ids prompt = {0}, stops = {0}, expected = {0};
    struct Error e;
    struct ChatAsk ask = {.template = "llama3.2", .system = "s", .question = "<|eot_id|>?"};
    assert_ok(chat_ask(t, &ask, &prompt, &stops, &e), &e);
    static const char *const parts[] = {
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: "
        "December 2023\nToday Date: 26 Jul 2024\n\ns<|eot_id|><|start_header_id|>user"
        "<|end_header_id|>",
        "\n\n<|eot_id|>?", "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"};
    assert_ok(__wrap_tokenizer_encode(t, parts[0], strlen(parts[0]), &expected, &e), &e);
    assert_ok(__wrap_tokenizer_encode_plain(t, parts[1], strlen(parts[1]), &expected, &e), &e);
    assert_ok(__wrap_tokenizer_encode(t, parts[2], strlen(parts[2]), &expected, &e), &e);
    assert_int_equal(prompt.count, expected.count);
    assert_memory_equal(prompt.data, expected.data, expected.count * sizeof *expected.data);
    assert_int_equal(stops.count, 2);
    assert_int_equal(stops.data[0], __wrap_tokenizer_control(t, "<|eot_id|>"));
    assert_int_equal(stops.data[1], __wrap_tokenizer_control(t, "<|end_of_text|>"));
    ask.question = "\xff";
    assert_int_equal(chat_ask(t, &ask, &prompt, &stops, &e), -EINVAL);
    assert_string_equal(e.text, "--chat: it is no UTF-8");
    ids_free(&prompt);
    ids_free(&stops);
    ids_free(&expected);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_and_masks_are_those_of_transformers),
        cmocka_unit_test(templates_are_known_by_their_text),
        cmocka_unit_test(a_message_never_becomes_a_control_token),
        cmocka_unit_test(masks_follow_a_text_that_is_normalised),
        cmocka_unit_test(texts_and_completions_count_as_they_should),
        cmocka_unit_test(a_wrong_line_is_told_with_its_number),
        cmocka_unit_test(long_lines_are_read_whole),
        cmocka_unit_test(a_form_can_be_a_file),
        cmocka_unit_test(a_question_ends_where_its_answer_begins),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
