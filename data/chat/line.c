// From a line to what it says: see line.h.
//
// Members that the three kinds do not have ("id", "source") are passed over where they stand beside
// the conversation, and so is what is null. Inside a message they would change what is taught (tool
// calls, a weight, a chain of thought), so there they are refused by name, unless they are null.
#include "data/chat/line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const role_names[NROLE] = {
    [ROLE_SYSTEM] = "system",
    [ROLE_USER] = "user",
    [ROLE_ASSISTANT] = "assistant",
    [ROLE_TOOL] = "tool",
};

// Which of the members were there.
enum { HAS_TEXT = 1, HAS_PROMPT = 2, HAS_COMPLETION = 4, HAS_MESSAGES = 8 };

static const struct {
    const char *name;
    unsigned bit;
} members[] = {{"text", HAS_TEXT},
               {"prompt", HAS_PROMPT},
               {"completion", HAS_COMPLETION},
               {"messages", HAS_MESSAGES}};

static bool is(const struct Piece *name, const char *text) {
    return name->bytes == strlen(text) && !memcmp(name->text, text, name->bytes);
}

// A name out of a line, for an error line: what cannot be printed is "?", and a long one is cut.
struct Shown {
    char text[48];
};
static struct Shown shown(const struct Piece *name) {
    struct Shown s = {{0}};
    size_t n = size_min(name->bytes, sizeof s.text - 1);
    for (size_t i = 0; i < n; i++)
        s.text[i] = (name->text[i] >= ' ' && name->text[i] <= '~') ? name->text[i] : '?';
    return s;
}

static int read_role(const struct Piece *name, size_t number, enum Role *role, struct Error *e) {
    for (int r = 0; r < NROLE; r++)
        if (is(name, role_names[r])) {
            *role = (enum Role)r;
            return 0;
        }
    return error_set(e, -EINVAL,
                     "message %zu has the unknown role \"%s\"; expected system, user, assistant or "
                     "tool",
                     number, shown(name).text);
}

// The value of a member, once.
static bool take_once(struct Scan *s, struct Piece *text, const char *twice, const char *wrong) {
    return text->text ? scan_fail(s, twice) : scan_text(s, text, wrong);
}

static int read_message(struct Line *line, struct Scan *s, struct Error *e) {
    struct Piece name, role = {0}, content = {0};
    size_t number = line->count + 1;
    bool first = true, null;
    scan_expect(s, '{', "a message is no object; expected {\"role\", \"content\"}");
    while (scan_member(s, &first, &name)) {
        const char *other = is(&name, "content") ? scan_other(s) : NULL;
        if (other)
            return error_set(e, -EINVAL, "message %zu: its content is %s; expected a text", number,
                             other);
        if (is(&name, "role"))
            take_once(s, &role, "a message has two roles", "a message's role is no text");
        else if (is(&name, "content"))
            take_once(s, &content, "a message has two contents", "a message's content is no text");
        else if (scan_skip(s, &null) && !null)
            return error_set(e, -EINVAL,
                             "message %zu has \"%s\", which is not supported; expected \"role\" "
                             "and \"content\" alone",
                             number, shown(&name).text);
    }
    if (!s->wrong && (!role.text || !content.text))
        return error_set(e, -EINVAL, "message %zu has no \"%s\"", number,
                         role.text ? "content" : "role");
    if (s->wrong)
        return -EINVAL; // told by the caller
    if (line->count == line->room) {
        line->room = line->room ? 2 * line->room : 16;
        line->messages =
            base_realloc(line->messages, line->room * sizeof *line->messages, "messages");
    }
    struct Message *m = &line->messages[line->count];
    *m = (struct Message){.text = content.text, .bytes = content.bytes};
    int err = read_role(&role, number, &m->role, e);
    line->count += !err;
    return err;
}

static int read_messages(struct Line *line, struct Scan *s, struct Error *e) {
    bool first = true;
    int err = 0;
    scan_expect(s, '[', "\"messages\" is no list");
    while (!err && scan_value(s, &first))
        err = read_message(line, s, e);
    return err;
}

static int read_member(struct Line *line, struct Scan *s, unsigned bit, struct Error *e) {
    if (bit == HAS_MESSAGES)
        return read_messages(line, s, e);
    if (bit == HAS_TEXT)
        scan_text(s, &line->text, "\"text\" is no text");
    else if (bit == HAS_PROMPT)
        scan_text(s, &line->prompt, "\"prompt\" is no text");
    else if (bit == HAS_COMPLETION)
        scan_text(s, &line->completion, "\"completion\" is no text");
    else
        scan_skip(s, NULL);
    return 0;
}

// The names of a line's members, for an error line: the first few.
struct Names {
    char text[200];
};
static void add_name(struct Names *n, const struct Piece *name) {
    size_t at = strlen(n->text);
    int left = (int)(sizeof n->text - at);
    if (snprintf(n->text + at, (size_t)left, "%s\"%s\"", at ? ", " : "", shown(name).text) >= left)
        n->text[at] = 0;
}

// Is it one of the three, whole?
static int choose_kind(struct Line *line, unsigned has, const struct Names *names,
                       struct Error *e) {
    static const char expected[] = "expected {\"text\"}, {\"prompt\", \"completion\"} or "
                                   "{\"messages\"}";
    bool answer = false;
    if (has == HAS_TEXT || has == (HAS_PROMPT | HAS_COMPLETION)) {
        line->kind = has == HAS_TEXT ? LINE_TEXT : LINE_PROMPT;
        return 0;
    }
    if (has == HAS_PROMPT || has == HAS_COMPLETION)
        return error_set(e, -EINVAL, "it has no \"%s\"; %s",
                         has == HAS_PROMPT ? "completion" : "prompt", expected);
    if (!has)
        return error_set(e, -EINVAL, "it has %s and nothing to learn from; %s",
                         *names->text ? names->text : "no member", expected);
    if (has != HAS_MESSAGES)
        return error_set(e, -EINVAL, "it is two things at once; %s", expected);
    line->kind = LINE_MESSAGES;
    for (size_t i = 0; i < line->count; i++)
        answer |= line->messages[i].role == ROLE_ASSISTANT;
    if (!line->count)
        return error_set(e, -EINVAL, "the conversation is empty");
    return answer ? 0
                  : error_set(e, -EINVAL,
                              "the conversation has no answer; expected a message of the role "
                              "assistant");
}

int line_read(struct Line *line, char *text, size_t bytes, struct Error *e) {
    struct Scan s = scan_line(text, bytes);
    struct Piece name;
    struct Names names = {{0}};
    bool first = true;
    unsigned has = 0;
    int err = 0;
    line->count = 0;
    scan_expect(&s, '{', "it is no JSON object");
    while (!err && scan_member(&s, &first, &name)) {
        unsigned bit = 0;
        for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
            bit |= is(&name, members[i].name) ? members[i].bit : 0;
        add_name(&names, &name);
        const char *other = scan_other(&s);
        if (other && !strcmp(other, "null")) // as where it is not there
            bit = 0;
        if (has & bit)
            return error_set(e, -EINVAL, "\"%s\" is there twice", shown(&name).text);
        has |= bit;
        err = read_member(line, &s, bit, e);
    }
    if (s.wrong || (!err && !scan_done(&s)))
        return error_set(e, -EINVAL, "byte %zu: %s", (size_t)(s.at - text) + 1, s.wrong);
    return err ? err : choose_kind(line, has, &names, e);
}

void line_free(struct Line *line) {
    free(line->messages);
    *line = (struct Line){0};
}
