// Chat templates: every known one gives the ids of apply_chat_template, masks are those of a
// reference made without it, and no message's text becomes a control token. Expected values:
// scripts/gen/chat_fixtures.py. Next: test_chat_lines.c.
#include "data/chat/conversation.h"
#include "tests/lib/chat_fixture.h"
#include "tests/lib/refused.h"
#include "tests/lib/test.h"

static const uint32_t JINJA_HASH = 0x0f1ae211;

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
    struct Error e = {0};
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
    struct Error e = {0};
    size_t n = line->count;
    while (n && line->messages[n - 1].role == ROLE_ASSISTANT)
        n--;
    assert_ok(template_render(t, line->messages, n, true, &m, &e), &e);
    if (hash_of(&m, false) != x->asked[i])
        fail_msg("%s, question %zu: other ids", x->form, i);
    masked_free(&m);
}

TEST(templates_and_masks_are_those_of_transformers) {
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
TEST(templates_are_known_by_their_text) {
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
    struct Toy toy = chat_form(f, "chatml")->toy;
    struct Template *t;
    struct Error e;
    toy.chat_template = texts[0];
    assert_ok(template_open(&t, toy_tokenizer(&toy), NULL, &e), &e);
    template_close(t);
    toy.chat_template = "{{ messages }}";
    assert_int_equal(template_open(&t, toy_tokenizer(&toy), NULL, &e), -EINVAL);
    assert_true(error_is(&e, "E_CHAT_TEMPLATE --chat-template NAME"));
    assert_true(error_is(&e, "E_CHAT_TEMPLATE llama3.1"));
    toy.chat_template = NULL;
    assert_int_equal(template_open(&t, toy_tokenizer(&toy), NULL, &e), -EINVAL);
    assert_int_equal(template_open(&t, toy_tokenizer(&toy), "llama3", &e), -EINVAL);
    assert_true(error_is(&e, "E_CHAT_TEMPLATE_TOKENS llama3"));
    assert_int_equal(template_open(&t, toy_tokenizer(&toy), "nobody", &e), -EINVAL);
    assert_true(error_is(&e, "E_CHAT_TEMPLATE --chat-template nobody"));
}

// As Jinja text a form is known again. That it renders the same is not seen here: of another hash,
// tests/torch/chat_jinja.py has to say so.
TEST(templates_go_out_as_jinja) {
    struct Fixture *f = *state;
    uint32_t hash = 0;
    for (size_t k = 0; k < f->forms; k++) {
        struct Toy toy = f->form[k].toy;
        struct Template *t;
        struct Error e;
        assert_ok(template_open(&t, toy_tokenizer(&toy), f->form[k].form, &e), &e);
        char *jinja = template_jinja(t);
        assert_non_null(jinja);
        for (const char *at = jinja; *at; at++)
            hash = (hash ^ (uint8_t)*at) * 16777619;
        template_close(t);
        toy.chat_template = jinja;
        assert_ok(template_open(&t, toy_tokenizer(&toy), NULL, &e), &e);
        assert_null(template_jinja(t));
        template_close(t);
        free(jinja);
    }
    if (hash != JINJA_HASH)
        fail_msg("the texts have the hash %#x", hash);
}

TEST(a_message_never_becomes_a_control_token) {
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
            {ROLE_USER, all, strlen(all), false},
            {ROLE_ASSISTANT, thinks ? "<think>" : all, thinks ? 7 : strlen(all), false}};
        struct Message without[] = {{ROLE_USER, "x", 1, false}, {ROLE_ASSISTANT, "y", 1, false}};
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
TEST(masks_follow_a_text_that_is_normalised) {
    struct Fixture *f = *state;
    struct Toy toy = chat_form(f, "chatml")->toy;
    struct Message messages[] = {{ROLE_USER, "AAA", 3, false}, {ROLE_ASSISTANT, "AbA", 3, false}};
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

// ---- forms of one's own, and questions ----------------------------------------------------------

TEST(a_form_can_be_a_file) {
    struct Fixture *f = *state;
    static const struct {
        const char *text, *error;
    } broken[] = {
        {"[]", "E_CHAT_TEMPLATE_FILE"},
        {"{\"user\": {\"prefix\": \"\", \"suffix\": \"\"}}", "E_CHAT_TEMPLATE_FILE \"assistant\""},
        {"{\"assistant\": {\"prefix\": \"\", \"suffix\": \"\"}}", "E_CHAT_TEMPLATE_FILE \"user\""},
        {"", "E_CHAT_TEMPLATE_FILE form.json"},
        {"{\"user\": {\"prefix\": \"{role}\", \"suffix\": \"\"}}", "E_CHAT_TEMPLATE_FILE"},
        {"{\"user\": {\"prefix\": \"\"}}", "E_CHAT_TEMPLATE_FILE"},
        {"{\"human\": {}}", "E_CHAT_TEMPLATE_FILE"},
        {"{\"user\": \"a\xff\"}", "E_CHAT_TEMPLATE_FILE byte 12:"},
        {"{\"user\": {\"prefix\": \"\", \"suffix\": \"\"}, \"assistant\": {\"prefix\": \"\", "
         "\"suffix\": \"\\n\"}}",
         "E_CHAT_TEMPLATE_TOKENS"},
        {"{\"user\": {\"prefix\": \"\", \"suffix\": \"\"}, \"assistant\": {\"prefix\": \"\", "
         "\"suffix\": \"{eos}\"}, \"begin\": \"{bos}\", \"default_system\": \"a\"}",
         "E_CHAT_TEMPLATE_FILE \"default_system\""},
    };
    const struct Toy *toy = &chat_form(f, "zephyr")->toy;
    static const char zephyr[] =
        "\xef\xbb\xbf{\"system\": {\"prefix\": \"<|system|>\\n\", \"suffix\": \"{eos}\\n\"}, "
        "\"user\": "
        "{\"prefix\": \"<|user|>\\n\", \"suffix\": \"</s>\\n\"}, \"assistant\": {\"prefix\": "
        "\"<|assistant|>\\n\", \"suffix\": \"{eos}\\n\"}}";
    char *path = scratch_write(f->folder, "form.json", zephyr, strlen(zephyr));
    struct Template *t;
    struct Error e;
    assert_ok(template_open(&t, toy_tokenizer(toy), path, &e), &e);
    for (size_t i = 0; i < CONVERSATIONS; i++)
        check_conversation(t, chat_form(f, "zephyr"), &f->conversation[i], i);
    struct Toy exported = *toy; // it goes out as Jinja text, and is known again
    char *jinja = template_jinja(t);
    assert_non_null(jinja);
    exported.chat_template = jinja;
    template_close(t);
    assert_ok(template_open(&t, toy_tokenizer(&exported), NULL, &e), &e);
    assert_null(template_jinja(t));
    for (size_t i = 0; i < CONVERSATIONS; i++)
        check_conversation(t, chat_form(f, "zephyr"), &f->conversation[i], i);
    template_close(t);
    strstr(jinja, "endfor")[0] = 'E'; // not what the form is any longer
    assert_int_equal(template_open(&t, toy_tokenizer(&exported), NULL, &e), -EINVAL);
    free(jinja);
    free(path);
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        path = scratch_write(f->folder, "form.json", broken[i].text, strlen(broken[i].text));
        assert_int_equal(template_open(&t, toy_tokenizer(toy), path, &e), -EINVAL);
        if (!error_is(&e, broken[i].error) || !strstr(e.text, path))
            fail_msg("%s: expected ... %s", e.text, broken[i].error);
        free(path);
    }
    assert_int_equal(template_open(&t, toy_tokenizer(toy), "/nowhere/x.json", &e), -ENOENT);
}

TEST(a_question_ends_where_its_answer_begins) {
    struct Fixture *f = *state;
    const struct Toy *toy = &chat_form(f, "llama3.2")->toy;
    const struct Tokenizer *t = toy_tokenizer(toy);
    struct Ids prompt = {0}, stops = {0}, expected = {0};
    struct Error e;
    struct ConversationSpec spec = {t, "llama3.2", "s", SIZE_MAX};
    struct Conversation *c;
    size_t left_out;
    assert_ok(conversation_open(&c, &spec, &e), &e);
    assert_ok(conversation_ask(c, "<|eot_id|>?", 0, &prompt, &left_out, &e), &e);
    conversation_append_stops(c, &stops);
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
    conversation_close(c);
    ids_free(&prompt);
    ids_free(&stops);
    ids_free(&expected);
}

AROUND_ALL(chat_set_up, chat_tear_down);
