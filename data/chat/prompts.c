// Reads the prompts of a file: see prompts.h.
#include "data/chat/prompts.h"
#include "data/chat/line.h"
#include "data/chat/lines.h"
#include "data/chat/template.h"
#include "data/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// A line while it is read.
struct PromptLine {
    struct Scan scan;
    struct JsonSlice prompt;
    struct Line line; // the messages
    bool has_messages;
    bool in_body;             // a member "body" is read, or has been, with the others
    struct JsonShown unknown; // a member on which the answer to messages depends, such as "tools"
};

// Reads a member that means nothing here. Refuses one that says how this one answer is drawn.
static int read_other_member(struct PromptLine *a, const struct JsonSlice *name, struct Error *e) {
    static const char *const flags[][2] = {{"max_tokens", "; give --sample-tokens"},
                                           {"max_completion_tokens", "; give --sample-tokens"},
                                           {"max_new_tokens", "; give --sample-tokens"},
                                           {"temperature", "; give --temperature"},
                                           {"top_p", "; give --top-p"},
                                           {"top_k", "; give --top-k"},
                                           {"seed", "; give --seed"},
                                           {"stop", ""}};
    size_t i = 0, n = sizeof flags / sizeof *flags;
    while (i < n && !slice_is(name, flags[i][0]))
        i++;
    if (line_read_empty(&a->scan) || i == n || a->scan.wrong)
        return 0;
    return error_set(e, -EINVAL, E_EXAMPLE_UNSUPPORTED,
                     "it has \"%s\", but all prompts of a run are answered in one way; leave it "
                     "out%s",
                     flags[i][0], flags[i][1]);
}

static int read_members(struct PromptLine *a, struct Error *e);

static int read_member(struct PromptLine *a, const struct JsonSlice *name, struct Error *e) {
    struct Scan *s = &a->scan;
    const char *other = scan_other_type(s);
    bool null = other && !strcmp(other, "null");
    if (!a->in_body && slice_is(name, "body") && other && !strcmp(other, "an object")) {
        a->in_body = true;
        return read_members(a, e);
    }
    bool prompt = slice_is(name, "prompt"), messages = slice_is(name, "messages");
    if ((prompt && a->prompt.text) || (messages && a->has_messages))
        return error_set(e, -EINVAL, E_JSON_DUPLICATE_KEY,
                         "\"%s\" is there twice; keep one of them", json_shown(name->text).text);
    if (slice_is(name, "answer") || slice_is(name, "finish_reason"))
        return error_set(e, -EINVAL, E_PROMPTS_LINE,
                         "it has \"%s\" already, which its answer would add; rename it",
                         json_shown(name->text).text);
    if (prompt && other)
        return error_set(e, -EINVAL, E_PROMPTS_LINE, "its \"prompt\" is %s; expected a text",
                         other);
    if (prompt) {
        scan_text(s, &a->prompt, "expected a text");
        return 0;
    }
    if (messages) {
        a->has_messages = true;
        return line_read_messages(&a->line, s, e);
    }
    bool matters = member_refusal(name) == REFUSE_FILLED || member_named(name) == MEMBER_SYSTEM;
    if (null)
        scan_skip(s, NULL);
    else if (!matters)
        return read_other_member(a, name, e);
    else if (!line_read_empty(s) && !*a->unknown.text)
        a->unknown = json_shown(name->text);
    return 0;
}

static int read_members(struct PromptLine *a, struct Error *e) {
    struct JsonSlice name;
    bool first = true;
    int err = 0;
    scan_expect(&a->scan, '{', "expected a JSON object");
    while (!err && scan_member(&a->scan, &first, &name))
        err = read_member(a, &name, e);
    return err;
}

static int check_kind(const struct PromptLine *a, struct Error *e) {
    const struct Line *line = &a->line;
    if (!a->has_messages == !a->prompt.text)
        return error_set(e, -EINVAL, E_PROMPTS_LINE,
                         "it has %s; expected one of \"prompt\", a text that is continued, and "
                         "\"messages\", a conversation that is answered",
                         a->has_messages ? "\"prompt\" and \"messages\""
                                         : "no \"prompt\" and no \"messages\"");
    if (!a->has_messages)
        return 0;
    if (*a->unknown.text)
        return error_set(e, -EINVAL, E_EXAMPLE_UNSUPPORTED,
                         "it has \"%s\" beside its messages, which is not supported; leave it out, "
                         "or put what it says into a message",
                         a->unknown.text);
    if (line->count && line->messages[line->count - 1].role == ROLE_USER)
        return 0;
    return error_set(e, -EINVAL, E_PROMPTS_LINE,
                     "its messages %s%s; expected the question at the end, of the role user",
                     line->count ? "end with the role " : "are empty",
                     line->count ? role_names[line->messages[line->count - 1].role] : "");
}

// Reads a line, which is no blank one, up to what is asked.
static int read_line(struct PromptLine *a, char *text, size_t bytes, struct Error *e) {
    a->scan = scan_line(text, bytes);
    int err = read_members(a, e);
    if (a->scan.wrong || (!err && !scan_done(&a->scan)))
        return error_set(e, -EINVAL, E_JSON_SYNTAX, "byte %zu: %s", (size_t)(a->scan.at - text) + 1,
                         a->scan.wrong);
    return err ? err : check_kind(a, e);
}

