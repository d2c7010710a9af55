// Reads the messages of a conversation from a line: see line.h.
//
// The names of OpenAI and ShareGPT are known, and OpenAI's lists of parts if all are text: those
// are joined without a separator, as templates that know parts do. Other members would change what
// is learned (tool calls, a weight, a chain of thought), so they are refused by name, unless they
// are null.
#include "data/chat/line.h"

#include <errno.h>
#include <string.h>

const char *const role_names[NROLE] = {
    [ROLE_SYSTEM] = "system",
    [ROLE_USER] = "user",
    [ROLE_ASSISTANT] = "assistant",
    [ROLE_TOOL] = "tool",
};

// Other names of roles. from_only: it is ShareGPT's, for the member "from" alone.
static const struct {
    const char *name;
    enum Role role;
    bool from_only;
} other_names[] = {
    {"developer", ROLE_SYSTEM, false}, {"human", ROLE_USER, true}, {"gpt", ROLE_ASSISTANT, true}};

static int read_role(const struct JsonSlice *name, bool is_from, size_t number, enum Role *role,
                     struct Error *e) {
    for (int r = 0; r < NROLE; r++)
        if (slice_is(name, role_names[r])) {
            *role = (enum Role)r;
            return 0;
        }
    for (size_t i = 0; i < sizeof other_names / sizeof other_names[0]; i++)
        if (slice_is(name, other_names[i].name) && (is_from || !other_names[i].from_only)) {
            *role = other_names[i].role;
            return 0;
        }
    return error_set(e, -EINVAL, E_MESSAGE_ROLE,
                     "message %zu has the unknown role \"%s\"; expected %ssystem, user, assistant "
                     "or tool",
                     number, json_shown(name->text).text, is_from ? "human, gpt, " : "");
}

// Reads the text of a member, which must not have been read before.
static bool read_once(struct Scan *s, struct JsonSlice *text, const char *twice,
                      const char *wrong) {
    return text->text ? scan_fail(s, twice) : scan_text(s, text, wrong);
}

// Reads {"type": "text", "text": ...}, and moves its text behind that of the parts before it. That
// is nearer to the front of the line, so no unread byte is overwritten.
static int read_part(struct Scan *s, struct JsonSlice *content, size_t number, struct Error *e) {
    struct JsonSlice name, type = {0}, text = {0};
    bool first = true, null;
    scan_expect(s, '{', "a part of a content is no object; expected {\"type\", \"text\"}");
    while (scan_member(s, &first, &name)) {
        if (slice_is(&name, "type"))
            read_once(s, &type, "a part has two types", "a part's type is no text");
        else if (slice_is(&name, "text") && !scan_other_type(s))
            read_once(s, &text, "a part has two texts", "a part's text is no text");
        else if (scan_skip(s, &null) && !null)
            return error_set(e, -EINVAL, E_MESSAGE_CONTENT,
                             "message %zu: a part of its content has \"%s\", which is not "
                             "supported; expected \"type\" and \"text\" alone",
                             number, json_shown(name.text).text);
    }
    if (s->wrong)
        return -EINVAL; // the caller reports it
    if (!type.text || !slice_is(&type, "text") || !text.text)
        return error_set(e, -EINVAL, E_MESSAGE_CONTENT,
                         "message %zu: a part of its content is not text; expected {\"type\": "
                         "\"text\", \"text\": ...} alone",
                         number);
    memmove(content->text + content->bytes, text.text, text.bytes);
    content->bytes += text.bytes;
    content->text[content->bytes] = 0;
    return 0;
}

// Reads a content. *null: it is null, as beside tool calls, which are refused by their own name.
static int read_content(struct Scan *s, struct JsonSlice *content, bool *null, size_t number,
                        struct Error *e) {
    const char *other = scan_other_type(s);
    bool first = true;
    int err = 0;
    if (!other || content->text) {
        read_once(s, content, "a message has two contents", "a message's content is no text");
        return 0;
    }
    if (!strcmp(other, "null")) {
        scan_skip(s, null);
        return 0;
    }
    if (!scan_consume(s, '['))
        return error_set(e, -EINVAL, E_MESSAGE_CONTENT,
                         "message %zu: its content is %s; expected a text", number, other);
    *content = (struct JsonSlice){s->at - 1, 0}; // its parts are joined from the [ on
    *content->text = 0;
    while (!err && scan_value(s, &first))
        err = read_part(s, content, number, e);
    return err;
}

struct Message *line_add_message(struct Line *line) {
    line->messages =
        base_grow(line->messages, line->count, &line->room, sizeof *line->messages, "messages");
    return &line->messages[line->count++];
}

static int read_message(struct Line *line, struct Scan *s, struct Error *e) {
    struct JsonSlice name, role = {0}, content = {0};
    size_t number = line->count + 1;
    bool first = true, null, content_is_null = false, is_from = false;
    int err = 0;
    scan_expect(s, '{', "a message is no object; expected {\"role\", \"content\"}");
    while (!err && scan_member(s, &first, &name)) {
        if (slice_is(&name, "role") || slice_is(&name, "from")) {
            read_once(s, &role, "a message has two roles", "a message's role is no text");
            is_from = slice_is(&name, "from");
        } else if (slice_is(&name, "content") || slice_is(&name, "value")) {
            err = read_content(s, &content, &content_is_null, number, e);
        } else if (scan_skip(s, &null) && !null) {
            return error_set(e, -EINVAL, E_MESSAGE_MEMBER,
                             "message %zu has \"%s\", which is not supported; expected \"role\" "
                             "and \"content\" alone",
                             number, json_shown(name.text).text);
        }
    }
    if (err || s->wrong)
        return err ? err : -EINVAL; // the caller reports it
    if (!content.text && content_is_null)
        return error_set(e, -EINVAL, E_MESSAGE_CONTENT,
                         "message %zu: its content is null; expected a text", number);
    if (!role.text || !content.text)
        return error_set(e, -EINVAL, E_MESSAGE_MEMBER, "message %zu has no \"%s\"; add it", number,
                         role.text ? "content" : "role");
    struct Message m = {.text = content.text, .bytes = content.bytes};
    err = read_role(&role, is_from, number, &m.role, e);
    if (!err)
        *line_add_message(line) = m;
    return err;
}

int line_read_messages(struct Line *line, struct Scan *s, struct Error *e) {
    bool first = true;
    int err = 0;
    scan_expect(s, '[', "the messages are no list");
    while (!err && scan_value(s, &first))
        err = read_message(line, s, e);
    return err;
}
