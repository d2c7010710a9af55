// Renders conversations by forms: see template.h.
#include "data/chat/template.h"
#include "data/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct Template {
    const struct Form *form;
    const struct Tokenizer *tokenizer;
    struct FormFile file;       // for a form from a file
    int32_t control[2 * NROLE]; // control tokens that open and end the roles' messages; -1: text
};

static char *make_jinja(const struct Tokenizer *t, const struct Form *f) {
    char *begin = tokenizer_token_text(t, tokenizer_begin(t));
    char *end = tokenizer_token_text(t, tokenizer_end(t)), *text = form_jinja(f, begin, end);
    free(begin);
    free(end);
    return text;
}

// Returns the built-in form of a Jinja template, which may be our export of it; NULL: none.
static const struct Form *find_form(const struct Tokenizer *t, const char *jinja) {
    const struct Form *f = form_of_template(jinja);
    for (size_t i = 0; !f && form_at(i); i++) {
        char *ours = make_jinja(t, form_at(i));
        f = strcmp(ours, jinja) == 0 ? form_at(i) : NULL;
        free(ours);
    }
    return f;
}

// Returns the form from a file that we have exported: its JSON stands before the Jinja text, which
// must be that of the form. NULL: it is none.
static const struct Form *read_exported_form(struct Template *t, const char *jinja) {
    size_t begin = strlen(FORM_SOURCE);
    const char *end = strstr(jinja, " -#}\n");
    struct Error ignored;
    if (strncmp(jinja, FORM_SOURCE, begin) || !end)
        return NULL;
    size_t n = (size_t)(end - jinja) - begin;
    t->file.text = base_format("%.*s", (int)n, jinja + begin);
    if (form_file_read(&t->file.form, "the tokenizer's own", t->file.text, n, &ignored))
        return NULL;
    char *ours = make_jinja(t->tokenizer, &t->file.form);
    bool same = strcmp(ours, jinja) == 0;
    free(ours);
    return same ? &t->file.form : NULL;
}

// Chooses the form by its name, or by the tokenizer's own template.
static int choose_form(struct Template *t, const char *name, struct Error *e) {
    const char *own = tokenizer_chat_template(t->tokenizer);
    if (name && form_is_file(name)) {
        t->form = &t->file.form;
        return form_file_open(&t->file, name, e);
    }
    t->form = name ? form_named(name) : own ? find_form(t->tokenizer, own) : NULL;
    if (!name && own && !t->form)
        t->form = read_exported_form(t, own);
    if (t->form)
        return 0;
    if (name)
        return form_check(name, e);
    char *what = own ? base_format("the tokenizer's chat template is none of the known ones")
                     : base_format("the tokenizer, %s, has no chat template, as a chat model's "
                                   "folder has (--init hf:DIR, --tokenizer DIR)",
                                   tokenizer_describe(t->tokenizer));
    int err = form_refuse(what, e);
    free(what);
    return err;
}

// Returns the token, begin or end, that the form uses and the tokenizer lacks; NULL: none.
static const char *find_absent_token(const struct Template *t) {
    const struct Form *f = t->form;
    bool begin = tokenizer_begin(t->tokenizer) >= 0, end = tokenizer_end(t->tokenizer) >= 0;
    for (int i = 0; i <= 2 * NROLE; i++) {
        const char *text = i == 2 * NROLE ? f->begin
                           : i % 2        ? f->role[i / 2].suffix
                                          : f->role[i / 2].prefix;
        if (text && !begin && strstr(text, "{bos}"))
            return "a begin token";
        if (text && !end && strstr(text, "{eos}"))
            return "an end token";
    }
    return NULL;
}

// Checks that the tokenizer has the tokens that the form needs, and one that ends an answer.
static int check_tokens(const struct Template *t, struct Error *e) {
    const struct Form *f = t->form;
    const char *description = tokenizer_describe(t->tokenizer);
    const char *absent = find_absent_token(t), *what = "";
    for (size_t i = 0; i < FORM_NEEDS && f->needs[i] && !absent; i++) {
        absent = writer_find_control(t->tokenizer, f->needs[i]) < 0 ? f->needs[i] : NULL;
        what = "the control token ";
    }
    if (absent)
        return error_set(e, -EINVAL, E_CHAT_TEMPLATE_TOKENS,
                         "chat template %s needs %s%s, which the tokenizer lacks: %s; expected the "
                         "tokenizer of a chat model, or another --chat-template",
                         f->name, what, absent, description);
    if (writer_find_control(t->tokenizer, f->role[ROLE_ASSISTANT].suffix) < 0)
        return error_set(e, -EINVAL, E_CHAT_TEMPLATE_TOKENS,
                         "--chat-template %s: the assistant's suffix needs a control token, such "
                         "as {eos}, that ends an answer, and has none of this tokenizer's: %s",
                         f->name, description);
    return 0;
}

static void find_controls(struct Template *t) {
    for (int i = 0; i < 2 * NROLE; i++) {
        const char *text = i % 2 ? t->form->role[i / 2].suffix : t->form->role[i / 2].prefix;
        t->control[i] = text ? writer_find_control(t->tokenizer, text) : -1;
    }
}

