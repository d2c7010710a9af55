// Writes a form as Jinja: see form.h. Tags strip the white space around them.
#include "data/chat/form.h"

#include <stdio.h>
#include <string.h>

struct Jinja {
    FILE *out;
    const struct Form *form;
    const char *begin, *end;
};

// Writes the inside of a Jinja string.
static void write_letters(FILE *out, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        switch (text[i]) {
        case '\n':
            fputs("\\n", out);
            break;
        case '\'':
        case '\\':
            fputc('\\', out); // fall through
        default:
            fputc(text[i], out);
        }
}

// Writes the inside of a JSON string. A # is escaped: it could end the Jinja comment around it.
static void write_json_letters(FILE *out, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < ' ' || strchr("\"\\#", text[i]))
            fprintf(out, "\\u%04x", (unsigned)text[i]);
        else
            fputc(text[i], out);
}

typedef void PutLetters(FILE *out, const char *text, size_t n);

// Writes a form's string, with {bos} and {eos} replaced by the tokens.
static void write_marked(const struct Jinja *j, PutLetters *put, const char *text) {
    while (*text) {
        const char *mark = strstr(text, "{bos}"), *eos = strstr(text, "{eos}");
        mark = !mark || (eos && eos < mark) ? eos : mark;
        put(j->out, text, mark ? (size_t)(mark - text) : strlen(text));
        if (!mark)
            break;
        const char *token = mark == eos ? j->end : j->begin;
        put(j->out, token ? token : "", token ? strlen(token) : 0);
        text = mark + strlen("{bos}");
    }
}

// Writes a form's string as a Jinja string, in quotes.
static void write_string(const struct Jinja *j, const char *text) {
    fputc('\'', j->out);
    write_marked(j, write_letters, text);
    fputc('\'', j->out);
}

// Writes a JSON member. `put` writes its text; NULL: the text is a form's string.
static void write_member(const struct Jinja *j, const char *name, PutLetters *put,
                         const char *text) {
    fprintf(j->out, "\"%s\": \"", name);
    put ? put(j->out, text, strlen(text)) : write_marked(j, write_json_letters, text);
    fputc('"', j->out);
}

// Writes a form from a file as JSON, which form_file_read reads.
static void write_source(const struct Jinja *j) {
    const struct Form *f = j->form;
    fputs(FORM_SOURCE "{", j->out);
    for (int r = 0; r < NROLE; r++) {
        if (!f->role[r].prefix)
            continue;
        fprintf(j->out, "\"%s\": {", role_names[r]);
        write_member(j, "prefix", NULL, f->role[r].prefix);
        fputs(", ", j->out);
        write_member(j, "suffix", NULL, f->role[r].suffix);
        fputs("}, ", j->out);
    }
    if (f->default_system) { // it is text, without marks
        write_member(j, "default_system", write_json_letters, f->default_system);
        fputs(", ", j->out);
    }
    write_member(j, "begin", NULL, f->begin ? f->begin : "");
    fputs("} -#}\n", j->out);
}

static void write_print(const struct Jinja *j, const char *text) {
    if (!*text)
        return;
    fputs("{{- ", j->out);
    write_string(j, text);
    fputs(" -}}\n", j->out);
}

static void write_raise_if(const struct Jinja *j, const char *condition, const char *why) {
    fprintf(j->out, "{%%- if %s -%%}\n{{- raise_exception('%s') -}}\n{%%- endif -%%}\n", condition,
            why);
}

// Writes what comes before the first message: checks, the beginning, the default system message.
static void write_head(const struct Jinja *j) {
    const struct Form *f = j->form;
    fputs("{%- set first = messages and messages[0]['role'] == 'system' -%}\n", j->out);
    if (f->rules & FORM_THINKS)
        fputs("{%- set seen = namespace(asked=false) -%}\n"
              "{%- for message in messages -%}\n"
              "{%- if message['role'] == 'user' and not "
              "(message['content'].startswith('<tool_response>') and "
              "message['content'].endswith('</tool_response>')) -%}\n"
              "{%- set seen.asked = true -%}\n{%- endif -%}\n{%- endfor -%}\n",
              j->out);
    if (f->system == SYSTEM_LAST)
        write_raise_if(j, "first and messages[-1]['role'] != 'user'",
                       "a system message stands in front of the last question, which is not there");
    if (f->begin)
        write_print(j, f->begin);
    if (!f->default_system)
        return;
    fputs("{%- if not first -%}\n", j->out);
    write_print(j, form_first_system(f));
    fputs("{{- '", j->out);
    write_letters(j->out, f->default_system,
                  strlen(f->default_system)); // it is text, without marks
    fputs("' -}}\n", j->out);
    write_print(j, f->role[ROLE_SYSTEM].suffix);
    fputs("{%- endif -%}\n", j->out);
}

static void write_content(const struct Jinja *j, enum Role role) {
    static const char *const trims[] = {"{{- message['content'] -}}\n",
                                        "{{- message['content'] | trim -}}\n"};
    unsigned rules = j->form->rules;
    fputs(trims[(rules & FORM_TRIMS) || (rules & FORM_TRIMS_ANSWER && role == ROLE_ASSISTANT)],
          j->out);
}

