// Prints each known form as Jinja text, and what it makes of the conversations of
// tests/fixtures/chat, as JSON lines:
//
//   {"form": NAME, "jinja": TEXT}
//   {"text": TEXT} or {"refused": LINE}    for each conversation,
//   {"asked": TEXT} or null                and for each question of one
//
// Started by scripts/dev/exports_torch.sh, whose tests/torch/chat_jinja.py renders the same by
// transformers.
#include "tests/lib/chat_fixture.h"

#include <cjson/cJSON.h>

// Ids as the text that they are made of, with control tokens. free() it.
static char *spell(const struct Toy *toy, const struct Ids *ids) {
    char *text = base_alloc(ids->count * 64 + 1), *at = text;
    for (size_t i = 0; i < ids->count; i++) {
        char *control = __wrap_tokenizer_token_text(toy_tokenizer(toy), ids->data[i]);
        if (control)
            at += sprintf(at, "%s", control);
        else
            at += toy_spell(toy, ids->data[i], at);
        free(control);
    }
    *at = 0;
    return text;
}

static void print_line(const char *key, const char *text) {
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, key, text);
    char *printed = cJSON_PrintUnformatted(line);
    puts(printed);
    cJSON_free(printed);
    cJSON_Delete(line);
}

static void print_rendered(const struct Template *t, const struct Toy *toy, const struct Line *line,
                           size_t n, bool ask) {
    struct Masked m = {0};
    struct Error e = {0};
    if (template_render(t, line->messages, n, ask, &m, &e)) {
        print_line("refused", e.text);
    } else {
        char *text = spell(toy, &m.ids);
        print_line(ask ? "asked" : "text", text);
        free(text);
    }
    masked_free(&m);
}

static void print_form(const struct Fixture *f, const struct Expected *x) {
    struct Template *t;
    struct Error e;
    assert_ok(template_open(&t, toy_tokenizer(&x->toy), x->form, &e), &e);
    char *jinja = template_jinja(t);
    cJSON *head = cJSON_CreateObject();
    cJSON_AddStringToObject(head, "form", x->form);
    cJSON_AddStringToObject(head, "jinja", jinja);
    char *printed = cJSON_PrintUnformatted(head);
    puts(printed);
    cJSON_free(printed);
    cJSON_Delete(head);
    free(jinja);
    for (size_t i = 0; i < CONVERSATIONS; i++) {
        const struct Line *line = &f->conversation[i];
        size_t n = line->count;
        print_rendered(t, &x->toy, line, n, false);
        while (n && line->messages[n - 1].role == ROLE_ASSISTANT)
            n--;
        if (x->asks[i])
            print_rendered(t, &x->toy, line, n, true);
        else
            puts("null");
    }
    template_close(t);
}

int main(void) {
    void *state;
    chat_set_up(&state);
    const struct Fixture *f = state;
    for (size_t i = 0; i < f->forms; i++)
        print_form(f, &f->form[i]);
    chat_tear_down(&state);
    return 0;
}