int template_open(struct Template **out, const struct Tokenizer *t, const char *name,
                  struct Error *e) {
    struct Template *made = base_alloc_zeroed(sizeof *made);
    made->tokenizer = t;
    *out = NULL;
    int err = choose_form(made, name, e);
    if (!err)
        err = check_tokens(made, e);
    if (err) {
        template_close(made);
        return err;
    }
    find_controls(made);
    *out = made;
    return 0;
}

void template_close(struct Template *t) {
    if (!t)
        return;
    form_file_close(&t->file);
    free(t);
}

const char *template_name(const struct Template *t) {
    return t->form->name;
}

bool template_drops_thoughts(const struct Template *t) {
    return t->form->rules & FORM_THINKS;
}

bool template_has_token(const struct Template *t, int32_t id) {
    bool has = false;
    for (int i = 0; i < 2 * NROLE; i++)
        has = has || t->control[i] == id;
    return has && id >= 0;
}

size_t template_stops(const struct Template *t, int32_t stops[TEMPLATE_STOPS]) {
    int32_t end = tokenizer_end(t->tokenizer);
    stops[0] = writer_find_control(t->tokenizer, t->form->role[ROLE_ASSISTANT].suffix);
    stops[1] = end;
    return end >= 0 && end != stops[0] ? 2 : 1;
}

char *template_jinja(const struct Template *t) {
    const char *own = tokenizer_chat_template(t->tokenizer);
    char *text = make_jinja(t->tokenizer, t->form);
    bool is_own = own && (find_form(t->tokenizer, own) == t->form || strcmp(own, text) == 0);
    if (is_own)
        free(text);
    return is_own ? NULL : text;
}

// ---- contents of messages -----------------------------------------------------------------------

static bool begins_with(const struct Message *m, const char *with) {
    size_t n = strlen(with);
    return m->bytes >= n && !memcmp(m->text, with, n);
}

static bool ends_with(const struct Message *m, const char *with) {
    size_t n = strlen(with);
    return m->bytes >= n && !memcmp(m->text + m->bytes - n, with, n);
}

// The state of template_render.
struct Render {
    const struct Form *form;
    const struct Message *messages;
    size_t count;
    struct Writer writer;
    const struct Message *system; // its text opens a user's message; NULL: none
    bool asked;                   // at least one user's message is no <tool_response>
};

// Returns message i, without white space around its text if the form strips it.
static struct Message get_trimmed_message(const struct Render *r, size_t i) {
    struct Message m = r->messages[i];
    unsigned rules = r->form->rules;
    if ((rules & FORM_TRIMS) || (rules & FORM_TRIMS_ANSWER && m.role == ROLE_ASSISTANT))
        m.text = utf8_strip(m.text, &m.bytes);
    return m;
}

// ---- conversations that a form refuses ----------------------------------------------------------

static int refuse_role(const struct Form *f, size_t i, enum Role role, struct Error *e) {
    char known[64] = "";
    for (int k = 0; k < NROLE; k++) {
        bool knows = f->role[k].prefix && !(k == ROLE_SYSTEM && f->system == SYSTEM_REFUSED);
        if (knows)
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s",
                     *known ? ", " : "", role_names[k]);
    }
    return error_set(e, -EINVAL, E_CHAT_TEMPLATE_TURNS,
                     "message %zu has the role %s, which chat template %s does not know; expected "
                     "%s",
                     i + 1, role_names[role], f->name, known);
}

// turn: the number of message i, from 0, not counting a system message in front.
static int check_message(const struct Render *r, size_t i, size_t turn, struct Error *e) {
    const struct Form *f = r->form;
    const struct Message *m = &r->messages[i];
    if (!f->role[m->role].prefix || (m->role == ROLE_SYSTEM && f->system == SYSTEM_REFUSED))
        return refuse_role(f, i, m->role, e);
    if (m->role == ROLE_SYSTEM && form_merges(f) && i)
        return error_set(e, -EINVAL, E_CHAT_TEMPLATE_TURNS,
                         "message %zu has the role system, which chat template %s takes in the "
                         "first message alone; move it there",
                         i + 1, f->name);
    enum Role due = turn % 2 ? ROLE_ASSISTANT : ROLE_USER;
    if (f->rules & FORM_ALTERNATES && m->role != ROLE_SYSTEM && m->role != due)
        return error_set(e, -EINVAL, E_CHAT_TEMPLATE_TURNS,
                         "message %zu has the role %s where chat template %s expects %s: they take "
                         "turns, and a user begins",
                         i + 1, role_names[m->role], f->name, role_names[due]);
    if (f->rules & FORM_THINKS && m->role == ROLE_ASSISTANT &&
        memmem(m->text, m->bytes, "</think>", 8))
        return error_set(e, -EINVAL, E_CHAT_TEMPLATE_THOUGHTS,
                         "message %zu holds thoughts (</think>), which are not supported with chat "
                         "template %s; expected the answer alone",
                         i + 1, f->name);
    return 0;
}