static void write_system(const struct Jinja *j) {
    const struct Form *f = j->form;
    if (form_merges(f)) {
        write_raise_if(j, "not loop.first", "a system message is the first alone");
        return;
    }
    if (f->first_system) {
        fputs("{%- if loop.first -%}\n", j->out);
        write_print(j, f->first_system);
        fputs("{%- else -%}\n", j->out);
    }
    write_print(j, f->role[ROLE_SYSTEM].prefix);
    if (f->first_system)
        fputs("{%- endif -%}\n", j->out);
    write_content(j, ROLE_SYSTEM);
    write_print(j, f->role[ROLE_SYSTEM].suffix);
}

static void write_user(const struct Jinja *j) {
    const struct Form *f = j->form;
    write_print(j, f->role[ROLE_USER].prefix);
    if (form_merges(f)) {
        fprintf(j->out, "{%%- if first and %s -%%}\n{{- messages[0]['content'] -}}\n",
                f->system == SYSTEM_FIRST ? "loop.index0 == 1" : "loop.last");
        write_print(j, f->role[ROLE_SYSTEM].suffix);
        fputs("{%- endif -%}\n", j->out);
    }
    write_content(j, ROLE_USER);
    write_print(j, f->role[ROLE_USER].suffix);
}

static void write_assistant(const struct Jinja *j) {
    const struct Form *f = j->form;
    write_print(j, f->role[ROLE_ASSISTANT].prefix);
    if (f->rules & FORM_THINKS) {
        write_raise_if(j, "'</think>' in message['content']", "thoughts are not supported");
        fputs("{%- if loop.last and seen.asked -%}\n"
              "{{- '<think>\\n\\n</think>\\n\\n' + message['content'].lstrip('\\n') -}}\n"
              "{%- else -%}\n",
              j->out);
    }
    write_content(j, ROLE_ASSISTANT);
    if (f->rules & FORM_THINKS)
        fputs("{%- endif -%}\n", j->out);
    write_print(j, f->role[ROLE_ASSISTANT].suffix);
}

// Writes `edge` unless `beside`, Jinja's previtem or nextitem, is a tool message, too.
static void write_edge_of_tools(const struct Jinja *j, const char *beside, const char *edge) {
    if (!edge)
        return;
    fprintf(j->out, "{%%- if loop.%s or loop.%s['role'] != 'tool' -%%}\n",
            strcmp(beside, "previtem") == 0 ? "first" : "last", beside);
    write_print(j, edge);
    fputs("{%- endif -%}\n", j->out);
}

static void write_tool(const struct Jinja *j) {
    const struct Form *f = j->form;
    write_edge_of_tools(j, "previtem", f->tools_open);
    write_print(j, f->role[ROLE_TOOL].prefix);
    write_content(j, ROLE_TOOL);
    write_print(j, f->role[ROLE_TOOL].suffix);
    write_edge_of_tools(j, "nextitem", f->tools_end);
}

static void write_messages(const struct Jinja *j) {
    static void (*const put[NROLE])(const struct Jinja *) = {[ROLE_SYSTEM] = write_system,
                                                             [ROLE_USER] = write_user,
                                                             [ROLE_ASSISTANT] = write_assistant,
                                                             [ROLE_TOOL] = write_tool};
    const struct Form *f = j->form;
    fputs("{%- for message in messages -%}\n", j->out);
    if (f->rules & FORM_ALTERNATES)
        write_raise_if(j,
                       "message['role'] != 'system' and (message['role'] == 'user') != "
                       "((loop.index0 - (1 if first else 0)) % 2 == 0)",
                       "questions and answers take turns");
    const char *word = "if";
    for (int r = 0; r < NROLE; r++) {
        if (!f->role[r].prefix || (r == ROLE_SYSTEM && f->system == SYSTEM_REFUSED))
            continue;
        fprintf(j->out, "{%%- %s message['role'] == '%s' -%%}\n", word, role_names[r]);
        put[r](j);
        word = "elif";
    }
    fputs("{%- else -%}\n{{- raise_exception('no such role: ' + message['role']) -}}\n"
          "{%- endif -%}\n{%- endfor -%}\n",
          j->out);
}

char *form_jinja(const struct Form *f, const char *begin, const char *end) {
    char *text;
    size_t n;
    struct Jinja j = {open_memstream(&text, &n), f, begin, end};
    if (!j.out)
        base_out_of_memory(0, "a chat template");
    if (f->from_file)
        write_source(&j);
    write_head(&j);
    write_messages(&j);
    if (f->ask && *f->ask) {
        fputs("{%- if add_generation_prompt -%}\n", j.out);
        write_print(&j, f->ask);
        fputs("{%- endif -%}\n", j.out);
    }
    if (fclose(j.out))
        base_out_of_memory(0, "a chat template");
    return text;
}