// ---- ids ----------------------------------------------------------------------------------------

static int encode_text(const struct Prompts *p, const struct JsonSlice *text, struct Ids *ids,
                       struct Error *e) {
    const struct Tokenizer *t = p->spec.tokenizer;
    int32_t begin = tokenizer_begin(t);
    struct Ids read = {0};
    int err = tokenizer_encode(t, text->text, text->bytes, &read, e);
    if (begin >= 0 && !(read.count && read.data[0] == begin))
        ids_append(ids, begin);
    for (size_t i = 0; i < read.count; i++)
        ids_append(ids, read.data[i]);
    ids_free(&read);
    if (!err && !ids->count)
        err = error_set(e, -EINVAL, E_PROMPT_EMPTY,
                        "its prompt is empty; expected at least one token");
    return err;
}

static int open_template(struct Prompts *p, struct Error *e) {
    int32_t stops[TEMPLATE_STOPS];
    int err = p->template ? 0 : template_open(&p->template, p->spec.tokenizer, p->spec.template, e);
    if (err || p->stops[true].count)
        return err;
    for (size_t i = 0, n = template_stops(p->template, stops); i < n; i++)
        ids_append(&p->stops[true], stops[i]);
    return 0;
}

static int encode_messages(struct Prompts *p, struct Line *line, struct Ids *ids, struct Error *e) {
    struct Masked rendered = {0};
    int err = open_template(p, e);
    if (p->spec.system)
        line_add_system(line, p->spec.system, strlen(p->spec.system));
    if (!err)
        err = template_render(p->template, line->messages, line->count, true, &rendered, e);
    *ids = rendered.ids;
    rendered.ids = (struct Ids){0};
    masked_free(&rendered);
    return err;
}

static int encode_prompt(struct Prompts *p, struct Prompt *prompt, struct PromptLine *a,
                         struct Error *e) {
    prompt->stops = &p->stops[a->has_messages];
    int err = a->has_messages ? encode_messages(p, &a->line, &prompt->ids, e)
                              : encode_text(p, &a->prompt, &prompt->ids, e);
    return err || prompt->ids.count < p->spec.longest
               ? err
               : error_set(e, -EINVAL, E_PROMPT_TOO_LONG,
                           "it has %zu tokens, but the model sees at most %zu, and an answer needs "
                           "one; shorten it, or raise --seq-len",
                           prompt->ids.count, p->spec.longest);
}

// ---- the file -----------------------------------------------------------------------------------

// Copies a line without white space around it; line breaks become spaces.
static char *copy_object(const char *text, size_t bytes) {
    text = utf8_strip(text, &bytes);
    char *object = base_format("%.*s", (int)bytes, text);
    for (char *at = object; (at = strpbrk(at, "\r\n"));)
        *at = ' ';
    return object;
}

static int read_prompt(struct Prompts *p, char *text, size_t bytes, struct Error *e) {
    int err = line_check(text, bytes, e);
    if (err <= 0)
        return err;
    p->prompt = base_grow(p->prompt, p->count, &p->room, sizeof *p->prompt, "prompts");
    struct Prompt *prompt = &p->prompt[p->count++];
    struct PromptLine a = {0};
    *prompt = (struct Prompt){.object = copy_object(text, bytes)};
    err = read_line(&a, text, bytes, e);
    if (!err)
        err = encode_prompt(p, prompt, &a, e);
    if (!err)
        prompt->object[strlen(prompt->object) - 1] = 0; // the closing brace
    line_free(&a.line);
    return err;
}

static int read_prompts(struct Prompts *p, struct Lines *lines, struct Error *e) {
    struct Error why;
    char *text;
    size_t bytes;
    int err;
    while ((err = lines_next(lines, &text, &bytes, e)) > 0) {
        err = read_prompt(p, text, bytes, &why);
        if (err)
            return lines_refuse(lines, err, &why, e);
    }
    if (!err && !p->count)
        err = error_set(e, -EINVAL, E_EXAMPLES_NONE,
                        "--prompts %s: there is no prompt in it; give a file that has some",
                        p->spec.path);
    return err;
}

int prompts_open(struct Prompts **out, const struct PromptsSpec *spec, struct Error *e) {
    struct Prompts *p = *out = base_alloc_zeroed(sizeof *p);
    struct Lines lines;
    p->spec = *spec;
    if (tokenizer_end(spec->tokenizer) >= 0)
        ids_append(&p->stops[false], tokenizer_end(spec->tokenizer));
    int err = spec->template ? open_template(p, e) : 0;
    if (!err) {
        err = lines_open(&lines, spec->path, "--prompts", e);
        if (!err)
            err = read_prompts(p, &lines, e);
        lines_close(&lines);
    }
    if (err) {
        prompts_close(p);
        *out = NULL;
    }
    return err;
}

void prompts_close(struct Prompts *p) {
    if (!p)
        return;
    for (size_t i = 0; i < p->count; i++) {
        free(p->prompt[i].object);
        ids_free(&p->prompt[i].ids);
    }
    template_close(p->template);
    ids_free(&p->stops[false]);
    ids_free(&p->stops[true]);
    free(p->prompt);
    free(p);
}