static int check_messages(const struct Render *r, struct Error *e) {
    const struct Form *f = r->form;
    bool system = r->count && r->messages[0].role == ROLE_SYSTEM;
    int err = 0;
    for (size_t i = 0; i < r->count && !err; i++)
        err = check_message(r, i, i - (i && system), e);
    if (err || !system || f->system != SYSTEM_LAST)
        return err;
    return r->messages[r->count - 1].role == ROLE_USER
               ? 0
               : error_set(e, -EINVAL, E_CHAT_TEMPLATE_TURNS,
                           "chat template %s leaves a system message out unless a user's message "
                           "is the last; expected a conversation without one, or --chat-template "
                           "mistral-v1",
                           f->name);
}

// ---- from messages to ids -----------------------------------------------------------------------

// True if the merged system message is put before message i.
static bool takes_system(const struct Render *r, size_t i) {
    if (!r->system || r->messages[i].role != ROLE_USER)
        return false;
    return r->form->system == SYSTEM_FIRST ? i == 1 : i + 1 == r->count;
}

// Writes what the chat template puts before the first and after the last of consecutive tool
// messages (Qwen wraps them in one user turn).
static int write_tool_wrapper(struct Render *r, size_t i, bool open, struct Error *e) {
    const char *edge = open ? r->form->tools_open : r->form->tools_end;
    size_t neighbour = open ? i - 1 : i + 1; // SIZE_MAX before message 0
    bool inside = neighbour < r->count && r->messages[neighbour].role == ROLE_TOOL;
    return r->messages[i].role == ROLE_TOOL && edge && !inside
               ? write_form(&r->writer, edge, false, e)
               : 0;
}

// Writes what stands before the text of message i: prefix, empty thoughts, merged system message.
// Behind thoughts, newlines that begin the text of *m are dropped, as Qwen3's template does.
static int render_head(struct Render *r, size_t i, struct Message *m, struct Error *e) {
    const struct Form *f = r->form;
    const char *prefix = f->role[m->role].prefix;
    bool is_last_answer = m->role == ROLE_ASSISTANT && i + 1 == r->count;
    bool thinks = f->rules & FORM_THINKS && is_last_answer && r->asked;
    if (m->role == ROLE_SYSTEM && !i)
        prefix = form_first_system(f);
    int err = write_form(&r->writer, prefix, false, e);
    if (!err && thinks)
        err = write_form(&r->writer, "<think>\n\n</think>\n\n", false, e);
    for (; thinks && begins_with(m, "\n"); m->bytes--)
        m->text++;
    if (!err && takes_system(r, i)) {
        write_text(&r->writer, r->system->text, r->system->bytes, false);
        err = write_form(&r->writer, f->role[ROLE_SYSTEM].suffix, false, e);
    }
    return err;
}

static int render_message(struct Render *r, size_t i, struct Error *e) {
    struct Message m = get_trimmed_message(r, i);
    bool answer = m.role == ROLE_ASSISTANT && !m.in_prompt;
    int err = write_tool_wrapper(r, i, true, e);
    if (!err)
        err = render_head(r, i, &m, e);
    if (err)
        return err;
    write_text(&r->writer, m.text, m.bytes, answer);
    err = write_form(&r->writer, r->form->role[m.role].suffix, answer, e);
    return err ? err : write_tool_wrapper(r, i, false, e);
}

static int render_default_system(struct Render *r, struct Error *e) {
    const struct Form *f = r->form;
    if (!f->default_system || (r->count && r->messages[0].role == ROLE_SYSTEM))
        return 0;
    int err = write_form(&r->writer, form_first_system(f), false, e);
    write_text(&r->writer, f->default_system, strlen(f->default_system), false);
    return err ? err : write_form(&r->writer, f->role[ROLE_SYSTEM].suffix, false, e);
}

static int render(struct Render *r, bool ask, struct Error *e) {
    const struct Form *f = r->form;
    r->system =
        form_merges(f) && r->count && r->messages[0].role == ROLE_SYSTEM ? r->messages : NULL;
    for (size_t i = 0; i < r->count; i++) {
        const struct Message *m = &r->messages[i];
        bool is_tool = begins_with(m, "<tool_response>") && ends_with(m, "</tool_response>");
        r->asked |= m->role == ROLE_USER && !is_tool;
    }
    int err = f->begin ? write_form(&r->writer, f->begin, false, e) : 0;
    if (!err)
        err = render_default_system(r, e);
    for (size_t i = r->system ? 1 : 0; i < r->count && !err; i++)
        err = render_message(r, i, e);
    if (!err && ask)
        err = write_form(&r->writer, f->ask, false, e);
    return err ? err : write_end(&r->writer, e);
}

int template_render(const struct Template *t, const struct Message *messages, size_t count,
                    bool ask, struct Masked *out, struct Error *e) {
    struct Render r = {.form = t->form,
                       .messages = messages,
                       .count = count,
                       .writer = {.t = t->tokenizer, .out = out}};
    int err = check_messages(&r, e);
    if (!err)
        err = render(&r, ask, e);
    write_free(&r.writer);
    return err;
}
